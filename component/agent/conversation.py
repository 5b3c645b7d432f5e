"""One conversation: runs the turns of its requests one after another, in order.

A turn runs, waits to run, or is parked: it waits for tasks, or for the time of its answer, as a row
that survives a restart of the process. All changes of a conversation's turns are made here.
"""

from collections import deque
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import anyio
import msgspec
import structlog

from component.agent import rows, sentences
from component.agent.completions import LONGEST_DELAY_S, directed
from component.agent.drafts import Draft, draft_id
from component.agent.engine import Answered
from component.agent.protocol import Away, Profile
from component.agent.requests import (
    Outcome,
    OutcomeKind,
    Resumption,
    SentFile,
    Starter,
    TurnRequest,
    WorkStarter,
    without_overheard,
)
from component.agent.revisions import Revisions
from component.agent.rows import Wait
from component.agent.run import TurnInput
from component.agent.tool_calls import Parked
from component.memory_directory.layout import SessionKey
from component.policy.taint import Taint
from component.store import StorageError, waiters
from component.store.database import Database
from component.store.outages import log_failure
from component.system import monotonic
from xep.jid import JID

if TYPE_CHECKING:
    from component.agent.conversations import Conversations

_log = structlog.get_logger("component.agent")

FIRST_WAIT_S: Final = 1.0
"""Seconds until an operation is retried after a storage failure; they double each time."""
LONGEST_WAIT_S: Final = 60.0
RESTARTS: Final = 3
"""How often in a turn a call of the model is cancelled because a message arrived."""
_TOLD_AT_TRY: Final = 2
"""Number of failed attempts to reach the storage after which the person gets a message."""


class SentMessage(msgspec.Struct, frozen=True):
    """A message that is corrected or removed: by its sender, which is an occupant in a room, or by
    a moderator, for whom it may be that of `anybody`.

    Its id is the one that its sender has chosen, or in a room the one that the room gave it.
    """

    id: str
    by: str = ""
    anybody: bool = False

    def is_of(self, request: TurnRequest) -> bool:
        """Whether it is the message of a request."""
        room = request.room
        if room is None:
            return request.msg_id == self.id and not self.by
        is_theirs = self.anybody or room.occupant == self.by
        return is_theirs and self.id in (request.msg_id, room.stanza_id)


class Fetching:
    """Files of a turn are being fetched: `scope` stops that, and `done` says that it has ended."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.done = anyio.Event()


class Turn(msgspec.Struct, eq=False):
    """A turn that waits to run, or runs.

    `stored` says that its row is on disk, and that it is not delayed by a storage failure.
    `resumption` is why it runs again, if it started before. `joined` are requests that get the same
    answer. `tries` counts storage failures. `fetching` is what fetches files of its messages now.
    """

    request: TurnRequest
    stored: bool = False
    resumption: Resumption | None = None
    joined: list[TurnRequest] = msgspec.field(default_factory=list)
    tries: int = 0
    fetching: Fetching | None = None

    @property
    def id(self) -> str:
        """The id of its first request."""
        return self.request.id

    @property
    def starter(self) -> Starter:
        """What starts or continues it now."""
        return self.request.starter if self.resumption is None else self.resumption

    @property
    def requests(self) -> list[TurnRequest]:
        """All requests that it answers, in order."""
        return [self.request, *self.joined]

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of its rows, its own first."""
        return (self.id, *(one.id for one in self.joined))

    @property
    def is_fresh(self) -> bool:
        """Whether it is on disk and has not started."""
        return self.stored and not (self.resumption or self.joined or self.tries)

    @property
    def is_ready(self) -> bool:
        """Whether it is on disk, all of its requests are labelled, and their files were fetched."""
        labelled = not self.request.needs_label and not (self.joined and self.unlabelled)
        return self.stored and labelled and not self.awaits_files

    @property
    def awaits_files(self) -> bool:
        """Whether files of its messages were not fetched yet, or that is not stored yet."""
        return self.fetching is not None or any(one.awaits_files for one in self.requests)

    @property
    def is_retracted(self) -> bool:
        """Whether all of its messages were retracted after it had begun."""
        return not any(one.text for one in self.requests)

    def sent_as(self, sent: SentMessage) -> TurnRequest | None:
        """Return its request that is this message."""
        return next((one for one in self.requests if sent.is_of(one)), None)

    def set_text(self, request: str, text: str) -> TurnRequest:
        """Set the text of one of its requests, and return it."""
        found = next(one for one in self.requests if one.id == request)
        return self.replace(msgspec.structs.replace(found, text=text))

    def replace(self, request: TurnRequest) -> TurnRequest:
        """Put a request in the place of that with the same id, and return it."""
        self.request = request if self.id == request.id else self.request
        self.joined = [request if one.id == request.id else one for one in self.joined]
        return request

    def set_files(self, request: str, files: tuple[SentFile, ...]) -> TurnRequest:
        """Set the files of one of its requests, which were fetched, and return it."""

        found = next(one for one in self.requests if one.id == request)
        return self.replace(msgspec.structs.replace(found, files=files))

    @property
    def unlabelled(self) -> list[TurnRequest]:
        """Its requests that have no label yet."""
        return [one for one in self.requests if one.needs_label]

    def label(self, requester: JID, taint: Taint) -> None:
        """Label the requests of one sender that have no label."""

        def labelled(one: TurnRequest) -> TurnRequest:
            theirs = one.needs_label and one.requester == requester
            return msgspec.structs.replace(one, taint=taint) if theirs else one

        self.request = labelled(self.request)
        self.joined = [labelled(one) for one in self.joined]

    def joins(self, other: "Turn") -> bool:
        """Whether a waiting turn can join this one."""
        return self.request.belongs_with(other.request) and other.is_ready and not other.resumption


class ParkedTurns:
    """The parked turns of one conversation, which wait for tasks or for the time of their answer.

    They wait as rows, and continue on the instance that has the conversation.
    """

    def __init__(self, conversation: "Conversation", conversations: "Conversations") -> None:
        self._conversation = conversation
        self._shared = conversations
        self._turns: dict[str, tuple[str, ...]] = {}
        self._writing: Sequence[str] = ()
        """The tasks that the running turn will wait for, while its row is being written."""
        self._missed = False
        """Whether one of them has ended in the meantime."""

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the turns, the one that has waited longest first."""
        return tuple(self._turns)

    async def until_ended(self, turn: str, tasks: tuple[str, ...]) -> bool:
        """Park a turn until one of these tasks ends; False if one has already ended, and the turn
        continues immediately. Raises StorageError.
        """
        shared, left = self._shared, None

        def op(database: Database) -> int:
            rows.wait(database, (turn,), Wait(tasks=tasks))
            return waiters.wait_for(database, turn, tasks, shared.home)

        # Set before the row is written, so that the end of a task is not missed.
        self._writing, self._missed = tasks, False
        shared.awaited.update(dict.fromkeys(tasks, self))
        try:
            left = await shared.storage.write(op)
        finally:
            self._writing = ()
            if left is None:
                self._await_no_longer(tasks)
        self._turns[turn] = tasks
        waits = not self._missed and left == len(set(tasks))
        if not waits:
            shared.spawn(self._wake, turn)
        return waits

    async def until(self, turn: str, until: int) -> None:
        """Park a turn until a time, in milliseconds since 1970. Raises StorageError."""
        write = partial(rows.wait, turns=(turn,), wait=Wait(until=until))
        await self._shared.storage.write(write)
        self.add_until(turn, until)

    def add_until(self, turn: str, until: int) -> None:
        """Park a turn whose row already has the time."""
        self._turns[turn] = ()
        self._shared.spawn(self._wake_at, turn, until)

    def task_ended(self, task: str) -> None:
        """Continue the turns that wait for a task."""
        if task in self._writing:
            self._missed = True
        for turn in [one for one, tasks in self._turns.items() if task in tasks]:
            self._shared.spawn(self._wake, turn)

    async def take(self, turn: str) -> Turn | None:
        """Remove and return a parked turn; None if it is not parked. Raises StorageError."""
        found = await self.read(turn)
        tasks = self._turns.pop(turn, None)
        if tasks is None:
            return None
        self._await_no_longer(tasks)
        if found is None:
            self._conversation.look()
        return found

    async def read(self, turn: str) -> Turn | None:
        """Return a parked turn as its rows have it; None if it has none. Raises StorageError."""
        shared = self._shared
        found = await shared.storage.read(partial(rows.of_turn, home=shared.home, turn=turn))
        mine = next((row for row in found if row.request.id == turn), None)
        if mine is None:
            return None
        is_due = mine.wait is not None and mine.wait.until is not None
        return Turn(
            mine.request,
            stored=True,
            resumption=Resumption("time" if is_due else "task"),
            joined=[row.request for row in found if row is not mine],
        )

    async def _wake_at(self, turn: str, until: int) -> None:
        # If the clock was set back, the answer is still not later than the maximum delay.
        left_s = (until - self._shared.clock()) / 1000
        await anyio.sleep(min(max(0.0, left_s), LONGEST_DELAY_S))
        await self._wake(turn)

    async def _wake(self, turn: str) -> None:
        """Continue a turn as soon as its rows can be read."""
        wait = FIRST_WAIT_S
        while True:
            try:
                found = await self.take(turn)
            except StorageError as error:
                log_failure(_log, "a turn has to wait", error, turn=turn, seconds=wait)
            else:
                if found is not None:
                    self._conversation.add(found, first=True)
                return
            await anyio.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT_S)

    def _await_no_longer(self, tasks: Sequence[str]) -> None:
        for task in tasks:
            if self._shared.awaited.get(task) is self:
                del self._shared.awaited[task]


class _Running:
    """The running turn. `done` is set when it has stopped running."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.scope = anyio.CancelScope()
        self.is_stopped = False
        self.is_recorded = True
        """Whether its end is recorded, if it was stopped."""
        self.done = anyio.Event()
        self.model_call: anyio.CancelScope | None = None
        self.restarts = 0
        self.revisions = Revisions()
        self.draft: Draft | None = None
        if turn.resumption is None:
            self.revisions.known.set()

    @property
    def corrects(self) -> str:
        """The id of the draft that the answer corrects; empty if there is none."""
        return draft_id(self.turn.id) if self.turn.request.drafted else ""

    def stop(self) -> None:
        self.is_stopped = True
        self.scope.cancel()


class Stopped(NamedTuple):
    """How many turns were stopped, and whether that is recorded: if not, they go on if the service
    is started again before it is.
    """

    turns: int
    are_recorded: bool


class Conversation:
    """Runs the turns of one conversation, when the scheduler lets it, one at a time.

    Requests join the running turn if they belong to the same exchange. They join in order, before a
    call of the model; a running call is cancelled for them, at most `RESTARTS` times.

    Args:
        conversations: all conversations, and what they share.

    Attributes:
        waiting: the turns that wait to run, the next one first.
        parked: the turns that wait for tasks, or for the time of their answer.
    """

    def __init__(self, key: SessionKey, conversations: "Conversations") -> None:
        self.key = key
        self.waiting: deque[Turn] = deque()
        self.parked = ParkedTurns(self, conversations)
        self._asking: set[str] = set()
        """The parked turns that have asked the person something."""
        self._shared = conversations
        self._running: _Running | None = None
        self._holds = 0
        self._revisions = 0

    @property
    def party(self) -> str:
        """Who waits for the next turn."""
        return (self._next() or self.waiting[0]).request.party

    @property
    def is_running(self) -> bool:
        """Whether a turn is running."""
        return self._running is not None

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do, and nothing to wait for."""
        busy = self._running or self._holds or self._revisions
        return not (busy or self.waiting or self.parked.ids)

    # Turns that wait.

    def add(self, turn: Turn, *, first: bool = False) -> None:
        """Queue a turn, after all others, or before them if `first`."""
        self._shared.senders.label(turn, self.look)
        if first:
            self.waiting.appendleft(turn)
        else:
            self.waiting.append(turn)
        self._shared.scheduler.added(turn.request.party)
        self.fetch(turn)
        self.look()

    def fetch(self, turn: Turn) -> None:
        """Fetch the files of a waiting turn in the background; it is ready when that has ended."""
        if turn.awaits_files and turn.fetching is None and self._shared.is_running:
            turn.fetching = Fetching()
            self._shared.spawn(self._fetch, turn, turn.fetching)

    async def _fetch(self, turn: Turn, fetching: Fetching) -> None:
        shared = self._shared
        try:
            with fetching.scope:
                for request in [one for one in turn.requests if one.awaits_files]:
                    files = await shared.fetched(self.key, request)
                    changed = turn.set_files(request.id, files)
                    await shared.storage.write(partial(rows.revise, request=changed))
        except StorageError as error:  # after a kill they are fetched again
            log_failure(_log, "it cannot be stored that files were fetched", error, turn=turn.id)
        finally:
            turn.fetching = None
            fetching.done.set()
            if fetching.scope.cancel_called and turn in self.waiting:
                self.fetch(turn)  # it was taken out, and is back
            self.look()

    def remove(self, turn: Turn) -> bool:
        """Remove a turn from the queue; False if it is not in it."""
        try:
            self.waiting.remove(turn)
        except ValueError:
            return False
        if turn.fetching is not None:
            turn.fetching.scope.cancel()
        self._shared.scheduler.removed(turn.request.party)
        self.look()
        return True

    def look(self) -> None:
        """Start the next turn, or let it join the running one, if possible.

        Every method that changes the conversation calls this afterwards.
        """
        if self._next() is not None:
            if self._running is not None:
                self._interrupt(self._running)
            elif not self._holds:
                self._shared.scheduler.ready(self)
        if self.is_idle:
            self._shared.drop(self)

    def _next(self) -> Turn | None:
        """Return the turn that can begin next. A turn that waits for files lets those of other
        senders pass, who may be in the same room.
        """
        passed: set[JID] = set()
        for turn in self.waiting:
            if turn.request.requester in passed:
                continue
            if turn.is_ready:
                return turn
            if not turn.awaits_files:
                return None
            passed.add(turn.request.requester)
        return None

    async def revise(self, sent: SentMessage, text: str | None) -> bool:
        """See `Conversations.revised`."""
        turn = next((one for one in reversed(self.waiting) if one.sent_as(sent)), None)
        running = self._running
        if turn is None and running is not None and running.turn.sent_as(sent) is not None:
            return await self._revise_running(running, sent, text or "")
        if turn is None:
            return await self._revise_parked(sent, text or "")
        if not turn.is_fresh:
            return await self._revise_begun(turn, sent, text or "")
        before = turn.request.text
        self._revisions += 1
        if text is not None:
            turn.request = msgspec.structs.replace(turn.request, text=text)
            write = partial(rows.revise, request=turn.request)
        else:
            self.remove(turn)
            write = partial(rows.delete, turns=turn.ids)
        try:
            await self._shared.storage.write(write)
        except BaseException:
            # The request may have got its label in the meantime.
            turn.request = msgspec.structs.replace(turn.request, text=before)
            if text is None:
                self.add(turn, first=True)
            raise
        finally:
            self._revisions -= 1
            self.look()
        return True

    async def _revise_running(self, running: _Running, sent: SentMessage, text: str) -> bool:
        if not running.revisions.known.is_set():
            await running.revisions.known.wait()
        turn, request = running.turn, running.turn.sent_as(sent)
        assert request is not None, "its caller has found it"
        if self._running is not running:  # it has ended or waits in the meantime
            return await self.revise(sent, text or None)
        if running.is_stopped or running.revisions.is_too_late(request.id):
            return False
        with running.revisions.writing():
            self._interrupt(running)
            await self._store_text(request, text)
            running.revisions.add(turn.set_text(request.id, text))
            if turn.is_retracted:
                running.stop()
        return True

    async def _revise_begun(self, turn: Turn, sent: SentMessage, text: str) -> bool:
        """Revise a message of a turn that has begun and waits to go on, such as after a restart."""
        request = turn.sent_as(sent)
        if request is None or turn.resumption is None:
            return False  # its own row is not on disk yet
        self._holds += 1
        try:
            if not await self._retract_calls(turn, request):
                return False
            await self._store_text(request, text)
            self._show_revised(turn.set_text(request.id, text))
        finally:
            self._holds -= 1
            self.look()
        return True

    def _show_revised(self, request: TurnRequest) -> None:
        """Let the running turn show the new text of a message of another turn, which it may show
        among the earlier messages.
        """
        if self._running is not None:
            self._running.revisions.add(request)
            self._interrupt(self._running)

    async def _revise_parked(self, sent: SentMessage, text: str) -> bool:
        """Revise a message of a turn that waits for tasks: it continues with the new text."""
        self._holds += 1
        try:
            for parked in reversed(self.parked.ids):
                turn = await self.parked.read(parked)
                request = None if turn is None else turn.sent_as(sent)
                if turn is None or request is None:
                    continue
                if not await self._retract_calls(turn, request):
                    return False
                await self._store_text(request, text)
                self._show_revised(turn.set_text(request.id, text))
                found = await self.parked.take(parked)
                if found is not None:
                    self.add(found, first=True)
                # It may have been continued before the text was stored.
                for waiting in self.waiting:
                    if waiting.id == parked:
                        waiting.set_text(request.id, text)
                return True
        finally:
            self._holds -= 1
            self.look()
        return False

    async def remove_messages(self, ids: Collection[str]) -> None:
        """See `Conversations.removed`."""
        self._revisions += 1
        try:
            for sent in [SentMessage(one, anybody=True) for one in ids]:
                if not await self.revise(sent, None) and (turn := await self._turn_with(sent)):
                    await self.stop_turn(turn)  # it has acted on the message already
            await self._remove_overheard(ids)
            sessions = self._shared.engine.sessions
            lines = (await sessions.read(self.key)).without_messages(ids, await self._active())
            if lines:
                await sessions.append(self.key, lines, sync=True)
        finally:
            self._revisions -= 1
            self.look()

    async def _turn_with(self, sent: SentMessage) -> str | None:
        turns = await self._turns()
        return next((one.id for one in turns if one.sent_as(sent) is not None), None)

    async def _active(self) -> set[str]:
        """Return the ids of the requests of all turns that have not ended: they have the lines of
        these corrected themselves.
        """
        return {one.id for turn in await self._turns() for one in turn.requests}

    async def _turns(self) -> list[Turn]:
        running = () if self._running is None else (self._running.turn,)
        parked = [await self.parked.read(one) for one in self.parked.ids]
        return [*self.waiting, *running, *(one for one in parked if one is not None)]

    async def _remove_overheard(self, ids: Collection[str]) -> None:
        """Remove messages from what turns that have not ended show before their own message."""
        for turn in await self._turns():
            for request in turn.requests:
                changed = without_overheard(request, ids)
                if changed is request:
                    continue
                running = self._running
                if running is None or running.turn is not turn:
                    await self._shared.storage.write(partial(rows.revise, request=changed))
                    turn.replace(changed)
                    continue
                with running.revisions.writing():
                    self._interrupt(running)
                    await self._shared.storage.write(partial(rows.revise, request=changed))
                    running.revisions.add(turn.replace(changed))

    async def _retract_calls(self, turn: Turn, request: TurnRequest) -> bool:
        """Withdraw the calls that a message has caused; False if one has done something."""
        profile = await self._shared.ports.profiles(self.key, turn.request)
        if isinstance(profile, Away):
            profile = profile.begun or Profile(agent=self.key.agent)
        return await self._shared.engine.retract(self._ask(turn, profile), request.id)

    async def _store_text(self, request: TurnRequest, text: str) -> None:
        changed = msgspec.structs.replace(request, text=text)
        await self._shared.storage.write(partial(rows.revise, request=changed))

    # The running turn, as the scheduler sees it.

    def begin(self) -> bool:
        """Take the next turn; False if there is none that can begin."""
        if self._running is not None or self._holds:
            return False
        turn = self._next()
        if turn is None:
            return False
        self.waiting.remove(turn)
        self._shared.scheduler.removed(turn.request.party)
        self._running = _Running(turn)
        return True

    async def work(self) -> None:
        """Run the turn that `begin` has taken until it ends or is parked."""
        running, shared = self._running, self._shared
        assert running is not None, "the scheduler calls begin first"
        turn, began, outcome = running.turn, monotonic(), Outcome("failed", sentences.BROKE)
        try:
            with running.scope:
                outcome = await self._run(running)
            if running.scope.cancelled_caught and running.is_stopped:
                outcome = Outcome("stopped")
                self._end_draft(running, sentences.STOPPED)
                running.is_recorded = await self._end(turn)
        except StorageError as error:
            outcome = Outcome("postponed", str(error))
            self._postpone(turn, error)
        except Exception:  # noqa: BLE001 - a fault of the service must not end everybody's conversations
            _log.exception("a message cannot be answered", turn=turn.id)
            await self._conclude(turn, outcome, keep_trying=True)
            shared.delivery.answer(turn.requests, sentences.BROKE, corrects=running.corrects)
        finally:
            self._running = None
            running.revisions.known.set()
            self.look()
            running.done.set()
            shared.engine.model_calls.observer.turn(
                self.key.agent, outcome.kind, monotonic() - began
            )
            self._shared.turn_ended(turn.id, outcome)

    async def _run(self, running: _Running) -> Outcome:
        turn, shared = running.turn, self._shared
        if turn.is_retracted:
            await self._end(turn)
            return Outcome("stopped")
        profile = await shared.ports.profiles(self.key, turn.request)
        if isinstance(profile, Away) and turn.resumption:
            profile = profile.begun or profile
        if isinstance(profile, Away):
            if turn.resumption:  # a question of its earlier run may still be open
                gone = Profile(agent=self.key.agent)
                await shared.engine.stop(self._ask(turn, gone))
            away = Outcome("away", profile.sentence)
            await self._conclude(turn, away)
            shared.delivery.answer(turn.requests, profile.sentence)
            return away
        shared.delivery.composing(turn.request, True)
        running.draft = shared.delivery.draft(turn.request, partial(self._drafted, turn))
        ask = self._ask(turn, profile, interruptible=True)
        try:
            answer = await shared.engine.turn(ask)
        except StorageError:
            raise
        except Exception:  # noqa: BLE001 - any failure ends this turn only, with a sentence
            _log.exception("a turn failed", turn=ask.id, agent=self.key.agent)
            answer = await shared.engine.broke(ask, sentences.BROKE)
        if isinstance(answer, Parked):
            return await self._park(running, answer)
        return await self._answer(running, answer)

    def _ask(self, turn: Turn, profile: Profile, *, interruptible: bool = False) -> TurnInput:
        def notice(sentence: str) -> None:
            self._shared.delivery.mention(turn.request, "notice", sentence)

        held = self.parked.ids
        return TurnInput(
            id=turn.id,
            key=self.key,
            profile=profile.limited(turn.request.rights),
            messages=turn.requests,
            starter=turn.starter,
            resumed=turn.resumption is not None,
            interrupts=self if interruptible else None,
            notice=notice,
            held=held,
            may_archive=not held,
        )

    async def _answer(self, running: _Running, answer: Answered) -> Outcome:
        turn, said, delivery = running.turn, directed(answer.text), self._shared.delivery
        if answer.stopped:
            await self._conclude(turn, Outcome("stopped"))
            delivery.composing(turn.request, False)
            delivery.answered(turn.ids)
            return Outcome("stopped")
        if said.silent or not (said.text.strip() or answer.files):
            await self._conclude(turn, Outcome("silent"))
            delivery.composing(turn.request, False)
            self._end_draft(running, sentences.NOTHING_MORE)
            delivery.answered(turn.ids)
            return Outcome("silent")
        is_due = turn.resumption is not None and turn.resumption.cause == "time"
        if said.delay_s and not is_due:
            until = self._shared.clock() + round(said.delay_s * 1000)
            await self.parked.until(turn.id, until)
            delivery.composing(turn.request, False)
            return Outcome("delayed", said.text)
        kind: OutcomeKind = "excused" if answer.excused else "answered"
        outcome = Outcome(kind, said.text, answer.files, answer.taints)
        await self._conclude(turn, outcome)
        delivery.answer(turn.requests, said.text, answer.files, running.corrects)
        return outcome

    def _end_draft(self, running: _Running, sentence: str) -> None:
        """Put a sentence in the place of a draft that no answer follows now."""
        if running.corrects:
            request = running.turn.request
            self._shared.delivery.mention(request, "draft-end", sentence, running.corrects)

    def _drafted(self, turn: Turn) -> None:
        """Note that the first draft of a turn was sent, so that its answer corrects it also after a
        restart.
        """
        turn.replace(msgspec.structs.replace(turn.request, drafted=True))
        self._shared.spawn(self._note_draft, turn.id)

    async def _note_draft(self, turn: str) -> None:
        try:
            await self._shared.storage.write(partial(rows.note_draft, turn=turn))
        except StorageError as error:
            log_failure(_log, "a draft cannot be recorded", error, turn=turn)

    async def _conclude(self, turn: Turn, outcome: Outcome, *, keep_trying: bool = False) -> None:
        """Record the outcome of a turn that a task waits for. Raises StorageError, unless
        `keep_trying`.
        """
        if isinstance(turn.request.starter, WorkStarter):
            write = partial(rows.conclude, turn=turn.id, outcome=outcome)
            await self._shared.storage.write(write, keep_trying=keep_trying)
            self._shared.ports.concluded()

    def _postpone(self, turn: Turn, error: StorageError) -> None:
        wait = min(FIRST_WAIT_S * 2**turn.tries, LONGEST_WAIT_S)
        log_failure(_log, "a turn has to wait", error, turn=turn.id, seconds=wait)
        turn.tries += 1
        if turn.tries == _TOLD_AT_TRY:
            self._shared.delivery.mention(turn.request, "no-disk", sentences.NO_DISK)
        turn.resumption = turn.resumption or Resumption("storage")
        turn.stored = False
        self.add(turn, first=True)

        async def again() -> None:
            await anyio.sleep(wait)
            turn.stored = True
            self.look()

        self._shared.spawn(again)

    # What joins the running turn.

    @contextmanager
    def interruptible(self) -> Iterator[anyio.CancelScope]:
        """A scope for a call of the model; requests that are already waiting cancel it
        immediately.
        """
        running = self._running
        assert running is not None, "a turn of this conversation calls its model"
        with anyio.CancelScope() as scope:
            running.model_call = scope
            try:
                self._interrupt(running)
                yield scope
            finally:
                running.model_call = None

    @property
    def draft(self) -> Draft | None:
        """The answer of the running turn as far as it is written, where drafts are shown."""
        return None if self._running is None else self._running.draft

    @property
    def revisions(self) -> Revisions:
        """The corrections of messages of the running turn."""
        assert self._running is not None, "its turn asks for them"
        return self._running.revisions

    def more(self) -> bool:
        """Whether there are requests that can join the running turn."""
        running = self._running
        return running is not None and bool(self.waiting) and running.turn.joins(self.waiting[0])

    async def take(self) -> Sequence[TurnRequest]:
        """Let these requests join the running turn. Raises StorageError."""
        running = self._running
        assert running is not None, "its turn asks for them"
        turn, joining = running.turn, list[Turn]()
        for one in self.waiting:
            if not turn.joins(one):
                break
            joining.append(one)
        ids, wait = [one.id for one in joining], Wait(joined=turn.id)
        await self._shared.storage.write(partial(rows.wait, turns=ids, wait=wait))
        if running.is_stopped:  # they would end with it; they have turns of their own
            return ()
        # One that was retracted or stopped in the meantime is not in the queue any more.
        joined = [one.request for one in joining if self.remove(one)]
        turn.joined += joined
        return joined

    def _interrupt(self, running: _Running) -> None:
        """Cancel the call of the model if one of its messages was corrected, or if requests wait
        that can join the turn.
        """
        scope = running.model_call
        if scope is None or scope.cancel_called:
            return
        if running.revisions.waiting:
            scope.cancel()
        elif running.restarts < RESTARTS and self.more():
            running.restarts += 1
            scope.cancel()

    async def _park(self, running: _Running, parked: Parked) -> Outcome:
        turn, delivery = running.turn, self._shared.delivery
        waits = await self.parked.until_ended(turn.id, parked.tasks)
        delivery.composing(turn.request, False)
        # After a question the person would think that this is about their answer.
        self._asking.intersection_update(self.parked.ids)
        sentence = ""
        if parked.question:
            self._asking.add(turn.id)
            is_elsewhere = parked.room != turn.request.conversation.peer
            if turn.request.room is not None and parked.new and is_elsewhere:
                sentence = sentences.ASKED  # others do not see the question
        elif waits and parked.new and not self._asking:
            sentence = sentences.STILL_AT_IT
        if sentence:
            what = f"waits-{parked.round}"
            delivery.mention(turn.request, what, sentence, running.corrects)
        return Outcome("asked" if parked.question else "parked")

    # Stops.

    @asynccontextmanager
    async def stopped(self) -> AsyncIterator[Stopped]:
        """Stop all turns, and start none within the context."""
        self._holds += 1
        count, are_recorded = 0, True
        try:
            running = self._running
            if running is not None:
                running.stop()
                await running.done.wait()
                are_recorded = running.is_recorded
                count += 1
            for turn in [one for one in self.waiting if one.stored or one.resumption]:
                # Somebody else may be stopping the same conversation.
                fetching = turn.fetching
                if self.remove(turn):
                    if fetching is not None:
                        await fetching.done.wait()
                    are_recorded &= await self._end_or_keep(turn)
                    count += 1
            for parked in self.parked.ids:
                found = await self.parked.take(parked)
                if found is not None:
                    are_recorded &= await self._end_or_keep(found)
                    count += 1
            yield Stopped(count, are_recorded)
        finally:
            self._holds -= 1
            self.look()

    async def stop_turn(self, turn: str) -> bool:
        """Stop one turn; False if it is not here. Raises StorageError."""
        running = self._running
        if running is not None and running.turn.id == turn:
            running.stop()
            await running.done.wait()
            return True
        found = next((one for one in self.waiting if one.id == turn), None)
        if found is None and turn in self.parked.ids:
            found = await self.parked.take(turn)
        elif found is not None and not self.remove(found):
            found = None
        if found is None:
            return False
        await self._end_or_keep(found)
        self.look()
        return True

    async def _end_or_keep(self, turn: Turn) -> bool:
        """End a turn that was taken out of the queue; if that fails, it is queued again. Returns
        whether the end is recorded.
        """
        try:
            is_recorded = await self._end(turn)
        except BaseException:  # most likely the caller that wanted the stop is gone
            turn.resumption = turn.resumption or Resumption("storage")
            self.add(turn, first=True)
            raise
        self._shared.turn_ended(turn.id, Outcome("stopped"))
        return is_recorded

    async def _end(self, turn: Turn) -> bool:
        """End a turn; return whether that is recorded."""
        shared, is_recorded = self._shared, True
        shared.delivery.composing(turn.request, False)
        shared.senders.label_now(turn)
        try:
            profile = await shared.ports.profiles(self.key, turn.request)
            if isinstance(profile, Away):
                profile = Profile(agent=self.key.agent)
            await shared.engine.stop(self._ask(turn, profile))
        except StorageError as error:
            is_recorded = False
            log_failure(_log, "a stop cannot be recorded", error, turn=turn.id)
        await self._conclude(turn, Outcome("stopped"), keep_trying=True)
        shared.delivery.answered(turn.ids)
        return is_recorded

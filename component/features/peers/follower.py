"""Sends one call of a skill of a peer, and follows the peer's task to its end.

A follower sends the stored request, always with the same bytes, until the peer has answered. Then
it follows the peer's task by its events, and asks for the task when an event may have been lost:
after each new session, once a minute, and when more events have come than it looks at. What the
peer asks wakes the task here; its progress and the parts of its artifacts are reported by the task
here, whose skill does not run meanwhile.

What a peer sends is bounded: events are looked at a few times a second, its task is asked for once
a second, and a peer that asks too much, or something that cannot be, ends the call.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias

import anyio
import msgspec
import structlog

from component import system
from component.config.peers import Peer
from component.features.peers import asked, grant_rows, rows
from component.features.peers.artifacts import Received
from component.features.peers.asked import Asked
from component.features.peers.grants import PeerGrants
from component.features.peers.reach import Reach
from component.features.peers.receipts import Receipts
from component.features.peers.requests import failure_of, revoked
from component.features.peers.rows import Call
from component.kernel.kernel import Kernel
from component.link.router.calls import NoAnswerError
from component.policy.globs import pattern
from component.store.database import Database
from component.store.errors import StorageError
from component.store.outages import log_failure
from component.tasks.rows import parts_of
from xep.binding import encode, read
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Confirm, Decision
from xep.fluux_agent.errors import GrantRequired, Retry, UnknownSkill
from xep.fluux_agent.execute import Accepted, Execute, Output, Result
from xep.fluux_agent.task import Cancel, Failure, InputAnswer, Progress, Task, Tasks
from xep.jid import JID
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.features.peers")

_POLL_S: Final = 60.0
_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 60.0
_LONGEST_RETRY_S: Final = 600.0
_GRACE_MS: Final = 30_000
"""How far clocks of different servers may differ."""
_LOOK_S: Final = 0.25
"""The minimum number of seconds between two reports of what a peer has done."""
_ASK_S: Final = 1.0
"""The minimum number of seconds between two requests for the same task of a peer."""
_MOST_NEWS: Final = 100
"""The maximum number of events that wait; if more have come, the task is asked for."""
_MOST_QUESTIONS: Final = 50
_ENDS: Final = ("completed", "failed", "rejected", "cancelled")

_Ask: TypeAlias = Callable[..., Awaitable[Any]]


class Misbehaved(Exception):  # noqa: N818 - it says what the peer has done
    """A peer has sent what cannot be. The text says what it is."""


class Follower:
    """Sends one call, and follows it to its end.

    Attributes:
        call: the id of the call.
        task: the task here that waits for it.
        address: the bare address of the peer.
        is_started: whether `run` was started.
        is_unsure: whether the peer may have got the request.
        is_behind: whether an event may have been lost, so that the peer has to be asked.
        has_missed: whether a question may have been lost of a task that the peer's task has
            started.
    """

    def __init__(
        self, kernel: Kernel, grants: PeerGrants, receipts: Receipts, reach: Reach, call: Call
    ) -> None:
        self.call = call.id
        self.task = call.task
        self.address = JID.parse(call.address)
        self.is_started = False
        self.is_unsure = False
        self.is_behind = True
        self.has_missed = False
        self._kernel, self._storage = kernel, kernel.storage
        self._service = kernel.tasks.service
        self._grants, self._receipts, self._reach = grants, receipts, reach
        self._is_own = kernel.stream.addresses.is_own
        self._changed = anyio.Event()
        self._unwanted = anyio.Event()
        self._news: list[Asked] = []
        self._revision = -1
        self._began = anyio.current_time()
        self._look_at = self._ask_at = self._cancel_at = self._began
        self._poll_at = self._began + _POLL_S
        self._wait = _FIRST_WAIT_S

    def wake(self) -> None:
        """Look again what has to be done."""
        self._changed.set()

    def stop(self) -> None:
        """Note that the task which waits for the call has ended."""
        self._unwanted.set()
        self.wake()

    def missed(self) -> None:
        """Note that events may have been lost."""
        self.is_behind = self.has_missed = True
        self._cancel_at = anyio.current_time()
        self.wake()

    def reported(self, news: Asked) -> None:
        """Take an event of the peer's task, or of one that it has started for it."""
        if len(self._news) >= _MOST_NEWS:
            self.is_behind = self.has_missed = True
            return
        self._news.append(news)
        if len(self._news) == 1 or self._is_news_due():  # else `run` waits for their time
            self.wake()

    async def run(self) -> None:
        """Do what the call needs until it has ended."""
        while True:
            self._changed = anyio.Event()
            try:
                delay = await self._step()
            except StorageError as error:
                log_failure(_log, "a call of a peer has to wait", error)
                delay = self._next_wait()
            if delay is None:
                return
            with anyio.move_on_after(delay):
                await self._changed.wait()

    async def _step(self) -> float | None:
        """Do one thing; return the seconds until the next one, None at the end."""
        call, is_wanted, now = await self._storage.read(self._load)
        if call is None or call.state == "ended" or call.owner != self._service.instance:
            return None
        if not self._reach.is_connected.is_set():
            with anyio.move_on_after(_LONGEST_WAIT_S):
                await self._reach.is_connected.wait()
            return 0.0
        if self._peer_of(call) is None:
            return await self._leave(call, "The settings of this agent do not permit this call now")
        if now > call.deadline + _GRACE_MS:
            await self._give_up(call, errors.deadline_expired())
            return None
        try:
            if self._is_news_due():
                news, self._news = self._news, []
                self._look_at = anyio.current_time() + _LOOK_S
                await self._take(call, news)
                return 0.0
            delay = await self._talk(call, is_wanted=is_wanted)
            self._reach.answered(call.peer)
        except Misbehaved as error:
            self.is_unsure = True
            _log.warning("ended a call of a peer", peer=call.peer, call=call.id, reason=str(error))
            return await self._leave(call, f"{call.peer} has sent {error}")
        except NoAnswerError:
            self.is_unsure = True
            self._reach.failed(call.peer)
            return self._next_wait()
        except StanzaError as error:
            (self._reach.answered if error.application else self._reach.failed)(call.peer)
            return await self._refused(call, error)
        if delay is not None and self._news:
            delay = min(delay, self._look_at - anyio.current_time())
        return delay

    def _load(self, database: Database) -> tuple[Call | None, bool, int]:
        call = rows.load(database, self.call)
        return call, call is not None and rows.is_wanted(database, call), database.now

    def _peer_of(self, call: Call) -> Peer | None:
        """Return the peer of a call; None if the settings do not permit the call any more."""
        skill = read(call.request, Execute).skill
        for peer in self._kernel.settings.peer:
            if peer.name == call.peer and peer.jid == call.address:
                return peer if pattern(peer.skills).fullmatch(skill) is not None else None
        return None

    # Asking the peer.

    def _ask_of(self, call: Call) -> _Ask:
        to, from_ = JID.parse(call.address), JID.parse(call.sender)
        return partial(self._kernel.stream.router.call_any, to=to, from_=from_)

    async def _talk(self, call: Call, *, is_wanted: bool) -> float | None:
        ask, now = self._ask_of(call), anyio.current_time()
        if not is_wanted:
            return await self._cancel(call, ask)
        if call.state == "unanswered":
            return await self._begin(call, ask)
        async with self._reach.turn(call.peer):
            if call.reply is not None:
                await self._send_reply(call)
                return 0.0
            if now >= self._poll_at:
                self.is_behind = self.has_missed = True
            if self.is_behind and now >= self._ask_at:
                self._ask_at, self._poll_at = now + _ASK_S, now + _POLL_S
                await self._catch_up(call, ask)
                self._wait = _FIRST_WAIT_S
                return 0.0
        return (self._ask_at if self.is_behind else self._poll_at) - now

    async def _begin(self, call: Call, ask: _Ask) -> float | None:
        """Send the request, and take the answer. If the task here ends meanwhile, cancel the
        request at once, by its name.
        """
        async with self._reach.turn(call.peer):
            if self._unwanted.is_set():
                return 0.0
            request = await self._grants.signed(call)
            async with anyio.create_task_group() as group:
                group.start_soon(self._cancel_when_unwanted, request, ask)
                try:
                    answer = await ask("set", payload=request, expected=(Result, Accepted))
                except StanzaError as error:
                    answer = error
                group.cancel_scope.cancel()
        if isinstance(answer, StanzaError):
            raise answer
        self._wait = _FIRST_WAIT_S
        if isinstance(answer, Result):
            await self._end(call, self._checked(call, answer))
            return None
        await self._change(state="accepted", remote=answer.task)
        # An event that came before this answer belonged to no call.
        self.is_behind = True
        return 0.0

    async def _cancel_when_unwanted(self, request: Execute, ask: _Ask) -> None:
        await self._unwanted.wait()
        with suppress(StanzaError):
            await ask("set", payload=Cancel(request=request.request), expected=(Task,))

    async def _cancel(self, call: Call, ask: _Ask) -> float | None:
        """Cancel what is not wanted any more."""
        now = anyio.current_time()
        if call.state == "unanswered" and not self.is_unsure:
            await self._end(call, await self._cancelled(call, repeatable=True))
            return None
        if now < self._cancel_at:
            return self._cancel_at - now
        try:
            task = await ask("set", payload=cancelling(call), expected=(Task,))
        except StanzaError as error:
            known = error.application[0] if error.application else None
            if call.state == "accepted" or known is None or isinstance(known, Retry):
                raise
            await self._give_up(call, error)  # it has no task of this request
            return None
        self._cancel_at = now + _POLL_S
        if call.state == "unanswered":
            call = msgspec.structs.replace(call, state="accepted", remote=task.id)
            await self._change(state="accepted", remote=task.id)
        await self._take(call, (task,), joined=True)
        return 0.0

    async def _catch_up(self, call: Call, ask: _Ask) -> None:
        """Ask for the task of the peer, and for open questions of tasks that the peer has started
        for it.
        """
        task = await ask("get", payload=Task(id=call.remote or ""), expected=(Task,))
        if task.id == call.remote and task.state in _ENDS:
            await self._take(call, (task,), joined=True)
            return
        found: list[Asked] = []
        if self.has_missed:
            waiting = await ask("get", payload=Tasks(state="input-required"), expected=(Tasks,))
            for one in waiting.tasks:
                if one.thread == call.id and one.id != call.remote:
                    other = await ask("get", payload=Task(id=one.id), expected=(Task,))
                    found.append(other if other.confirm is None else other.confirm)
        self.is_behind = self.has_missed = False
        await self._take(call, (task, *found), joined=True)

    async def _send_reply(self, call: Call) -> None:
        reply = read(call.reply or "", InputAnswer, Decision)
        assert reply is not None
        to, from_ = JID.parse(call.address), JID.parse(call.sender)
        try:
            await self._kernel.stream.router.call_optional(*("set", to, reply, Task), from_=from_)
        except NoAnswerError:
            raise
        except StanzaError as error:
            if not error.application or isinstance(error.application[0], Retry):
                raise
            # It was decided otherwise, or has expired: the task of the peer says what follows.
            _log.info("a peer does not take an answer", peer=call.peer, reason=str(error))
        await self._change(question=None, reply=None)
        # Another question may have come meanwhile, and replaced this one.
        self.is_behind = self.has_missed = True

    # What the peer says.

    def _is_news_due(self) -> bool:
        """Return whether events have come that are looked at now."""
        is_early = anyio.current_time() < self._look_at and all(map(_is_report, self._news))
        return bool(self._news) and not is_early

    async def _take(self, call: Call, news: Sequence[Asked], *, joined: bool = False) -> None:
        """Take what the peer says about its task, or asks. Raises Misbehaved.

        `joined` says that it was the answer to `get`, which has all parts of an artifact in one.
        """
        parts: list[Output] = []
        progress: Progress | None = None
        question: Asked | None = None
        end: Task | None = None
        for each in news:
            if isinstance(each, Confirm) or each.input is not None:
                question = each
                continue
            is_old = (each.revision or 0) < self._revision and not joined
            if each.id != call.remote or is_old:
                continue
            self._revision = each.revision or 0
            parts += each.outputs
            if each.state == "running":
                progress = each.progress or progress
            elif each.state == "input-required":
                question = each.confirm or question
            elif each.state in _ENDS:
                end = each
        if end is not None:
            await self._end(call, await self._outcome_of(call, end))
            return
        if parts or progress is not None:
            await self._report(call, progress, parts, joined=joined)
        if question is not None:
            await self._ask(question)

    async def _outcome_of(self, call: Call, task: Task) -> Result | Failure:
        if task.state == "completed" and task.result is not None:
            return self._checked(call, task.result)
        failure = task.failure or Failure()
        if failure.conditions:
            return failure
        why = await self._cancelled(call, repeatable=False)
        return msgspec.structs.replace(why, receipt=failure.receipt)

    async def _cancelled(self, call: Call, *, repeatable: bool) -> Failure:
        """Return the failure of a call that was cancelled."""
        if await self._storage.read(lambda db: grant_rows.is_stopped(db, call.id)):
            return failure_of(revoked())
        return failure_of(errors.remote_failure(repeatable=repeatable))

    def _checked(self, call: Call, result: Result) -> Result:
        """Return a result, if it is one of the skill that was called. Raises Misbehaved."""
        if result.skill != read(call.request, Execute).skill:
            raise Misbehaved("the result of another skill")
        return result

    async def _report(
        self, call: Call, progress: Progress | None, parts: Sequence[Output], *, joined: bool
    ) -> None:
        """Report progress and parts of artifacts as those of the task here.

        In one commit with what has been received of them, so each part is reported once.
        """
        is_missing = False

        def reports(database: Database) -> Sequence[Progress | Output]:
            nonlocal is_missing
            before = rows.load(database, call.id, lock=True)
            if before is None or before.state == "ended":
                return ()
            received = self._received(database, before)
            made, is_missing = received.take(parts, joined=joined)
            if parts:
                said = msgspec.json.encode(received.next).decode()
                rows.change(database, call.id, parts=said)
            return (*made, *(() if progress is None else (progress,)))

        # What comes while the task here does not wait is part of what the peer says next.
        await self._service.report(call.task, reports)
        self.is_behind |= is_missing

    def _received(self, database: Database, call: Call) -> Received:
        seen = msgspec.json.decode(call.parts, type=dict[str, int])
        return Received(seen, parts_of(database, call.task), self._kernel.tasks.limits.result_bytes)

    async def _ask(self, question: Asked) -> None:
        """Store a question, which wakes the task here, unless it is known. Raises Misbehaved."""

        def op(database: Database) -> Call | None:
            return rows.load(database, self.call)

        call = await self._storage.read(op)
        if call is None:
            return
        before = read(call.question, Task, Confirm) if call.question else None
        if isinstance(before, Task | Confirm) and _name_of(before) == _name_of(question):
            return
        try:
            asked.check(call, question, self._is_own)
        except ValueError as error:
            raise Misbehaved(str(error)) from error
        if call.questions >= _MOST_QUESTIONS:
            raise Misbehaved(f"more than {_MOST_QUESTIONS} questions")
        await self._change(question=encode(question), questions=call.questions + 1, reply=None)

    # The end.

    async def _refused(self, call: Call, error: StanzaError) -> float | None:
        """Handle an error of the peer, or of a server on the way to it."""
        condition = error.application[0] if error.application else None
        if isinstance(condition, Retry):
            return min(max(float(condition.after), _FIRST_WAIT_S), _LONGEST_RETRY_S)
        if isinstance(condition, GrantRequired) and await self._identify(call):
            return 0.0
        if condition is not None and call.state == "unanswered":
            if isinstance(condition, UnknownSkill):
                self._reach.outdated(call.peer)
            await self._end(call, failure_of(error, unknown=False))
            return None
        if condition is not None:
            # The peer does not know the task any more, or not the request about it.
            await self._give_up(call, error, unknown=True)
            return None
        waited = anyio.current_time() - self._began
        peer = self._peer_of(call)
        is_over = peer is None or waited >= peer.unreachable_s
        if call.state == "unanswered" and not self.is_unsure and is_over:
            made = errors.remote_failure(repeatable=True)
            made.text = f"It cannot be reached: {error}"
            await self._end(call, failure_of(made))
            return None
        return self._next_wait()

    async def _identify(self, call: Call) -> bool:
        """Make another request of one that was sent without grants: return whether it was."""
        execute = read(call.request, Execute)
        if call.state != "unanswered" or execute.request == call.id:
            return False
        await self._change(request=encode(msgspec.structs.replace(execute, request=call.id)))
        return True

    async def _leave(self, call: Call, why: str) -> float | None:
        """End a call that cannot go on, here and at the peer, and the task that waits for it."""
        is_unknown = call.state == "accepted" or self.is_unsure
        if is_unknown:
            with suppress(StanzaError):
                await self._ask_of(call)("set", payload=cancelling(call), expected=(Task,))
            error = errors.outcome_unknown()
            error.text = f"{why}. It was told to stop; what it has done is not known."
        else:
            error = errors.remote_failure(repeatable=True)
            error.text = f"{why}. Nothing was done."
        failure = failure_of(error, unknown=is_unknown)
        values = await self._ending(call, failure, unknown=int(is_unknown))
        end = partial(rows.change, call=call.id, **values)
        return None if await self._service.give_up(call.task, error, end) else _ASK_S

    async def _give_up(self, call: Call, error: StanzaError, *, unknown: bool = False) -> None:
        is_unknown = unknown or self.is_unsure or call.state == "accepted"
        failure = failure_of(error, unknown=is_unknown)
        await self._change(**await self._ending(call, failure, unknown=int(is_unknown)))

    async def _end(self, call: Call, outcome: Result | Failure) -> None:
        """Store the outcome, and the rest of the artifacts of which parts were reported."""
        values = await self._ending(call, outcome)
        if isinstance(outcome, Result):

            def reports(database: Database) -> Sequence[Output]:
                return self._received(database, call).end(outcome.outputs)

            if call.parts != "{}":
                await self._service.report(call.task, reports)
        await self._change(**values)

    async def _ending(
        self, call: Call, outcome: Result | Failure, unknown: int = 0
    ) -> dict[str, Any]:
        """Return the values of a call that has ended."""
        values: dict[str, Any] = {}
        receipt = await self._receipts.ended(call, outcome)
        usage = rows.spent_in(outcome, receipt)
        if usage.cost_usd is not None:
            values["usd"] = float(usage.cost_usd)
        if usage.tokens_in is not None:
            values["tokens"] = usage.tokens_in + (usage.tokens_out or 0)
            values["output"] = usage.tokens_out or 0
        # Otherwise it counts with all that it was allowed.
        values |= {"state": "ended", "outcome": encode(outcome), "unknown": unknown}
        return values | {"question": None, "receipt": receipt}

    async def _change(self, **values: str | float | None) -> None:
        is_news = values.get("question") is not None or values.get("state") == "ended"

        def op(database: Database) -> tuple[Sequence[str], bool]:
            shares = rows.change(database, self.call, **values)
            return shares, is_news and rows.is_asked(database, self.task)

        shares, is_asked = await self._storage.write(op, keep_trying=True)
        for share in shares:
            self._service.requeued(share)
        if is_asked:  # what its principal was asked before is not asked by the peer any more
            await self._service.ask_no_more(self.task)

    def _next_wait(self) -> float:
        wait, self._wait = self._wait, min(self._wait * 2, _LONGEST_WAIT_S)
        return wait * (0.75 + system.random() / 2)


def cancelling(call: Call) -> Cancel:
    """Return what cancels a call: its task, or its request while the task is not known."""
    if call.remote is not None:
        return Cancel(id=call.remote)
    return Cancel(request=read(call.request, Execute).request)


def _name_of(question: Asked) -> tuple[str, str]:
    """Return what identifies a question: an event and the answer to `get` differ in the rest."""
    if isinstance(question, Confirm) or question.input is None:
        return question.id, ""
    return question.id, question.input.id


def _is_report(news: Asked) -> bool:
    """Return whether an event only says how far the work is."""
    return isinstance(news, Task) and news.state == "running" and news.input is None

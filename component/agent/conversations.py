"""All conversations: accepts each request once, and answers each once and in order."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any, TypeAlias

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup, TaskStatus

from component.agent import rows, sentences
from component.agent.conversation import (
    FIRST_WAIT_S,
    LONGEST_WAIT_S,
    Conversation,
    ParkedTurns,
    SentMessage,
    Turn,
)
from component.agent.delivery import Delivery
from component.agent.engine import Engine
from component.agent.protocol import Profiles, Voice
from component.agent.requests import (
    CONTINUES,
    MessageStarter,
    Outcome,
    Resumption,
    SentFile,
    TurnRequest,
)
from component.agent.rows import Row
from component.agent.scheduler import Scheduler
from component.agent.senders import ANSWERS_WITHIN_S, Senders
from component.conversations.sessions import Forgotten
from component.memory_directory.layout import SessionKey
from component.policy.persons import Persons
from component.store import Storage, StorageError, waiters
from component.store.clock import wall_clock
from component.store.database import Database
from component.store.outages import log_failure

_log = structlog.get_logger("component.agent")


class Activity(msgspec.Struct, frozen=True):
    """The turns of a conversation: whether one runs, how many wait, how many are parked."""

    running: bool
    waiting: int
    parked: int


class TooManyWaitingError(Exception):
    """A principal has as many requests waiting as it may have; `count` is their number."""

    def __init__(self, count: int) -> None:
        """Make the message for the person."""
        super().__init__(sentences.TOO_MANY.format(count=count))
        self.count = count


Fetch: TypeAlias = Callable[[SessionKey, TurnRequest], Awaitable[tuple[SentFile, ...]]]
"""Fetches the files of a request, for the conversation of a key."""


class ConversationPorts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the service that conversations use.

    Attributes:
        persons: distinguishes people from other agents and services.
        received: is called with each request that was accepted.
        stream: returns an object that identifies the current stream; None while there is none.
        concluded: is called when the outcome of a turn that a task may wait for was recorded.
        fetch: fetches and stores the files of a request that were not fetched yet, and returns all
            of them; None where nothing does.
    """

    profiles: Profiles
    voice: Voice
    persons: Persons
    received: Callable[[TurnRequest], None] = lambda _request: None
    stream: Callable[[], object | None] = lambda: True
    concluded: Callable[[], None] = lambda: None
    fetch: Fetch | None = None


class Conversations:
    """The conversations of all agents: accepts requests, and sends answers by the voice.

    Args:
        home: identifies this data directory among those that share a database.
        clock: milliseconds since 1970, UTC.
        answers_within_s: seconds that a sender has for saying whether it is a person.

    Attributes:
        awaited: the parked turns of the conversation that waits for a task, by the task.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        ports: ConversationPorts,
        storage: Storage,
        home: str,
        clock: Callable[[], int] = wall_clock,
        answers_within_s: float = ANSWERS_WITHIN_S,
    ) -> None:
        self.engine = engine
        self.ports = ports
        self.storage = storage
        self.home = home
        self.clock = clock
        self.scheduler = Scheduler(engine.loop.turns_total)
        self.delivery = Delivery(ports.voice, storage, engine.model_calls)
        self.senders = Senders(ports.persons, ports.stream, answers_within_s)
        self.awaited: dict[str, ParkedTurns] = {}
        self._group: TaskGroup | None = None
        self._conversations: dict[SessionKey, Conversation] = {}
        self._followers: dict[str, Callable[[Outcome], None]] = {}

    # Requests.

    async def received(
        self, request: TurnRequest, ended: Callable[[Outcome], None] | None = None
    ) -> None:
        """Accept a request: when this returns, it is on disk and will be answered.

        A request that is already there is not added again. `ended` is called with the first
        outcome of its turn, unless the service is restarted before. A person who has too many
        waiting messages gets a message that says so.

        Raises TooManyWaitingError for any other starter, and StorageError; then the request is not
        accepted.
        """
        count = self.scheduler.waiting[request.party]
        if count >= self.engine.loop.waiting_per_principal:
            if not isinstance(request.starter, MessageStarter):
                raise TooManyWaitingError(count)
            self.delivery.mention(request, "full", sentences.TOO_MANY.format(count=count))
            return
        turn = Turn(request)
        if ended is not None:
            self._followers[turn.id] = ended
        # The turn is queued before it is on disk, so that the requests of one conversation keep
        # their order, and its sender is queried in the meantime.
        conversation = self._of(request.session)
        if conversation.is_idle:
            self.spawn(self.engine.recall_ahead, request)
        conversation.add(turn)
        stored, written, answered = None, False, self.delivery.take()
        try:
            stored = await self.storage.write(partial(self._insert, turn.request, answered))
            written = True
        finally:
            if not written:
                self.delivery.put_back(answered)
            if stored is None:
                self._followers.pop(turn.id, None)
                conversation.remove(turn)
        if stored is not None:
            if stored.after_told:
                turn.replace(msgspec.structs.replace(turn.request, after_told=True))
            turn.stored = True
            self.ports.received(request)
            conversation.look()

    def _insert(
        self, request: TurnRequest, answered: Sequence[str], database: Database
    ) -> TurnRequest | None:
        """Store a request, and return it; None if it was there before."""
        told = self.engine.told
        if told is not None and told.are_waiting(database, request.session):
            request = msgspec.structs.replace(request, after_told=True)
        # In this order, so that a repetition of a request that was just answered finds its row.
        added = rows.insert(database, self.home, request)
        rows.delete(database, answered)
        return request if added else None

    async def perform(self, request: TurnRequest) -> Outcome | None:
        """Run the turn of a request once, and return how it ended.

        After any interruption it can be called again with the same request. The starter is a
        `WorkStarter`, for which the outcome is stored until `forget_outcome`. Returns None if the
        turn waits for a task, a person or a time, or belongs to an instance with another data
        directory: then wait for it as a row (`component.store.waiters`), and call this again.

        Raises TooManyWaitingError and StorageError.
        """
        ended, outcomes = anyio.Event(), list[Outcome]()

        def note(outcome: Outcome) -> None:
            outcomes.append(outcome)
            ended.set()

        self._followers[request.id] = note
        try:
            standing = await self.storage.read(
                partial(rows.standing, home=self.home, turn=request.id)
            )
            if isinstance(standing, Outcome):
                return standing
            if standing in ("waiting", "elsewhere"):
                return None
            if standing is None:
                await self.received(request, note)
            await ended.wait()
        finally:
            self._followers.pop(request.id, None)
        return None if outcomes[0].kind in CONTINUES else outcomes[0]

    async def cancel(self, key: SessionKey, turn: str) -> None:
        """Stop one turn, if it has not ended, and forget how it ended. Raises StorageError."""
        conversation = self._conversations.get(key)
        if conversation is not None:
            await conversation.stop_turn(turn)
        await self.storage.write(partial(rows.forget_outcome, turn=turn))

    def turn_ended(self, turn: str, outcome: Outcome) -> None:
        """Report that a turn has stopped running."""
        follower = self._followers.pop(turn, None)
        if follower is not None:
            follower(outcome)

    async def revised(self, key: SessionKey, msg_id: str, body: str | None, by: str = "") -> bool:
        """Replace the text of the message with this id, or retract it if `body` is None. In a room,
        `by` identifies the occupant who does it (`RoomRequest.occupant`): the messages of others
        are not found.

        Returns False if it is too late: something was done that the message has caused and that a
        new text would change. Raises StorageError, and then the message is unchanged.
        """
        conversation = self._conversations.get(key)
        sent = SentMessage(msg_id, by)
        return conversation is not None and await conversation.revise(sent, body)

    async def removed(self, key: SessionKey, ids: Collection[str]) -> None:
        """Remove messages of anybody from a room's session and from the turns in it, because they
        were retracted or a moderator has removed them: those for the agent, and those that it has
        read besides. `ids` are those that the room gave them, or those of their senders.

        A turn that has acted on such a message is stopped. Raises StorageError.
        """
        await self._of(key).remove_messages(frozenset(ids))

    def waiting_of(self, key: SessionKey, occupant: str) -> int:
        """Return how many messages of an occupant of a room wait for their turn."""
        found = self._conversations.get(key)
        requests = (one for turn in (found.waiting if found else ()) for one in turn.requests)
        return sum(one.room is not None and one.room.occupant == occupant for one in requests)

    def connected(self) -> None:
        """Send the answers and queries that have waited for a stream."""
        self.delivery.connected()
        self.senders.connected()

    def ended(self, task: str) -> None:
        """A task has ended: the turn that waits for it continues. Never waits."""
        waiting = self.awaited.get(task)
        if waiting is not None:
            waiting.task_ended(task)

    # The work.

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Answer requests until cancelled, starting with those that earlier runs have left.

        Raises StorageError if those cannot be read.
        """
        left = await self.storage.read(partial(rows.of_home, home=self.home))
        async with anyio.create_task_group() as group:
            self._group = group
            self._take_up(left)
            group.start_soon(self._watch_tasks)
            for part in (self.delivery, self.senders, self.scheduler):
                part.open(group)
            task_status.started()
            try:
                await anyio.sleep_forever()
            finally:
                self._group = None
                for part in (self.delivery, self.senders, self.scheduler):
                    part.open(None)
                group.cancel_scope.cancel()

    def _take_up(self, left: Sequence[Row]) -> None:
        known = {turn.id for one in self._conversations.values() for turn in one.waiting}
        found: dict[str, tuple[Turn, int | None]] = {}
        for row in left:
            if row.request.id in known:
                continue
            joined = row.wait.joined if row.wait is not None else None
            if joined in found:
                found[joined][0].joined.append(row.request)
            else:
                turn = Turn(row.request, stored=True, resumption=Resumption("restart"))
                found[turn.id] = turn, None if row.wait is None else row.wait.until
        # The latest is added first, each before the others, so that all come before new requests.
        for turn, until in reversed(found.values()):
            conversation = self._of(turn.request.session)
            if until is None:
                conversation.add(turn, first=True)
            else:
                conversation.parked.add_until(turn.id, until)
        for conversation in self._conversations.values():
            for turn in conversation.waiting:
                conversation.fetch(turn)

    async def _watch_tasks(self) -> None:
        wait = FIRST_WAIT_S
        while True:
            try:
                async with self.storage.listen(waiters.CHANNEL) as notified:
                    await self._continue_ready()  # tasks that ended before
                    async for _ in notified:
                        await self._continue_ready()
                        wait = FIRST_WAIT_S
            except StorageError as error:
                log_failure(_log, "cannot read which tasks have ended", error, seconds=wait)
            await anyio.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT_S)

    async def _continue_ready(self) -> None:
        for task in await self.storage.read(partial(waiters.ended_tasks, home=self.home)):
            self.ended(task)

    async def fetched(self, key: SessionKey, request: TurnRequest) -> tuple[SentFile, ...]:
        """Fetch the files of a request; one that cannot be has a sentence."""
        files, fetch = request.files, self.ports.fetch
        try:
            files = files if fetch is None else await fetch(key, request)
        except Exception:  # noqa: BLE001 - a fault of the service must not keep the message waiting
            _log.exception("the files of a message cannot be fetched", turn=request.id)
        return tuple(
            [
                one if one.is_fetched else msgspec.structs.replace(one, unread=sentences.NO_FILES)
                for one in files
            ]
        )

    @property
    def is_running(self) -> bool:
        """Whether work can be started in the background."""
        return self._group is not None

    def spawn(self, work: Callable[..., Any], *args: Any) -> None:
        """Start work in the background, while the conversations run."""
        if self._group is not None:
            self._group.start_soon(work, *args)

    # Requests of people and admins about conversations.

    async def stop(self, key: SessionKey) -> str:
        """Stop everything that an agent does for a principal: the running turn, the parked turns
        and the waiting ones. Returns a sentence for the person.

        Raises StorageError: parked turns cannot be read, and some may not be stopped.
        """
        async with self._of(key).stopped() as stopped:
            if not stopped.are_recorded:
                return sentences.STOPPED_UNSAVED
            return sentences.STOPPED if stopped.turns else sentences.NOTHING_TO_STOP

    async def new(self, key: SessionKey) -> bool:
        """Start a new conversation; all turns are stopped first. False if there was no
        conversation.

        Raises StorageError.
        """
        async with self._of(key).stopped():
            return await self.engine.new_session(key)

    async def forget(self, key: SessionKey) -> Forgotten:
        """Delete a conversation and everything known about the person; all turns are stopped first.

        Raises StorageError.
        """
        async with self._of(key).stopped():
            return await self.engine.sessions.forget(key)

    async def stop_agent(self, agent: str) -> int:
        """Stop everything that an agent does. Returns the number of conversations concerned.

        Raises StorageError, as `stop` does.
        """
        count = 0
        for key in [key for key in self._conversations if key.agent == agent]:
            async with self._of(key).stopped() as stopped:
                count += stopped.turns > 0
        return count

    def activity(self, key: SessionKey) -> Activity:
        """Return what an agent does for a principal."""
        found = self._conversations.get(key)
        if found is None:
            return Activity(running=False, waiting=0, parked=0)
        return Activity(
            running=found.is_running, waiting=len(found.waiting), parked=len(found.parked.ids)
        )

    def _of(self, key: SessionKey) -> Conversation:
        found = self._conversations.get(key)
        if found is None:
            found = self._conversations[key] = Conversation(key, self)
        return found

    def drop(self, conversation: Conversation) -> None:
        """Drop a conversation that has nothing left to do."""
        if self._conversations.get(conversation.key) is conversation:
            del self._conversations[conversation.key]

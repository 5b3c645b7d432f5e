"""A world without threads and clocks, in which each wait takes as many steps as a test says.

So what happens in which order is decided by what hypothesis draws, on trio by a seed as well, and a
run can be repeated to the letter.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import accumulate, cycle
from math import inf
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest
import trio._core._run as trio_run
from anyio.streams.memory import MemoryObjectSendStream

from component.agent import conversation, conversations, delivery, rows
from component.agent.conversations import ConversationPorts, Conversations
from component.agent.engine import Engine, EngineLimits
from component.agent.model_calls import ModelCalls
from component.agent.requests import TurnRequest
from component.app.schema import SCHEMA
from component.conversations.lines import Correction, Line, Said, StoredLine, corrected
from component.conversations.tail import History, tokens_of_each
from component.kernel.monitoring import Monitoring
from component.memory_directory.layout import SessionKey
from component.models.protocol import Completion, ModelRequest
from component.store.database import Database
from component.store.errors import StorageError
from component.store.sqlite import SQLite
from component.store.writes import Queued, read_once
from tests.component.agent.world import Suspicious, World
from tests.direct_database import rest
from xep.jid import JID

T = TypeVar("T")


class Pace:
    """The number of steps of each wait; the list is repeated."""

    def __init__(self, steps: Sequence[int]) -> None:
        self._steps = cycle(steps or [0])

    async def __call__(self) -> None:
        for _ in range(next(self._steps)):
            await anyio.lowlevel.checkpoint()


class PacedStorage:
    """A database in the event loop. `refuses` is how many operations it refuses next; `notify`
    tells who listens that another instance has changed something.
    """

    is_shared = True
    rest = staticmethod(rest)

    def __init__(self, database: SQLite, pace: Pace) -> None:
        self._database = database
        self._pace = pace
        self.refuses = 0
        self._listeners: list[MemoryObjectSendStream[None]] = []

    async def read(self, op: Callable[[Database], T]) -> T:
        await self._before()
        found = read_once(self._database, op)
        await self._pace()
        return found

    async def write(self, op: Callable[[Database], T], *, keep_trying: bool = False) -> T:
        """Complete a write that has started, like `Storage`."""
        try:
            await self._before()
        except StorageError:
            if not keep_trying:
                raise
        write = Queued(op)
        with anyio.CancelScope(shield=True):
            await self._pace()
            self._database.commit([write])
            await self._pace()
        if write.error is not None:
            raise write.error
        return write.value  # type: ignore[return-value]  # it has been run

    @asynccontextmanager
    async def listen(self, channel: str) -> AsyncIterator[AsyncIterator[None]]:
        send, receive = anyio.create_memory_object_stream[None](inf)
        self._listeners.append(send)
        with send, receive:
            try:
                yield receive
            finally:
                self._listeners.remove(send)

    def notify(self) -> None:
        for listener in self._listeners:
            listener.send_nowait(None)

    async def _before(self) -> None:
        await anyio.lowlevel.checkpoint()
        await self._pace()
        if self.refuses:
            self.refuses -= 1
            raise StorageError("The disk refuses.")


class PacedSessions:
    """Conversations in memory."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self.lines: dict[SessionKey, list[Line]] = {}
        self.archived: dict[SessionKey, list[Line]] = {}

    async def read(self, key: SessionKey, **_how: Any) -> History:
        await self._pace()
        lines = tuple(self.lines.get(key, ()))
        return History(lines=lines, costs=tuple(tokens_of_each(lines, len)))

    async def append(self, key: SessionKey, lines: Sequence[StoredLine], *, sync: bool) -> None:
        await self._pace()
        known = self.lines.setdefault(key, [])
        for line in lines:
            if isinstance(line, Correction):
                messages: dict[str | None, Said] = {line.turn: line.message}
                known[:] = [corrected(one, messages) for one in known]
            else:
                known.append(line)
        if sync:
            with anyio.CancelScope(shield=True):
                await self._pace()

    async def turn(self, key: SessionKey, turn: str) -> Sequence[Line]:
        await self._pace()
        known = (*self.archived.get(key, ()), *self.lines.get(key, ()))
        return [line for line in known if getattr(line, "turn", None) == turn]

    async def archive(self, key: SessionKey) -> object | None:
        await self._pace()
        lines = self.lines.pop(key, None)
        if lines is not None:
            self.archived.setdefault(key, []).extend(lines)
        return lines


class Paced(World):
    """The world at a pace. `answers` has each answer's turn, and the messages that it covers.

    Whatever is cancelled takes some steps to unwind. The clock jumps by `jumps`, in seconds, each
    time that somebody looks at it.
    """

    def __init__(
        self, database: SQLite, steps: Sequence[int], jumps: Sequence[int] = (), **loop: float
    ) -> None:
        super().__init__(Path(), **loop)
        self.pace = Pace(steps)
        self.paced = PacedStorage(database, self.pace)
        self.talks = PacedSessions(self.pace)
        self.answers: list[tuple[str, tuple[str, ...]]] = []
        self.shop.during = lambda _name: self.unwinding_slowly()
        self.crowd.says = self._says
        self._clock = accumulate(cycle(jumps or [10_000]), initial=10**9)

    async def _says(self, _who: JID) -> bool:
        await self.pace()
        return True

    async def unwinding_slowly(self) -> None:
        try:
            await self.pace()
        finally:
            with anyio.CancelScope(shield=True):
                await self.pace()

    async def profiles(self, key: SessionKey, request: TurnRequest | None = None) -> Any:
        await self.pace()
        return await super().profiles(key, request)

    def thinks(self, think: Callable[[ModelRequest], Completion]) -> None:
        async def slowly(request: ModelRequest) -> Completion:
            await self.unwinding_slowly()
            answer = think(request)
            await self.unwinding_slowly()
            return answer

        self.brain.think = slowly

    @asynccontextmanager
    async def built(self) -> AsyncIterator[Conversations]:
        self.engine = Engine(
            models=self.model_of,
            model_calls=ModelCalls(self.purse, self.book, Monitoring()),
            tools=self.shop,
            sessions=self.talks,  # type: ignore[arg-type]  # all of it that is used here
            scanner=Suspicious(),
            limits=EngineLimits(loop=self.loop),
        )
        self.storage = self.paced  # type: ignore[assignment]  # all of it that is used here
        self.conversations = Conversations(
            engine=self.engine,
            ports=ConversationPorts(
                profiles=self.profiles,
                voice=self.ear,
                persons=self.crowd,
            ),
            storage=self.paced,  # type: ignore[arg-type]  # all of it that is used here
            home="here",
            clock=lambda: next(self._clock) * 1000,
            answers_within_s=self.answers_within_s,
        )
        send = self.conversations.delivery.answer

        def answer(requests: Sequence[TurnRequest], text: str, *files: Any) -> None:
            ids = tuple(one.id for one in requests)
            self.answers.append((ids[0], ids))
            send(requests, text, *files)

        self.conversations.delivery.answer = answer  # type: ignore[method-assign]  # counts them
        yield self.conversations

    async def rows(self) -> list[str]:
        found = read_once(
            self.paced._database,
            lambda db: db.execute("SELECT id FROM turns ORDER BY created").fetchall(),
        )
        return [row[0] for row in found]

    async def _left(self) -> list[str]:
        """The rows that wait for nothing, and whose turn does not."""
        known = self.conversations._conversations.values()
        parked = {turn for one in known for turn in one.parked.ids}
        found = read_once(self.paced._database, partial(rows.of_home, home="here"))
        return [
            row.request.id
            for row in found
            if not {row.request.id, row.wait and row.wait.joined} & parked
        ]

    async def quiet(self) -> None:
        """Wait until nothing runs and only parked turns are left."""
        for _ in range(3_000):
            known = self.conversations._conversations.values()
            busy = any(one.is_running or one.waiting or one._holds for one in known)
            if not (busy or self.conversations.delivery._answered or await self._left()):
                return
            await anyio.lowlevel.checkpoint()
        left = [(one.is_running, list(one.waiting)) for one in known]
        raise AssertionError(f"it does not come to rest: {left}, {await self.rows()}")


@contextmanager
def a_database(path: Path) -> Iterator[SQLite]:
    """A database for many examples, one after another."""
    database = SQLite.open(path / "agent.db", SCHEMA)
    database._writer.execute("PRAGMA synchronous = OFF")
    try:
        yield database
    finally:
        database.close()


@contextmanager
def without_time() -> Iterator[None]:
    """Waits take no real time."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (conversation, conversations):
            patch.setattr(module, "FIRST_WAIT_S", 0.0)
            patch.setattr(module, "LONGEST_WAIT_S", 0.0)
        patch.setattr(delivery, "_GATHER_S", 0.0)
        patch.setattr(conversation, "LONGEST_DELAY_S", 0.0)
        yield


@contextmanager
def in_order_of(seed: int) -> Iterator[None]:
    """Make the random order of tasks in trio reproducible."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trio_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)
        state = trio_run._r.getstate()
        trio_run._r.seed(seed)
        try:
            yield
        finally:
            trio_run._r.setstate(state)

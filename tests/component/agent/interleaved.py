"""A world without threads and clocks, in which each wait takes as many steps as a test says.

So what happens in which order is decided by what hypothesis draws, on trio by a seed as well, and a
run can be repeated to the letter.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import count, cycle
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest
import trio._core._run as trio_run

from component.agent import conversations, outlet, parking, turns
from component.agent.conversations import Conversations
from component.agent.engine import Engine
from component.agent.lanes import Turn
from component.memory.ends import History
from component.memory.lines import Line, SessionKey
from component.models.protocol import Completion, ModelRequest
from component.storage.database import Database
from component.storage.errors import StorageError
from component.storage.sqlite import SQLite, process_clock
from component.storage.writes import Write
from tests.component.agent.world import Suspicious, World

T = TypeVar("T")


class Pace:
    """How many steps each wait takes, one number after the other, from the beginning again."""

    def __init__(self, steps: Sequence[int]) -> None:
        self._steps = cycle(steps or [0])

    async def __call__(self) -> None:
        for _ in range(next(self._steps)):
            await anyio.lowlevel.checkpoint()


class PacedStorage:
    """A database in the event loop. `refuses` is how many operations it refuses next."""

    def __init__(self, database: SQLite, pace: Pace) -> None:
        self._database = database
        self._pace = pace
        self.refuses = 0

    async def read(self, op: Callable[[Database], T]) -> T:
        await self._before()
        found = self._database.read(op)
        await self._pace()
        return found

    async def write(self, op: Callable[[Database], T], *, keep_trying: bool = False) -> T:
        """What has begun is reported as written, as by `Storage`."""
        try:
            await self._before()
        except StorageError:
            if not keep_trying:
                raise
        write = Write(op)
        with anyio.CancelScope(shield=True):
            await self._pace()
            self._database.write([write])
            await self._pace()
        if write.error is not None:
            raise write.error
        return write.value  # type: ignore[return-value]  # it has been run

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

    async def open(self, key: SessionKey, **_how: Any) -> History:
        return await self.read(key)

    async def read(self, key: SessionKey, **_how: Any) -> History:
        await self._pace()
        return History(lines=tuple(self.lines.get(key, ())))

    async def append(self, key: SessionKey, lines: Sequence[Line], *, sync: bool) -> None:
        await self._pace()
        self.lines.setdefault(key, []).extend(lines)
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
    """The world at a pace. `answers` has each answer's turn, and the messages that it covers."""

    def __init__(self, database: SQLite, steps: Sequence[int], **loop: float) -> None:
        super().__init__(Path(), **loop)
        self.pace = Pace(steps)
        self.paced = PacedStorage(database, self.pace)
        self.talks = PacedSessions(self.pace)
        self.answers: list[tuple[str, tuple[str, ...]]] = []
        self.over: list[str] = []
        self.shop.during = lambda _name: self.pace()

    async def profiles(self, key: SessionKey) -> Any:
        await self.pace()
        return await super().profiles(key)

    def thinks(self, think: Callable[[ModelRequest], Completion]) -> None:
        async def slowly(request: ModelRequest) -> Completion:
            await self.pace()
            answer = think(request)
            await self.pace()
            return answer

        self.brain.think = slowly

    @asynccontextmanager
    async def built(self) -> AsyncIterator[Conversations]:
        self.engine = Engine(
            models=self.model_of,
            tools=self.shop,
            sessions=self.talks,  # type: ignore[arg-type]  # all of it that is used here
            scanner=Suspicious(),
            budgets=self.purse,
            record=self.book,
            loop=self.loop,
        )
        self.conversations = Conversations(
            engine=self.engine,
            profiles=self.profiles,
            storage=self.paced,  # type: ignore[arg-type]  # all of it that is used here
            home="here",
            voice=self.ear,
            persons=self.crowd,
            loop=self.loop,
            over=self.over.append,
            # Whenever somebody looks, hours have passed: nothing is waited for.
            clock=partial(next, count(10**12, 10**7)),
            answers_within_s=self.answers_within_s,
        )
        said = self.conversations._outlet.say

        def say(turn: Turn, sentence: str) -> None:
            self.answers.append((turn.incoming.id, turn.ids))
            said(turn, sentence)

        self.conversations._outlet.say = say  # type: ignore[method-assign]  # to count answers
        yield self.conversations

    async def rows(self) -> list[str]:
        found = self.paced._database.read(
            lambda db: db.execute("SELECT id FROM turns ORDER BY created").fetchall()
        )
        return [row[0] for row in found]

    async def _left(self) -> list[str]:
        """The rows that neither wait for something nor are answered by one that does."""
        parked = set(self.conversations._parking._turns)
        rows = self.paced._database.read(partial(turns.of_home, home="here"))
        return [
            row.incoming.id
            for row in rows
            if not {row.incoming.id, row.wait and row.wait.joined} & parked
        ]

    async def quiet(self) -> None:
        """Wait until nothing is under way, and nothing is left but what is parked."""
        for _ in range(3_000):
            busy = self.conversations._lanes.all() or self.conversations._outlet._answered
            if not busy and not await self._left():
                return
            await anyio.lowlevel.checkpoint()
        lanes = [(lane.running, list(lane.waiting)) for lane in self.conversations._lanes.all()]
        raise AssertionError(f"it does not come to rest: {lanes}, {await self.rows()}")


@contextmanager
def a_database(path: Path) -> Iterator[SQLite]:
    """A database for many examples, one after the other."""
    database = SQLite.open(path / "agent.db", process_clock)
    database._writer.execute("PRAGMA synchronous = OFF")
    try:
        yield database
    finally:
        database.close()


@contextmanager
def without_time() -> Iterator[None]:
    """Nothing waits for seconds."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (conversations, parking):
            patch.setattr(module, "FIRST_WAIT_S", 0.0)
            patch.setattr(module, "LONGEST_WAIT_S", 0.0)
        patch.setattr(outlet, "_GATHER_S", 0.0)
        yield


@contextmanager
def in_order_of(seed: int) -> Iterator[None]:
    """trio runs tasks in random order: this one is the same each time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trio_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)
        state = trio_run._r.getstate()
        trio_run._r.seed(seed)
        try:
            yield
        finally:
            trio_run._r.setstate(state)

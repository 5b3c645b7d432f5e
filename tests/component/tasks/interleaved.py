"""Several instances on one database, in which each wait takes as many steps as a test says.

There are no threads, and no clocks but those that a test sets: what happens in which order is
decided by what hypothesis draws, on trio by a seed as well, and a run can be repeated exactly.

The database is SQLite, which says that it is PostgreSQL. Its transactions come one after another,
so what PostgreSQL needs locks for cannot go wrong here.
"""

from __future__ import annotations

import re
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count, cycle
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import pytest
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

from component.app.schema import SCHEMA
from component.store.clock import SteadyClock
from component.store.database import Database, Rows, Value
from component.store.errors import StorageError
from component.store.sqlite import SQLite
from component.store.writes import Queued, read_once
from component.tasks import events, leases
from component.tasks.service import TaskService
from tests.component.tasks.interleaved_skills import Stage
from tests.component.tasks.ledger import NOON
from tests.component.tasks.world import Ear, World, living
from tests.direct_database import expect, rest

T = TypeVar("T")

_CALM: Final = 20
"""When nothing has moved for so many steps, nothing will."""


class GoneError(BaseException):
    """The process is dead: what it still does reaches nobody."""


class Pace:
    """How many steps each wait takes, one number after the other, from the beginning again."""

    def __init__(self, steps: Sequence[int]) -> None:
        self._steps = cycle(steps or [0])
        self.busy = 0
        """How many wait for nothing but their turn."""

    async def __call__(self) -> None:
        self.busy += 1
        try:
            for _ in range(next(self._steps)):
                await checkpoint()
        finally:
            self.busy -= 1


class Clock:
    """Milliseconds: the wall clock, which jumps, and the time since boot; and monotonic seconds by
    which heartbeats are watched.
    """

    def __init__(self) -> None:
        self.wall = NOON
        self.elapsed = 1_000_000
        self.watch = 0.0

    def passes(self, ms: int) -> None:
        self.wall += ms
        self.elapsed += ms


class _Shared:
    """A transaction on SQLite for code that speaks to PostgreSQL."""

    dialect = "postgresql"

    def __init__(self, database: Database, notified: list[str]) -> None:
        self.now, self.settled, self.steady = database.now, database.settled, database.steady
        self._database = database
        self._notified = notified

    def execute(self, sql: str, parameters: Sequence[Value] = (), /) -> Rows:
        sql = re.sub(r" FOR (NO KEY UPDATE|UPDATE|SHARE)( SKIP LOCKED)?", "", sql)
        names = " = ANY(ARRAY(SELECT jsonb_array_elements_text(CAST(? AS jsonb))))"
        sql = sql.replace(names, " IN (SELECT value FROM json_each(?))")
        sql = sql.replace("jsonb_each_text(CAST(? AS jsonb))", "json_each(?)")
        return self._database.execute(sql, parameters)

    def expect(self, sql: str, parameters: Sequence[Value] = (), /) -> bool:
        return expect(self, sql, parameters)

    def notify(self, channel: str, /) -> None:
        self._notified.append(channel)


class _Notified:
    """The notifications of a channel, for one who listens."""

    def __init__(self) -> None:
        self.event = anyio.Event()

    def __aiter__(self) -> _Notified:
        return self

    async def __anext__(self) -> None:
        await self.event.wait()
        self.event = anyio.Event()


class Bus:
    """Who listens to which channel."""

    def __init__(self) -> None:
        self.listeners: dict[str, list[_Notified]] = defaultdict(list)

    def notify(self, channels: Collection[str]) -> None:
        for channel in channels:
            for one in self.listeners[channel]:
                one.event.set()


class PacedStorage:
    """The database as one instance has it. `refuses` is how many operations it refuses next."""

    is_shared = True
    rest = staticmethod(rest)

    def __init__(self, database: SQLite, bus: Bus, pace: Pace, place: str) -> None:
        self._database = database
        self._bus = bus
        self._pace = pace
        self._lock = anyio.Lock()
        self.place = place
        self.refuses = 0
        self.gone = self.draining = False

    async def read(self, op: Callable[[Database], T]) -> T:
        await checkpoint()
        await self._pace()
        self._refuse()
        found = read_once(self._database, lambda db: op(_Shared(db, [])))
        await self._pace()
        return found

    async def write(
        self,
        op: Callable[[Database], T],
        *,
        keep_trying: bool = False,
        tasks: Collection[str] = (),
    ) -> T:
        """As `Storage.write`: one after another, and what has begun is reported as written."""
        await checkpoint_if_cancelled()
        async with self._lock:
            with anyio.CancelScope(shield=True):
                await self._pace()
                try:
                    self._refuse()
                except StorageError:
                    if not keep_trying:
                        raise
                notified: list[str] = []
                write = Queued(lambda db: op(_Shared(db, notified)))
                self._database.commit([write])
        with anyio.CancelScope(shield=True):
            if write.error is None:
                self._bus.notify(notified)
            await self._pace()
        if self.gone:
            raise GoneError
        if write.error is not None:
            raise write.error
        return write.value  # type: ignore[return-value]  # it has been run

    def _refuse(self) -> None:
        if self.gone:
            raise GoneError
        if self.refuses:
            self.refuses -= 1
            raise StorageError("The disk refuses.")

    @asynccontextmanager
    async def listen(self, channel: str) -> AsyncIterator[_Notified]:
        one = _Notified()
        self._bus.listeners[channel].append(one)
        try:
            yield one
        finally:
            self._bus.listeners[channel].remove(one)


class Instance:
    """One place where processes run, one after another.

    Attributes:
        alive: whether there is one now.
        apart: whether the others have evicted it, and it does not know yet.
    """

    def __init__(self, cluster: Cluster, number: int, slots: int, skills: Collection[str]) -> None:
        self.cluster = cluster
        self.number = number
        self.alive = False
        self.apart = False
        self.world: World
        self.storage: PacedStorage
        self._slots = slots
        self._skills = skills
        self._scope = anyio.CancelScope()
        self._over = anyio.Event()

    @property
    def service(self) -> TaskService:
        return self.world.service

    async def start(self) -> None:
        ready = anyio.Event()
        self._over, self._scope = anyio.Event(), anyio.CancelScope()
        self.cluster.group.start_soon(self._live, ready)
        await ready.wait()
        self.alive, self.apart = True, False

    async def _live(self, ready: anyio.Event) -> None:
        cluster = self.cluster
        self.storage = storage = PacedStorage(
            cluster.database, cluster.bus, cluster.pace, f"place {self.number}"
        )
        skills = [one for one in cluster.stage.skills(storage) if one.name in self._skills]

        @asynccontextmanager
        async def opened() -> AsyncIterator[Any]:
            yield storage

        limits = {
            "running_total": self._slots,
            "running_per_principal": self._slots,
            **cluster.limits,
        }
        try:
            with self._scope:
                async with living(opened, *skills, ear=Ear(), **limits) as self.world:
                    clock = cluster.clock
                    self.service._membership._watch = leases.Watch(lambda: clock.watch)
                    ready.set()
                    await anyio.sleep_forever()
        except BaseException as error:
            if not storage.gone or not _only_gone(error):
                raise
        finally:
            self._over.set()

    async def kill(self) -> None:
        """End it without a word."""
        self.storage.gone = True
        self.alive = False
        self._scope.cancel()
        await self._over.wait()

    async def client(self, work: Callable[[], Any]) -> None:
        """Ask it for something; it may die meanwhile."""
        over = self._over
        self.cluster.pace.busy += 1
        try:
            async with anyio.create_task_group() as group:

                async def until_it_is_over() -> None:
                    await over.wait()
                    group.cancel_scope.cancel()

                group.start_soon(until_it_is_over)
                with suppress(GoneError):
                    try:
                        await work()
                    except RuntimeError:  # nothing can be started any more
                        if self.alive:
                            raise
                group.cancel_scope.cancel()
        finally:
            self.cluster.pace.busy -= 1


def _only_gone(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_only_gone(one) for one in error.exceptions)
    return isinstance(error, GoneError)


class Cluster:
    """The database, its instances, and the world outside, which outlives them."""

    def __init__(
        self,
        database: SQLite,
        steps: Sequence[int],
        slots: Sequence[int],
        skills: Sequence[Collection[str]],
        **limits: Any,
    ) -> None:
        self.clock = Clock()
        database._steady = SteadyClock(lambda: self.clock.elapsed, "boot")
        database._wall = lambda: self.clock.wall
        self.database = database
        self.bus = Bus()
        self.pace = Pace(steps)
        self.stage = Stage(self.pace)
        self.limits = limits
        self.group: Any = None
        self.all = [
            Instance(self, number, *of) for number, of in enumerate(zip(slots, skills, strict=True))
        ]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """All instances run until the end of the context."""
        async with anyio.create_task_group() as self.group:
            for one in self.all:
                await one.start()
            yield
            for one in self.alive:
                await one.kill()
            self.group.cancel_scope.cancel()

    @property
    def alive(self) -> list[Instance]:
        return [one for one in self.all if one.alive]

    def rows(self, sql: str, *values: Value) -> list[Any]:
        """What the database has, at once."""
        return self.database._writer.execute(sql, values).fetchall()

    async def quiet(self) -> None:
        """Wait until nothing moves any more."""
        calm = 0
        for _ in range(200_000):
            await checkpoint()
            calm = 0 if self.pace.busy else calm + 1
            if calm == _CALM:
                return
        raise AssertionError("it does not come to rest")

    async def beat(self, one: Instance) -> None:
        """Let an instance beat, as it does every two seconds."""
        if one.alive:
            await one.client(lambda: _refusable(one.service._membership.send_heartbeat))
            if one.alive and self.rows(
                "SELECT 1 FROM instances WHERE id = ?", one.service.instance
            ):
                one.apart = False

    async def watch(self, but: Instance | None = None) -> None:
        """Let those that live, `but` one, beat until they have seen who does not."""
        for _ in range(5):
            self.clock.watch += 4.0
            for one in self.alive:
                if one is not but:
                    await self.beat(one)
        for one in self.alive:
            here = "SELECT 1 FROM instances WHERE id = ?"
            one.apart = not self.rows(here, one.service.instance)

    @property
    def corpses(self) -> bool:
        """Whether there are instances that nobody has found out to be dead."""
        known = {one.service.instance for one in self.alive}
        return any(name not in known for (name,) in self.rows("SELECT id FROM instances"))


async def _refusable(work: Callable[[], Any]) -> None:
    with suppress(StorageError):
        await work()


@contextmanager
def a_database(path: Path) -> Iterator[SQLite]:
    """A database for many examples, one after the other."""
    database = SQLite.open(path / "agent.db", SCHEMA)
    for connection in (database._writer, database._reader):
        connection.execute("PRAGMA synchronous = OFF")
        connection.create_function(
            "octet_length", 1, lambda value: None if value is None else len(str(value).encode())
        )
    try:
        yield database
    finally:
        database.close()


_EMPTIED: Final = (
    *("events", "journal", "parts", "inputs", "asked", "waiters", "replay", "tasks"),
    *("instances", "queues", "task_counts", "recent_questions"),
)


def empty(database: SQLite) -> None:
    """Delete all rows."""
    for table in _EMPTIED:
        database._writer.execute(f"DELETE FROM {table}")
    database._writer.execute(
        "UPDATE clock SET changes = 0, skew = 0, seen = NULL, boot = NULL, elapsed = NULL,"
        " downtime = 0, back_at = NULL"
    )


@contextmanager
def without_chance() -> Iterator[None]:
    """Nothing waits for real seconds, and names are drawn in one order."""
    numbers = count(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events, "_GATHER_S", 0.0)
        # The order of the names says nothing of when they were drawn.
        patch.setattr(
            *(secrets, "token_hex"),
            lambda size=16: f"{next(numbers) * 0x9E3779B97F4A7C15 % 2**64:016x}"[: 2 * size],
        )
        yield

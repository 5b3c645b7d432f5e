"""A database in memory on a machine whose clock is set by hand, and who starts work on it."""

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar

import anyio
import msgspec

from component.features.schedules import rows
from component.features.schedules.rows import Definition, Missed, Schedule, instant_of
from component.features.schedules.timing import Timing, next_after
from component.kernel import started_work
from component.kernel.started_work import Started
from component.kernel.triggers import Trigger, Work
from component.store.clock import SteadyClock, TransactionTimes
from component.store.database import Database
from component.store.schema import transaction
from component.store.storage import Storage
from tests.component.store.clocks import Machine
from tests.component.tasks.ledger import InMemory
from tests.direct_database import rest
from tests.memory_database import memory_database
from xep.jid import JID
from xep.stanza_error import StanzaError

T = TypeVar("T")

JULIET = JID.parse("juliet@example.org")
ROMEO = JID.parse("romeo@example.org")


class Killed(BaseException):
    """The process was killed at this point."""


class MemoryStorage:
    """SQLite in memory without threads: a year takes seconds. Implements `Storage`."""

    is_shared = False
    rest = staticmethod(rest)

    def __init__(self, machine: Machine) -> None:
        self._connection = memory_database()
        self._database = InMemory(self._connection)
        self._machine = machine
        self.starts()

    def starts(self) -> None:
        """Start the process again: its clock continues from what is stored."""
        machine = self._machine
        self._steady = SteadyClock(lambda: machine.elapsed, machine.boot)
        with transaction(self._connection, "IMMEDIATE"):
            self._steady.start(self._database, machine.wall, shared=False)

    async def read(self, op: Callable[[Database], T]) -> T:
        await anyio.lowlevel.checkpoint()
        self._take_time()
        return op(self._database)

    async def write(self, op: Callable[[Database], T], **_options: object) -> T:
        await anyio.lowlevel.checkpoint()
        with transaction(self._connection, "IMMEDIATE"):
            times = self._take_time()
            saved = self._steady.save(self._database, times)
            found = op(self._database)
        if saved is not None:
            self._steady.saved(saved)
        return found

    def _take_time(self) -> TransactionTimes:
        clock, machine = self._steady, self._machine
        times = clock.read(machine.elapsed, machine.wall, machine.elapsed, clock.stored)
        self._database.now, self._database.settled, self._database.steady = times
        return times


class Recorder:
    """A `TaskStarter` that records triggers in the real table, and may be killed around that.

    Attributes:
        fired: each instant that was recorded, by schedule.
        dies: whether to be killed at a point.
        refuses: an error for a trigger, if it is to be refused.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.fired: dict[str, list[str]] = {}
        self.dies: Callable[[], bool] = lambda: False
        self.refuses: Callable[[Trigger], StanzaError | None] = lambda _: None
        self.attempts = 0

    async def start(
        self, trigger: Trigger, work: Work, also: Callable[[Database], object]
    ) -> str | None:
        self.attempts += 1
        if self.dies():
            raise Killed
        error = self.refuses(trigger)
        if error is not None:
            raise error
        entry = Started(trigger=trigger, work=work, task=f"{trigger.name} {trigger.key}")

        def op(database: Database) -> bool:
            also(database)
            return started_work.record(database, entry)

        is_new = await self._storage.write(op)
        if is_new:
            self.fired.setdefault(trigger.name, []).append(trigger.key)
        if self.dies():
            raise Killed
        return entry.task if is_new else None


class Published:
    """A `ScheduleNode` that keeps what it is told."""

    def __init__(self) -> None:
        self.firings: list[tuple[Schedule, datetime, str | None]] = []

    def fired(self, schedule: Schedule, instant: datetime, task: str | None) -> None:
        self.firings.append((schedule, instant, task))


def goal(agent: str = "assistant", who: JID = JULIET) -> Work:
    return Work(agent=agent, principal=who, goal="Look at the sky.")


def schedule(
    name: str, timing: Timing, now: datetime, *, missed: Missed = "once", most: int = 10
) -> Schedule:
    first = next_after(timing, now)
    assert first is not None
    return Schedule(
        id=name,
        owner=JULIET,
        name=name,
        origin="person",
        definition=Definition(
            when=name, zone="UTC", timing=timing, work=goal(), missed=missed, missed_most=most
        ),
        due=first,
    )


async def add(storage: Storage, *schedules: Schedule) -> None:
    def op(database: Database) -> None:
        for each in schedules:
            assert rows.insert(database, each)

    await storage.write(op)


def expected(timing: Timing, begin: datetime, end: datetime) -> list[str]:
    """The keys of all firings after `begin` and up to `end`."""
    found, instant = list[str](), next_after(timing, begin)
    while instant is not None and instant <= end:
        found.append(key(instant))
        instant = next_after(timing, instant)
    return found


def key(instant: datetime) -> str:
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}"


def now_of(machine: Machine) -> datetime:
    return instant_of(machine.wall)


def dice(seed: int, chance: float) -> Callable[[], bool]:
    """True now and then."""
    source = random.Random(seed)
    return lambda: source.random() < chance


def definition_json(found: Definition) -> bytes:
    return msgspec.json.encode(found)


def ms(time: timedelta) -> int:
    return round(time.total_seconds() * 1000)

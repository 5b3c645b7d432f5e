"""The steady clock: time that passes counts, a clock that is set does not."""

from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.app.schema import SCHEMA
from component.store import Storage
from component.store.clock import (
    HOLD_MS,
    TOLERANCE_MS,
    Skew,
    SteadyClock,
    TransactionTimes,
)
from component.store.database import Database
from tests.component.store.clocks import DAY, HOUR, MINUTE, NOON, Life, Machine, life, machine

__all__ = ["life", "machine"]  # fixtures

pytestmark = [pytest.mark.anyio, pytest.mark.ports]

# One clock, without a database.


def read(clock: SteadyClock, machine: Machine) -> TransactionTimes:
    return clock.read(machine.elapsed, machine.wall, machine.elapsed, clock.stored)


def test_without_jumps_all_clocks_agree() -> None:
    machine = Machine()
    clock = SteadyClock(lambda: machine.elapsed)
    for _ in range(1000):
        assert read(clock, machine) == (machine.wall, machine.wall, machine.wall)
        machine.passes(7 * MINUTE)
        machine.jumps(TOLERANCE_MS // 2)  # drift, slewed by NTP


@pytest.mark.parametrize("jump", [DAY, -DAY, 50 * 365 * DAY, TOLERANCE_MS + 1])
def test_a_jump_does_not_reach_the_steady_clock(jump: int) -> None:
    machine = Machine()
    clock = SteadyClock(lambda: machine.elapsed)
    before = read(clock, machine).steady
    machine.jumps(jump)
    for _ in range(3):
        times = read(clock, machine)
        assert times.now == machine.wall
        assert times.steady == before
    machine.passes(HOUR)
    assert read(clock, machine).steady == before + HOUR


def test_absolute_times_follow_a_forward_jump_when_it_has_held_for_a_minute() -> None:
    machine = Machine()
    clock = SteadyClock(lambda: machine.elapsed)
    read(clock, machine)
    machine.jumps(DAY)
    assert read(clock, machine).settled == NOON
    machine.passes(HOLD_MS - 1)
    assert read(clock, machine).settled == NOON + HOLD_MS - 1
    machine.passes(1)
    assert read(clock, machine).settled == machine.wall == NOON + DAY + HOLD_MS


def test_absolute_times_follow_a_backward_jump_at_once_and_a_jump_that_is_undone_never() -> None:
    machine = Machine()
    clock = SteadyClock(lambda: machine.elapsed)
    read(clock, machine)
    machine.jumps(-DAY)
    assert read(clock, machine).settled == NOON - DAY
    machine.jumps(DAY)
    assert read(clock, machine).settled == NOON
    machine.jumps(DAY)
    assert read(clock, machine).settled == NOON
    machine.passes(HOLD_MS // 2)
    machine.jumps(-DAY)
    assert read(clock, machine).settled == machine.wall == NOON + HOLD_MS // 2


def test_a_suspended_machine_is_no_jump() -> None:
    """The kernel's time since boot goes on, so what lapsed meanwhile has lapsed."""
    machine = Machine()
    clock = SteadyClock(lambda: machine.elapsed)
    read(clock, machine)
    machine.passes(DAY)
    assert read(clock, machine) == (NOON + DAY,) * 3


def test_a_process_that_is_stopped_in_a_reading_sees_no_jump() -> None:
    machine = Machine()
    clock = SteadyClock(lambda: machine.elapsed)
    read(clock, machine)
    wall, before = machine.wall, machine.elapsed
    machine.passes(DAY)
    assert clock.read(before, wall, machine.elapsed, clock.stored).steady == NOON
    assert read(clock, machine).steady == NOON + DAY
    before = machine.elapsed
    machine.passes(DAY)
    assert clock.read(before, machine.wall, machine.elapsed, clock.stored).steady == NOON + 2 * DAY


def test_what_another_instance_has_corrected_is_not_corrected_twice() -> None:
    machine = Machine()
    clock = SteadyClock(lambda: machine.elapsed)
    read(clock, machine)
    machine.jumps(DAY)
    assert read(clock, machine).steady == NOON
    assert clock.read(machine.elapsed, machine.wall, machine.elapsed, Skew(1, DAY)).steady == NOON
    # A transaction that began before that other one was committed.
    assert clock.read(machine.elapsed, machine.wall, machine.elapsed, Skew(0, 0)).steady == NOON


# On a database, across the lives of a process.


def times(database: Database) -> TransactionTimes:
    return TransactionTimes(database.now, database.settled, database.steady)


async def both(storage: Storage) -> TransactionTimes:
    """What a write and a read are told."""
    written = await storage.write(times)
    assert await storage.read(times) == written
    return written


@pytest.mark.parametrize("jump", [DAY, -DAY])
@pytest.mark.parametrize("reads_first", [True, False])
async def test_a_jump_while_it_runs(
    life: Life, machine: Machine, jump: int, reads_first: bool
) -> None:
    async with life() as storage:
        assert await both(storage) == (NOON, NOON, NOON)
        machine.jumps(jump)
        if reads_first:
            assert (await storage.read(times)).steady == NOON
        assert await both(storage) == (NOON + jump, min(NOON, NOON + jump), NOON)
        machine.passes(HOUR)
        assert await both(storage) == (NOON + jump + HOUR, NOON + jump + HOUR, NOON + HOUR)
    async with life() as storage:
        assert (await both(storage)).steady == NOON + HOUR


async def test_a_jump_is_remembered_though_its_transaction_fails(
    life: Life, machine: Machine
) -> None:
    def fail(database: Database) -> None:
        database.execute("INSERT INTO stopped (owner, contact) VALUES ('a', 'b')")
        raise LookupError

    async with life() as storage:
        machine.jumps(DAY)
        for _ in range(2):
            with pytest.raises(LookupError):
                await storage.write(fail)
        assert (await both(storage)).steady == NOON
    async with life() as storage:
        assert (await both(storage)).steady == NOON


@pytest.mark.parametrize("jump", [DAY, -DAY, 0])
@pytest.mark.parametrize("away", [0, HOUR, 3 * DAY])
async def test_a_restart_without_a_reboot_knows_how_long_it_took(
    life: Life, machine: Machine, jump: int, away: int
) -> None:
    async with life() as storage:
        await both(storage)
    machine.passes(away)
    machine.jumps(jump)
    async with life() as storage:
        assert (await both(storage)).steady == NOON + away


@pytest.mark.parametrize("moved", [DAY, -DAY, -50 * 365 * DAY])
async def test_after_a_reboot_nothing_has_aged_that_nobody_saw(
    life: Life, machine: Machine, moved: int
) -> None:
    async with life() as storage:
        await both(storage)
    machine.reboots(moved)
    async with life() as storage:
        back = (await both(storage)).steady
        assert NOON <= back <= NOON + 10_000  # the last known time is not known more exactly
        machine.passes(HOUR)
        assert (await both(storage)).steady == back + HOUR
    async with life() as storage:
        assert (await both(storage)).steady == back + HOUR


async def test_a_short_reboot_is_time_that_passed(life: Life, machine: Machine) -> None:
    async with life() as storage:
        await both(storage)
    machine.reboots(MINUTE)
    async with life() as storage:
        assert await both(storage) == (NOON + MINUTE,) * 3


async def test_the_time_is_written_now_and_then(life: Life, machine: Machine) -> None:
    """So that little of it is lost when the process is killed and the machine is booted."""

    def saved(database: Database) -> Any:
        return database.execute("SELECT seen FROM clock").fetchone()

    async with life() as storage:
        machine.passes(MINUTE)
        await storage.write(lambda _: None)
        assert await storage.read(saved) == (NOON + MINUTE,)
        machine.passes(9_999)
        await storage.write(lambda _: None)
        assert await storage.read(saved) == (NOON + MINUTE,)


async def test_instances_on_one_server_have_one_steady_clock(
    migrated_url: str, machine: Machine, tmp_path: Any
) -> None:
    def opened(name: str) -> AbstractAsyncContextManager[Storage]:
        return Storage.open(
            SCHEMA, tmp_path / name, postgres=migrated_url, elapsed=lambda: machine.elapsed
        )

    async with opened("a") as one, opened("b") as other:
        for jump in (DAY, -2 * DAY, HOUR):
            machine.passes(MINUTE)
            before = (await both(one)).steady
            assert (await both(other)).steady == before
            machine.jumps(jump)
            assert (await both(one)).steady == before
            async with opened("c") as third:
                assert (await both(third)).steady == before
            assert (await both(other)).steady == before


_EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("passes"), st.integers(0, 3 * DAY)),
        st.tuples(st.just("jumps"), st.integers(-3 * DAY, 3 * DAY)),
        st.tuples(st.just("restarts"), st.integers(0, DAY)),
        st.tuples(st.just("reboots"), st.integers(0, DAY)),
    ),
    max_size=12,
)


@given(_EVENTS)
def test_it_never_runs_ahead_of_real_time_and_never_stands_still(
    events: list[tuple[str, int]],
) -> None:
    """Whatever is done to the wall clock: a day lasts a day at least, of time that was observed."""
    machine = Machine()
    store = Rows()
    clock = SteadyClock(lambda: machine.elapsed, machine.boot)
    clock.start(store, machine.wall, shared=False)
    observed, slack = 0, 0
    for what, ms in events:
        if what == "passes":
            machine.passes(ms)
            observed += ms
        elif what == "jumps":
            machine.jumps(ms)
            slack += min(abs(ms), TOLERANCE_MS)
        else:
            if what == "restarts":
                machine.passes(ms)
                observed += ms
            else:
                machine.reboots(ms)
                machine.real += ms
                slack += 2 * MINUTE  # one that is so short is taken for what it seems
            clock = SteadyClock(lambda: machine.elapsed, machine.boot)
            clock.start(store, machine.wall, shared=False)
        taken = read(clock, machine)
        saved = clock.save(store, taken)
        if saved is not None:
            clock.saved(saved)
        assert abs(taken.steady - NOON - observed) <= slack


class Rows:
    """The table `clock`, in memory."""

    dialect: Any = "sqlite"
    now = settled = steady = 0

    def __init__(self) -> None:
        import sqlite3
        from pathlib import Path

        from component.app.schema import SCHEMA
        from component.store.schema import make_sqlite

        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        make_sqlite(self._connection, Path(":memory:"), SCHEMA)

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        return self._connection.execute(sql, parameters)

    def notify(self, channel: str, /) -> None:
        pass

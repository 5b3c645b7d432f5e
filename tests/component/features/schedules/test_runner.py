"""Schedules fire: each nominal instant once, whatever happens to the process and to its clock."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from component.app.schema import SCHEMA
from component.features.schedules import rows
from component.features.schedules.rows import Schedule, instant_of
from component.features.schedules.runner import ScheduleRunner, firing_work
from component.features.schedules.timing import Cron, Every, Once, Timing, next_after
from component.kernel import started_work as started
from component.store import Storage
from component.store.clock import HOLD_MS
from tests.component.features.schedules.year import (
    Killed,
    MemoryStorage,
    Published,
    Recorder,
    add,
    dice,
    expected,
    goal,
    key,
    ms,
    now_of,
    schedule,
)
from tests.component.store.clocks import DAY, HOUR, MINUTE, Machine, machine
from tests.profiles import THOROUGH
from tests.waiting import eventually
from xep.stanza_error import StanzaError

__all__ = ["machine"]  # a fixture

pytestmark = pytest.mark.anyio

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
LATE = timedelta(minutes=5)  # as docs/how-to/schedules.md says
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")


class Here:
    """A process that fires schedules on a machine, and can be killed and started again."""

    def __init__(self, machine: Machine, begin: datetime = BEGIN) -> None:
        machine.wall = ms(begin - instant_of(0))
        self.machine = machine
        self.storage = MemoryStorage(machine)
        self.starter = Recorder(self.storage)
        self.published = Published()
        self.starts()

    def starts(self) -> None:
        """The process is started again."""
        self.storage.starts()
        self.runner = ScheduleRunner(
            self.storage, self.starter, self.published, lambda: self.machine.elapsed / 1000
        )

    async def looks(self) -> float:
        """The process looks at its schedules; it may be killed meanwhile."""
        try:
            return await self.runner.step()
        except BaseExceptionGroup as group:
            if group.subgroup(Killed) is None:
                raise
            self.starts()
            return 0.0

    async def passes(self, time: timedelta) -> None:
        """Time passes, and the process looks when it has said it would."""
        end = self.machine.wall + ms(time)
        while True:
            left = await self.looks()
            if self.machine.wall >= end:
                return
            # What is far away need not be looked at every fifteen seconds.
            due = await self.storage.read(lambda db: rows.next_due(db, ()))
            step = ms(timedelta(seconds=left)) if left < 15 else max(15_000, due or 0)
            self.machine.passes(max(1, min(step, end - self.machine.wall)))


YEAR: dict[str, Timing] = {
    **{f"morning {zone}": Cron("30 2 * * *", zone) for zone in ZONES},
    "wild": Cron("*/30 2 * * *", ZONES[0]),
    "weekdays": Cron("0 9 * * 1-5", ZONES[0]),
    "month": Cron("0 0 L * *", ZONES[1]),
    "midnight": Cron("@daily", "Africa/Cairo"),
    "interval": Every(15 * 3600, BEGIN + timedelta(hours=5)),
    "once": Once(datetime(2026, 3, 24, 17, tzinfo=UTC)),
}


async def test_months_with_kills_lose_no_firing_and_repeat_none(machine: Machine) -> None:
    here = Here(machine)
    await add(here.storage, *(schedule(name, timing, BEGIN) for name, timing in YEAR.items()))
    here.starter.dies = dice(2026, 0.05)
    # In April, clocks have changed in both hemispheres.
    await here.passes(timedelta(days=365 if THOROUGH else 100))
    end = now_of(machine)
    for name, timing in YEAR.items():
        assert here.starter.fired[name] == expected(timing, BEGIN, end), name
    assert here.starter.attempts > sum(map(len, here.starter.fired.values())), "it was killed"
    left = await here.storage.read(lambda db: {one.name for one in rows.listed(db, None)})
    assert left == YEAR.keys() - {"once"}


async def test_each_firing_is_published_with_its_instant_and_task(machine: Machine) -> None:
    here = Here(machine)
    await add(here.storage, schedule("hourly", Every(3600, BEGIN + timedelta(hours=1)), BEGIN))
    await here.passes(timedelta(hours=3))
    assert [(one.name, at.hour, task) for one, at, task in here.published.firings] == [
        ("hourly", hour, f"hourly 2026-01-01T0{hour}:00:00Z") for hour in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    ("missed", "most", "wanted"),
    [
        ("skip", 10, []),
        ("once", 10, [12]),
        ("all", 10, [3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
        ("all", 2, [11, 12]),
        ("all", 100, list(range(1, 13))),
    ],
)
async def test_missed_firings_are_made_up_for_by_policy(
    machine: Machine, missed: Any, most: int, wanted: list[int]
) -> None:
    here = Here(machine)
    timing = Every(3600, BEGIN + timedelta(hours=1))
    await add(here.storage, schedule("s", timing, BEGIN, missed=missed, most=most))
    machine.passes(12 * HOUR + 10 * MINUTE)  # nothing runs meanwhile
    here.starts()
    await here.looks()
    found = [int(one[11:13]) for one in here.starter.fired.get("s", [])]
    assert found == wanted
    await here.passes(timedelta(hours=1))
    assert here.starter.fired["s"][-1] == "2026-01-01T13:00:00Z"


@pytest.mark.parametrize(("late", "fires"), [(LATE, True), (LATE + timedelta(seconds=1), False)])
async def test_a_firing_is_missed_if_it_is_more_than_five_minutes_late(
    machine: Machine, late: timedelta, fires: bool
) -> None:
    here = Here(machine)
    await add(
        here.storage,
        schedule("s", Every(3600, BEGIN + timedelta(hours=1)), BEGIN, missed="skip"),
    )
    machine.passes(HOUR + ms(late))
    here.starts()
    await here.looks()
    assert here.starter.fired.get("s", []) == ["2026-01-01T01:00:00Z"] * fires


@pytest.mark.parametrize("back", [timedelta(seconds=3), timedelta(hours=5), timedelta(days=20)])
async def test_a_clock_that_is_set_back_repeats_nothing(machine: Machine, back: timedelta) -> None:
    here = Here(machine)
    await add(here.storage, schedule("s", Every(3600, BEGIN - timedelta(days=500)), BEGIN))
    await here.passes(timedelta(hours=10))
    before = list(here.starter.fired["s"])
    assert len(before) == 10
    machine.jumps(-ms(back))
    await here.passes(back)
    found = here.starter.fired["s"]
    assert len(found) == len(set(found))
    assert set(before) <= set(found)
    if back < timedelta(hours=10):
        assert found == before, "all of these instants had come before"
    await here.passes(timedelta(hours=2))
    assert here.starter.fired["s"][-1] == key(now_of(machine))


@pytest.mark.parametrize("ahead", [timedelta(hours=5), timedelta(days=400)])
async def test_a_clock_that_is_wrong_for_a_while_silences_no_schedule(
    machine: Machine, ahead: timedelta
) -> None:
    """It is set forward, for longer than a mistake is waited for, and then corrected."""
    here = Here(machine)
    timing = Cron("0 * * * *")
    await add(here.storage, schedule("s", timing, BEGIN))
    await here.passes(timedelta(hours=2))
    machine.jumps(ms(ahead))
    await here.passes(timedelta(minutes=10))
    assert len(here.starter.fired["s"]) == 3, "the latest of those that were missed"
    machine.jumps(-ms(ahead))
    await here.passes(timedelta(hours=6))
    found = here.starter.fired["s"]
    assert len(found) == len(set(found))
    assert set(expected(timing, BEGIN, now_of(machine))) <= set(found)


async def test_a_clock_that_is_wrong_for_a_moment_fires_nothing(machine: Machine) -> None:
    here = Here(machine)
    await add(here.storage, schedule("s", Once(BEGIN + timedelta(days=3)), BEGIN))
    await here.passes(timedelta(minutes=1))
    machine.jumps(10 * DAY)
    await here.passes(timedelta(milliseconds=HOLD_MS - 1000))
    machine.jumps(-10 * DAY)
    await here.passes(timedelta(hours=1))
    assert not here.starter.fired
    await here.passes(timedelta(days=3))
    assert here.starter.fired["s"] == ["2026-01-04T00:00:00Z"]


@pytest.mark.parametrize("seed", range(2 if THOROUGH else 1))
async def test_jumps_and_kills_together_repeat_nothing(machine: Machine, seed: int) -> None:
    here, source = Here(machine), random.Random(seed)
    await add(
        here.storage,
        schedule("all", Cron("*/20 * * * *"), BEGIN, missed="all", most=100),
        schedule("daily", Cron("0 12 * * *", ZONES[0]), BEGIN),
    )
    here.starter.dies = dice(seed, 0.1)
    for _ in range(30 if THOROUGH else 15):
        await here.passes(timedelta(hours=source.randrange(1, 12)))
        machine.jumps(ms(timedelta(hours=source.randrange(-30, 30))))
    here.starter.dies = lambda: False
    await here.passes(timedelta(days=2))
    for found in here.starter.fired.values():
        assert len(found) == len(set(found))
    end, begin = now_of(machine), now_of(machine) - timedelta(days=1)
    for name, timing in (("all", Cron("*/20 * * * *")), ("daily", Cron("0 12 * * *", ZONES[0]))):
        assert set(expected(timing, begin, end)) <= set(here.starter.fired[name])


async def test_what_cannot_be_started_now_is_tried_again_and_keeps_back_nobody(
    machine: Machine,
) -> None:
    here = Here(machine)
    for name in ("busy", "other"):
        await add(here.storage, schedule(name, Once(BEGIN + timedelta(hours=1)), BEGIN))
    busy = True
    here.starter.refuses = lambda trigger: (
        StanzaError("resource-constraint", "Later.") if busy and trigger.name == "busy" else None
    )
    await here.passes(timedelta(hours=1, seconds=30))
    assert here.starter.fired.keys() == {"other"}
    assert here.starter.attempts < 10, "it waits longer each time"
    busy = False
    await here.passes(timedelta(minutes=5))
    assert here.starter.fired["busy"] == ["2026-01-01T01:00:00Z"]


async def test_a_firing_that_is_refused_for_good_is_over(machine: Machine) -> None:
    here = Here(machine)
    await add(here.storage, schedule("s", Every(3600, BEGIN + timedelta(hours=1)), BEGIN))
    here.starter.refuses = lambda _: StanzaError("forbidden", "You may not.")
    await here.passes(timedelta(hours=1))
    assert here.starter.attempts == 1
    here.starter.refuses = lambda _: None
    await here.passes(timedelta(hours=1))
    assert here.starter.fired["s"] == ["2026-01-01T02:00:00Z"]
    assert [task is None for _, _, task in here.published.firings] == [True, False]


async def test_a_schedule_that_cannot_be_read_keeps_back_nobody(machine: Machine) -> None:
    here = Here(machine)
    for name in ("odd", "even"):
        await add(here.storage, schedule(name, Once(BEGIN + timedelta(hours=1)), BEGIN))
    await here.storage.write(
        lambda db: db.execute("UPDATE schedules SET definition = '{}' WHERE id = 'odd'")
    )
    await here.passes(timedelta(hours=2))
    assert here.starter.fired.keys() == {"even"}
    assert await here.looks() >= 0.5, "it does not look all the time"


async def test_a_paused_or_removed_schedule_does_not_fire(machine: Machine) -> None:
    here = Here(machine)
    first = BEGIN + timedelta(hours=1)
    for name in ("paused", "removed", "kept"):
        await add(here.storage, schedule(name, Once(first), BEGIN))
    await here.storage.write(lambda db: rows.set_state(db, "paused", "paused", first))
    await here.storage.write(lambda db: rows.remove(db, "removed"))
    await here.passes(timedelta(hours=2))
    assert here.starter.fired.keys() == {"kept"}


@pytest.mark.ports
async def test_it_sleeps_until_something_is_due_and_is_woken(storage: Storage) -> None:
    starter = Recorder(storage)
    runner = ScheduleRunner(storage, starter, Published())
    async with anyio.create_task_group() as group:
        await group.start(runner.run)
        now = instant_of(await storage.read(lambda db: db.settled))
        await add(storage, schedule("soon", Once(now + timedelta(milliseconds=50)), now))
        runner.wake()
        await eventually(lambda: starter.fired)
        group.cancel_scope.cancel()
    assert starter.fired.keys() == {"soon"}


@pytest.mark.parametrize("passes", range(8))
async def test_it_can_be_cancelled_anywhere(machine: Machine, passes: int) -> None:
    here = Here(machine)
    timing = Every(3600, BEGIN + timedelta(hours=1))
    await add(here.storage, schedule("s", timing, BEGIN, missed="all"))
    machine.passes(3 * HOUR)
    async with anyio.create_task_group() as group:
        group.start_soon(here.runner.run)
        for _ in range(passes):
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    here.starts()
    await here.looks()
    assert here.starter.fired["s"] == expected(timing, BEGIN, now_of(machine))


@pytest.mark.ports
async def test_of_two_instances_one_fires(tmp_path: Path, migrated_url: str) -> None:
    async with (
        Storage.open(SCHEMA, tmp_path / "one", postgres=migrated_url) as one,
        Storage.open(SCHEMA, tmp_path / "other", postgres=migrated_url) as other,
    ):
        now = instant_of(await one.read(lambda db: db.settled))
        many = [
            schedule(f"s{number}", Once(now + timedelta(milliseconds=number)), now)
            for number in range(1, 40)
        ]
        await add(one, *many)
        starters = [Recorder(one), Recorder(other)]
        async with anyio.create_task_group() as group:
            for storage, starter in zip((one, other), starters, strict=True):
                group.start_soon(ScheduleRunner(storage, starter, Published()).run)

            async def is_over() -> bool:
                return not await one.read(lambda db: rows.listed(db, None))

            await eventually(is_over)
            group.cancel_scope.cancel()
        found = [name for starter in starters for name in starter.fired]
        assert sorted(found) == sorted(each.name for each in many)
        recorded = await one.read(
            lambda db: db.execute("SELECT count(*) FROM started_work").fetchone()
        )
        assert recorded == (len(many),)


def test_the_trigger_names_the_schedule_and_the_instant_in_utc() -> None:
    from component.features.schedules.runner import trigger_of

    made: Schedule = schedule("s", Cron("30 2 * * *", "Europe/Berlin"), BEGIN)
    instant = next_after(made.definition.timing, datetime(2026, 10, 24, 12, tzinfo=UTC))
    assert instant is not None
    trigger = trigger_of(made, instant)
    assert (trigger.source, trigger.name, trigger.key) == ("schedule", "s", "2026-10-25T00:30:00Z")
    assert made.definition.work == goal()
    assert started.RETENTION_MS > 40 * DAY


MIDNIGHT = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("origin", "timing", "late", "deliver"),
    [
        ("person", Once(MIDNIGHT), timedelta(0), "on-time"),
        ("agent", Cron("0 0 * * *"), LATE, "on-time"),
        ("person", Cron("30 8-17 * * mon"), timedelta(0), "on-time"),
        ("person", Once(MIDNIGHT), LATE + timedelta(seconds=1), "now"),  # it was missed
        ("person", Cron("@daily"), timedelta(0), "now"),
        ("person", Cron("*/30 * * * *"), timedelta(0), "now"),
        ("person", Every(3600, MIDNIGHT), timedelta(0), "now"),
        ("admin", Once(MIDNIGHT), timedelta(0), "now"),
        ("settings", Cron("0 0 * * *"), timedelta(0), "now"),
        ("skill", Cron("0 0 * * *"), timedelta(0), "now"),
    ],
)
def test_what_people_have_set_for_a_time_is_delivered_at_that_time(
    origin: Any, timing: Timing, late: timedelta, deliver: str
) -> None:
    made = schedule("a", timing, MIDNIGHT - timedelta(seconds=1))
    made = msgspec.structs.replace(made, origin=origin)
    assert firing_work(made, MIDNIGHT, MIDNIGHT + late).deliver == deliver

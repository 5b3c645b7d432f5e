"""Schedules are added within bounds, belong to their owners, and follow the settings."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from component.features.schedules import rows
from component.features.schedules.rows import Schedule, Wish
from component.features.schedules.schedules import (
    ScheduleError,
    Schedules,
    definition_of,
)
from component.features.schedules.settings import ScheduleLimits
from component.features.schedules.timing import Every
from component.kernel.triggers import Work
from component.skills import Registry, skill
from component.store import Storage
from tests.component.features.schedules.year import JULIET, ROMEO, goal

pytestmark = pytest.mark.anyio


@skill
def report(topic: str) -> str:
    """Report."""
    return topic


class Heard:
    """A runner, and its node, that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.node = self

    def wake(self) -> None:
        pass

    def changed(self, schedule: Schedule) -> None:
        self.told.append((schedule.state, schedule.name))

    def removed(self, schedule: Schedule) -> None:
        self.told.append(("removed", schedule.name))


def made(storage: Storage, **more: Any) -> Schedules:
    registry = Registry((report,))
    limits = ScheduleLimits(per_person=3, shortest_s=60)
    return Schedules(storage, limits, lambda _: registry.view("all", lambda _: True), **more)


def wish(when: str = "every hour", name: str = "", work: Work | None = None) -> Wish:
    return Wish(when=when, name=name, work=work or goal())


@pytest.mark.ports
async def test_each_sees_and_changes_their_own(storage: Storage) -> None:
    heard = Heard()
    schedules = made(storage, runner=heard)
    mine = await schedules.add(wish(name="mine"), "person")
    await schedules.add(wish(name="mine", work=goal(who=ROMEO)), "agent")
    assert [one.id for one in await schedules.list(JULIET)] == [mine.id]
    assert len(await schedules.list(None)) == 2
    assert await schedules.list(JULIET, "other") == []
    for change in (schedules.pause, schedules.resume, schedules.remove):
        with pytest.raises(ScheduleError, match="no schedule called"):
            await change(ROMEO, mine.id)
    assert (await schedules.pause(JULIET, mine.id)).state == "paused"
    with pytest.raises(ScheduleError, match="paused already"):
        await schedules.pause(JULIET, "mine")
    assert (await schedules.resume(None, mine.id)).state == "active", "the operator names ids"
    with pytest.raises(ScheduleError, match="not paused"):
        await schedules.resume(JULIET, "mine")
    await schedules.remove(JULIET, "mine")
    assert await schedules.list(JULIET) == []
    of_mine = [("active", "mine"), ("active", "mine"), ("paused", "mine")]
    assert heard.told == [*of_mine, ("active", "mine"), ("removed", "mine")]


@pytest.mark.ports
async def test_one_person_has_so_many(storage: Storage) -> None:
    schedules = made(storage)
    for _ in range(3):
        await schedules.add(wish(), "person")
    with pytest.raises(ScheduleError, match="There are 3 schedules, which is the maximum"):
        await schedules.add(wish(), "person")
    await schedules.add(wish(work=goal(who=ROMEO)), "person")


def work(**more: Any) -> Work:
    return Work(agent="assistant", principal=JULIET, **more)


@pytest.mark.parametrize(
    ("wanted", "param"),
    [
        (wish("sometimes"), "when"),
        (wish("every 59 seconds"), "when"),
        (wish(name="two words"), "name"),
        (wish(name="-x"), "name"),
        (Wish(when="every hour", work=goal(), zone="Mars"), "zone"),
        (Wish(when="every hour", work=goal(), missed_most=101), "missed"),
        (wish(work=work()), "goal"),
        (wish(work=work(goal=" ")), "goal"),
        (wish(work=work(goal="x", skill="report")), "goal"),
        (wish(work=work(skill="missing")), "skill"),
        (wish(work=work(skill="report")), "params"),
        (wish(work=work(skill="report", params=msgspec.Raw(b'{"x":1}'))), "params"),
        (wish(work=work(skill="report", params=msgspec.Raw(b"[]"))), "params"),
    ],
)
async def test_what_is_wrong_names_what_is_to_blame(
    storage: Storage, wanted: Wish, param: str
) -> None:
    with pytest.raises(ScheduleError) as refused:
        await made(storage).add(wanted, "person")
    assert refused.value.param == param
    assert str(refused.value).endswith(".")


@pytest.mark.ports
async def test_a_name_is_taken_once(storage: Storage) -> None:
    schedules = made(storage)
    await schedules.add(wish(name="a"), "person")
    with pytest.raises(ScheduleError, match="called 'a' already"):
        await schedules.add(wish(name="a"), "person")


async def test_a_goal_needs_a_model(storage: Storage) -> None:
    with pytest.raises(ScheduleError, match="no language model"):
        await made(storage, goals=False).add(wish(), "person")


@pytest.mark.ports
async def test_a_pause_is_not_made_up_for_and_a_time_that_passed_meanwhile_is_over(
    storage: Storage,
) -> None:
    schedules = made(storage)
    hourly = await schedules.add(wish("every hour", "hourly"), "person")
    once = await schedules.add(wish("in 1 hour", "once"), "person")
    for each in (hourly, once):
        await schedules.pause(JULIET, each.name)
        passed = msgspec.structs.replace(
            each.definition, timing=msgspec.structs.replace(each.definition.timing, **_past(each))
        )
        await storage.write(
            lambda db, each=each, passed=passed: rows.redefine(db, each.id, passed, each.due)
        )
    resumed = await schedules.resume(JULIET, "hourly")
    assert resumed.due > datetime.now(UTC)
    with pytest.raises(ScheduleError, match="has passed"):
        await schedules.resume(JULIET, "once")


def _past(schedule: Schedule) -> dict[str, datetime]:
    name = "start" if isinstance(schedule.definition.timing, Every) else "at"
    return {name: datetime.now(UTC) - timedelta(hours=4, minutes=30)}


@pytest.mark.ports
async def test_the_settings_are_followed(storage: Storage) -> None:
    schedules = made(storage)
    await schedules.configure([wish("every hour", "a"), wish("every hour", "b")])
    first = {one.name: one for one in await schedules.list(JULIET)}
    assert {one.origin for one in first.values()} == {"settings"}
    await schedules.pause(JULIET, "a")
    with pytest.raises(ScheduleError, match="is in the settings"):
        await schedules.remove(JULIET, "a")
    await schedules.configure(
        [wish("every hour", "a"), wish("every 2 hours", "b"), wish("every hour", "c")]
    )
    found = {one.name: one for one in await schedules.list(JULIET)}
    assert found["a"] == msgspec.structs.replace(first["a"], state="paused")
    assert found["b"].definition.timing != first["b"].definition.timing
    await schedules.configure([wish("every hour", "c", goal(who=ROMEO))])
    assert await schedules.list(JULIET) == []
    assert [one.name for one in await schedules.list(ROMEO)] == ["c"]


async def test_the_schedules_of_skills_are_apart_from_those_of_the_settings(
    storage: Storage,
) -> None:
    schedules = made(storage)
    await schedules.configure([wish("every hour", "a")])
    of_both = [wish("0 7 * * *", "report"), wish("0 7 * * *", "report", goal(who=ROMEO))]
    await schedules.configure(of_both, "skill")
    found = await schedules.list(JULIET)
    assert sorted((one.origin, one.name) for one in found) == [
        ("settings", "a"),
        ("skill", "report"),
    ]
    with pytest.raises(ScheduleError, match="is in the settings"):
        await schedules.remove(JULIET, "report")
    await schedules.configure([])
    assert [one.name for one in await schedules.list(JULIET)] == ["report"]
    await schedules.configure([], "skill")
    assert await schedules.list(None) == []


async def test_what_is_done_can_change_without_a_change_of_when(storage: Storage) -> None:
    schedules = made(storage)
    await schedules.configure([wish("every hour", "a")])
    (before,) = await schedules.list(JULIET)
    await schedules.configure([wish("every hour", "a", work(goal="Something else."))])
    (after,) = await schedules.list(JULIET)
    assert after.due == before.due
    assert after.definition.timing == before.definition.timing
    assert after.definition.work.goal == "Something else."


async def test_a_date_in_the_settings_that_has_passed_fires_no_more(storage: Storage) -> None:
    schedules = made(storage)
    await schedules.configure([wish("2020-01-01 08:00", "past"), wish("2099-01-01 08:00", "next")])
    assert [one.name for one in await schedules.list(None)] == ["next"]


async def test_a_name_that_a_person_has_taken_stops_nothing(storage: Storage) -> None:
    schedules = made(storage)
    await schedules.add(wish(name="a"), "person")
    await schedules.configure([wish(name="a"), wish(name="b")])
    found = await schedules.list(JULIET)
    assert {(one.name, one.origin) for one in found} == {("a", "person"), ("b", "settings")}


def test_a_schedule_of_the_settings_names_no_relative_time() -> None:
    with pytest.raises(ScheduleError, match="depends on when"):
        definition_of(wish("in 5 minutes", "a"), "UTC", datetime.now(UTC), declared=True)

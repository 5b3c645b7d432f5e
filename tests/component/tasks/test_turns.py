"""Who runs next, how many at a time, and what happens when the service ends or cannot be heard."""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.app.schema import SCHEMA
from component.skills import Context, Skill, skill
from component.store import Storage, StorageError
from component.tasks import events, leases
from component.tasks.leases import Slot, Slots
from component.tasks.service import Membership
from tests.component.tasks.test_durable import asking, cancel, conditions, text_of, three_steps
from tests.component.tasks.world import ANN, BOB, Ear, Open, World, living
from tests.waiting import eventually
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Accepted, Result
from xep.jid import JID
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio


class _NeverSent:
    """A stanza of which nobody says anything."""

    def withdraw(self) -> bool:
        return False


NEVER_SENT = _NeverSent()


async def all_told(world: World) -> bool:
    return not await world.scalar("SELECT count(*) FROM tasks WHERE unsent_revision IS NOT NULL")


class Floor:
    """A skill whose runs are seen, and end when they are let."""

    def __init__(self, **how: Any) -> None:
        self.order: list[str] = []
        self.now = 0
        self.most = 0
        self.by: dict[str, int] = {}
        self.most_by: dict[str, int] = {}
        self.gate = anyio.Event()
        self.entered = anyio.Event()
        how = how or {"durable": True}

        @skill(name="work", **how)
        async def work(name: str, context: Context) -> str:
            self.order.append(name)
            self.now += 1
            self.most = max(self.most, self.now)
            who = context.principal
            self.by[who] = self.by.get(who, 0) + 1
            self.most_by[who] = max(self.most_by.get(who, 0), self.by[who])
            self.entered.set()
            await self.gate.wait()
            self.now -= 1
            self.by[who] -= 1
            return name

        self.skill: Skill = work


@pytest.mark.ports
async def test_no_more_run_than_there_is_room_for(open_storage: Open) -> None:
    floor = Floor()
    carol = JID.parse("carol@a.example/x")
    async with living(open_storage, floor.skill, running_total=4, running_per_principal=3) as world:
        tasks = [
            await world.task("work", by=who, params={"name": f"{who.local}{number}"})
            for number in range(6)
            for who in (ANN, BOB, carol)
        ]
        assert floor.now == 4
        floor.gate.set()
        for task in tasks:
            await world.ear.ended(task)
        assert floor.most == 4
        assert max(floor.most_by.values()) <= 3
        assert len(floor.order) == 18


async def test_who_has_no_task_finds_room_while_others_take_all_they_can(
    open_storage: Open,
) -> None:
    floor = Floor()
    async with living(open_storage, floor.skill, running_total=8, running_per_principal=4) as world:
        tasks = [
            await world.task("work", by=who, params={"name": f"{who.local}{number}"})
            for number in range(6)
            for who in (ANN, BOB)
        ]
        carol = JID.parse("carol@a.example/x")
        tasks.append(await world.task("work", by=carol, params={"name": "carol"}))
        await eventually(lambda: "carol" in floor.order)
        assert floor.now <= 8
        floor.gate.set()
        for task in tasks:
            await world.ear.ended(task)


@pytest.mark.ports
async def test_priority_orders_ones_own_tasks_and_age_does_otherwise(open_storage: Open) -> None:
    floor = Floor()
    async with living(open_storage, floor.skill, running_total=1) as world:
        tasks = [await world.task("work", params={"name": "first"})]
        await floor.entered.wait()
        for name, priority in (
            ("low", "low"), ("one", "normal"), ("two", "normal"), ("high", "high")
        ):  # fmt: skip
            created = time.time_ns() // 1_000_000
            tasks.append(await world.task("work", params={"name": name}, priority=priority))
            # Tasks of the same millisecond have no order.
            await eventually(lambda then=created: time.time_ns() // 1_000_000 > then + 1)
        floor.gate.set()
        for task in tasks:
            await world.ear.ended(task)
        assert floor.order == ["first", "high", "one", "two", "low"]


async def test_nobodys_backlog_delays_another(open_storage: Open) -> None:
    floor = Floor()
    async with living(open_storage, floor.skill, running_total=2) as world:
        tasks = [await world.task("work", params={"name": f"ann{number}"}) for number in range(12)]
        bobs = await world.task("work", by=BOB, params={"name": "bob"})
        floor.gate.set()
        for task in (*tasks, bobs):
            await world.ear.ended(task)
        assert floor.order.index("bob") <= 4


@pytest.mark.ports
async def test_what_waited_for_its_turn_is_taken_up_after_a_kill(open_storage: Open) -> None:
    floor = Floor()
    async with living(open_storage, floor.skill, running_total=1) as world:
        tasks = [await world.task("work", params={"name": str(number)}) for number in range(3)]
        assert (await world.get(tasks[2])).state == "accepted"
        found = [await world.get(task) for task in tasks]
    # Those of one millisecond have no order but that of their identifiers.
    waited = sorted(range(1, 3), key=lambda number: (found[number].created, tasks[number]))
    again = Floor()
    again.gate.set()
    async with living(open_storage, again.skill, running_total=1) as world:
        for task in tasks:
            assert (await world.ear.ended(task)).state == "completed"
        assert again.order == ["0", *map(str, waited)]


async def test_a_queued_task_is_cancelled_before_it_begins(open_storage: Open) -> None:
    floor = Floor()
    async with living(open_storage, floor.skill, running_total=1) as world:
        first = await world.task("work", params={"name": "first"})
        second = await world.task("work", params={"name": "second"})
        assert (await cancel(world, second)).state == "cancelled"
        floor.gate.set()
        await world.ear.ended(first)
        await anyio.wait_all_tasks_blocked()
        assert floor.order == ["first"]


# The end of the service.


FOR_EVER = 3600.0


@pytest.mark.parametrize("how", [{"destructive": False}, {"read_only": True}], ids=str)
async def test_the_end_waits_for_work_that_is_not_durable(
    open_storage: Open, how: dict[str, bool]
) -> None:
    floor = Floor(**how)
    async with living(open_storage, floor.skill) as world:
        task = await world.task("work", params={"name": "x"})
        await floor.entered.wait()
        async with anyio.create_task_group() as group:
            group.start_soon(world.service.drain)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(StanzaError):
                await world.run("work", params={"name": "late"})
            floor.gate.set()
        assert (await world.get(task)).state == "completed"


class Stairs:
    """A durable skill of two steps that are done when they are let, with something between."""

    def __init__(self, *, repeatable: bool = False) -> None:
        self.done: list[str] = []
        self.inside = anyio.Event()
        self.between = anyio.Event()
        self.step = anyio.Event()
        self.pause = anyio.Event()

        @skill(name="stairs", durable=True)
        async def stairs(context: Context) -> str:
            await context.step("a", self._a, str, repeatable=repeatable)
            self.between.set()
            await self.pause.wait()
            await context.step("b", self._b, str, repeatable=repeatable)
            return "up"

        self.skill: Skill = stairs

    async def _a(self, key: str) -> str:
        self.inside.set()
        await self.step.wait()
        self.done.append("a")
        return "A"

    async def _b(self, key: str) -> str:
        self.done.append("b")
        return "B"


async def test_the_end_does_not_wait_for_who_is_between_steps(open_storage: Open) -> None:
    stairs = Stairs()
    stairs.step.set()
    async with living(open_storage, stairs.skill, drain_s=FOR_EVER) as world:
        task = await world.task("stairs")
        await stairs.between.wait()
        with anyio.fail_after(120):
            await world.service.drain()
        assert (await world.get(task)).state == "running"
        assert await world.scalar("SELECT count(*) FROM tasks WHERE owner IS NOT NULL") == 0
    stairs.pause.set()
    async with living(open_storage, stairs.skill) as world:
        assert text_of(await world.ear.ended(task)) == "up"
        assert stairs.done == ["a", "b"]


@pytest.mark.parametrize("repeatable", [False, True])
async def test_the_end_waits_for_a_step_and_not_for_the_next(
    open_storage: Open, repeatable: bool
) -> None:
    stairs = Stairs(repeatable=repeatable)
    stairs.pause.set()
    async with living(open_storage, stairs.skill, drain_s=FOR_EVER) as world:
        task = await world.task("stairs")
        await stairs.inside.wait()
        async with anyio.create_task_group() as group:
            group.start_soon(world.service.drain)
            await anyio.wait_all_tasks_blocked()
            assert stairs.done == []
            stairs.step.set()
        assert stairs.done == ["a"]
        assert (await world.get(task)).state == "running"
    async with living(open_storage, stairs.skill) as world:
        assert text_of(await world.ear.ended(task)) == "up"
        assert stairs.done == ["a", "b"]


async def test_the_end_waits_between_steps_while_somebody_waits_for_the_answer(
    open_storage: Open,
) -> None:
    stairs = Stairs()
    stairs.step.set()
    async with living(open_storage, stairs.skill, drain_s=FOR_EVER, inline_s=FOR_EVER) as world:
        answers: list[Result | Accepted] = []

        async def ask() -> None:
            answers.append(await world.run("stairs"))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await stairs.between.wait()
            group.start_soon(world.service.drain)
            await anyio.wait_all_tasks_blocked()
            stairs.pause.set()
        assert [type(answer) for answer in answers] == [Result]
        assert stairs.done == ["a", "b"]


async def test_the_end_waits_for_nobody_once_the_answer_is_that_it_takes_longer(
    open_storage: Open,
) -> None:
    stairs = Stairs()
    stairs.step.set()
    async with living(open_storage, stairs.skill, drain_s=FOR_EVER, inline_s=0.05) as world:
        answers: list[Result | Accepted] = []

        async def ask() -> None:
            answers.append(await world.run("stairs"))

        with anyio.fail_after(120):
            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                await stairs.between.wait()
                group.start_soon(world.service.drain)
        (accepted,) = answers
        assert isinstance(accepted, Accepted)
        assert (await world.get(accepted.task)).state == "running"


async def test_the_end_waits_for_no_question(open_storage: Open) -> None:
    async with living(open_storage, asking([]), drain_s=FOR_EVER) as world:
        task = await world.task("asks")
        await world.ear.in_state(task, "input-required")
        with anyio.fail_after(120):
            await world.service.drain()
        assert (await world.get(task)).state == "input-required"


@pytest.mark.ports
@pytest.mark.parametrize("inside", [False, True])
async def test_work_that_does_not_end_goes_on_at_the_next_start(
    open_storage: Open, inside: bool
) -> None:
    log: list[str] = []
    there = anyio.Event()

    async def stay(_: str = "") -> None:
        there.set()
        await anyio.sleep_forever()

    @skill(name="three", durable=True)
    async def stuck(context: Context) -> None:
        async def work(key: str) -> str:
            log.append(f"a {key}")
            return "A"

        await context.step("a", work, str)
        if inside:
            await context.step("b", stay, type(None))
        await stay()

    async with living(open_storage, stuck, drain_s=0.01) as world:
        task = await world.task("three")
        await there.wait()
        await world.service.drain()
        assert (await world.get(task)).state == ("failed" if inside else "running")
        assert await world.scalar("SELECT count(*) FROM tasks WHERE owner IS NOT NULL") == 0
    async with living(open_storage, three_steps(log)) as world:
        if inside:
            assert conditions(await world.get(task)) == (errors.OutcomeUnknown(),)
        else:
            assert text_of(await world.ear.ended(task)) == "ABC"
        assert [entry.split()[0] for entry in log][:1] == ["a"]


# Telling.


async def test_what_may_be_lost_with_the_connection_is_told_again(open_storage: Open) -> None:
    ear = Ear()
    ear.losses = 2
    async with living(open_storage, three_steps([]), ear=ear) as world:
        done = await world.task("three")
        await world.reaches(done, "completed")
        await eventually(functools.partial(all_told, world))
        assert [one.task.state for one in ear.notices if one.task.id == done][-3:] == [
            "completed"
        ] * 3


async def test_what_needs_no_stanza_is_told_once_without_a_connection(open_storage: Open) -> None:
    ear = Ear()
    ear.is_silent, ear.losses = True, 1_000
    async with living(open_storage, three_steps([]), ear=ear) as world:
        done = await world.task("three")
        await world.reaches(done, "completed")
        await eventually(functools.partial(all_told, world))
        assert [one.task.state for one in ear.notices].count("completed") == 1


async def test_what_could_not_be_told_is_told_on_connecting(open_storage: Open) -> None:
    log: list[str] = []
    ear = Ear()
    ear.deaf = True
    async with living(open_storage, asking(log), three_steps(log), ear=ear) as world:
        done = await world.task("three")
        await world.reaches(done, "completed")
        asks = await world.task("asks")
        await world.reaches(asks, "input-required")
        assert ear.notices == []
    ear = Ear()
    async with living(open_storage, asking(log), three_steps(log), ear=ear) as world:
        await world.service.connected()
        assert [one.task.state for one in ear.notices] == ["completed", "input-required"]
        assert ear.notices[0].final
        assert ear.notices[1].question is not None
        await eventually(functools.partial(all_told, world))
        await world.service.connected()
        assert len(ear.notices) == 2
        assert (await ear.ended(await world.task("three"))).state == "completed"


@pytest.mark.ports
async def test_what_the_server_has_not_taken_is_told_again_by_another_life(
    open_storage: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_GATHER_S", 0.0)
    monkeypatch.setattr(events, "_LAST_WORDS_S", 0.0)
    log: list[str] = []
    ear = Ear()
    ear.holds = True  # what is said stays in memory
    async with living(open_storage, three_steps(log), ear=ear) as world:
        task = await world.task("three")
        await ear.ended(task)
        said = len(ear.notices)
        await world.service.connected()
        assert len(ear.notices) == said, "it is on its way, and not said twice"
    again = Ear()
    async with living(open_storage, three_steps(log), ear=again) as world:
        await world.service.connected()
        assert [one.task.state for one in again.notices] == ["completed"]
        await eventually(functools.partial(all_told, world))


async def test_what_was_dropped_is_told_again_once_there_is_a_stream(
    open_storage: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_GATHER_S", 0.0)
    log: list[str] = []
    ear = Ear()
    ear.holds = True
    async with living(open_storage, three_steps(log), ear=ear) as world:
        task = await world.task("three")
        end = await ear.ended(task)
        said = len(ear.notices)
        for delivery in ear.deliveries:
            delivery.add(NEVER_SENT)
            delivery.settle(NEVER_SENT, "dropped")
        ear.deliveries.clear()
        await world.service.connected()
        assert [one.task for one in ear.notices[said:]] == [end]
        assert await world.scalar("SELECT count(*) FROM tasks WHERE unsent_revision IS NOT NULL")
        for delivery in ear.deliveries:
            delivery.conclude()
        await eventually(functools.partial(all_told, world))
        await world.service.connected()
        assert len(ear.notices) == said + 1


@pytest.mark.ports
async def test_at_the_end_what_was_written_is_noted_and_nothing_else(
    open_storage: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_GATHER_S", 3600.0)
    monkeypatch.setattr(events, "_LAST_WORDS_S", 0.0)
    log: list[str] = []
    ear = Ear()
    async with living(open_storage, three_steps(log), ear=ear) as world:
        await ear.ended(await world.task("three"))
        ear.holds = True
        left = await world.task("three")
        await ear.ended(left)
        await world.service.drain()
    again = Ear()
    async with living(open_storage, three_steps(log), ear=again) as world:
        await world.service.connected()
        assert [one.task.id for one in again.notices] == [left]


async def test_a_database_that_refuses_refuses_admission(
    open_storage: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    async with living(open_storage, three_steps(log)) as world:
        await world.task("three")  # so that the engine is there
        write = world.storage.write
        full = True

        async def refusing(op: Any, *, keep_trying: bool = False, **rest: Any) -> Any:
            if full and not keep_trying:
                raise StorageError("The disk is full.")
            return await write(op, keep_trying=keep_trying, **rest)

        monkeypatch.setattr(world.storage, "write", refusing)
        for mode in ("async", "auto"):
            with pytest.raises(StorageError):
                await world.run("three", mode=mode, request=mode)
        full = False
        assert isinstance(await world.run("three", mode="async", request="async"), Accepted)
        assert isinstance(await world.run("three", mode="auto", request="auto"), Result)


# Leases.


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_whose_beat_stands_still_is_dead_and_who_paused_itself_judges_nobody() -> None:
    clock = Clock()
    watch = leases.Watch(clock)
    assert watch.dead({"a": 1, "b": 1}) == {}
    for beat in range(2, 8):
        clock.now += leases.HEARTBEAT_S
        dead = watch.dead({"a": beat, "b": 1})
    assert dead == {"b": 1}
    clock.now += 1000.0
    assert watch.dead({"a": 7, "b": 1}) == {}


@given(st.lists(st.tuples(st.floats(0.1, 20), st.booleans()), min_size=1, max_size=40))
def test_nobody_is_declared_dead_who_beats_in_time(steps: list[tuple[float, bool]]) -> None:
    clock = Clock()
    watch = leases.Watch(clock)
    beat, since = 0, 0.0
    for wait, beats in steps:
        clock.now += wait
        since += wait
        if beats:
            beat, since = beat + 1, 0.0
        if watch.dead({"a": beat}):
            assert since >= leases.DEAD_S


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=40))
def test_slots_are_counted_and_released_once(steps: list[tuple[str, bool]]) -> None:
    slots = Slots(3, 2)
    held: list[Slot] = []
    for who, comes in steps:
        mine = [slot for slot in held if slot.share == who]
        if comes and slots.has(who):
            held.append(slots.take(who))
        elif not comes and mine:
            mine[0].release()
            mine[0].release()  # the second time is nothing
            held.remove(mine[0])
        names = [slot.share for slot in held]
        assert slots.free == 3 - len(held)
        assert dict(slots.running) == {name: names.count(name) for name in set(names)}
        assert all(names.count(name) <= 2 for name in names)


# Several instances.


@asynccontextmanager
async def worlds(directory: Path, url: str, *skills: Skill) -> AsyncIterator[list[World]]:
    """Two instances on one database."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                living(
                    functools.partial(Storage.open, SCHEMA, directory / name, postgres=url), *skills
                )
            )
            for name in ("one", "other")
        ]


async def test_another_instance_hears_that_a_task_is_cancelled(
    tmp_path: Path, migrated_url: str
) -> None:
    floor = Floor()
    async with worlds(tmp_path, migrated_url, floor.skill) as (one, other):
        task = await one.task("work", params={"name": "x"})
        await floor.entered.wait()
        await cancel(other, task)
        assert (await one.ear.ended(task)).state == "cancelled"


@pytest.mark.ports
async def test_work_of_a_dead_instance_is_taken_over_and_it_can_write_nothing(
    tmp_path: Path, migrated_url: str
) -> None:
    there, never = anyio.Event(), anyio.Event()
    log: list[str] = []
    lives: list[str] = []

    @skill(name="three", durable=True)
    async def three(context: Context) -> str:
        lives.append("life")
        if len(lives) == 1:
            there.set()
            with anyio.CancelScope(shield=True):
                await never.wait()

        async def work(_: str) -> str:
            log.append("step")
            return "A"

        return await context.step("a", work, str)

    async with worlds(tmp_path, migrated_url, three) as (one, other):
        task = await one.task("three")
        await there.wait()
        # What the watch of the other one does once the beat has stood still for long enough.
        dead = one.service.instance
        beat = await other.scalar("SELECT heartbeat FROM instances WHERE id = ?", dead)
        evicting = functools.partial(Membership._evict, dead, beat)
        await other.service._runtime.commit(evicting)
        service = other.service
        service._worker.wake()
        assert text_of(await other.ear.ended(task)) == "A"
        never.set()
        await anyio.wait_all_tasks_blocked()
        assert log == ["step"]
        states = [event.state for event in await other.events(task)]
        assert states == ["running", "completed"]

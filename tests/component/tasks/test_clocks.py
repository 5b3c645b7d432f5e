"""Durable work on a machine whose clock is wrong: nothing runs twice, lapses or goes by a jump."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import msgspec
import pytest

from component.skills import Context, Skill, skill
from component.store.clock import GRACE_MS, HOLD_MS
from component.tasks.expiry import forget, remove
from component.tasks.protocol import Bounds
from component.tasks.request import Confirmation
from tests.component.store.clocks import DAY, HOUR, MINUTE, NOON, Life, Machine, life, machine
from tests.component.tasks.world import AGENT, ANN, World, living
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Decision
from xep.fluux_agent.execute import Accepted, Result
from xep.fluux_agent.task import AnswerParams, InputAnswer, Task
from xep.stanza_error import StanzaError

__all__ = ["life", "machine"]  # fixtures

pytestmark = pytest.mark.anyio

YEAR = 365 * DAY
LIMITS: dict[str, Any] = {"replay_s": 86_400.0, "retention_s": 7 * 86_400.0}
JUMPS = [2 * DAY, -2 * DAY, 50 * YEAR, -50 * YEAR]


class Choice(msgspec.Struct):
    colour: str


def paying(paid: list[str]) -> Skill:
    @skill(name="pay")
    async def pay(context: Context) -> str:
        paid.append(context.key)
        return f"paid {len(paid)}"

    return pay


@skill(name="asks", durable=True)
async def asks(context: Context) -> str:
    return (await context.ask("Which colour?", Choice, expires_s=86_400)).colour


def lives(life: Life, *skills: Skill) -> AbstractAsyncContextManager[World]:
    return living(life, *skills, **LIMITS)


async def notice(world: World) -> None:
    """Have the timer look, as it does within a minute, and old rows removed, as is done in ten."""
    while await world.storage.write(forget):
        pass
    await world.service._settle_due()


def conditions(task: Task) -> tuple[object, ...]:
    assert task.failure is not None, task
    return task.failure.conditions


async def answer(world: World, task: Task) -> Task:
    assert task.input is not None
    return await world.service.answer(
        ANN.bare,
        AGENT,
        InputAnswer(
            task=task.id,
            input=task.input.id,
            revision=task.input.revision,
            params=AnswerParams(json=msgspec.Raw(b'{"colour": "red"}')),
        ),
    )


@pytest.mark.parametrize("jump", JUMPS)
@pytest.mark.parametrize("mode", ["auto", "async"])
async def test_what_must_not_repeat_does_not_repeat_after_a_jump(
    life: Life, machine: Machine, jump: int, mode: str
) -> None:
    paid: list[str] = []
    async with lives(life, paying(paid)) as world:
        first = await world.run("pay", mode=mode, request="once")
        if isinstance(first, Accepted):
            await world.ear.ended(first.task)
    async with lives(life, paying(paid)) as world:  # it remembers nothing but what is on disk
        machine.jumps(jump)
        await notice(world)
        machine.passes(DAY - HOUR)
        await notice(world)
        again = await world.run("pay", mode=mode, request="once")
        assert type(again) is type(first)
        assert len(paid) == 1
        if isinstance(first, Accepted) and isinstance(again, Accepted):
            assert again.task == first.task
            assert (await world.get(first.task)).state == "completed"


@pytest.mark.parametrize("jump", JUMPS)
async def test_the_record_of_a_task_that_is_one_too_many_outlives_a_jump(
    life: Life, machine: Machine, jump: int
) -> None:
    paid: list[str] = []
    async with lives(life, paying(paid)) as world:
        machine.jumps(jump)
        first = await world.task("pay", request="once")
        await world.ear.ended(first)
        await world.storage.write(lambda db: db.execute("UPDATE tasks SET unsent_revision = NULL"))
        none_kept = Bounds(tasks=0)
        replay_ms = round(LIMITS["replay_s"] * 1000)
        removed = await world.storage.write(
            lambda db: remove(db, str(ANN.bare), none_kept, replay_ms)
        )
        assert removed.tasks == 1
    async with lives(life, paying(paid)) as world:  # it remembers nothing but what is on disk
        machine.passes(DAY - HOUR)
        await notice(world)
        assert await world.task("pay", request="once") == first
        assert len(paid) == 1
        machine.passes(HOUR + MINUTE)
        await notice(world)
        assert await world.scalar("SELECT count(*) FROM replay") == 0


@pytest.mark.parametrize("jump", JUMPS)
async def test_nothing_is_kept_for_ever_after_a_jump(
    life: Life, machine: Machine, jump: int
) -> None:
    paid: list[str] = []
    async with lives(life, paying(paid)) as world:
        before = await world.task("pay", request="before")
        await world.ear.ended(before)
        machine.jumps(jump)
        after = await world.task("pay", request="after")
        await world.ear.ended(after)
        machine.passes(6 * DAY)
        await notice(world)
        assert await world.scalar("SELECT count(*) FROM tasks") == 2
        machine.passes(DAY + 1)
        await notice(world)
        assert await world.scalar("SELECT count(*) FROM tasks") == 0
        assert await world.scalar("SELECT count(*) FROM replay") == 0


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_question_can_be_answered_for_as_long_as_was_promised(
    life: Life, machine: Machine, jump: int
) -> None:
    async with lives(life, asks) as world:
        tasks = [await world.task("asks") for _ in range(2)]
        asked = [await world.ear.in_state(task, "input-required") for task in tasks]
        machine.jumps(jump)
        await notice(world)
        machine.passes(DAY - MINUTE)
        await notice(world)
        assert (await world.get(tasks[0])).state == "input-required"
        open_ = await world.service.open_questions(ANN.bare, AGENT)
        assert {one.task for one in open_} == set(tasks)
        await answer(world, asked[0])
        assert (await world.ear.ended(tasks[0])).state == "completed"
        machine.passes(MINUTE)
        await notice(world)
        assert conditions(await world.ear.ended(tasks[1])) == (errors.InputExpired(),)


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_confirmation_too(life: Life, machine: Machine, jump: int) -> None:
    paid: list[str] = []
    async with lives(life, paying(paid)) as world:
        task = await world.task("pay", confirm=Confirmation((ANN.bare,), expires_s=600))
        confirm = (await world.get(task)).confirm
        assert confirm is not None
        machine.jumps(jump)
        await notice(world)
        await world.service.decide(ANN.bare, AGENT, Decision(id=confirm.id, value="approve"))
        assert (await world.ear.ended(task)).state == "completed"
        assert len(paid) == 1


async def test_what_lapsed_while_the_machine_was_suspended_has_lapsed(
    life: Life, machine: Machine
) -> None:
    async with lives(life, asks) as world:
        task = await world.task("asks")
        asked = await world.ear.in_state(task, "input-required")
        machine.passes(DAY)
        with pytest.raises(StanzaError) as refused:
            await answer(world, asked)
        assert refused.value.application == (errors.Expired(),)
        assert conditions(await world.ear.ended(task)) == (errors.InputExpired(),)


async def test_a_deadline_follows_the_clock_when_it_has_held(life: Life, machine: Machine) -> None:
    deadline = datetime.fromtimestamp(NOON / 1000, UTC) + timedelta(hours=1)
    async with lives(life, asks) as world:
        task = await world.task("asks", deadline=deadline)
        await world.ear.in_state(task, "input-required")
        machine.jumps(2 * HOUR)
        await notice(world)
        assert (await world.get(task)).state == "input-required"
        machine.jumps(-2 * HOUR)  # it was a mistake
        machine.passes(HOLD_MS)
        await notice(world)
        assert (await world.get(task)).state == "input-required"
        machine.jumps(2 * HOUR)
        await notice(world)
        machine.passes(HOLD_MS)
        await notice(world)
        assert conditions(await world.ear.ended(task)) == (errors.DeadlineExpired(),)


async def test_a_deadline_is_not_early_when_the_clock_went_back(
    life: Life, machine: Machine
) -> None:
    deadline = datetime.fromtimestamp(NOON / 1000, UTC) + timedelta(hours=1)
    gate = anyio.Event()

    @skill(name="waits")
    async def waits() -> str:
        await gate.wait()
        return "done"

    async with lives(life, waits) as world:
        task = await world.task("waits", deadline=deadline)
        machine.jumps(-2 * HOUR)
        machine.passes(2 * HOUR)
        await notice(world)
        assert (await world.get(task)).state == "running"
        gate.set()
        assert (await world.ear.ended(task)).state == "completed"


async def test_a_deadline_that_passed_by_a_clock_set_during_a_restart(
    life: Life, machine: Machine
) -> None:
    deadline = datetime.fromtimestamp(NOON / 1000, UTC) + timedelta(hours=1)
    async with lives(life, asks) as world:
        task = await world.task("asks", deadline=deadline)
        await world.ear.in_state(task, "input-required")
    machine.jumps(2 * HOUR)
    async with lives(life, asks) as world:
        await notice(world)
        assert (await world.get(task)).state == "input-required"
        machine.passes(HOLD_MS)
        await notice(world)
        assert conditions(await world.get(task)) == (errors.DeadlineExpired(),)


async def test_people_are_not_asked_for_longer_than_they_were_told_if_the_machine_was_off(
    life: Life, machine: Machine
) -> None:
    async with lives(life, asks) as world:
        machine.passes(HOUR)
        old = await world.task("asks")
        await world.ear.in_state(old, "input-required")
    machine.reboots(DAY)
    async with lives(life, asks) as world:
        machine.passes(1)
        new = await world.task("asks")
        await world.ear.in_state(new, "input-required")
        machine.passes(GRACE_MS - 2)
        await notice(world)
        assert (await world.get(old)).state == "input-required"
        machine.passes(1)
        await notice(world)
        assert conditions(await world.get(old)) == (errors.InputExpired(),)
        assert (await world.get(new)).state == "input-required"
        machine.passes(DAY - GRACE_MS + 1_000)
        await notice(world)
        assert conditions(await world.get(new)) == (errors.InputExpired(),)


@pytest.mark.parametrize("wrong", [DAY, -DAY, -50 * YEAR])
async def test_a_machine_that_boots_with_a_wrong_clock(
    life: Life, machine: Machine, wrong: int
) -> None:
    """It was off for an hour, and NTP sets the clock a minute after it came up."""
    async with lives(life, asks) as world:
        task = await world.task("asks")
        await world.ear.in_state(task, "input-required")
    machine.reboots(HOUR + wrong)
    async with lives(life, asks) as world:
        await notice(world)
        machine.passes(MINUTE)
        machine.jumps(-wrong)
        await notice(world)
        machine.passes(GRACE_MS)
        await notice(world)
        assert (await world.get(task)).state == "input-required"
        # Of the day an hour and some minutes are over.
        machine.passes(DAY - HOUR - MINUTE - GRACE_MS - MINUTE)
        await notice(world)
        assert (await world.get(task)).state == "input-required"
        machine.passes(2 * MINUTE)
        await notice(world)
        assert conditions(await world.get(task)) == (errors.InputExpired(),)


@pytest.mark.parametrize("jump", JUMPS)
async def test_the_times_that_are_shown_are_those_of_the_wall_clock(
    life: Life, machine: Machine, jump: int
) -> None:
    def of(wall: int) -> datetime:
        return datetime.fromtimestamp(wall / 1000, UTC)

    paid: list[str] = []
    async with lives(life, paying(paid)) as world:
        machine.jumps(jump)
        accepted = await world.run("pay", mode="async")
        assert isinstance(accepted, Accepted)
        ended = await world.ear.ended(accepted.task)
        shown = await world.get(accepted.task)
        retained = of(machine.wall + 7 * DAY)
        assert [one.retain_until for one in (accepted, ended, shown)] == [retained] * 3
        assert shown.created == ended.updated == of(machine.wall)
        (last,) = (await world.events(accepted.task))[-1:]
        assert last.retain_until == retained
        result = await world.run("pay")
        assert isinstance(result, Result)

"""Steps and questions in branches that run side by side, and executions that unwind slowly."""

from __future__ import annotations

import anyio
import pytest

from component.skills import Context, skill
from tests.component.tasks.test_durable import Choice, answer, cancel, conditions, text_of
from tests.component.tasks.world import Open, living
from tests.waiting import eventually
from xep.fluux_agent import errors

pytestmark = pytest.mark.anyio


@pytest.mark.ports
@pytest.mark.parametrize("by", ["key", "input"])
async def test_a_resumed_branch_gets_its_own_results(open_storage: Open, by: str) -> None:
    effects: list[str] = []
    kill = anyio.Event()
    orders = [list("abcdef"), list("fedcba")]

    @skill(name="fan", durable=True)
    async def fan(context: Context) -> str:
        found: dict[str, str] = {}

        async def one(item: str) -> None:
            async def work(_: str) -> str:
                effects.append(item)
                return item.upper()

            how = {by: item}
            found[item] = await context.step("fetch", work, str, **how)  # type: ignore[arg-type]

        order = orders.pop(0)
        # One after another, each in a branch: an order that is another one in the next execution.
        for item in order[:3] if orders else order:
            async with anyio.create_task_group() as group:
                group.start_soon(one, item)
        if orders:
            kill.set()
            await anyio.sleep_forever()
        return " ".join(f"{item}{found[item]}" for item in sorted(found))

    async with living(open_storage, fan) as world:
        task = await world.task("fan")
        await kill.wait()
    async with living(open_storage, fan) as world:
        assert text_of(await world.ear.ended(task)) == "aA bB cC dD eE fF"
    assert sorted(effects) == list("abcdef")


async def test_a_step_in_a_branch_needs_what_identifies_it(open_storage: Open) -> None:
    said: list[str] = []
    effects: list[str] = []

    @skill(name="fan", durable=True)
    async def fan(context: Context, how: str) -> str:
        async def work(_: str) -> str:
            effects.append(how)
            return "done"

        async def one() -> None:
            try:
                if how == "step":
                    await context.step("fetch", work, str)
                elif how == "ask":
                    await context.ask("Which?", Choice)
                else:
                    await context.step("fetch", work, str, key="same")
                    await context.step("fetch", work, str, key="same")
            except Exception as error:
                said.append(str(error))
                raise

        async with anyio.create_task_group() as group:
            group.start_soon(one)
        return ""

    async with living(open_storage, fan) as world:
        for how, effect, reason in (
            ("step", [], "pass key="),
            ("ask", [], "pass key="),
            ("twice", ["twice"], "used twice with the same key"),
        ):
            effects.clear()
            task = await world.task("fan", params={"how": how})
            assert conditions(await world.ear.ended(task)) == (errors.Internal(),)
            assert reason in said.pop()
            assert effects == effect


async def test_a_recorded_step_is_not_used_for_another_input(open_storage: Open) -> None:
    inputs = ["10 EUR", "20 EUR"]
    paid: list[str] = []
    kill = anyio.Event()
    said: list[str] = []

    @skill(name="pays", durable=True)
    async def pays(context: Context) -> str:
        amount = inputs.pop(0)

        async def pay(_: str) -> str:
            paid.append(amount)
            return amount

        try:
            await context.step("pay", pay, str, input=amount)
        except Exception as error:
            said.append(str(error))
            raise
        if inputs:
            kill.set()
            await anyio.sleep_forever()
        return "paid"

    async with living(open_storage, pays) as world:
        task = await world.task("pays")
        await kill.wait()
    async with living(open_storage, pays) as world:
        assert conditions(await world.ear.ended(task)) == (errors.Internal(),)
    assert paid == ["10 EUR"]
    assert "was recorded with a different input" in said[0]


async def test_a_question_waits_for_the_effects_that_are_under_way(open_storage: Open) -> None:
    effects: list[str] = []
    inside, gate, asking = anyio.Event(), anyio.Event(), anyio.Event()

    @skill(name="both", durable=True)
    async def both(context: Context) -> str:
        async def effect(_: str) -> str:
            inside.set()
            await gate.wait()
            effects.append("done")
            return "done"

        async def late(_: str) -> str:
            effects.append("late")
            return "late"

        async def works() -> None:
            await context.step("effect", effect, str, key="one")
            await context.step("late", late, str, key="two")

        chosen: list[str] = []

        async def asks() -> None:
            await inside.wait()
            asking.set()
            chosen.append((await context.ask("Which?", Choice, key="one")).colour)

        async with anyio.create_task_group() as group:
            group.start_soon(works)
            group.start_soon(asks)
        return chosen[0]

    async with living(open_storage, both) as world:
        task = await world.task("both")
        await asking.wait()
        await anyio.wait_all_tasks_blocked()
        assert (await world.get(task)).state == "running"
        gate.set()
        asked = await world.ear.in_state(task, "input-required")
        assert effects == ["done"]
    async with living(open_storage, both) as world:
        await answer(world, asked, {"colour": "red"})
        assert text_of(await world.ear.ended(task)) == "red"
        assert effects == ["done", "late"]


async def test_a_question_inside_a_step_is_refused(open_storage: Open) -> None:
    said: list[str] = []

    @skill(name="odd", durable=True)
    async def odd(context: Context) -> str:
        async def work(_: str) -> str:
            try:
                return (await context.ask("Which?", Choice)).colour
            except Exception as error:
                said.append(str(error))
                raise

        return await context.step("asks", work, str)

    async with living(open_storage, odd) as world:
        task = await world.task("odd")
        ended = await world.ear.ended(task)
        assert ended.state == "failed"
        assert "inside a step" in said[0]


@pytest.mark.ports
async def test_an_answer_waits_for_an_execution_that_still_unwinds(open_storage: Open) -> None:
    """Two executions of one task never run at once, and no slot is lost."""
    running = 0
    most = 0
    unwound = anyio.Event()

    @skill(name="slow", durable=True)
    async def slow(context: Context) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            return (await context.ask("Which?", Choice)).colour
        finally:
            with anyio.CancelScope(shield=True):
                await unwound.wait()
            running -= 1

    async with living(open_storage, slow, running_total=3) as world:
        for colour in ("red", "green", "blue", "white"):
            unwound = anyio.Event()
            task = await world.task("slow")
            asked = await world.ear.in_state(task, "input-required")
            await answer(world, asked, {"colour": colour})
            await anyio.wait_all_tasks_blocked()
            answered = await world.get(task)
            unwound.set()
            assert answered.state == "running"
            assert text_of(await world.ear.ended(task)) == colour
        await eventually(lambda: world.service._worker.slots.free == 3)
    assert most == 1


@pytest.mark.ports
async def test_a_task_that_is_cancelled_before_it_goes_on_is_cancelled(open_storage: Open) -> None:
    unwound = anyio.Event()

    @skill(name="slow", durable=True)
    async def slow(context: Context) -> str:
        try:
            return (await context.ask("Which?", Choice)).colour
        finally:
            with anyio.CancelScope(shield=True):
                await unwound.wait()

    async with living(open_storage, slow, running_total=3) as world:
        task = await world.task("slow")
        await answer(world, await world.ear.in_state(task, "input-required"), {"colour": "red"})
        cancelled = await cancel(world, task)
        unwound.set()
        assert cancelled.state == "cancelling"
        assert (await world.ear.ended(task)).state == "cancelled"
        await eventually(lambda: world.service._worker.slots.free == 3)

"""Cancelling at every moment: what is committed first decides (CAN-004)."""

from __future__ import annotations

import anyio
import pytest

from component.skills import Context, skill
from component.tasks.states import TERMINAL
from tests.component.tasks.test_durable import cancel, conditions
from tests.component.tasks.world import Open, living
from xep.fluux_agent import errors

pytestmark = pytest.mark.anyio


async def test_a_task_ends_once_whenever_it_is_cancelled(open_storage: Open) -> None:
    effects: list[str] = []

    @skill(name="two", durable=True)
    async def two(context: Context) -> str:
        async def work(key: str) -> str:
            effects.append(key)
            await anyio.lowlevel.checkpoint()
            return key

        await context.step("a", work, str)
        await context.progress(0.5)
        await context.step("b", work, str)
        return "done"

    states = set()
    async with living(open_storage, two) as world:
        for wait in range(60):
            task = await world.task("two")
            for _ in range(wait * 3):
                await anyio.lowlevel.checkpoint()
            answered = await cancel(world, task)
            assert answered.state in ("cancelled", "cancelling", *TERMINAL)
            ended = await world.ear.ended(task)
            assert ended.state in ("cancelled", "completed", "failed")
            if ended.state == "failed":
                assert conditions(ended) == (errors.OutcomeUnknown(),)
            assert await cancel(world, task) == await world.get(task)
            events = await world.events(task)
            assert [event.revision for event in events] == list(range(1, len(events) + 1))
            assert [event.state in TERMINAL for event in events].count(True) == 1
            assert world.ear.of(task) == events
            states.add(ended.state)
    assert len(effects) == len(set(effects))
    assert "cancelled" in states

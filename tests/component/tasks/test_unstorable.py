"""A skill that gives the database what it cannot store fails by itself, and nobody else does."""

from __future__ import annotations

import random

import anyio
import pytest

from component.skills import Context, Skill, skill
from tests.component.tasks.world import Open, living

pytestmark = [pytest.mark.anyio, pytest.mark.ports]

LONG = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=20_000))


async def nothing(_key: str) -> str:
    return "done"


def spoiling(what: str) -> Skill:
    @skill(name="spoiling", durable=True)
    async def run(context: Context) -> str:
        if what == "step":
            await context.step(LONG, nothing, str)
        elif what == "artifact":
            await context.step("before", nothing, str)
            await context.output(LONG, "text")
        else:
            await context.step("a\x00b", nothing, str)
        return "done"

    return run


@skill(name="steady", durable=True)
async def steady(context: Context) -> str:
    for name in "abc":
        await context.step(name, nothing, str)
    return "done"


@pytest.mark.parametrize("what", ["step", "artifact", "NUL"])
async def test_a_task_that_cannot_be_written_fails_and_others_go_on(
    open_storage: Open, what: str
) -> None:
    async with living(open_storage, spoiling(what), steady) as world:
        tasks = [await world.task("spoiling" if n == 2 else "steady") for n in range(6)]
        with anyio.fail_after(120):
            ended = [(await world.ear.ended(task)).state for task in tasks]
        dialect = await world.storage.read(lambda database: database.dialect)
        # SQLite stores all of them.
        expected = "failed" if dialect == "postgresql" else "completed"
        assert ended == [*["completed"] * 2, expected, *["completed"] * 3]

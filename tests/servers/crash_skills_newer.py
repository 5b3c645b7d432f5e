"""The next release of `crash_skills.py`: a step is inserted, a version changed, skills are gone."""

import os
from collections.abc import Awaitable, Callable

from component.skills import Context, skill

EFFECTS = "effects.txt"


def step(label: str, name: str) -> Callable[[str], Awaitable[str]]:
    """Something that can be seen to begin and to end."""

    async def work(key: str) -> str:
        descriptor = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, f"{label} {name} begin {key}\n{label} {name} end {key}\n".encode())
        os.close(descriptor)
        return f"new {name}"

    return work


@skill(name="crash.gate", version="2", destructive=False, durable=True)
async def gate(context: Context, label: str, may_repeat: bool) -> str:
    """Do what the last release did, with another step in between, and without a gate."""
    before = await context.step("before", step(label, "before"), str)
    inserted = await context.step("inserted", step(label, "inserted"), str)
    await context.step("gate", step(label, "gate"), str, repeatable=may_repeat)
    await context.step("after", step(label, "after"), str)
    return f"release 2: {before}, {inserted}"


@skill(name="crash.newer", destructive=False, durable=True)
async def newer(context: Context, label: str, count: int, pause_ms: int) -> int:
    """Do steps in a skill that the last release did not have."""
    for number in range(count):
        await context.step(f"s{number}", step(label, f"s{number}"), str)
    return count

"""Skills whose effects are lines in a file of the service's directory, for tests that kill it.

Each line is whole or not there, and stands when the process is gone: `label step begin|end key`.
`crash_skills_newer.py` is the next release of them.
"""

import functools
import os
import time
from pathlib import Path

import anyio

from component.skills import Context, skill

EFFECTS = "effects.txt"
GATE = "gate"


def note(label: str, step: str, what: str, key: str) -> None:
    """Append one line."""
    line = f"{label} {step} {what} {key}\n".encode()
    descriptor = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


async def effect(label: str, step: str, pause_ms: int, key: str) -> str:
    """Do something that can be seen to begin and to end."""
    note(label, step, "begin", key)
    await anyio.sleep(pause_ms / 1000)
    note(label, step, "end", key)
    return step


async def gated(label: str, step: str, key: str) -> str:
    """Do something that ends when the file is there."""
    note(label, step, "begin", key)
    while not await anyio.Path(GATE).exists():  # noqa: ASYNC110 - only a file outlives a kill
        await anyio.sleep(0.02)
    note(label, step, "end", key)
    return step


async def do_steps(
    context: Context, label: str, count: int, pause_ms: int, *, repeatable: bool
) -> int:
    """Do steps one after the other."""
    for number in range(count):
        step = f"s{number}"
        work = functools.partial(effect, label, step, pause_ms)
        assert await context.step(step, work, str, repeatable=repeatable) == step
        await context.progress((number + 1) / count)
    return count


@skill(name="crash.steps", destructive=False, durable=True)
async def steps(context: Context, label: str, count: int, pause_ms: int) -> int:
    """Do steps with effects."""
    return await do_steps(context, label, count, pause_ms, repeatable=False)


@skill(name="crash.repeatable", destructive=False, durable=True)
async def repeatable(context: Context, label: str, count: int, pause_ms: int) -> int:
    """Do steps that may be done again if their end was not recorded."""
    return await do_steps(context, label, count, pause_ms, repeatable=True)


@skill(name="crash.idempotent", destructive=False, idempotent=True)
async def idempotent(context: Context, label: str, count: int, pause_ms: int) -> int:
    """Do what may be done twice."""
    for number in range(count):
        await effect(label, f"s{number}", pause_ms, context.key)
    return count


@skill(name="crash.plain", destructive=False)
async def plain(context: Context, label: str, count: int, pause_ms: int) -> int:
    """Do something at most once."""
    await effect(label, "s0", pause_ms, context.key)
    return count


@skill(name="crash.thread", destructive=False)
def thread(context: Context, label: str, count: int, pause_ms: int) -> int:
    """Do something at most once, in a thread."""
    note(label, "s0", "begin", context.key)
    time.sleep(pause_ms / 1000)
    note(label, "s0", "end", context.key)
    return count


@skill(name="crash.gate", destructive=False, durable=True)
async def gate(context: Context, label: str, may_repeat: bool) -> str:
    """Do a step, one that waits for the gate, and another."""
    before = await context.step("before", functools.partial(effect, label, "before", 0), str)
    work = functools.partial(gated, label, "gate")
    await context.step("gate", work, str, repeatable=may_repeat)
    await context.step("after", functools.partial(effect, label, "after", 0), str)
    return f"release 1 {before}"


@skill(name="crash.once", destructive=False)
async def once(context: Context, label: str) -> str:
    """Wait for the gate, once."""
    return await gated(label, "gate", context.key)


@skill(name="crash.waits", destructive=False, idempotent=True)
async def waits(context: Context, label: str) -> str:
    """Wait for the gate, again and again if need be."""
    return await gated(label, "gate", context.key)


def lines(*directories: Path) -> list[tuple[str, str, str, str]]:
    """What has happened, as (label, step, what, key), in order within each directory."""
    found: list[tuple[str, str, str, str]] = []
    for directory in directories:
        path = directory / EFFECTS
        for line in path.read_text().splitlines() if path.exists() else []:
            label, step, what, key = line.split()
            found.append((label, step, what, key))
    return found

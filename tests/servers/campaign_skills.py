"""Skills for the crash campaign. Each appends lines `label step what value` to the effects file.

`begin`, `end` and `fail` lines hold the idempotency key of the step. Each execution of a step
returns a value of its own, and `got` lines hold what the skill was given: so a step that ran again
although its result was on record shows as two values.
"""

import functools
import os
import secrets
from pathlib import Path

import anyio
import msgspec

from component.skills import Context, SkillError, skill

GATE = Path("../gate")
FAILURES = 2
"""So many attempts of `camp.retried` fail."""


class Word(msgspec.Struct):
    """The answer to a question."""

    word: str


def note(label: str, step: str, what: str, value: str) -> None:
    """Append one line, whole or not at all."""
    descriptor = os.open("effects.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{label} {step} {what} {value}\n".encode())
    os.close(descriptor)


def count_failures(label: str) -> int:
    """How many attempts have failed, on whichever instance."""
    files = Path("..").glob("*/effects.txt")
    return sum(file.read_text().count(f"{label} flaky fail ") for file in files)


async def work(label: str, step: str, pause_ms: int, key: str) -> str:
    """Do something that can be seen to begin and to end."""
    note(label, step, "begin", key)
    await anyio.sleep(pause_ms / 1000)
    note(label, step, "end", key)
    return secrets.token_hex(4)


async def do(
    context: Context, label: str, step: str, pause_ms: int, *, repeatable: bool = False
) -> None:
    """Do a step, and note what came of it."""
    doing = functools.partial(work, label, step, pause_ms)
    value = await context.step(step, doing, str, repeatable=repeatable, key=step)
    note(label, step, "got", value)


@skill(name="camp.where", read_only=True, inline=True)
def where() -> str:
    """Name the directory of the instance that answers."""
    return Path.cwd().name


@skill(name="camp.steps", destructive=False, durable=True)
async def steps(context: Context, label: str, count: int, pause_ms: int) -> str:
    """Do steps with effects, one after the other."""
    for number in range(count):
        await do(context, label, f"s{number}", pause_ms)
        await context.progress((number + 1) / count)
    return label


@skill(name="camp.repeatable", destructive=False, durable=True)
async def repeatable(context: Context, label: str, count: int, pause_ms: int) -> str:
    """Do steps that may run again while no result is on record."""
    for number in range(count):
        await do(context, label, f"s{number}", pause_ms, repeatable=True)
    return label


@skill(name="camp.idempotent", idempotent=True)
async def idempotent(context: Context, label: str, count: int, pause_ms: int) -> str:
    """Do steps in a skill that may run again."""
    for number in range(count):
        await do(context, label, f"s{number}", pause_ms)
    return label


@skill(name="camp.branches", destructive=False, durable=True)
async def branches(context: Context, label: str, count: int, pause_ms: int) -> str:
    """Do steps side by side."""
    async with anyio.create_task_group() as group:
        for number in range(count):
            group.start_soon(do, context, label, f"s{number}", pause_ms)
    return label


@skill(name="camp.plain", destructive=False)
async def plain(context: Context, label: str, count: int, pause_ms: int) -> str:
    """Do something that runs once at most."""
    await work(label, "s0", pause_ms, context.key)
    return label


@skill(name="camp.sleeper", destructive=False, durable=True)
async def sleeper(context: Context, label: str, count: int, pause_ms: int) -> str:
    """Sleep between steps, without an execution."""
    for number in range(count):
        await do(context, label, f"s{number}", pause_ms)
        await context.sleep(1.0 + number / 2)
    return label


@skill(name="camp.queued", destructive=False, durable=True, queue="lane")
async def queued(context: Context, label: str, count: int, pause_ms: int) -> str:
    """Do steps in a named queue."""
    for number in range(count):
        await do(context, label, f"s{number}", pause_ms)
    return label


@skill(name="camp.retried", destructive=False, durable=True, attempts=FAILURES + 2, backoff_s=0.2)
async def retried(context: Context, label: str, count: int, pause_ms: int) -> str:
    """Fail in the first attempts, after steps that succeed."""

    async def flaky(key: str) -> str:
        note(label, "flaky", "begin", key)
        await anyio.sleep(pause_ms / 1000)
        if count_failures(label) < FAILURES:
            note(label, "flaky", "fail", key)
            raise RuntimeError("this attempt fails")
        note(label, "flaky", "end", key)
        return secrets.token_hex(4)

    for number in range(count):
        await do(context, label, f"s{number}", pause_ms)
    note(label, "flaky", "got", await context.step("flaky", flaky, str))
    return label


@skill(name="camp.asks", destructive=False, durable=True)
async def asks(context: Context, label: str, count: int, pause_ms: int) -> str:
    """Ask between two steps."""
    await do(context, label, "s0", pause_ms)
    answer = await context.ask(f"Which word for {label}?", Word)
    note(label, "answer", "got", answer.word)
    await do(context, label, "s1", pause_ms)
    return answer.word


@skill(name="camp.family", destructive=False, durable=True)
async def family(context: Context, label: str, count: int, pause_ms: int) -> str:
    """Start tasks, and wait for them between two steps."""
    await do(context, label, "s0", pause_ms)
    children = []
    for number in range(count):
        params = {"label": f"{label}.c{number}", "count": 2, "pause_ms": pause_ms}
        name = ("camp.steps", "camp.sleeper")[number % 2]
        child = await context.start(name, params, key=number)
        note(label, f"child{number}", "got", child)
        children.append(child)
    results = await context.wait(children, on_failure="return")
    if any(result.state not in ("completed", "failed", "cancelled") for result in results):
        raise SkillError(f"not waited for: {results}")
    await do(context, label, "s1", pause_ms)
    return label


@skill(name="camp.hold", idempotent=True)
async def hold(context: Context, label: str, count: int, pause_ms: int) -> str:
    """Hold a slot until the gate is there."""
    while not await anyio.Path(GATE).exists():  # noqa: ASYNC110 - only a file outlives a kill
        await anyio.sleep(0.05)
    return label

"""Durable skills that the tests run in confined children."""

import functools
from typing import Literal

import anyio
import anyio.from_thread
import msgspec

from component.skills import Context, Denied, SkillError, StepFailed, UsageError, skill


class Choice(msgspec.Struct):
    """What a person takes."""

    dish: Literal["soup", "salad"]


@skill(name="lunch", durable=True)
async def lunch(context: Context) -> str:
    """Order lunch."""

    async def draw(key: str) -> str:
        return context.random(8).hex()

    number = await context.step("draw", draw, str)
    try:
        choice = await context.ask(f"What is number {number} to be?", Choice)
    except Denied as error:
        return f"declined: {error.reason}"

    async def order(key: str) -> list[str]:
        return [choice.dish, number, key]

    return ", ".join(await context.step("order", order, list[str]))


@skill(name="branches", durable=True)
async def branches(context: Context) -> list[str]:
    """Run steps beside each other, and one inside another."""
    found: dict[str, str] = {}

    async def branch(name: str) -> None:
        async def work(key: str) -> str:
            await context.progress(0.5, name)
            return name.upper()

        found[name] = await context.step("branch", work, str, key=name)

    async def outer(key: str) -> int:
        async def inner(key: str) -> int:
            return 20

        return 1 + await context.step("inner", inner, int)

    async with anyio.create_task_group() as group:
        for name in ("a", "b", "c"):
            group.start_soon(branch, name)
    return [*(found[name] for name in sorted(found)), str(await context.step("outer", outer, int))]


@skill(name="fails", durable=True)
async def fails(context: Context) -> list[str]:
    """Fail in each way, and go on."""
    said = []

    async def refused(key: str) -> None:
        raise SkillError("not today")

    async def broken(key: str) -> None:
        raise ZeroDivisionError("inside")

    async def asking(key: str) -> None:
        await context.ask("Now?", Choice)

    for name, work in (("refused", refused), ("broken", broken), ("asking", asking)):
        try:
            await context.step(name, work, type(None))
        except (SkillError, StepFailed, UsageError) as error:
            said.append(f"{type(error).__name__} {error}")
    try:
        await context.start("other")
    except UsageError as error:
        said.append(str(error)[:45])
    return said


@skill(name="plain", read_only=True)
def plain(context: Context) -> str:
    """Use a step and a timer in a thread."""

    async def work(key: str) -> int:
        return 7

    step = functools.partial(context.step, "seven", work, int, repeatable=True)
    seven = anyio.from_thread.run(step)
    anyio.from_thread.run(context.sleep, 0.01)
    return str(seven)


@skill(name="not_durable")
async def not_durable(context: Context) -> str:
    """Use what needs a durable skill."""
    await context.sleep(0.01)
    return "slept"


@skill(name="impatient")
async def impatient(context: Context) -> str:
    """Give up a request."""
    with anyio.move_on_after(0.05):
        await context.http.get("https://slow.example.com/")
    return "given up"


@skill(name="greedy")
async def greedy(context: Context) -> str:
    """Make more requests at once than are possible."""
    async with anyio.create_task_group() as group:
        for _ in range(100):
            group.start_soon(context.http.get, "https://slow.example.com/")
    return "done"


@skill(name="spam", durable=True)
async def spam(context: Context) -> str:
    """Ask until it is stopped."""
    for number in range(1_000):
        await context.ask(f"Number {number}?", Choice)
    return "done"

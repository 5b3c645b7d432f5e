"""The skills of a simulated life, and what they change outside of the service."""

from functools import partial
from random import Random
from typing import Final

import anyio
import msgspec

from component.skills import Context, Skill, SkillError, skill
from tests.kit.process import current_process
from tests.simulation.history import Effect, History


class Outside:
    """What skills change. It survives a kill, and a process that was killed changes nothing more.

    Args:
        history: gets every effect.
        chance: decides how long effects take.
    """

    def __init__(self, history: History, chance: Random) -> None:
        self._history = history
        self._chance = chance

    async def do(self, label: str, step: str, key: str) -> str:
        """Change something, after some time and before some more."""
        await anyio.sleep(self._chance.choice((0.0, 0.001, 0.2, 3.0)) * self._chance.random())
        process = current_process()
        if not process.is_alive:
            await anyio.sleep_forever()
        self._history.add(Effect(self._history.now(), label, step, key))
        await anyio.sleep(self._chance.choice((0.0, 0.001, 0.2, 3.0)) * self._chance.random())
        return step


class Answer(msgspec.Struct):
    """The answer to the question of `ask`."""

    word: str


EXPIRES_S: Final = 600.0
"""Seconds after which the question of `ask` expires."""
NAP_S: Final = 200.0


def make_skills(outside: Outside) -> list[Skill]:
    """Return the skills."""

    @skill(destructive=False, durable=True)
    async def note(label: str, context: Context) -> str:
        """Write a note: one step."""
        await context.step("note", partial(outside.do, label, "note"), str)
        return f"noted {label}"

    @skill(destructive=False, durable=True)
    async def work(label: str, context: Context) -> str:
        """Do three steps, one after another."""
        for number in range(3):
            name = f"s{number}"
            await context.step(name, partial(outside.do, label, name), str)
            await context.progress((number + 1) / 3, name)
        return f"worked {label}"

    @skill(destructive=False, durable=True)
    async def again(label: str, context: Context) -> str:
        """Do three steps that may be repeated."""
        for number in range(3):
            name = f"s{number}"
            work = partial(outside.do, label, name)
            await context.step(name, work, str, repeatable=True)
        return f"worked {label}"

    @skill(destructive=False, durable=True)
    async def branch(label: str, context: Context) -> str:
        """Do two steps side by side, and one after both."""

        async def one(name: str) -> None:
            await context.step(name, partial(outside.do, label, name), str, key=name)

        async with anyio.create_task_group() as group:
            group.start_soon(one, "left")
            group.start_soon(one, "right")
        await context.step("both", partial(outside.do, label, "both"), str)
        return f"worked {label}"

    @skill(destructive=False, durable=True)
    async def ask(label: str, context: Context) -> str:
        """Ask for a word between two steps."""
        await context.step("before", partial(outside.do, label, "before"), str)
        answer = await context.ask(f"Which word for {label}?", Answer, expires_s=EXPIRES_S)
        await context.step("after", partial(outside.do, label, f"after {answer.word}"), str)
        return f"{label} is {answer.word}"

    @skill(destructive=False, durable=True)
    async def nap(label: str, context: Context) -> str:
        """Wait for a while between two steps."""
        await context.step("before", partial(outside.do, label, "before"), str)
        await context.sleep(NAP_S)
        await context.step("after", partial(outside.do, label, "after"), str)
        return f"{label} has slept"

    @skill(destructive=False, durable=True)
    async def family(label: str, context: Context) -> str:
        """Have three other tasks do the work."""
        names = ("work", "again", "note")
        tasks = [await context.start(name, {"label": f"{label}.{name}"}) for name in names]
        found = await context.wait(tasks)
        return f"{sum(one.success for one in found)} of {label}"

    @skill(destructive=False, durable=True, attempts=3, backoff_s=5.0)
    async def fail(label: str, context: Context) -> str:
        """Fail after a step."""
        await context.step("before", partial(outside.do, label, "before"), str)
        raise SkillError(f"{label} never succeeds")

    @skill(question="Pay 5 for {label}?")
    async def pay(label: str, context: Context) -> str:
        """Pay, which cannot be undone."""
        await outside.do(label, "paid 5", context.key)
        return f"paid {label}"

    return [note, work, again, branch, ask, nap, family, fail, pay]

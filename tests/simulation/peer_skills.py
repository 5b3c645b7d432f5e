"""The skills of the agents of other domains in a simulated life.

The agent of the first domain uses those of the second one, whose names end in `_for`; they have the
agent of the third domain do the work.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import anyio

from component.models.messages import ToolCall
from component.models.protocol import Completion, ModelRequest, Usage
from component.skills import Context, Skill, skill
from tests.kit.model import Said, Script
from tests.kit.process import current_process
from tests.simulation.history import History, Prompt
from tests.simulation.skills import EXPIRES_S, NAP_S, Answer, Outside

BOOKS: Final = 12
"""How many books the last agent reads if its budget suffices."""
USD_PER_TOKEN: Final = 0.001
_ANSWER_TOKENS: Final = 10
_MOST_TOKENS: Final = 50
_SAID: Final = {
    "type": "object",
    "properties": {"said": {"type": "string"}},
    "required": ["said"],
}


def cost(text: str) -> float:
    """Return what a question of the last agent costs in US dollars."""
    return USD_PER_TOKEN * (len(text) // 4 + _ANSWER_TOKENS)


def reader(history: History) -> Script:
    """Return the model of the last agent."""

    async def answer(request: ModelRequest) -> Said:
        await anyio.sleep(0.2)
        if not current_process().is_alive:
            await anyio.sleep_forever()
        text = "\n".join(one.text for one in request.messages)
        history.add(Prompt(history.now(), text))
        script.requests.clear()
        script.models.clear()
        said = '{"said": "It is long."}'
        usage = Usage(len(text) // 4, _ANSWER_TOKENS, cost(text))
        calls = [ToolCall("c", request.tools[0].name, said)] if request.tools else []
        return Completion.of("" if calls else said, calls, usage=usage)

    script = Script(otherwise=answer, usd_per_token=USD_PER_TOKEN)
    return script


def middle_skills(outside: Outside) -> Sequence[Skill]:
    """Return the skills of the agent in the middle."""

    async def passed(call: str, label: str, context: Context) -> str:
        (done,) = await context.wait([await context.start(f"archive.{call}", {"label": label})])
        return f"It says: {done.text or done.reason}"

    def passing(call: str, *, read_only: bool = False) -> Skill:
        @skill(
            name=f"{call}_for",
            description=f"Have somebody elsewhere do this: {call}.",
            read_only=read_only,
            destructive=False,
            open_world=False,
            durable=True,
        )
        async def passes(label: str, context: Context) -> str:
            return await passed(call, label, context)

        return passes

    @skill(destructive=False, open_world=False, durable=True)
    async def collect_for(label: str, context: Context) -> str:
        """Have something collected, and collect more."""
        found = await passed("collect", label, context)
        await context.step("after", partial(outside.do, label, "after"), str)
        return found

    @skill(destructive=False, open_world=False, durable=True)
    async def first_for(label: str, context: Context) -> str:
        """Start a short and a long wait elsewhere, and take what comes first."""
        calls = [
            await context.start(f"archive.{one}", {"label": label}) for one in ("nap", "sleep")
        ]
        found = await context.wait_first(calls)
        return f"It says: {' '.join(one.text for one in found if one.success)}"

    return (
        *(passing(one, read_only=True) for one in ("search", "choose", "sleep")),
        *(passing(one) for one in ("consult", "erase", "read", "wipe", "hidden", "circle")),
        *(collect_for, first_for),
    )


def last_skills(outside: Outside) -> Sequence[Skill]:
    """Return the skills of the agent at the end."""

    @skill(read_only=True, open_world=False)
    async def search(label: str) -> str:
        """Search the archive."""
        return f"found {label}"

    @skill(read_only=True, open_world=False)
    async def choose(label: str, context: Context) -> str:
        """Ask for a word."""
        answer = await context.ask(f"Which word for {label}?", Answer, expires_s=EXPIRES_S)
        return f"{label} is {answer.word}"

    @skill(destructive=False, open_world=False, durable=True)
    async def collect(label: str, context: Context) -> str:
        """Do two steps, and wait between them."""
        await context.step("s0", partial(outside.do, label, "s0"), str)
        await context.progress(0.5, f"half of {label}")
        await context.sleep(NAP_S)
        await context.step("s1", partial(outside.do, label, "s1"), str)
        return f"worked {label}"

    @skill(destructive=False, open_world=False, durable=True)
    async def consult(label: str, context: Context) -> str:
        """Ask for a word between two steps."""
        await context.step("before", partial(outside.do, label, "before"), str)
        answer = await context.ask(f"Which word for {label}?", Answer, expires_s=EXPIRES_S)
        await context.step("after", partial(outside.do, label, f"after {answer.word}"), str)
        return f"{label} is {answer.word}"

    @skill(question="Erase {label}?", open_world=False)
    async def erase(label: str, context: Context) -> str:
        """Erase something."""
        await outside.do(label, "erased", context.key)
        return f"erased {label}"

    @skill(read_only=True, open_world=False, durable=True, capabilities=("llm",))
    async def read(label: str, context: Context) -> str:
        """Have a model read books, one after the other."""
        for number in range(1, BOOKS + 1):
            prompt = f"Sum up book {number} of {label}."
            await context.llm(prompt, _SAID, max_tokens=_MOST_TOKENS)
        return f"read all of {label}"

    @skill(read_only=True, open_world=False, durable=True)
    async def nap(label: str, context: Context) -> str:
        """Wait for a while."""
        await context.sleep(NAP_S)
        return f"{label} has slept"

    @skill(read_only=True, open_world=False, durable=True)
    async def sleep(label: str, context: Context) -> str:
        """Wait for longer."""
        await context.sleep(10 * NAP_S)
        return f"{label} has slept long"

    @skill(destructive=False, open_world=False)
    async def wipe(label: str, context: Context) -> str:
        """Do what nobody may have done for the first domain."""
        await outside.do(label, "forbidden", context.key)
        return f"worked {label}"

    @skill(destructive=False, open_world=False)
    async def hidden(label: str, context: Context) -> str:
        """Do what is offered to nobody."""
        await outside.do(label, "forbidden", context.key)
        return f"worked {label}"

    @skill(destructive=False, open_world=False, durable=True)
    async def circle(label: str, context: Context) -> str:
        """Have the first agent do something for its own request."""
        (done,) = await context.wait([await context.start("first.circled", {"label": label})])
        return f"It says: {done.text or done.reason}"

    return (search, choose, collect, consult, erase, read, nap, sleep, wipe, hidden, circle)


def first_skills(outside: Outside) -> Sequence[Skill]:
    """Return what the agent of the first domain offers to the last one."""

    @skill(destructive=False, open_world=False)
    async def circled(label: str, context: Context) -> str:
        """Do what only a loop of requests can cause."""
        await outside.do(label, "forbidden", context.key)
        return f"worked {label}"

    return (circled,)

"""The model of a simulated life: it does what a person asks for, unless it lies or is ill."""

import re
from collections.abc import Callable
from random import Random
from typing import Final

import anyio
import msgspec

from component import system
from component.models.messages import ToolCall
from component.models.protocol import Completion, ModelRequest, ModelUnavailableError, Usage
from tests.kit.model import Said, Script, call
from tests.kit.process import current_process
from tests.simulation.history import History, Prompt

_ASKED: Final = re.compile(r"\b([mrwc]\d+(?:\.\w+)?) (talk|note|work|pay|grant|ask|lie)\b")
_REMINDER: Final = re.compile(r"\bremember (s\d+)\b")
_WAITS: Final = "The result will be here."
_SILENT_S: Final = 1200.0
_TOOL_TOKENS: Final = 150
"""Tokens of the description of a tool; most have more."""


def asked_in(request: ModelRequest) -> list[tuple[str, str]]:
    """Return what is asked for since the last answer: each label, and the wish.

    In a room, a message begins with what others have written, in a part of its own. What still
    waits for a task is left out, because the model is asked to continue with it later.
    """
    asked: list[tuple[str, str]] = []
    calls: dict[str, ToolCall] = {}
    for message in request.messages:
        calls |= {one.id: one for one in message.tool_calls}
        if message.role == "system" and "has stopped this turn" in message.text:
            asked.clear()
        elif message.role == "system":
            asked = _ASKED.findall(message.text) or asked
        elif message.role == "user":
            found = _ASKED.findall(getattr(message.parts[-1], "text", ""))
            asked = [*asked, *found] if found else [(label, "talk") for label, _ in asked]
        elif message.role == "assistant" and not message.tool_calls:
            asked.clear()
        for result in message.results:
            if _WAITS in result.text:
                asked = [one for one in asked if not is_about(calls[result.id], one[0])]
    return asked


def is_about(call: ToolCall, label: str) -> bool:
    """Return whether a call has a label among its arguments."""
    return f'"{label}"' in call.arguments or f'"{label} ' in call.arguments


class Talker:
    """Answers each prompt.

    Attributes:
        state: "" if it is well; see `faults.ModelFails`.
        hooks: answer first, as an area wants; None leaves the answer to the others.
    """

    def __init__(self, history: History, chance: Random) -> None:
        self._history, self._chance = history, chance
        self.state = ""
        self.hooks: list[Callable[[ModelRequest], Said | None]] = []
        self.script = Script(otherwise=self._answer, usd_per_token=1e-6)

    async def _answer(self, request: ModelRequest) -> Said:
        if not current_process().is_alive:
            await anyio.sleep_forever()  # it asks nothing more
        self.script.requests.clear()
        self.script.models.clear()
        state, wait = self.state, 0.3 * self._chance.random()
        if state == "slow":
            wait = 60 * self._chance.random()
        elif state == "silent":
            wait = _SILENT_S
        text, now = "\n".join(one.text for one in request.messages), self._history.now()
        tokens, price = len(text) // 4, self.script.usd_per_token
        tokens += _TOOL_TOKENS * len(request.tools)
        usd = 0.0 if state in ("silent", "failing") else tokens * price
        most, day = (tokens + request.max_tokens) * price, system.now().date().isoformat()
        self._history.add(Prompt(now, text, usd, most, day, now + wait))
        await anyio.sleep(wait)
        if not current_process().is_alive:
            await anyio.sleep_forever()
        if state in ("silent", "failing"):
            return ModelUnavailableError("it does not answer")
        said = self._lie(request, "m0") if state == "lying" else self._honest(request)
        answer = Completion.of(said) if isinstance(said, str) else said
        if isinstance(answer, Completion):
            out = len(answer.text) // 4 + 1
            usage = Usage(tokens, out, (tokens + out) * self.script.usd_per_token)
            answer = msgspec.structs.replace(answer, usage=usage)
        return answer

    def _honest(self, request: ModelRequest) -> Said:
        for hook in self.hooks:
            if (said := hook(request)) is not None:
                return said
        last = request.messages[-1]
        mine = next((one for one in reversed(request.messages) if one.role == "user"), last)
        reminder, asked = _REMINDER.findall(mine.text), asked_in(request)
        if reminder and not asked:
            return f"Time for {reminder[-1]}."
        if not asked:
            return "I see."
        label, wish = asked[-1]
        called = any(is_about(call, label) for one in request.messages for call in one.tool_calls)
        if last.role == "tool" or called:
            return f"re {', '.join(one for one, _ in asked)}: {last.text[:80]}"
        if wish == "talk":
            return f"re {', '.join(one for one, _ in asked)}: indeed"
        if wish == "lie":
            return self._lie(request, label, ", ".join(one for one, _ in asked))
        return call(wish, label=label)

    def _lie(self, request: ModelRequest, label: str, labels: str = "m0") -> Said:
        if request.messages[-1].role == "tool" and self._chance.random() < 0.7:
            return f"re {labels}: it is done"
        lies: tuple[Callable[[], Said], ...] = (
            lambda: call("no_such_skill", label=label),
            lambda: call("pay", label=5, amount="all"),
            lambda: Completion.of(tool_calls=(ToolCall("c", "pay", "{not json"),)),
            lambda: call("pay", label=f"{label} and everything else"),
            lambda: f"re {labels}: I have paid everything",
            lambda: "",
        )
        return self._chance.choice(lies)()

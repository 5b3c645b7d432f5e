"""Time to the first token of the local model, in a conversation whose prompt grows at its end.

Turn 1 reads instructions and tools, about 1,400 tokens; turn 10 finds them, and the turns between,
in llama.cpp's cache of the prompt. Each run has instructions of its own, so that turn 1 finds
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

import anyio
import msgspec

from benchmarks.report import Line, Target
from component.config.llm import LLM
from component.models.building import Models
from component.models.messages import ModelMessage, text_message
from component.models.protocol import Model, ModelRequest, Tool, Void

_TURNS = 10
_ANSWER_TOKENS = 24
_RULES = (
    "Answer in one short sentence.",
    "If somebody asks about an order, ask for its number and give the date of delivery.",
    "Prices are in euros and include taxes; do not convert them unless somebody asks for it.",
    "The shop is open from nine to six on weekdays and from ten to two on Saturdays.",
    "Returns are free within thirty days if the goods are unused and in their original packaging.",
)
_QUESTIONS = (
    "Hello!",
    "When do you open on Saturday?",
    "Can I send something back?",
    "What do you sell?",
    "Do your prices include taxes?",
)


def measure(runs: int) -> Iterator[Line]:
    """Yield the time to the first token of the last turn beside that of the first."""
    first, last = anyio.run(_conversations, runs, backend="trio")
    yield Line(
        f"first token of the local model, turn {_TURNS} (peer: turn 1)",
        "s",
        last,
        first,
        Target(0.5, "at most"),
    )


async def _conversations(runs: int) -> tuple[list[float], list[float]]:
    models = Models(LLM(provider="local"))
    first, last = [], []
    try:
        await _turn(models.get(), [text_message("user", "Hello!")], ())  # loads it
        for run in range(runs):
            times = await _conversation(models.get(), run)
            first.append(times[0])
            last.append(times[-1])
    finally:
        await models.aclose()
    return first, last


async def _conversation(model: Model, run: int) -> list[float]:
    rules = " ".join(_RULES)
    messages = [text_message("system", f"You work in shop number {run}. " + f"{rules} " * 12)]
    times = []
    for turn in range(_TURNS):
        question = _QUESTIONS[turn % len(_QUESTIONS)]
        messages.append(text_message("user", question))
        seconds, answer = await _turn(model, messages, _TOOLS)
        times.append(seconds)
        messages.append(text_message("assistant", answer or "I do not know."))
    return times


async def _turn(
    model: Model, messages: list[ModelMessage], tools: tuple[Tool, ...]
) -> tuple[float, str]:
    """Ask, and give the seconds until the first piece of the answer, and the answer."""
    began = perf_counter()
    heard: list[float] = []

    def note(piece: str | Void) -> None:
        if isinstance(piece, str) and piece and not heard:
            heard.append(perf_counter() - began)

    request = ModelRequest(messages=tuple(messages), tools=tools, max_tokens=_ANSWER_TOKENS)
    completion = await model.complete(request, note)
    # A call of a tool has no text: then it counts when it is complete.
    return heard[0] if heard else perf_counter() - began, completion.text


_TOOLS = (
    Tool(
        "order-status",
        "Tells where an order is.",
        msgspec.Raw(
            b'{"type":"object","properties":{"number":{"type":"integer"}},"required":["number"]}'
        ),
    ),
)

"""How much of a request is as in the one before it, which a provider need not read again.

A person writes ten messages to an agent with tools, memories and notes that change; the model is a
scripted endpoint on a socket, and what is compared are the bytes that it gets: the tools, and then
the messages. With the small local model, the time to the first token of turn 10 beside turn 1.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
import msgspec

from benchmarks.report import Line, Target
from component.agent.protocol import Profile
from component.config.llm import LLM
from component.models.building import Models
from component.models.protocol import Completion, Model, ModelRequest, OnText, Void
from tests.component.agent.world import World, message, remembered
from tests.component.models.endpoint import Calls, Text, in_thread

TURNS = 10
_LEAST = 0.95
_WORDS = (
    "When does the library open on Saturday?",
    "And which of its rooms can be booked for a group of eight people?",
    "Please look up what the large room costs for an afternoon.",
    "My sister comes too. Does that change anything?",
)


def measure(runs: int) -> Iterator[Line]:
    """Yield the shares, and the times of the local model."""
    shares = [shared(sent()) for _ in range(runs)]
    yield Line(
        f"shared prefix of two following requests, {TURNS} turns, the smallest",
        "",
        [min(each) for each in shares],
        target=Target(_LEAST, "at least", of="ours"),
    )
    yield Line("the same, first request of turn 8", "", [each[2 * 7 - 1] for each in shares])
    times = [anyio.run(_local_times) for _ in range(runs)]
    yield Line(
        f"local model: first token of turn {TURNS} · of turn 1",
        "s",
        [each[-1] for each in times],
        [each[0] for each in times],
    )


def sent() -> list[dict[str, Any]]:
    """Have the conversation, and return the bodies of its requests."""
    script = []
    for turn in range(TURNS):
        script += [Calls(("look", {"page": turn})), Text(f"That is answer number {turn}.")]
    with in_thread() as endpoint:
        endpoint.answers(*script)
        url = f"{endpoint.url}/v1" if not endpoint.url.endswith("/v1") else endpoint.url
        llm = LLM(provider="vllm", model="scripted", base_url=url, context_tokens=32_768)
        anyio.run(_talk, llm)
        return [request.body for request in endpoint.requests if "messages" in request.body]


async def _talk(llm: LLM) -> None:
    models = Models(llm)
    try:
        with tempfile.TemporaryDirectory() as directory:
            await talk(Path(directory), models.get())
    finally:
        await models.aclose()


class _World(World):
    """A world with another model."""

    model: Model

    def model_of(self, profile: Profile) -> Model:  # type: ignore[override]  # any model will do
        return self.model


async def talk(directory: Path, model: Model) -> None:
    """Write the messages, each after the answer to the one before it."""
    world = _World(directory)
    world.model = model
    world.shop.taint = "web"
    world.shop.result = lambda name, arguments: f"{name} {arguments}: open from 9 to 17. " * 20
    async with world.life() as conversations:
        for turn in range(TURNS):
            tea = remembered("tea", "Tea", f"They like tea, said {turn} times.", taint="person")
            world.memories.found = [tea, remembered("key", "Key", f"Shelf {turn}.", taint="file")]
            notes = f"Lives in Verona. Has {turn // 4} cats."
            world.profile = msgspec.structs.replace(world.profile, user=notes)
            await conversations.received(message(f"m{turn}", _WORDS[turn % len(_WORDS)]))
            # However long a small machine takes.
            while len(world.ear.said) <= turn:  # noqa: ASYNC110 - the world tells no event for it
                await anyio.sleep(0.005)
        await world.settled()


def shared(bodies: Sequence[dict[str, Any]]) -> list[float]:
    """For each request but the first: the part of the one before it with which it begins."""
    shares = []
    before = b""
    for body in bodies:
        tools = json.dumps(body.get("tools", ()), ensure_ascii=False)
        # Without the bracket that ends the list, since it goes on.
        prompt = (tools + json.dumps(body["messages"], ensure_ascii=False)[:-1]).encode()
        if before:
            pairs = zip(before, prompt, strict=False)
            same = next((at for at, (one, other) in enumerate(pairs) if one != other), len(before))
            shares.append(same / len(before))
        before = prompt
    return shares


class _Timed:
    """A model whose first tokens are timed."""

    def __init__(self, model: Model) -> None:
        self.seconds: list[float] = []
        self._model = model
        self.name = model.name
        self.context_tokens = model.context_tokens
        self.usd_per_token_in = self.usd_per_token_out = 0.0

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> Completion:
        began, first = perf_counter(), list[float]()

        def on_piece(piece: str | Void) -> bool | None:
            first.append(perf_counter() - began)
            return None if on_text is None else on_text(piece)

        request = msgspec.structs.replace(request, tools=(), max_tokens=16)
        completion = await self._model.complete(request, on_piece)
        self.seconds.append(first[0] if first else perf_counter() - began)
        return completion

    def tokens(self, text: str) -> int:
        return self._model.tokens(text)


async def _local_times() -> list[float]:
    models = Models(LLM(provider="local"))
    try:
        timed = _Timed(models.get())
        with tempfile.TemporaryDirectory() as directory:
            await talk(Path(directory), timed)
        return timed.seconds
    finally:
        await models.aclose()

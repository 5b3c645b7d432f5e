"""A model whose answers a test writes."""

import json
from collections.abc import Callable
from itertools import count
from typing import TypeAlias

import anyio.lowlevel

from component.models.messages import ToolCall
from component.models.protocol import Completion, ModelError, ModelRequest, OnText

Step: TypeAlias = str | Completion | ModelError | Callable[[ModelRequest], str | Completion]
"""What a model says to one request: a text, a completion, an error, or a function that makes it."""

_numbers = count(1)


def call(skill: str, **arguments: object) -> Completion:
    """Return an answer that calls a skill."""
    id_ = f"call-{next(_numbers)}"
    return Completion.of(tool_calls=(ToolCall(id_, skill, json.dumps(arguments)),))


class Script:
    """Answers each request with the next step; after the last with `otherwise`.

    Args:
        steps: the answers, in order.
        otherwise: every answer after these; None if none is expected.

    Attributes:
        requests: what the model was asked, in order.
        context_tokens: see `Model`, like the other attributes.
    """

    name = "scripted"
    usd_per_token_in = 0.0
    usd_per_token_out = 0.0

    def __init__(
        self, *steps: Step, otherwise: Step | None = None, context_tokens: int = 32_768
    ) -> None:
        self.requests: list[ModelRequest] = []
        self.context_tokens = context_tokens
        self.otherwise = otherwise
        self._steps = list(steps)

    def add(self, *steps: Step) -> None:
        """Answer these at the end of the script."""
        self._steps += steps

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> Completion:
        self.requests.append(request)
        await anyio.lowlevel.checkpoint()
        step = self._steps.pop(0) if self._steps else self.otherwise
        if callable(step):
            step = step(request)
        if step is None:
            raise AssertionError(f"the script has no answer to request {len(self.requests)}")
        if isinstance(step, ModelError):
            raise step
        answer = Completion.of(step) if isinstance(step, str) else step
        if on_text is not None and answer.text:
            on_text(answer.text)
        return answer

    def tokens(self, text: str) -> int:
        return len(text) // 4 + 1

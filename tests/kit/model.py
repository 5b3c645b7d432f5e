"""A model whose answers a test writes."""

import json
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TypeAlias

import anyio
import anyio.lowlevel

from component.models.messages import ToolCall
from component.models.protocol import Completion, ModelError, ModelRequest, OnText

Said: TypeAlias = str | Completion | ModelError
Step: TypeAlias = Said | Callable[[ModelRequest], Said | Awaitable[Said]]
"""What a model says to one request: a text, a completion, an error, or a function that returns one
of them, and may wait.
"""

_numbers = count(1)


def call(skill: str, **arguments: object) -> Completion:
    """Return an answer that calls a skill."""
    id_ = f"call-{next(_numbers)}"
    return Completion.of(tool_calls=(ToolCall(id_, skill, json.dumps(arguments)),))


class NoAnswer:
    """A step of a script that never ends.

    Attributes:
        reached: set when the model is asked.
    """

    def __init__(self) -> None:
        self.reached = anyio.Event()

    async def __call__(self, _request: ModelRequest) -> Said:
        """Wait for ever."""
        self.reached.set()
        await anyio.sleep_forever()
        raise AssertionError("It waits until it is cancelled.")


class Script:
    """Answers each request with the next step; after the last with `otherwise`.

    Args:
        steps: the answers, in order.
        otherwise: every answer after these; None if none is expected.

    Attributes:
        requests: what the model was asked, in order.
        models: the name of the model that was asked each of them.
        context_tokens: see `Model`.
        usd_per_token: the price of a token of a question or an answer.
    """

    def __init__(
        self,
        *steps: Step,
        otherwise: Step | None = None,
        context_tokens: int = 32_768,
        usd_per_token: float = 0.0,
    ) -> None:
        self.requests: list[ModelRequest] = []
        self.models: list[str] = []
        self.context_tokens = context_tokens
        self.usd_per_token = usd_per_token
        self.otherwise = otherwise
        self._steps = list(steps)

    def add(self, *steps: Step) -> None:
        """Answer these at the end of the script."""
        self._steps += steps

    @property
    def asked(self) -> str:
        """The texts of the last request."""
        return "\n".join(message.text for message in self.requests[-1].messages)

    def named(self, name: str) -> "ScriptedModel":
        """Return a model of this name that answers with the steps of this script."""
        return ScriptedModel(self, name)

    async def complete(
        self, name: str, request: ModelRequest, on_text: OnText | None = None
    ) -> Completion:
        """Answer a request to the model of this name."""
        self.requests.append(request)
        self.models.append(name)
        await anyio.lowlevel.checkpoint()
        step = self._steps.pop(0) if self._steps else self.otherwise
        if callable(step):
            made = step(request)
            step = await made if isinstance(made, Awaitable) else made
        if step is None:
            raise AssertionError(f"the script has no answer to request {len(self.requests)}")
        if isinstance(step, ModelError):
            raise step
        answer = Completion.of(step) if isinstance(step, str) else step
        if on_text is not None and answer.text:
            on_text(answer.text)
        return answer


class ScriptedModel:
    """A model that answers with the steps of a script."""

    def __init__(self, script: Script, name: str) -> None:
        self.name = name
        self.context_tokens = script.context_tokens
        self.usd_per_token_in = self.usd_per_token_out = script.usd_per_token
        self._script = script

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> Completion:
        return await self._script.complete(self.name, request, on_text)

    def tokens(self, text: str) -> int:
        return len(text) // 4 + 1

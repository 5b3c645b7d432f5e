"""The interface of language models for the agent loop. No provider, no HTTP.

The names are those of the chat completions interface that most providers serve.
"""

import enum
from collections.abc import Callable, Iterable
from typing import Literal, Protocol, TypeAlias

import msgspec

from component.config.llm import ModelChoice
from component.models.messages import (
    AnswerPart,
    ModelMessage,
    ToolCall,
    answer_parts,
    separated_text_of,
    text_of,
)

Finish: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter"]
"""Why a model stopped: it was done, had no tokens left, calls tools, or was filtered."""


class Void(enum.Enum):
    """Says that the pieces of a text so far are void."""

    BROKEN_OFF = "broken off"
    """The answer broke off, and another one begins."""
    WITHDRAWN = "withdrawn"
    """They are not text, but reasoning or a call; the answer goes on."""


OnText: TypeAlias = Callable[[str | Void], bool | None]
"""Receives each piece of the text as it arrives, or that the pieces so far are void, and returns
True if a person has seen it. Must neither wait nor raise.
"""

ToolChoice: TypeAlias = Literal["auto", "none", "required"]
"""Whether the model may call tools, must not, or must call at least one."""


class Tool(msgspec.Struct, frozen=True):
    """A tool as it is described to the model; `parameters` is a JSON Schema, an object, encoded.

    An `optional` tool is left out for a model whose context window is too small for all of them.
    """

    name: str
    description: str
    parameters: msgspec.Raw
    optional: bool = False


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a model.

    `tool_choice` says whether the model may call tools. With `none` it must not, but the prompt
    still has the tools, so that its beginning does not change; adapters that do not support this
    leave the tools out. `max_tokens` limits the answer; with None, `temperature` is left to the
    provider. `schema` is an encoded JSON Schema for the text of the answer, which not every
    provider enforces.
    """

    messages: tuple[ModelMessage, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = "auto"
    max_tokens: int = 1024
    temperature: float | None = None
    schema: msgspec.Raw | None = None


class Usage(msgspec.Struct, frozen=True):
    """The usage of a call: tokens as the provider counts them (`estimated` if it does not report
    them), and US dollars at the configured prices.

    The tokens of the question include those that the provider read from its cache or wrote to it,
    and those of the answer include its reasoning.
    """

    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    estimated: bool = False
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        """Return the sum of the usage of two calls."""
        mine, its = msgspec.structs.asdict(self), msgspec.structs.asdict(other)
        sums = {name: mine[name] + its[name] for name in mine}
        return Usage(**sums | {"estimated": self.estimated or other.estimated})


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a model.

    Attributes:
        model: the one that answered, after any fallback.
        refused: the parts of the request that the provider refuses, by `contents.part_digest`. The
            answer is to the request without them, and later requests should not have them.
    """

    parts: tuple[AnswerPart, ...]
    finish: Finish = "stop"
    usage: Usage = Usage()
    model: str = ""
    refused: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """The texts of the answer, joined."""
        return text_of(self.parts)

    @property
    def paragraphs(self) -> str:
        """The texts of the answer for people: what was said before and after a call, or a tool of
        the provider, are paragraphs.
        """
        return separated_text_of(self.parts)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tools that the model asks to call."""
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])

    @classmethod
    def of(
        cls,
        text: str = "",
        tool_calls: Iterable[ToolCall] = (),
        *,
        finish: Finish = "stop",
        usage: Usage = Usage(),  # noqa: B008 - frozen
        model: str = "",
    ) -> "Completion":
        """Make an answer of a text and tool calls."""
        return cls(parts=answer_parts(text, tool_calls), finish=finish, usage=usage, model=model)


class Model(Protocol):
    """A language model."""

    @property
    def name(self) -> str:
        """The provider's name of the model, for people and records."""

    @property
    def context_tokens(self) -> int:
        """The maximum number of tokens of question and answer together."""

    @property
    def usd_per_token_in(self) -> float:
        """The price of a token of the question; 0 if it is free."""

    @property
    def usd_per_token_out(self) -> float:
        """The price of a token of the answer."""

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> Completion:
        """Ask the model, streaming.

        `on_text` says whether a person has seen a piece. A call that fails after that is not
        repeated, and no other model is asked; until then both happen.

        Raises:
            ContextOverflowError: question and answer are too long for the model.
            ModelUnavailableError: the model is unavailable, after all retries and fallbacks.
            ModelRefusedError: the provider rejects the request, and would do so again.
            ContentFilteredError: the provider's content filter rejects the request.
        """

    def tokens(self, text: str) -> int:
        """Estimate the number of tokens of a text, rather too high than too low. Never waits."""


MakeModel: TypeAlias = Callable[[ModelChoice], Model]
"""Makes the model that settings name."""


class ModelError(Exception):
    """A model has not answered. The text is a sentence for the log, without secrets."""


class ContextOverflowError(ModelError):
    """Question and answer together are longer than the model's context."""


class ModelUnavailableError(ModelError):
    """The model cannot be reached, or not now; `retry_after_s` is when to try again, if known."""

    def __init__(self, sentence: str, retry_after_s: float | None = None) -> None:
        super().__init__(sentence)
        self.retry_after_s = retry_after_s


class ModelRefusedError(ModelError):
    """The provider always rejects the request: a wrong key, an unknown model, a bad request."""


class ContentFilteredError(ModelRefusedError):
    """The provider's content filter rejects the question, or the answer."""


class UnusableAnswerError(ModelUnavailableError):
    """The model has answered with what cannot be used: more than an answer may have
    (`component.models.answer_limits`), or in a form that nobody asked for.

    The same model is not asked again for it, since another such answer would cost as much; a
    fallback is.
    """


class Wrapped:
    """The attributes of a model that adds something to another one."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def name(self) -> str:
        """See Model.name."""
        return self._model.name

    @property
    def context_tokens(self) -> int:
        """See Model.context_tokens."""
        return self._model.context_tokens

    @property
    def usd_per_token_in(self) -> float:
        """See Model.usd_per_token_in."""
        return self._model.usd_per_token_in

    @property
    def usd_per_token_out(self) -> float:
        """See Model.usd_per_token_out."""
        return self._model.usd_per_token_out

    def tokens(self, text: str) -> int:
        """See Model.tokens."""
        return self._model.tokens(text)

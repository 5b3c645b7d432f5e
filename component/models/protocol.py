"""What the agent loop asks of a language model, and what it gets. No provider, no HTTP.

The names are those of the chat completions interface that most providers serve.
"""

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

import msgspec

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
Finish: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter"]
"""Why a model stopped: it was done, had no tokens left, wants tools, or was cut by its provider."""

OnText: TypeAlias = Callable[[str], None]
"""Takes each piece of the text as it arrives. Must neither wait nor raise."""


class ToolCall(msgspec.Struct, frozen=True):
    """A tool that the model wants to have called.

    `arguments` is the text the model wrote, meant to be a JSON object; nobody has checked it, nor
    that there is a tool of this `name`. `id` joins the result to the call, unique in a completion.
    """

    id: str
    name: str
    arguments: str


class ChatMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of the conversation that a model is shown.

    `tool_calls` are an assistant's; `tool_call_id` is that of the call which a tool message
    answers.
    """

    role: Role
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


class Tool(msgspec.Struct, frozen=True):
    """A tool as the model is told of it; `parameters` is a JSON Schema, an object, encoded."""

    name: str
    description: str
    parameters: msgspec.Raw


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a model.

    `max_tokens` bounds the answer; `temperature` None leaves it to the provider. `schema` is a
    JSON Schema, encoded, that the answer's text has to satisfy, as far as the provider can.
    """

    messages: tuple[ChatMessage, ...]
    tools: tuple[Tool, ...] = ()
    max_tokens: int = 1024
    temperature: float | None = None
    schema: msgspec.Raw | None = None


class Usage(msgspec.Struct, frozen=True):
    """What a call took: tokens, as the provider counts them (or estimated, if it does not say),
    and US dollars at the configured prices.
    """

    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    estimated: bool = False


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """What a model answered. `model` is the one that did, after any fallback."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    finish: Finish = "stop"
    usage: Usage = Usage()
    model: str = ""


class Model(Protocol):
    """A language model."""

    @property
    def name(self) -> str:
        """What the provider calls it, for people and records."""

    @property
    def context_tokens(self) -> int:
        """How many tokens question and answer may have together."""

    @property
    def usd_per_token_in(self) -> float:
        """The price of a token of the question; 0 where nobody charges."""

    @property
    def usd_per_token_out(self) -> float:
        """The price of a token of the answer."""

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> Completion:
        """Ask the model, streaming.

        What `on_text` was given cannot be taken back: a call that fails after that is not made
        again, nor another model asked; without `on_text` it is.

        Raises ContextOverflowError: question and answer are too long for it.
        ModelUnavailableError: it cannot be had now, all retries and fallbacks included.
        ModelRefusedError: asking again as it is does not help.
        """

    def tokens(self, text: str) -> int:
        """About how many tokens a text has, rather too many than too few. Never waits."""


class ModelError(Exception):
    """A model has not answered. The text is a sentence for the log, without secrets."""


class ContextOverflowError(ModelError):
    """Question and answer together are longer than the model's context."""


class ModelUnavailableError(ModelError):
    """The model cannot be reached, or not now; `retry_after_s` is when to try again, if known."""

    def __init__(self, sentence: str, retry_after_s: float | None = None) -> None:
        """Take the sentence, and the seconds."""
        super().__init__(sentence)
        self.retry_after_s = retry_after_s


class ModelRefusedError(ModelError):
    """The provider refuses for good: a wrong key, an unknown model, a request it does not take."""


class UnusableAnswerError(ModelUnavailableError):
    """The model has answered with what cannot be used: more than an answer may have
    (`component.models.answer_limits`), or in a form that nobody asked for.

    The same model is not asked again for it, since another such answer would cost as much; a
    fallback is.
    """

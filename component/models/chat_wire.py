"""Chat completions as they are on the wire, as far as this package reads them.

What is optional, repeated or of another type in one server or another is so here.
"""

from typing import Any

import msgspec

from component.models.tolerant_json import decode_as


class Function(msgspec.Struct):
    """Name and arguments, or a piece of them. Some servers give arguments as an object."""

    name: str | None = None
    arguments: Any = None


class Call(msgspec.Struct):
    """A tool call, or a piece of one. Some servers count ids, or write the index as a text."""

    index: int | str | None = None
    id: Any = None
    function: Function | None = None

    @property
    def named(self) -> str:
        """The id as a text; empty if there is none."""
        return self.id if isinstance(self.id, str) else "" if self.id is None else str(self.id)


class Part(msgspec.Struct):
    """A part of a text. Mistral's `thinking` is a list of texts."""

    text: str | None = None
    thinking: Any = None

    @property
    def reasoning(self) -> str:
        """The text of `thinking`."""
        if isinstance(self.thinking, str):
            return self.thinking
        parts = self.thinking if isinstance(self.thinking, list) else []
        texts = [part.get("text") for part in parts if isinstance(part, dict)]
        return "".join([text for text in texts if isinstance(text, str)])


class Said(msgspec.Struct):
    """A message, or a piece of one. `refusal` is the text that OpenAI sends instead of `content`.

    Servers send reasoning in one or more of the three other fields. `function_call` is a call as it
    was before there could be several.
    """

    content: str | list[Part] | None = None
    refusal: str | None = None
    tool_calls: list[Call] | None = None
    function_call: Function | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None


class Choice(msgspec.Struct):
    """One of the answers; we ask for one. A stream has `delta`, a whole answer `message`."""

    delta: Said | None = None
    message: Said | None = None
    finish_reason: str | None = None


class Progress(msgspec.Struct):
    """How much of the prompt llama.cpp has read; `total` is its number of tokens."""

    total: int = 0


class Chunk(msgspec.Struct):
    """One event of a stream, or a whole answer. `error` is one that came after the beginning;
    `base_resp` is that of MiniMax, which answers with status 200.
    """

    choices: list[Choice] | None = None
    usage: Any = None  # `component.models.usage` checks it: some servers send invalid values
    error: Any = None
    object: str | None = None
    prompt_progress: Progress | None = None
    message: Any = None
    code: Any = None
    base_resp: Any = None


_decoder = msgspec.json.Decoder(Chunk)


def decode(data: bytes) -> Chunk:
    """Read one event of a stream, or a whole answer. Raises BadJSONError."""
    return decode_as(_decoder, data)

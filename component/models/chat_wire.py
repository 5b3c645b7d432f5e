"""Chat completions as they are on the wire, as far as this package reads them.

What is optional, repeated or of another type in one server or another is so here.
"""

from typing import Any

import msgspec

from component.models.answer_limits import JSON_VALUES
from component.models.tolerant_json import decode_as


class Function(msgspec.Struct):
    """Name and arguments, or a piece of them. Some servers give arguments as an object."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class Call(msgspec.Struct):
    """A tool call, or a piece of one."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None


class Part(msgspec.Struct):
    """A part of a text; only those that have `text` are read."""

    text: str | None = None


class Said(msgspec.Struct):
    """A message, or a piece of one. `refusal` is what OpenAI says instead of `content`."""

    content: str | list[Part] | None = None
    refusal: str | None = None
    tool_calls: list[Call] | None = None

    @property
    def text(self) -> str:
        """The text of this piece."""
        content = self.content
        if isinstance(content, list):
            content = "".join(part.text or "" for part in content)
        return (content or "") + (self.refusal or "")


class Choice(msgspec.Struct):
    """One of the answers; we ask for one. A stream has `delta`, a whole answer `message`."""

    delta: Said | None = None
    message: Said | None = None
    finish_reason: str | None = None


class Chunk(msgspec.Struct):
    """One event of a stream, or a whole answer. `error` is one that came after the beginning."""

    choices: list[Choice] | None = None
    usage: Any = None  # `component.models.usage` reads it: some servers write nonsense into it
    error: Any = None
    object: str | None = None
    message: Any = None
    code: Any = None


_decoder = msgspec.json.Decoder(Chunk)
_decode = _decoder.decode


def decode(data: bytes) -> Chunk:
    """Read one event of a stream, or a whole answer. Raises BadJSONError."""
    if len(data) <= JSON_VALUES:  # so it cannot have more
        try:
            return _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    return decode_as(_decoder, data)

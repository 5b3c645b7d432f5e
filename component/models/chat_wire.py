"""Chat completions as they are on the wire, as far as this package reads them.

What is optional, repeated or of another type in one server or another is so here.
"""

import re
from typing import Any, Final

import msgspec

from component.models.tolerant_json import BadJSONError, decode_any, decode_as

_MORE: Final = (
    r"extra_content|provider_specific_fields|thinking_blocks|reasoning_(?!content\b|details\b)\w+"
    r"|thought\w*|\w*(signature|encrypted|opaque)\w*"
)
MORE_FIELDS: Final = re.compile(_MORE)
"""Names of fields that go back to the provider that has sent them."""
_MAY_HAVE_MORE: Final = re.compile(rf'"({_MORE})"\s*:'.encode())


class Function(msgspec.Struct):
    """Name and arguments, or a piece of them. Some servers give arguments as an object."""

    name: str | None = None
    arguments: Any = None


class Call(msgspec.Struct):
    """A tool call, or a piece of one. Some servers count ids, or write the index as a text.

    `fields` are all other ones, which belong to it.
    """

    index: int | str | None = None
    id: Any = None
    function: Function | None = None
    fields: dict[str, Any] = {}

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
    tool_calls: list[dict[str, Any]] | None = None
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
_OWN: Final = ("index", "id", "type", "function")


def call_of(said: dict[str, Any]) -> Call:
    """Read a tool call, or a piece of one. Raises BadJSONError."""
    fields = {key: value for key, value in said.items() if key not in _OWN and value is not None}
    function = said.get("function")
    if isinstance(function, dict) and len(function) > 2:
        inner = {key: v for key, v in function.items() if key not in ("name", "arguments")}
        if inner:
            fields["function"] = inner
    known: dict[str, Any] = {"fields": fields}
    known |= {key: said[key] for key in ("index", "id", "function") if key in said}
    try:
        return msgspec.convert(known, Call)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BadJSONError(str(error)) from None


def more_fields(data: bytes) -> dict[str, Any]:
    """Return fields of a message, or of a piece of one, that its provider wants back and that have
    no place in `Said`: signatures, sealed reasoning, whatever they are called.
    """
    if not _MAY_HAVE_MORE.search(data):
        return {}
    try:
        choice = decode_any(data)["choices"][0]
        said = choice.get("delta") or choice["message"]
        return {k: v for k, v in said.items() if v and MORE_FIELDS.fullmatch(k)}
    except (BadJSONError, AttributeError, TypeError, LookupError):
        return {}


def decode(data: bytes) -> Chunk:
    """Read one event of a stream, or a whole answer. Raises BadJSONError."""
    return decode_as(_decoder, data)

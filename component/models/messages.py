"""The messages that a language model is shown, made of parts, and the parts that it answers with.

They are independent of any provider: each adapter translates them into its dialect and back. Ids
of calls, and fields that a provider wants back beside a call, are kept for that.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from component import system
from component.models.answer_limits import encoded_object
from xep.characters import without_forbidden

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    """A text."""

    text: str


class ImagePart(msgspec.Struct, frozen=True, tag="image"):
    """An image, as `media_type` (RFC 6838, such as `image/png`) and bytes."""

    media_type: str
    data: bytes


class FilePart(msgspec.Struct, frozen=True, tag="file"):
    """Any other file, such as a PDF document."""

    name: str
    media_type: str
    data: bytes


class ToolCall(msgspec.Struct, frozen=True, tag="tool_call"):
    """A tool that the model asks to call.

    `arguments` is the text that the model wrote, meant to be a JSON object; neither it nor the
    `name` has been checked. `id` connects the result with the call and is unique in a completion.
    """

    id: str
    name: str
    arguments: str


class OpaquePart(msgspec.Struct, frozen=True, tag="opaque"):
    """Something that only its provider understands: reasoning, a signature.

    It is stored in its place and given back to the adapter and model that it came from, and to no
    other.

    Attributes:
        origin: names adapter and model, such as `anthropic/claude-sonnet-4-5`.
        data: JSON, in the form of the provider.
    """

    origin: str
    data: msgspec.Raw


ContentPart: TypeAlias = TextPart | ImagePart | FilePart
"""The parts of messages of people and of results of tools."""

AnswerPart: TypeAlias = TextPart | ToolCall | OpaquePart
"""The parts of a model's answer."""


class ToolResultPart(msgspec.Struct, frozen=True, tag="tool_result"):
    """The result of the call of this `id`."""

    id: str
    parts: tuple[ContentPart, ...]
    is_error: bool = False

    @property
    def text(self) -> str:
        """The texts of the result, joined."""
        return text_of(self.parts)


Part: TypeAlias = ContentPart | AnswerPart | ToolResultPart


class ModelMessage(msgspec.Struct, frozen=True):
    """One message of the conversation that a model is shown.

    Messages of `tool` consist of results, those of `assistant` of parts of the answer.
    """

    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The texts of the message, joined; of a `tool` message those of its results."""
        return text_of(self.parts)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tools that an assistant's message calls."""
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])

    @property
    def results(self) -> tuple[ToolResultPart, ...]:
        """The results of a `tool` message."""
        return tuple([part for part in self.parts if isinstance(part, ToolResultPart)])


def text_of(parts: Iterable[Part]) -> str:
    """The texts of these parts, joined."""
    return "".join([part.text for part in parts if isinstance(part, TextPart | ToolResultPart)])


def separated_text_of(parts: Iterable[AnswerPart]) -> str:
    """The texts of an answer, joined; texts with something else between them are paragraphs."""
    joined = ""
    after: AnswerPart | None = None
    for part in parts:
        if isinstance(part, TextPart):
            apart = after is not None and not isinstance(after, TextPart)
            if apart and joined and not _continues(joined, part.text, after):
                joined += "\n\n"
            joined += part.text
        after = part
    return joined


def _continues(before: str, text: str, between: AnswerPart | None) -> bool:
    """Whether a text is the rest of one that something of the provider, not a call, interrupts."""
    if before[-1].isspace() or text[:1].isspace():
        return True
    is_opaque = isinstance(between, OpaquePart)
    return is_opaque and before[-1].isalnum() and text[:1].islower()


def text_message(role: Role, text: str) -> ModelMessage:
    """Make a message of one text."""
    return ModelMessage(role, (TextPart(text),))


def call_message(text: str, calls: Iterable[ToolCall]) -> ModelMessage:
    """Make an assistant's message that calls tools; `text` may be empty."""
    return ModelMessage("assistant", answer_parts(text, calls))


def result_message(id_: str, text: str) -> ModelMessage:
    """Make a message with the result of one call."""
    return ModelMessage("tool", (ToolResultPart(id_, (TextPart(text),)),))


def answer_parts(text: str, calls: Iterable[ToolCall]) -> tuple[AnswerPart, ...]:
    """Make the parts of an answer: the text, unless it is empty, then the calls."""
    return (*([TextPart(text)] if text else ()), *calls)


def map_parts(
    messages: Iterable[ModelMessage], change: Callable[[Part], Part | None]
) -> tuple[ModelMessage, ...]:
    """Change all parts, also of results; one for which `change` returns None is left out."""

    def changed(parts: Iterable[Part]) -> tuple[Any, ...]:
        return tuple([new for part in parts if (new := inside(part)) is not None])

    def inside(part: Part) -> Part | None:
        if isinstance(part, ToolResultPart):
            return msgspec.structs.replace(part, parts=changed(part.parts))
        return change(part)

    return tuple([ModelMessage(each.role, changed(each.parts)) for each in messages])


def map_text(parts: Iterable[AnswerPart], change: Callable[[str], str]) -> tuple[AnswerPart, ...]:
    """Change the texts of an answer; a text that becomes empty is left out."""
    changed: list[AnswerPart] = []
    for part in parts:
        if not isinstance(part, TextPart):
            changed.append(part)
        elif text := change(part.text):
            changed.append(part if text == part.text else TextPart(text))
    return tuple(changed)


def storable(text: str) -> str:
    """Replace characters that XML or a database cannot store by U+FFFD.

    A server that counts in UTF-16 may send the halves of a surrogate pair in two pieces: they are
    joined.
    """
    fit = without_forbidden(text)
    if fit == text:
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return without_forbidden(joined)


def storable_part(part: Part) -> Part:
    """Replace the same in a text, or in arguments: JSON cannot carry half of a surrogate pair."""
    match part:
        case TextPart(text):
            return TextPart(storable(text))
        case ToolCall():
            return msgspec.structs.replace(part, arguments=storable(part.arguments))
    return part


# -- ids of calls --------------------------------------------------------------------------------

_PORTABLE: Final = r"[A-Za-z0-9_-]{1,40}"


def is_portable_id(id_: str) -> bool:
    """Whether every API takes an id: OpenAI takes 40 characters, Anthropic no symbols."""
    return re.fullmatch(_PORTABLE, id_) is not None


def portable_id(id_: str) -> str:
    """Return an id that every API takes, the same for the same id."""
    if is_portable_id(id_):
        return id_
    return "call_" + hashlib.sha256(id_.encode(errors="replace")).hexdigest()[:24]


def call_ids_of(messages: Iterable[ModelMessage]) -> set[str]:
    """Return the ids in the conversation."""
    return {call.id for message in messages for call in message.tool_calls}


def with_distinct_ids(calls: Iterable[ToolCall], used: set[str]) -> tuple[ToolCall, ...]:
    """Return the calls with unique ids.

    Servers number calls from 0 in every answer, or leave ids out. A result is joined to its call
    by the id alone, so one that is empty or in `used` is replaced by a random one.
    """
    out = []
    used = set(used)
    for call in calls:
        id_ = call.id
        while not id_ or id_ in used:
            id_ = f"call_{system.token_hex(8)}"
        used.add(id_)
        out.append(call if id_ == call.id else ToolCall(id_, call.name, call.arguments))
    return tuple(out)


# -- fields beside a call ------------------------------------------------------------------------
#
# What a provider sends beside a tool call, and wants back with it: a signature, reasoning, an id of
# its own form. It is an opaque part before the call, `{"tool_call": {…}}`, so it goes back to the
# model that it came from, and to no other.

_BEGINNING: Final = b'{"tool_call":'
_TEXT: Final = r"(?i)reason|think|thought"
_SIGNED: Final = r"(?i)signature|encrypted|_id$|^id$"


def encoded_fields(fields: Mapping[str, Any]) -> bytes | None:
    """Encode the fields of a call as the data of an opaque part; None if they cannot be sent."""
    return encoded_object({"tool_call": fields})


def with_fields(parts: Iterable[Part]) -> Iterator[tuple[Part, Mapping[str, Any]]]:
    """Yield the parts of a message, each call with the fields that belong to it."""
    pending: dict[str, Any] = {}
    for part in parts:
        if isinstance(part, OpaquePart) and bytes(part.data).startswith(_BEGINNING):
            found = msgspec.json.decode(part.data)["tool_call"]
            pending |= found if isinstance(found, dict) else {}
        elif isinstance(part, ToolCall):
            yield part, pending
            pending = {}
        else:
            yield part, {}


def add_fields(known: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add fields of a stream: reasoning grows, objects are merged, other values are replaced."""
    for key, value in more.items():
        before = known.get(key)
        if isinstance(before, str) and isinstance(value, str) and _grows(key):
            known[key] = before + value
        elif isinstance(before, dict) and isinstance(value, dict):
            add_fields(before, value)
        elif isinstance(before, list) and isinstance(value, list) and value != before:
            known[key] = [*before, *value]
        elif value is not None:
            known[key] = value


def _grows(key: str) -> bool:
    return re.search(_TEXT, key) is not None and re.search(_SIGNED, key) is None

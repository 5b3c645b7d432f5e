"""The messages that a language model is shown, made of parts, and the parts that it answers with.

They are independent of any provider: each adapter translates them into its dialect and back.
"""

from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

import msgspec

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


def map_text(parts: Iterable[AnswerPart], change: Callable[[str], str]) -> tuple[AnswerPart, ...]:
    """Change the texts of an answer; a text that becomes empty is left out."""
    changed: list[AnswerPart] = []
    for part in parts:
        if not isinstance(part, TextPart):
            changed.append(part)
        elif text := change(part.text):
            changed.append(part if text == part.text else TextPart(text))
    return tuple(changed)

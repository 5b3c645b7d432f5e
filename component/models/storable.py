"""Texts of models, made fit to be stored and sent."""

import msgspec

from component.models.messages import ModelMessage, Part, TextPart, ToolCall, ToolResultPart
from xep.characters import without_forbidden


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


def storable_message(message: ModelMessage) -> ModelMessage:
    """Replace the same in the texts of a message: JSON cannot carry half of a surrogate pair."""
    return ModelMessage(message.role, tuple(map(_storable_part, message.parts)))


def _storable_part(part: Part) -> Part:
    match part:
        case TextPart(text):
            return TextPart(storable(text))
        case ToolCall():
            return msgspec.structs.replace(part, arguments=storable(part.arguments))
        case ToolResultPart():
            parts = tuple(
                TextPart(storable(each.text)) if isinstance(each, TextPart) else each
                for each in part.parts
            )
            return msgspec.structs.replace(part, parts=parts)
    return part

"""JSON as servers write it, which is not always JSON."""

import json
from typing import Any, TypeVar

import msgspec

from component.models.answer_limits import too_many_values

T = TypeVar("T")


class BadJSONError(Exception):
    """A document that cannot be decoded; the text says what is wrong with it."""


def decode_as(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    """Decode a document of a known type.

    Some servers cut characters in two, or write `NaN`: what strict JSON does not allow is read
    tolerantly, with U+FFFD in place of bytes that are no UTF-8. Texts may hold halves of surrogate
    pairs then. Raises BadJSONError.
    """
    if too_many_values(data):
        raise BadJSONError("it has too many values")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = decode_any(data)
    except RecursionError:
        raise BadJSONError("it is nested too deeply") from None
    try:
        decoded: T = msgspec.convert(found, decoder.type)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BadJSONError(str(error)) from None
    return decoded


def decode_any(data: bytes) -> Any:
    """Decode a document of which nothing is known, as tolerantly. Raises BadJSONError."""
    if too_many_values(data):
        raise BadJSONError("it has too many values")
    try:
        return json.loads(data.decode(errors="replace"), strict=False)
    except (ValueError, RecursionError) as error:
        raise BadJSONError(f"it is no JSON ({type(error).__name__})") from None

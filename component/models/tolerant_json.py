"""JSON as servers write it, which is not always JSON."""

import json
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from component.models.answer_limits import too_many_values

T = TypeVar("T")

NESTED_TOO_DEEPLY: Final = "(nested too deeply)"
"""Stands for arguments that cannot be encoded. It is not JSON, so nothing is called, and the model
sees why.
"""


class BadJSONError(Exception):
    """A document that cannot be decoded; the text says what is wrong with it."""


def decode_as(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    """Decode a document of a known type.

    Some servers split characters, or write `NaN`. A document that is not strict JSON is decoded
    tolerantly, with U+FFFD in place of bytes that are not UTF-8; strings may then contain halves of
    surrogate pairs. Raises BadJSONError.
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
    """Decode a document of unknown type, equally tolerantly. Raises BadJSONError."""
    if too_many_values(data):
        raise BadJSONError("it has too many values")
    try:
        return json.loads(data.decode(errors="replace"), strict=False)
    except (ValueError, RecursionError) as error:
        raise BadJSONError(f"it is not JSON ({type(error).__name__})") from None


def arguments_in(value: Any) -> str:
    """Return the arguments of a call, or a piece of them, as the text that they are in every
    dialect. Some servers send them decoded; empty if there are none.
    """
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return encode_any(value).decode()
    except BadJSONError:
        return NESTED_TOO_DEEPLY


def encode_any(value: Any) -> bytes:
    """Encode a value that was decoded from JSON. Raises BadJSONError."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, OverflowError):  # halves of surrogate pairs, integers of any size
        return json.dumps(value).encode()
    except RecursionError:
        raise BadJSONError("it is nested too deeply") from None


def is_object(text: str) -> bool:
    """Whether a text is a JSON object, strictly."""
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def encoded_object(value: Mapping[str, Any]) -> bytes | None:
    """Encode an object that is sent back later; None if it has halves of characters, or is nested
    too deeply: nobody can read it then.
    """
    try:
        data = encode_any(value)
        msgspec.json.decode(data)
    except (BadJSONError, msgspec.DecodeError):
        return None
    return data


def text_in(value: Any) -> str:
    """Return a value that should be a text; empty if it is anything else."""
    return value if isinstance(value, str) else ""

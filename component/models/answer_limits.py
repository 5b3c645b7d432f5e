"""The bounds on one answer of a model, and JSON that is decoded within them.

A provider is not trusted: its answer may be endless, packed a thousandfold, or made to be expensive
to read. Each bound is far above what an honest answer needs. An answer beyond one is given up
(`UnusableAnswerError`), never cut silently.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

BODY_BYTES: Final = 64 << 20
"""Bytes of one response, as sent: 128,000 tokens streamed one by one take about 40 MiB."""
WHOLE_BYTES: Final = 4 << 20
"""Bytes of an answer or a list of models that comes as one JSON document."""
EVENT_BYTES: Final = 1 << 20
"""Bytes of one event of a stream."""
EVENTS: Final = 250_000
"""Events of one answer: about one for each token, those of its reasoning included."""
PIECES: Final = 10_000
"""Chunks of one response that may be as small as they like, since each costs time to read."""
PIECE_BYTES: Final = 16
"""Bytes that a chunk has on average when there are more: an event is some hundred."""
LINES: Final = 1_000_000
"""Lines of one stream. An event takes two, and comments may come between."""
TEXT_CHARACTERS: Final = 1 << 20
"""Characters of text in one answer."""
OPAQUE_BYTES: Final = 4 << 20
"""Bytes of reasoning, signatures and other opaque parts in one answer."""
CALLS: Final = 128
"""Tool calls in one answer: as many as OpenAI allows tools in one request."""
ARGUMENTS_CHARACTERS: Final = 1 << 20
"""Characters that the arguments of all calls of one answer have together."""
ARGUMENTS_DEPTH: Final = 64
"""How deep objects and arrays may be nested in the arguments of a call."""
NAME_CHARACTERS: Final = 256
"""Characters of a tool's name; a longer one is cut and names no tool."""
ID_CHARACTERS: Final = 8192
"""Characters of a call's id. Some gateways put signatures into them, which take some thousand."""
JSON_VALUES: Final = 100_000
"""Objects and arrays in one JSON document, counted from above: brackets in texts count too."""
ERROR_BYTES: Final = 64 << 10
"""Bytes of the body of an error; the rest is not read."""
ERROR_CHARACTERS: Final = 2000
"""Characters of an error's message that are looked at."""
HEADERS: Final = 256
"""Header fields of one response."""
CALL_TOKENS: Final = 100_000_000
"""Tokens of one call, in either direction. A provider that counts more has miscounted."""
CALL_USD: Final = 10_000.0
"""US dollars of one call. A provider that charges more has miscounted."""


class TooMuchError(Exception):
    """An answer exceeds a limit; the text completes the sentence "it sends …"."""


# One that does not end is matched to the end of the text: looking for its end again from each quote
# inside it would take quadratic time.
_STRING = r'(?s)"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)'
_NO_BRACKET = r"[^\[\]{}]+"


def too_complex(json_text: str) -> bool:
    """Whether a JSON text nests objects and arrays deeper than `ARGUMENTS_DEPTH`, or has more of
    them than `JSON_VALUES`.

    Takes time in proportion to the text, whatever it holds: nothing is decoded or recurses.
    """
    most = json_text.count("{") + json_text.count("[")
    if most <= ARGUMENTS_DEPTH:
        return False
    if most > JSON_VALUES:
        return True
    depth = 0
    for bracket in re.sub(_NO_BRACKET, "", re.sub(_STRING, "", json_text)):
        if bracket in "{[":
            depth += 1
            if depth > ARGUMENTS_DEPTH:
                return True
        else:
            depth -= 1
    return False


def too_many_values(document: bytes) -> bool:
    """Whether decoding a JSON document might make more objects than `JSON_VALUES`."""
    # A short text cannot contain so many; nearly all texts are short.
    return len(document) > JSON_VALUES and document.count(b"{") + document.count(b"[") > JSON_VALUES


# -- JSON as servers write it, which is not always JSON ------------------------------------------

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

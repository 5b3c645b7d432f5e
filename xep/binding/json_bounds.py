"""Limits on JSON from a peer, checked before any objects are created from it.

A stanza of 250 KB can contain JSON of 100,000 values, or nested 1,000 deep. To decode, compare and
store such a document takes a hundred times as long as a text of that size. The cost of JSON depends
on its values and its depth, so these are limited besides its bytes.
"""

from itertools import accumulate
from typing import Final

import msgspec

MOST_VALUES: Final = 10_000
"""The maximum number of values in one JSON text: scalars, arrays and objects, at every depth."""
MOST_DEPTH: Final = 64
"""The maximum depth of nested arrays and objects."""

_STEPS: Final = bytes.maketrans(b"[{]}", b"\2\2\0\0")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_NOT_MARKS: Final = bytes(set(range(256)) - set(b"[{,"))
_TOO_DEEP: Final = f"expected JSON nested at most {MOST_DEPTH} deep"
_check_syntax: Final = msgspec.json.Decoder(msgspec.Raw).decode


def checked_json(text: bytes) -> msgspec.Raw:
    """Return JSON unchanged, if it is valid and within the limits. No objects are created.

    A number that no reader here supports is found when the JSON is decoded.

    Raises:
        ValueError: it is not JSON, or exceeds a limit; the message names which.
    """
    try:
        _check_syntax(text)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    except ValueError as error:
        raise ValueError(f"expected JSON: {error}") from error
    # Each value follows a comma, or is the first in an array, an object or the text. So commas and
    # opening brackets give an upper bound for the number of values: some may be inside strings.
    marks = text.translate(None, _NOT_MARKS)
    if len(marks) >= MOST_VALUES or len(marks) - marks.count(b",") > MOST_DEPTH:
        _check_bounds(_without_strings(text))
    return msgspec.Raw(text)


def _check_bounds(text: bytes) -> None:
    empty = text.count(b"[]") + text.count(b"{}")
    if len(text.translate(None, _NOT_MARKS)) - empty >= MOST_VALUES:
        raise ValueError(f"expected JSON of at most {MOST_VALUES} values")
    steps = text.translate(_STEPS, _NOT_BRACKETS)
    if max(accumulate(each - 1 for each in steps), default=0) > MOST_DEPTH:
        raise ValueError(_TOO_DEEP)


def _without_strings(text: bytes) -> bytes:
    """Return valid JSON without white space, with each string replaced by a letter; a pattern takes
    ten times as long.
    """
    unescaped = text.replace(rb"\\", b"").replace(rb"\"", b"")
    return b"s".join(unescaped.split(b'"')[::2]).translate(None, b" \t\r\n")

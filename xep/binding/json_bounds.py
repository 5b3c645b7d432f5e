"""Limits on JSON from a peer, checked before any objects are created from it.

A stanza of 250 KB can contain JSON of 100,000 values, or nested 1,000 deep. To decode, compare and
store such a document takes a hundred times as long as a text of that size. The cost of JSON depends
on its values and its depth, so these are limited besides its bytes.
"""

from itertools import accumulate
from typing import Any, Final

import msgspec

MOST_VALUES: Final = 10_000
"""The maximum number of values in one JSON text: scalars, arrays and objects, at every depth."""
MOST_VALUES_OUTSIDE: Final = 100_000
"""That of JSON which is not in a stanza: what programs write and servers answer."""
MOST_BYTES_OUTSIDE: Final = 16 << 20
MOST_DEPTH: Final = 64
"""The maximum depth of nested arrays and objects."""

_STEPS: Final = bytes.maketrans(b"[{]}", b"\2\2\0\0")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_NOT_MARKS: Final = bytes(set(range(256)) - set(b"[{,"))
_PIECE: Final = 1 << 16
_TOO_MANY: Final = "expected JSON of at most {} values"
_TOO_DEEP: Final = "expected JSON nested at most {} deep"
_check_syntax: Final = msgspec.json.Decoder(msgspec.Raw).decode


class TooManyValuesError(ValueError):
    """JSON has more values than are decoded; the message names the maximum."""


def decoded_json(text: bytes | str) -> Any:
    """Decode JSON that somebody else has written outside a stanza: a program, or a server.

    Raises:
        TooManyValuesError: it has more than `MOST_VALUES_OUTSIDE` values.
        ValueError: it is not JSON, has more than `MOST_BYTES_OUTSIDE` bytes, or is too deep; the
            message says which.
    """
    encoded = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    if len(encoded) > MOST_BYTES_OUTSIDE:
        raise ValueError(f"expected JSON of at most {MOST_BYTES_OUTSIDE} bytes")
    return msgspec.json.decode(checked_json(encoded, MOST_VALUES_OUTSIDE))


def checked_json(
    text: bytes, most_values: int = MOST_VALUES, most_depth: int = MOST_DEPTH
) -> msgspec.Raw:
    """Return JSON unchanged, if it is valid and within the limits. No objects are created.

    A number that no reader here supports is found when the JSON is decoded.

    Raises:
        TooManyValuesError: it has more than `most_values` values.
        ValueError: it is not JSON, or is too deep; the message says which.
    """
    try:
        _check_syntax(text)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP.format(most_depth)) from error
    except ValueError as error:
        raise ValueError(f"expected JSON: {error}") from error
    marks = _marks(text)
    if len(marks) >= most_values or len(marks) - marks.count(b",") > most_depth:
        _check_bounds(_without_strings(text, most_values), most_values, most_depth)
    return msgspec.Raw(text)


def may_have_values(text: bytes, number: int) -> bool:
    """Return whether a text may be JSON of this number of values or more."""
    return len(_marks(text)) >= number


def _marks(text: bytes) -> bytes:
    """Return the commas and opening brackets of a text. Each value follows a comma, or is the first
    in an array, an object or the text, so these give an upper bound for the number of values: some
    may be inside strings.
    """
    return text.translate(None, _NOT_MARKS)


def _check_bounds(text: bytes, most_values: int, most_depth: int) -> None:
    empty = text.count(b"[]") + text.count(b"{}")
    if len(_marks(text)) - empty >= most_values:
        raise TooManyValuesError(_TOO_MANY.format(most_values))
    steps = text.translate(_STEPS, _NOT_BRACKETS)
    if max(accumulate(each - 1 for each in steps), default=0) > most_depth:
        raise ValueError(_TOO_DEEP.format(most_depth))


def _without_strings(text: bytes, most_values: int) -> bytes:
    """Return valid JSON without white space, with each string replaced by a letter; a pattern takes
    ten times as long. Raises ValueError early for much too many values, so that a long text takes
    no more memory than a few copies of it.
    """
    unescaped = text.replace(rb"\\", b"").replace(rb"\"", b"")
    found, marks, inside = [], 0, 0
    for at in range(0, len(unescaped), _PIECE):
        parts = unescaped[at : at + _PIECE].split(b'"')
        outside = b"s".join(parts[inside::2]).translate(None, b" \t\r\n")
        if inside and len(parts) > 1:
            outside = b"s" + outside
        inside ^= (len(parts) - 1) & 1
        found.append(outside)
        # At most every second value is an empty array, whose bracket is no mark of another value.
        marks += len(_marks(outside))
        if marks > 2 * most_values:
            raise TooManyValuesError(_TOO_MANY.format(most_values))
    return b"".join(found)

"""Text to typed value and back, one Conversion per type."""

import base64
import binascii
import enum
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin

import msgspec

from xep.jid import JID

T = TypeVar("T")


class Conversion(Generic[T]):
    """How values of one type are read from text and written to it.

    ``decode`` raises ValueError with a reason such as "expected an integer". A ``decode`` of
    None means that the text itself is the value.
    """

    __slots__ = ("decode", "encode", "expected")

    def __init__(
        self,
        expected: str,
        decode: Callable[[str], T] | None,
        encode: Callable[[T], str] | None,
    ) -> None:
        self.expected = expected
        self.decode = decode
        self.encode = encode


_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_NUMBER = re.compile(
    r"[+-]?([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40})([eE][+-]?[0-9]{1,3})?", re.ASCII
)
_DATETIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,12})?(Z|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def _integer(text: str) -> int:
    stripped = text.strip()
    if _INTEGER.fullmatch(stripped) is None:
        raise ValueError("expected an integer")
    return int(stripped)


def _number(text: str) -> float:
    stripped = text.strip()
    if _NUMBER.fullmatch(stripped) is None:
        raise ValueError("expected a number")
    value = float(stripped)
    if math.isinf(value):
        raise ValueError("expected a number of less than 1e308")
    return value


def _write_number(value: float) -> str:
    if not math.isfinite(value):
        raise ValueError("infinity and NaN have no place on the wire")
    return repr(value)


def _decimal(text: str) -> Decimal:
    stripped = text.strip()
    if _NUMBER.fullmatch(stripped) is None:
        raise ValueError("expected a decimal number")
    try:
        return Decimal(stripped)
    except InvalidOperation as error:  # pragma: no cover - the pattern leaves nothing to refuse
        raise ValueError("expected a decimal number") from error


def _boolean(text: str) -> bool:
    value = _BOOLEANS.get(text.strip())
    if value is None:
        raise ValueError("expected true or false")
    return value


def _datetime(text: str) -> datetime:
    stripped = text.strip()
    if _DATETIME.fullmatch(stripped) is None:
        raise ValueError("expected a date and time such as 2026-02-08T19:00:00Z")
    # Python keeps microseconds; finer fractions are cut, not refused.
    stripped = re.sub(r"(\.[0-9]{6})[0-9]+", r"\1", stripped)
    try:
        return datetime.fromisoformat(stripped).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError("expected a date and time that exists") from error


def format_datetime(value: datetime) -> str:
    """``value`` in UTC as XEP-0082 §3.2 writes it; microseconds only if there are any."""
    if value.tzinfo is None:
        raise ValueError("a date and time on the wire needs a time zone")
    return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("expected base64") from error


def _json(text: str) -> msgspec.Raw:
    raw = text.strip().encode("utf-8", "surrogatepass")
    try:
        msgspec.json.decode(raw)
    except RecursionError as error:
        raise ValueError("expected JSON of less depth") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"expected JSON: {error}") from error
    return msgspec.Raw(raw)


_SCALARS: dict[Any, Conversion[Any]] = {
    str: Conversion("text", None, None),
    int: Conversion("an integer", _integer, str),
    float: Conversion("a number", _number, _write_number),
    Decimal: Conversion("a decimal number", _decimal, lambda value: format(value, "f")),
    bool: Conversion("true or false", _boolean, lambda value: "true" if value else "false"),
    datetime: Conversion("a date and time", _datetime, format_datetime),
    bytes: Conversion("base64", _base64, lambda value: base64.b64encode(value).decode("ascii")),
    JID: Conversion("a JID", JID.parse, str),
    msgspec.Raw: Conversion("JSON", _json, lambda value: bytes(value).decode("utf-8")),
}


def conversion_for(declared: Any) -> Conversion[Any] | None:
    """The conversion for a type: a scalar, a Literal of strings, or an Enum of strings.

    None when no text can be converted to it.
    """
    if get_origin(declared) is Literal:
        return _choice({value: value for value in get_args(declared)}, str)
    if isinstance(declared, type) and issubclass(declared, enum.Enum):
        return _choice({member.value: member for member in declared}, lambda member: member.value)
    try:
        return _SCALARS.get(declared)
    except TypeError:
        return None


def _choice(values: dict[str, Any], encode: Callable[[Any], str]) -> Conversion[Any]:
    expected = "one of " + ", ".join(values)

    def decode(text: str) -> Any:
        try:
            return values[text]
        except KeyError:
            raise ValueError(f"expected {expected}") from None

    return Conversion(expected, decode, encode)

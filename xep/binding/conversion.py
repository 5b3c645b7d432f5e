"""Converts text to typed values and back, one Conversion per type."""

import base64
import binascii
import enum
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin

import msgspec

from xep.binding.json_bounds import checked_json
from xep.characters import json_without_forbidden
from xep.jid import JID

T = TypeVar("T")


class Conversion(Generic[T]):
    """Converts values of one type from text and to text.

    ``decode`` raises ValueError with a reason such as "expected an integer". A ``decode`` of None
    means that the text itself is the value. ``plain`` says that the result of ``encode`` never
    needs escaping.
    """

    __slots__ = ("decode", "encode", "expected", "plain")

    def __init__(
        self,
        expected: str,
        decode: Callable[[str], T] | None,
        encode: Callable[[T], str] | None,
        *,
        plain: bool = False,
    ) -> None:
        self.expected = expected
        self.decode = decode
        self.encode = encode
        self.plain = plain


_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_NUMBER = re.compile(
    r"[+-]?([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40})([eE][+-]?[0-9]{1,3})?", re.ASCII
)
_DECIMAL = re.compile(r"[+-]?([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40})", re.ASCII)
_DATETIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,12})?(Z|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)
_OFFSET = re.compile(r"Z|([+-])([01][0-9]|2[0-3]):([0-5][0-9])", re.ASCII)
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
# White space in XML Schema; str.strip() alone would remove more.
_SPACE = " \t\r\n"


def _integer(text: str) -> int:
    stripped = text.strip(_SPACE)
    if _INTEGER.fullmatch(stripped) is None:
        raise ValueError("expected an integer")
    return int(stripped)


def _write_integer(value: int) -> str:
    text = format(value, "d")
    if len(text) > 19 and _INTEGER.fullmatch(text) is None:
        raise ValueError("expected an integer of at most 19 digits")
    return text


def _number(text: str) -> float:
    stripped = text.strip(_SPACE)
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
    stripped = text.strip(_SPACE)
    if _DECIMAL.fullmatch(stripped) is None:
        raise ValueError("expected a decimal number")
    return Decimal(stripped)


def _write_decimal(value: Decimal) -> str:
    # An exponent may produce too many digits, so it is checked first.
    if not value.is_finite() or abs(value.adjusted()) > 40:
        raise ValueError(
            "expected a decimal number of at most 40 digits before and after the point"
        )
    text = format(value, "f")
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError(
            "expected a decimal number of at most 40 digits before and after the point"
        )
    return text


def _boolean(text: str) -> bool:
    value = _BOOLEANS.get(text.strip(_SPACE))
    if value is None:
        raise ValueError("expected true or false")
    return value


def _datetime(text: str) -> datetime:
    stripped = text.strip(_SPACE)
    if _DATETIME.fullmatch(stripped) is None:
        raise ValueError("expected a date and time such as 2026-02-08T19:00:00Z")
    # Python stores microseconds; more digits are cut, not refused.
    stripped = re.sub(r"(\.[0-9]{6})[0-9]+", r"\1", stripped)
    try:
        return datetime.fromisoformat(stripped).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError("expected a date and time that exists") from error


def format_datetime(value: datetime) -> str:
    """Return ``value`` in UTC in the format of XEP-0082 §3.2; with microseconds only if there are
    any.
    """
    if value.tzinfo is None:
        raise ValueError("a date and time on the wire needs a time zone")
    try:
        utc = value.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("a date and time on the wire lies between the years 1 and 9999") from error
    return utc.replace(tzinfo=None).isoformat() + "Z"


def _offset(text: str) -> timezone:
    found = _OFFSET.fullmatch(text.strip(_SPACE))
    if found is None:
        raise ValueError("expected an offset from UTC such as +02:00")
    sign, hours, minutes = found.groups()
    if sign is None:
        return UTC
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    return timezone(-offset if sign == "-" else offset)


def _write_offset(value: timezone) -> str:
    offset = value.utcoffset(None)
    minutes, rest = divmod(abs(offset), timedelta(minutes=1))
    if rest:
        raise ValueError("an offset from UTC has whole minutes on the wire")
    hours, minutes = divmod(minutes, 60)
    return f"{'-' if offset < timedelta() else '+'}{hours:02}:{minutes:02}"


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("expected base64") from error


def _json(text: str) -> msgspec.Raw:
    try:
        raw = text.strip(_SPACE).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"expected JSON: {error}") from error
    return checked_json(raw)


def _write_json(value: msgspec.Raw) -> str:
    return json_without_forbidden(bytes(value).decode("utf-8"))


_SCALARS: dict[Any, Conversion[Any]] = {
    str: Conversion("text", None, None),
    int: Conversion("an integer", _integer, _write_integer, plain=True),
    float: Conversion("a number", _number, _write_number),
    Decimal: Conversion("a decimal number", _decimal, _write_decimal),
    bool: Conversion(
        "true or false", _boolean, lambda value: "true" if value else "false", plain=True
    ),
    datetime: Conversion("a date and time", _datetime, format_datetime),
    timezone: Conversion("an offset from UTC", _offset, _write_offset),
    bytes: Conversion("base64", _base64, lambda value: base64.b64encode(value).decode("ascii")),
    JID: Conversion("a JID", JID.parse, JID.on_wire),
    msgspec.Raw: Conversion("JSON", _json, _write_json),
}


def conversion_for(declared: Any) -> Conversion[Any] | None:
    """Return the conversion for a type: a scalar, a Literal of strings, or an Enum of strings.

    None when no text can be converted to it.
    """
    if get_origin(declared) is Literal:
        if not all(isinstance(value, str) for value in get_args(declared)):
            return None
        return _choice({value: value for value in get_args(declared)}, str)
    if isinstance(declared, type) and issubclass(declared, enum.Enum):
        if not all(isinstance(member.value, str) for member in declared):
            return None
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

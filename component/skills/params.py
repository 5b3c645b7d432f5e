"""Converts the parameters of a caller, named texts and a JSON object, to validated arguments.

A text parameter takes the text unchanged. Numbers and booleans are read as XML Schema part 2 writes
them (xs:integer §3.3.13, xs:double §3.2.5 without INF and NaN, xs:boolean §3.2.2), with white space
around them. One value or several make an array if the type is one. Objects are given as JSON only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import inspect as types

from component.skills.errors import InvalidParam
from component.skills.validation import EXAMPLES

Scalar = Callable[[str], Any]

# Python refuses longer integers by default, and nobody needs them.
_LONGEST_NUMBER = 4300
_MOST_CHOICES = 20
_SPACE = " \t\r\n"
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}

_LISTS = (types.ListType, types.SetType, types.FrozenSetType, types.VarTupleType)
# Types that msgspec itself converts from text, and the words for its errors.
_TEXTS = (
    types.StrType,
    types.AnyType,
    types.BytesType,
    types.DateTimeType,
    types.DateType,
    types.TimeType,
    types.TimeDeltaType,
    types.UUIDType,
)


class Reader(msgspec.Struct, frozen=True):
    """Converts the texts of one parameter to a value that its type can be validated against."""

    expected: str  # what a caller should send, after the word "expected"
    scalar: Scalar | None = None  # reads one text; None if no single text can be the value
    items: tuple[Scalar | None, ...] = ()  # reads an array's items, the last one the rest
    verbatim: bool = False  # the text is the value
    plain: bool = False  # any text is the value, and nothing else can be

    def one(self, text: str) -> Any:
        """Convert the text of a value that is not an array. Raises ValueError with the reason."""
        if self.scalar is None:
            raise ValueError(f"expected {self.expected}, which goes into the JSON parameters")
        try:
            return self.scalar(text)
        except ValueError:
            raise ValueError(f"expected {self.expected}") from None

    def several(self, texts: Sequence[str]) -> Any:
        """Convert the texts of a value that can be an array. Raises ValueError with the reason."""
        if self.scalar is not None and len(texts) == 1:
            return self.one(texts[0])
        last = len(self.items) - 1
        values = []
        for position, text in enumerate(texts):
            item = self.items[min(position, last)]
            if item is None:
                raise ValueError(f"expected {self.expected}, which goes into the JSON parameters")
            try:
                values.append(item(text))
            except ValueError:
                raise ValueError(f"expected {self.expected}") from None
        return values


def reader_of(declared: types.Type) -> Reader:
    """Return the reader for a type, as `msgspec.inspect.type_info` describes it."""
    members = _members(declared)
    scalar, words = _scalar(members)
    items: tuple[Scalar | None, ...] = ()
    for member in members:
        if isinstance(member, types.TupleType):
            items = tuple(_scalar(_members(item))[0] for item in member.item_types)
            words.append("an array")
        elif isinstance(member, _LISTS):
            item, item_words = _scalar(_members(member.item_type))
            items = (item,)
            words.append(f"an array, each item {' or '.join(item_words)}" if item else "an array")
    verbatim = scalar is str and not items
    plain = members == [types.StrType()]
    return Reader(" or ".join(words) or "null", scalar, items, verbatim, plain)


def _members(declared: types.Type) -> list[types.Type]:
    """Return the alternatives of a type, without purely descriptive wrappers."""
    if isinstance(declared, types.Metadata):
        return _members(declared.type)
    if isinstance(declared, types.UnionType):
        return [member for part in declared.types for member in _members(part)]
    return [declared]


def _scalar(members: list[types.Type]) -> tuple[Scalar | None, list[str]]:
    """Return what reads one text, the narrowest type first, and words for all members."""
    choices: dict[str, Any] = {}
    ranked: list[tuple[int, Scalar]] = []
    words: list[str] = []
    for member in members:
        if isinstance(member, types.LiteralType):
            choices.update((str(value), value) for value in member.values if value is not None)
        elif isinstance(member, types.EnumType):
            choices.update((str(item.value), item.value) for item in member.cls)
        elif isinstance(member, types.IntType):
            ranked.append((2, read_integer))
            words.append("an integer")
        elif isinstance(member, types.FloatType):
            ranked.append((3, read_number))
            words.append("a number")
        elif isinstance(member, types.BoolType):
            ranked.append((4, read_boolean))
            words.append("true or false")
        elif isinstance(member, _TEXTS):
            ranked.append((5, str))
            words.append("text")
        elif not isinstance(member, (*_LISTS, types.TupleType, types.NoneType)):
            words.append("an object")
    if choices:
        ranked.append((0, read_choice(choices)))
        listed = ", ".join(list(choices)[:_MOST_CHOICES])
        more = ", …" if len(choices) > _MOST_CHOICES else ""
        words.insert(0, f"one of {listed}{more}")
    readers = [reader for _, reader in sorted(ranked, key=lambda pair: pair[0])]
    if not readers:
        return None, words
    return (readers[0] if len(readers) == 1 else either(readers)), words


def either(readers: list[Scalar]) -> Scalar:
    """Return what reads a text by the first of these that can."""

    def read(text: str) -> Any:
        for reader in readers:
            try:
                return reader(text)
            except ValueError:
                continue
        raise ValueError(text)

    return read


def read_choice(choices: Mapping[str, Any]) -> Scalar:
    """Return what reads one of these texts."""

    def read(text: str) -> Any:
        if text not in choices:
            raise ValueError(text)
        return choices[text]

    return read


def read_integer(text: str) -> int:
    """Read xs:integer of at most 4300 characters. Raises ValueError."""
    if len(text) < 20 and text.isascii() and text.isdigit():
        return int(text)
    if len(text) > _LONGEST_NUMBER or not _INTEGER.fullmatch(text := text.strip(_SPACE)):
        raise ValueError(text)
    return int(text)


def read_number(text: str) -> float:
    """Read xs:double, except INF and NaN. Raises ValueError."""
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text := text.strip(_SPACE)):
        raise ValueError(text)
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def read_boolean(text: str) -> bool:
    """Read xs:boolean. Raises ValueError."""
    value = _BOOLEANS.get(text.strip(_SPACE))
    if value is None:
        raise ValueError(text)
    return value


if TYPE_CHECKING:
    from component.skills.inputs import Arguments
    from component.skills.skill import Skill
    from xep.fluux_agent.execute import Param

S = TypeVar("S", bound=msgspec.Struct)

_convert = msgspec.convert

_SPOKEN = {
    "int": "an integer",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
    "bytes": "base64 text",
}
_WRITTEN = {
    "Invalid RFC3339 encoded datetime": "expected a date and time such as 2026-12-24T19:30:00",
    "Expected `datetime` with a timezone component": f"expected {EXAMPLES['date-time']}",
    "Expected `datetime` with no timezone component": (
        "expected a date and time without a zone, such as 2026-12-24T19:30:00"
    ),
    "Invalid RFC3339 encoded date": f"expected {EXAMPLES['date']}",
    "Invalid RFC3339 encoded time": f"expected {EXAMPLES['time']}",
    "Invalid ISO8601 duration": f"expected {EXAMPLES['duration']}",
}
"""How dates and times are written, by the messages of msgspec."""
_TYPES = re.compile(r"`([a-z]+(?: \| [a-z]+)*)`")
_MEMBER = re.compile(r"Object (missing required|contains unknown) field `(.*)`", re.DOTALL)
_GOT = re.compile(r", got `[^`]*`")


def prepare(
    skill: Skill, texts: Iterable[tuple[str, str]] = (), json: bytes | str | None = None
) -> Arguments:
    """Return a skill's arguments, of the type `inputs.type`.

    `texts` are (name, text) pairs in their order, a repeated name makes an array; `json` is one
    JSON object for values that text cannot express.

    Raises only InvalidParam, whatever the caller sent.
    """
    texts, inputs = list(texts), skill.inputs
    if inputs.complete is not None:
        values = _collected(inputs.readers, texts, json, closed=False)
        return inputs.complete(values)
    if json is not None and not texts:
        try:
            decoded: Arguments = msgspec.json.decode(json, type=inputs.type)
        except Exception:  # noqa: BLE001, S110 - it is said below what is wrong
            pass
        else:
            return decoded
    filled: msgspec.Struct = fill_struct(inputs.type, inputs.readers, texts, json)
    return filled


def prepare_texts(skill: Skill, params: Iterable[Param]) -> Arguments:
    """Do the same as `prepare` for texts alone: nearly always the text is the value."""
    inputs = skill.inputs
    values: dict[str, str] = {}
    for param in params:
        name = param.name
        if name in values or name not in inputs.verbatim or inputs.complete is not None:
            break
        values[name] = param.text
    else:
        try:
            converted: Arguments = (
                inputs.type(**values) if inputs.plain else _convert(values, inputs.type)
            )
        except Exception:  # noqa: BLE001, S110 - it is said below what is wrong
            pass
        else:
            return converted
    return prepare(skill, [(param.name, param.text) for param in params])


def fill_struct(
    struct: type[S],
    readers: Mapping[str, Reader],
    texts: Iterable[tuple[str, str]] = (),
    json: bytes | str | None = None,
) -> S:
    """Return an instance of `struct`, whose fields `readers` read; otherwise like `prepare`."""
    values = _collected(readers, texts, json, closed=True)
    try:
        return _convert(values, struct)
    except msgspec.ValidationError as exc:
        raise _explained(str(exc), readers) from None
    except Exception as exc:
        # A set of unhashable values, an integer beyond every float, a check of the skill's own
        # types that raises: still the caller's mistake.
        raise InvalidParam(None, "the parameters do not fit the skill's types") from exc


def _collected(
    readers: Mapping[str, Reader],
    texts: Iterable[tuple[str, str]],
    json: bytes | str | None,
    *,
    closed: bool,
) -> dict[str, Any]:
    """Return the values of texts and JSON together; with `closed` each name must have a reader."""
    values: dict[str, Any] = {}
    arrays: dict[str, list[str]] = {}
    name = ""
    try:
        for name, text in texts:
            reader = readers.get(name)
            if reader is None:
                raise InvalidParam(name, "no such parameter")
            if reader.items:
                arrays.setdefault(name, []).append(text)
            elif name in values:
                raise InvalidParam(name, "was given more than once")
            else:
                values[name] = text if reader.verbatim else reader.one(text)
        for name, given in arrays.items():
            values[name] = readers[name].several(given)
    except ValueError as exc:
        raise InvalidParam(name, str(exc)) from None
    if json is not None:
        _add_json(values, json, readers, closed=closed)
    return values


def _add_json(
    values: dict[str, Any], json: bytes | str, readers: Mapping[str, Reader], *, closed: bool
) -> None:
    try:
        decoded = msgspec.json.decode(json)
    except (ValueError, RecursionError) as exc:
        raise InvalidParam(None, f"the JSON parameters cannot be read: {exc}") from None
    if not isinstance(decoded, dict):
        raise InvalidParam(None, "the JSON parameters are not a JSON object")
    for name, value in decoded.items():
        if closed and name not in readers:
            raise InvalidParam(name, "no such parameter")
        if name in values:
            raise InvalidParam(name, "was given both as text and in JSON")
        values[name] = value


def _explained(message: str, readers: Mapping[str, Reader]) -> InvalidParam:
    """Convert msgspec's "Expected `int`, got `str` - at `$.a.b`" to a parameter and a reason."""
    # The path is always last, so a caller's own text in the message cannot pose as one.
    said, at, place = message.rpartition(" - at `")
    if not at:
        said, place = message, "$"
    path = place.rstrip("`").removeprefix("key` in `").removeprefix("$").removeprefix(".")
    name = re.split(r"[.\[]", path, maxsplit=1)[0]
    if member := _MEMBER.fullmatch(said):
        path = f"{path}.{member[2]}" if path else member[2]
        reason = "is required" if member[1] == "missing required" else "no such member"
        return InvalidParam(name or member[2], reason, path)
    if said.startswith("Invalid enum value") and path == name and name in readers:
        return InvalidParam(name, f"expected {readers[name].expected}")
    reason = _WRITTEN.get(said) or _TYPES.sub(_speak, _GOT.sub("", said))
    return InvalidParam(name or None, reason[:1].lower() + reason[1:], path or None)


def _speak(found: re.Match[str]) -> str:
    return " or ".join(_SPOKEN.get(word, word) for word in found[1].split(" | "))

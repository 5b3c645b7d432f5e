"""The properties of a JSON Schema as fields of a form: which field each gets, and how a value is
converted to the texts of a field and back.

The specification's table "Fields by schema" (FAC-008), read from schemas as msgspec writes them,
with `$ref`, `anyOf` with null, and enumerations of any scalar.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal

import msgspec

from component.skills.params import (
    Reader,
    either,
    read_boolean,
    read_choice,
    read_integer,
    read_number,
)
from component.skills.spec import title_of
from component.skills.validation import pointed_to
from xep.binding.escaping import without_forbidden
from xep.binding.json_bounds import MOST_VALUES, checked_json

Schema = Mapping[str, Any]
FieldKind = Literal["boolean", "choice", "choices", "integer", "number", "text", "lines", "json"]
"""How a value is written: `choices` and `lines` are arrays, `json` is any value that no other kind
can express.
"""

ABSENT: Final = msgspec.UNSET
"""The value of a property that was not given."""

NOTHING_CHOSEN: Final = "(none)"
"""The option that chooses nothing."""
EMPTY: Final = "(empty)"
"""The label of a choice that is an empty text."""
NEWLINE: Final = re.compile("\r\n|\r|\n")
_SPACE = " \t\r\n"
_MOST_CHOICES = 20


class Choice(msgspec.Struct, frozen=True):
    """One value of an enumeration, and the text that stands for it."""

    text: str
    value: Any
    label: str | None = None


class Property(msgspec.Struct, frozen=True, kw_only=True):
    """One property of a schema as a field.

    `item` is the kind of each item of `lines`. `datatype`, `least` and `greatest` are the
    validation of a value or an item, as written in XEP-0122. `several_lines` is for a text that may
    have line feeds. `default` is ABSENT if there is none.
    """

    name: str
    kind: FieldKind
    item: FieldKind = "text"
    required: bool = False
    nullable: bool = False
    choices: tuple[Choice, ...] = ()
    several_lines: bool = False
    datatype: str | None = None
    least: str | None = None
    greatest: str | None = None
    title: str | None = None
    description: str | None = None
    default: Any = ABSENT

    @property
    def label(self) -> str:
        """The title, or the name as words."""
        return self.title or title_of(self.name)

    @property
    def offers_nothing(self) -> bool:
        """Whether a person can choose none of the choices. Browsers choose the first one by
        themselves where a form has no empty one.
        """
        left_out = self.nullable or not (self.required or self.shown_default())
        return self.kind == "choice" and left_out and not self._has_empty()

    def texts(self, value: Any) -> tuple[str, ...] | None:
        """Return the texts of a value in this field; None if the field cannot express it."""
        if value is None:
            return () if self.nullable else None
        if self.kind == "json":
            return (msgspec.json.encode(value).decode(),)
        if self.kind in ("lines", "choices"):
            if not isinstance(value, list | tuple):
                return None
            texts = [self._text(item) for item in value]
            if None in texts or (self.kind == "lines" and not all(map(_is_line, texts))):
                return None
            return tuple(text for text in texts if text is not None)
        text = self._text(value)
        if text is None:
            return None
        return tuple(NEWLINE.split(text)) if self.kind == "text" else (text,)

    def read(self, texts: Sequence[str]) -> Any:
        """Return the value of the texts of this field; ABSENT if they give none.

        A field that was shown with a default and is returned empty was emptied on purpose: that is
        null, no items or no text, whichever the property allows.

        Raises ValueError with the reason, an unfinished sentence.
        """
        whole = "\n".join(texts)
        if self.offers_nothing and whole == NOTHING_CHOSEN:
            return self._empty()
        empty = not any(texts) if self.kind == "text" else not whole.strip(_SPACE)
        if empty and not (texts and self.kind == "choice" and self._has_empty()):
            return self._empty()
        if self.kind == "json":
            return _json(whole)
        if self.kind == "text":
            return _in_full(whole, self.datatype)
        if self.kind == "lines":
            if 1 + whole.count("\n") + whole.count("\r") > MOST_VALUES:
                raise ValueError(f"expected at most {MOST_VALUES} lines")
            lines = NEWLINE.split(whole)
            if self.item == "text":
                return [line for line in lines if line]
            read = _scalar_reader(self.item)
            return [read.one(line) for line in lines if line.strip(_SPACE)]
        if self.kind == "choices":
            return [self._choice(text) for text in texts if text or self._has_empty()]
        if len(texts) > 1:
            raise ValueError("expected one value")
        if self.kind == "choice":
            return self._choice(texts[0])
        return self.reader.one(texts[0])

    def shown_default(self) -> tuple[str, ...]:
        """Return the texts of the field in an empty form; none for a default that a form cannot
        show.

        The default applies even if such a field is left empty.
        """
        texts = None if self.default is ABSENT else self.texts(self.default)
        if texts is None or any(text != without_forbidden(text) for text in texts):
            return ()
        return texts

    def _empty(self) -> Any:
        emptied = any(self.shown_default())
        if self.required or emptied:
            if self.nullable:
                return None
            if self.kind in ("lines", "choices"):
                return []
            if self.kind == "boolean" and self.required:
                return False  # the meaning of an empty one (XEP-0004 §3.3)
            if self.required:
                raise ValueError("is required")
            if self.kind == "text":
                return ""
        return ABSENT

    def _text(self, value: Any) -> str | None:
        """Return the text of a scalar, or of an item of an array."""
        if self.choices:
            said = identity(value)
            return next((each.text for each in self.choices if identity(each.value) == said), None)
        kind = self.item if self.kind == "lines" else self.kind
        if kind == "text":
            return value if isinstance(value, str) else None
        if isinstance(value, bool):
            return str(value).lower() if kind == "boolean" else None
        if kind == "integer" and isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and kind in ("integer", "number"):
            return digits(value)
        if isinstance(value, float) and kind == "number" and math.isfinite(value):
            return repr(value)
        return None

    @property
    def reader(self) -> Reader:
        """What reads the texts of a parameter. Values that no text can express are read as JSON."""
        match self.kind:
            case "choice" | "choices":
                choices = {each.text: each.value for each in self.choices}
                words = f"one of {', '.join(list(choices)[:_MOST_CHOICES])}"
                if self.kind == "choice":
                    return Reader(words, read_choice(choices))
                return Reader(f"an array of {words}", items=(read_choice(choices),))
            case "lines":
                item = _scalar_reader(self.item)
                return Reader(f"an array of {item.expected}", items=(item.scalar,))
        return _scalar_reader(self.kind)

    def _choice(self, text: str) -> Any:
        for choice in self.choices:
            if choice.text == text:
                return choice.value
        named = self.titled(text)
        if named is not None:
            return named.value
        listed = ", ".join(choice.label or choice.text for choice in self.choices[:_MOST_CHOICES])
        more = ", …" if len(self.choices) > _MOST_CHOICES else ""
        raise ValueError(f"expected one of {listed}{more}")

    def titled(self, text: str) -> Choice | None:
        """Return the choice with this title, in any case; None if there is none, or several."""
        said = text.strip(_SPACE).casefold()
        found = [each for each in self.choices if each.label and each.label.casefold() == said]
        return found[0] if len(found) == 1 else None

    def _has_empty(self) -> bool:
        return any(not choice.text for choice in self.choices)


def _scalar_reader(kind: FieldKind) -> Reader:
    match kind:
        case "boolean":
            return Reader("true or false", read_boolean)
        case "integer":
            return Reader("an integer", read_integer)
        case "number":
            return Reader("a number", either([read_integer, read_number]))
        case "text":
            return Reader("text", str, verbatim=True)
    return Reader("JSON", _json_or_text)


def _json_or_text(text: str) -> Any:
    """Read JSON, or take a text that is none as a string."""
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return text


def digits(value: float | None) -> str | None:
    """Return a number in digits; None for None, or if there are too many."""
    try:
        return None if value is None else repr(value)
    except ValueError:
        return None  # Python converts no integer of more than 4300 digits


def identity(value: object) -> tuple[bool, bool, object]:
    """Return a key that distinguishes JSON values: true is not 1, and 1 is 1.0."""
    return isinstance(value, bool), isinstance(value, str), value


def _json(text: str) -> Any:
    raw = checked_json(text.encode("utf-8", "surrogatepass"))
    try:
        return msgspec.json.decode(raw)
    except ValueError as error:
        raise ValueError(f"expected JSON: {error}") from None


def _is_line(text: str | None) -> bool:
    return bool(text) and NEWLINE.search(text or "") is None


_DATATYPES: Final[Mapping[str, str]] = {
    "date-time": "xs:dateTime",
    "date": "xs:date",
    "uri": "xs:anyURI",
}


def _in_full(text: str, datatype: str | None) -> str:
    """Return a date or a time in full. Browsers leave out the seconds, and Converse asks for a time
    where a date is wanted.
    """
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)T\d\d:\d\d(:\d\d)?", text)
    if found is not None and datatype == "xs:date":
        return found[1]
    if found is not None and datatype == "xs:dateTime" and not found[2]:
        return f"{text}:00"
    return text


def properties_of(schema: Schema) -> tuple[Property, ...]:
    """Return the properties of an object's schema, in its order.

    An invalid JSON Schema is treated as an empty one; nothing is raised.
    """
    top = _followed(schema, schema)[0]
    declared = top.get("properties")
    required = top.get("required")
    names = required if isinstance(required, list | tuple) else ()
    if not isinstance(declared, Mapping):
        return ()
    return tuple(
        _property(str(name), part, name in names, schema) for name, part in declared.items()
    )


def _property(name: str, declared: object, required: bool, root: Schema) -> Property:
    own = declared if isinstance(declared, Mapping) else {}
    resolved = _followed(own, root)[0]
    default = resolved.get("default", ABSENT)
    members = list(_members(own, root))
    others = [member for member in members if member.get("type") != "null"]
    others = [member for member in others if _enumerated(member) != [None]]
    nullable = len(others) < len(members) or any(None in (_enumerated(m) or ()) for m in others)
    shape = _shape(others, nullable, root)
    if shape.get("kind") == "text" and isinstance(default, str) and NEWLINE.search(default):
        shape["several_lines"] = True
    return Property(
        name=name,
        required=required,
        nullable=nullable,
        title=_words(own.get("title")),
        description=_words(own.get("description")),
        default=default,
        **shape,
    )


def _shape(members: list[Schema], nullable: bool, root: Schema) -> dict[str, Any]:
    """Return the kind of a field, by the types that are allowed besides null."""
    as_json: dict[str, Any] = {"kind": "json"}
    if members and all(_enumerated(member) is not None for member in members):
        choices = _choices(members)
        return {"kind": "choice", "choices": choices} if choices else as_json
    kinds = {member.get("type") for member in members}
    if kinds == {"boolean"}:
        if not nullable:
            return {"kind": "boolean"}
        # A boolean field cannot be left empty.
        return {"kind": "choice", "choices": (Choice("true", True), Choice("false", False))}
    if kinds and kinds <= {"integer", "number"}:
        kind = "number" if "number" in kinds else "integer"
        return {"kind": kind, **_numbers(kind, members)}
    if len(members) != 1:
        return as_json
    (member,) = members
    if kinds == {"string"}:
        several = "contentMediaType" in member and "contentEncoding" not in member
        return {
            "kind": "text",
            "several_lines": several,
            "datatype": _DATATYPES.get(str(member.get("format"))),
        }
    if kinds == {"array"} and "prefixItems" not in member and "items" in member:
        return _array(member["items"], root) or as_json
    return as_json


def _array(items: object, root: Schema) -> dict[str, Any] | None:
    members = list(_members(items, root)) if isinstance(items, Mapping) else []
    values = [value for member in members for value in _enumerated(member) or ()]
    # Arrays of arrays are given as JSON, and may contain themselves.
    if None in values or any(
        member.get("type") in ("array", None) for member in members if _enumerated(member) is None
    ):
        return None
    item = _shape(members, False, root)
    if item["kind"] == "choice":
        return {**item, "kind": "choices"}
    if item["kind"] in ("text", "integer", "number"):
        return {**item, "kind": "lines", "item": item["kind"], "several_lines": False}
    return None


def _numbers(kind: str, members: list[Schema]) -> dict[str, Any]:
    """Return the datatype of a number, and its limits, as far as XEP-0122 can express them."""
    found: dict[str, Any] = {"datatype": "xs:integer" if kind == "integer" else "xs:double"}
    if len(members) > 1:
        return found
    (member,) = members
    least, above = _bound(member, "minimum"), _bound(member, "exclusiveMinimum")
    greatest, below = _bound(member, "maximum"), _bound(member, "exclusiveMaximum")
    if kind == "integer":
        least = None if least is None else math.ceil(least)
        above = None if above is None else math.floor(above) + 1
        greatest = None if greatest is None else math.floor(greatest)
        below = None if below is None else math.ceil(below) - 1
    lower = [bound for bound in (least, above) if bound is not None]
    upper = [bound for bound in (greatest, below) if bound is not None]
    return {
        **found,
        "least": digits(max(lower, default=None)),
        "greatest": digits(min(upper, default=None)),
    }


def _bound(member: Schema, name: str) -> int | float | None:
    value = member.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def _choices(members: list[Schema]) -> tuple[Choice, ...]:
    """Return the choices of enumerations; none if their texts are not unique."""
    found: dict[str, Choice] = {}
    for member in members:
        values = _enumerated(member) or []
        for value, label in zip(values, _labels(member, len(values)), strict=True):
            if value is None:
                continue
            if not isinstance(value, str | int | float):
                return ()
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            choice = Choice(text, value, label or (None if text else EMPTY))
            if identity(found.setdefault(text, choice).value) != identity(value):
                return ()
    return tuple(found.values())


def _labels(member: Schema, count: int) -> list[str | None]:
    """Return the titles of the values of an enumeration: of constants, or older `enumNames`."""
    if "const" in member:
        return [_words(member.get("title"))]
    names = member.get("enumNames")
    if isinstance(names, list | tuple) and len(names) == count:
        return [_words(name) for name in names]
    return [None] * count


def _enumerated(member: Schema) -> list[Any] | None:
    if "const" in member:
        return [member["const"]]
    values = member.get("enum")
    return list(values) if isinstance(values, list | tuple) else None


def _members(
    declared: object, root: Schema, seen: frozenset[str] = frozenset()
) -> Iterator[Schema]:
    """Yield all alternatives of a schema, each with at most one type."""
    if not isinstance(declared, Mapping):
        yield {}
        return
    schema, seen = _followed(declared, root, seen)
    for key in ("anyOf", "oneOf"):
        parts = schema.get(key)
        if not isinstance(parts, list | tuple) or not parts:
            continue
        # Beside a type, they may restrict it in any way; constants are an enumeration.
        if "type" not in schema or all(
            isinstance(part, Mapping) and "const" in part for part in parts
        ):
            for part in parts:
                yield from _members(part, root, seen)
            return
    types = schema.get("type")
    if isinstance(types, list | tuple) and _enumerated(schema) is None:
        for type_ in types:
            yield {**schema, "type": type_ if isinstance(type_, str) else None}
    elif types is None or isinstance(types, str):
        yield schema
    else:
        yield {**schema, "type": None}


def json_type(declared: object, root: Schema) -> str:
    """Return the one type of JSON that a schema allows besides null, or `any`."""
    found: set[str] = set()
    for member in _members(declared, root):
        values = _enumerated(member)
        if isinstance(kind := member.get("type"), str):
            found.add(kind)
        elif values is None:
            found.add("any")
        else:
            found |= {_JSON_TYPES.get(type(value), "object") for value in values}
    found.discard("null")
    return found.pop() if len(found) == 1 else "any"


_JSON_TYPES: Final[Mapping[type, str]] = {
    bool: "boolean",
    str: "string",
    int: "integer",
    float: "number",
    list: "array",
    tuple: "array",
    type(None): "null",
}


def _followed(
    schema: Schema, root: Schema, seen: frozenset[str] = frozenset()
) -> tuple[Schema, frozenset[str]]:
    """Return a schema with its references resolved; keywords beside a reference take precedence."""
    while True:
        reference = schema.get("$ref")
        parts = schema.get("allOf")
        if isinstance(reference, str):
            target = {} if reference in seen else _pointed(reference, root)
            seen |= {reference}
            rest = {key: value for key, value in schema.items() if key != "$ref"}
        elif isinstance(parts, list | tuple) and len(parts) == 1 and isinstance(parts[0], Mapping):
            target = parts[0]
            rest = {key: value for key, value in schema.items() if key != "allOf"}
        else:
            return schema, seen
        schema = {**target, **rest}


def _pointed(reference: str, root: Schema) -> Schema:
    """Return the target of a reference inside the same schema; an empty one if there is none."""
    found: object = None
    if reference.startswith("#"):
        with suppress(LookupError):
            found = pointed_to(root, reference[1:])
    return found if isinstance(found, Mapping) else {}


def _words(value: object) -> str | None:
    return value if isinstance(value, str) and value else None

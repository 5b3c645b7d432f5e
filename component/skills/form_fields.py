"""What a property of a JSON Schema is as a field of a form, and its values as that field's texts.

The specification's table "Fields by schema" (FAC-008), read from schemas as msgspec writes them,
with `$ref`, `anyOf` with null, and enumerations of any scalar.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from component.skills.readers import read_boolean, read_integer, read_number
from xep.binding.escaping import without_forbidden

Schema = Mapping[str, Any]
Kind = Literal["boolean", "choice", "choices", "integer", "number", "text", "lines", "json"]
"""How a value is written: `choices` and `lines` are arrays, `json` is what no other can say."""

ABSENT: Final = msgspec.UNSET
"""Of a property that was not given."""

NEWLINE: Final = re.compile("\r\n|\r|\n")
_SPACE = " \t\r\n"
_MOST_CHOICES = 20
_EXPECTED: Final[Mapping[str, str]] = {
    "boolean": "true or false",
    "integer": "an integer",
    "number": "a number",
}
_DATATYPES: Final[Mapping[object, str]] = {
    "date-time": "xs:dateTime",
    "date": "xs:date",
    "uri": "xs:anyURI",
}


class Choice(msgspec.Struct, frozen=True):
    """One value of an enumeration, and the text that stands for it."""

    text: str
    value: Any
    label: str | None = None


class Property(msgspec.Struct, frozen=True, kw_only=True):
    """One property of a schema as a field.

    `item` is the kind of each item of `lines`. `datatype`, `least` and `greatest` are what XEP-0122
    says of a value or an item, in its spelling. `several_lines` is of a text that may have them.
    `default` is ABSENT where there is none.
    """

    name: str
    kind: Kind
    item: Kind = "text"
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

    def texts(self, value: Any) -> tuple[str, ...] | None:
        """The texts that say a value in this field; None if it cannot be said here."""
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
        """The value that the texts of this field say; ABSENT if they say nothing.

        A field that was shown with a default and comes back empty was emptied on purpose: that is
        null, no items or no text, whichever the property can have.

        Raises ValueError with the reason, an unfinished sentence.
        """
        said = [text for text in texts if (text if self.kind == "text" else text.strip(_SPACE))]
        if not said and not (texts and self.kind == "choice" and self._has_empty()):
            return self._empty()
        if self.kind == "json":
            return _json("\n".join(texts))
        if self.kind == "text":
            return "\n".join(texts)
        if self.kind == "lines":
            lines = [line for text in texts for line in NEWLINE.split(text)]
            return [
                self._scalar(self.item, line)
                for line in lines
                if (line if self.item == "text" else line.strip(_SPACE))
            ]
        if self.kind == "choices":
            return [self._choice(text) for text in texts if text or self._has_empty()]
        if len(texts) > 1:
            raise ValueError("expected one value")
        return (
            self._choice(texts[0]) if self.kind == "choice" else self._scalar(self.kind, texts[0])
        )

    def shown_default(self) -> tuple[str, ...]:
        """The texts that the field of an empty form has; none for a default that no form can show.

        Who leaves such a field empty gets the default all the same.
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
                return False  # what an empty one means (XEP-0004 §3.3)
            if self.required:
                raise ValueError("is required")
            if self.kind == "text":
                return ""
        return ABSENT

    def _text(self, value: Any) -> str | None:
        """The text of a scalar, or of an item of an array."""
        if self.choices:
            said = _identity(value)
            return next((each.text for each in self.choices if _identity(each.value) == said), None)
        kind = self.item if self.kind == "lines" else self.kind
        if kind == "text":
            return value if isinstance(value, str) else None
        if isinstance(value, bool):
            return str(value).lower() if kind == "boolean" else None
        if kind == "integer" and isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and kind in ("integer", "number"):
            return _digits(value)
        if isinstance(value, float) and kind == "number" and math.isfinite(value):
            return repr(value)
        return None

    def _scalar(self, kind: Kind, text: str) -> Any:
        if kind == "text":
            return text
        try:
            if kind == "boolean":
                return read_boolean(text)
            try:
                return read_integer(text)
            except ValueError:
                if kind == "integer":
                    raise
                return read_number(text)
        except ValueError:
            raise ValueError(f"expected {_EXPECTED[kind]}") from None

    def _choice(self, text: str) -> Any:
        for choice in self.choices:
            if choice.text == text:
                return choice.value
        listed = ", ".join(choice.text for choice in self.choices[:_MOST_CHOICES])
        more = ", …" if len(self.choices) > _MOST_CHOICES else ""
        raise ValueError(f"expected one of {listed}{more}")

    def _has_empty(self) -> bool:
        return any(not choice.text for choice in self.choices)


def properties_of(schema: Schema) -> tuple[Property, ...]:
    """The properties of an object's schema, in its order.

    What is no JSON Schema at all is read as one that says nothing; nothing is raised.
    """
    top = _resolved(schema, schema)
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
    resolved = _resolved(own, root)
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
    """What kind of field it is, by what may stand there besides null."""
    as_json: dict[str, Any] = {"kind": "json"}
    if members and all(_enumerated(member) is not None for member in members):
        choices = _choices(members)
        return {"kind": "choice", "choices": choices} if choices else as_json
    kinds = {member.get("type") for member in members}
    if kinds == {"boolean"}:
        if not nullable:
            return {"kind": "boolean"}
        # A boolean field cannot be left open.
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
            "datatype": _DATATYPES.get(_hashable(member.get("format"))),
        }
    if kinds == {"array"} and "prefixItems" not in member and "items" in member:
        return _array(member["items"], root) or as_json
    return as_json


def _array(items: object, root: Schema) -> dict[str, Any] | None:
    members = list(_members(items, root)) if isinstance(items, Mapping) else []
    values = [value for member in members for value in _enumerated(member) or ()]
    # Arrays of arrays go as JSON, and may hold themselves without end.
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
    """The datatype of a number, and its bounds, as far as XEP-0122 can say them."""
    found: dict[str, Any] = {"datatype": "xs:integer" if kind == "integer" else "xs:double"}
    if len(members) > 1:
        return found
    (member,) = members
    least = [_bound(member, "minimum"), _bound(member, "exclusiveMinimum")]
    greatest = [_bound(member, "maximum"), _bound(member, "exclusiveMaximum")]
    if kind == "integer":
        above, below = least[1], greatest[1]
        least = [_whole(least[0], math.ceil), None if above is None else math.floor(above) + 1]
        greatest = [
            _whole(greatest[0], math.floor),
            None if below is None else math.ceil(below) - 1,
        ]
    found["least"] = _digits(max((bound for bound in least if bound is not None), default=None))
    found["greatest"] = _digits(
        min((bound for bound in greatest if bound is not None), default=None)
    )
    return found


def _bound(member: Schema, name: str) -> int | float | None:
    value = member.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def _whole(value: float | None, towards: Any) -> int | None:
    return None if value is None else towards(value)


def _digits(value: float | None) -> str | None:
    try:
        return None if value is None else repr(value)
    except ValueError:
        return None  # Python writes no integer of more than 4300 digits


def _choices(members: list[Schema]) -> tuple[Choice, ...]:
    """The choices of enumerations; none if their values cannot be told apart by a text."""
    found: dict[str, Choice] = {}
    for member in members:
        values = _enumerated(member) or []
        # `oneOf` of constants is how titles are given to the values of an enumeration.
        label = _words(member.get("title")) if "const" in member else None
        for value in values:
            if value is None:
                continue
            if not isinstance(value, str | int | float):
                return ()
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            choice = Choice(text, value, label)
            if _identity(found.setdefault(text, choice).value) != _identity(value):
                return ()
    return tuple(found.values())


def _identity(value: object) -> tuple[bool, bool, object]:
    """What tells JSON values apart: true is not 1, and 1 is 1.0."""
    return isinstance(value, bool), isinstance(value, str), value


def _enumerated(member: Schema) -> list[Any] | None:
    if "const" in member:
        return [member["const"]]
    values = member.get("enum")
    return list(values) if isinstance(values, list | tuple) else None


def _members(
    declared: object, root: Schema, seen: frozenset[str] = frozenset()
) -> Iterator[Schema]:
    """Everything that may stand there, each with one type at most."""
    if not isinstance(declared, Mapping):
        yield {}
        return
    schema, seen = _followed(declared, root, seen)
    for key in ("anyOf", "oneOf"):
        parts = schema.get(key)
        if isinstance(parts, list | tuple) and parts and "type" not in schema:
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


def _resolved(declared: Schema, root: Schema) -> Schema:
    return _followed(declared, root, frozenset())[0]


def _followed(schema: Schema, root: Schema, seen: frozenset[str]) -> tuple[Schema, frozenset[str]]:
    """What a schema says once its references are followed; what stands beside one wins."""
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
    """What a reference inside the same schema points to (RFC 6901)."""
    found: Any = root
    if not reference.startswith("#"):
        return {}
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or key not in found:
            return {}
        found = found[key]
    return found if isinstance(found, Mapping) else {}


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise ValueError("expected JSON of less depth") from None
    except ValueError as error:
        raise ValueError(f"expected JSON: {error}") from None


def _words(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _hashable(value: object) -> object:
    return value if isinstance(value, str) else None


def _is_line(text: str | None) -> bool:
    return bool(text) and NEWLINE.search(text or "") is None

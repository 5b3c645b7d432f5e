"""Converts the properties of a JSON Schema to the fields of a form.

The specification's table "Fields by schema" (FAC-008), read from schemas as msgspec writes them,
with `$ref`, `anyOf` with null, and enumerations of any scalar.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from component.skills.form_fields import (
    ABSENT,
    NEWLINE,
    Choice,
    Property,
    Schema,
    digits,
    identity,
)

_DATATYPES: Final[Mapping[object, str]] = {
    "date-time": "xs:dateTime",
    "date": "xs:date",
    "uri": "xs:anyURI",
}


def properties_of(schema: Schema) -> tuple[Property, ...]:
    """Return the properties of an object's schema, in its order.

    An invalid JSON Schema is treated as an empty one; nothing is raised.
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
            "datatype": _DATATYPES.get(_hashable(member.get("format"))),
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
    least = [_bound(member, "minimum"), _bound(member, "exclusiveMinimum")]
    greatest = [_bound(member, "maximum"), _bound(member, "exclusiveMaximum")]
    if kind == "integer":
        above, below = least[1], greatest[1]
        least = [_whole(least[0], math.ceil), None if above is None else math.floor(above) + 1]
        greatest = [
            _whole(greatest[0], math.floor),
            None if below is None else math.ceil(below) - 1,
        ]
    found["least"] = digits(max((bound for bound in least if bound is not None), default=None))
    found["greatest"] = digits(
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
            choice = Choice(text, value, label)
            if identity(found.setdefault(text, choice).value) != identity(value):
                return ()
    return tuple(found.values())


def _labels(member: Schema, count: int) -> list[str | None]:
    """Return the titles of the values of an enumeration: of a constant in `oneOf`, or `enumNames`,
    which is older than JSON Schema's own way.
    """
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
        if "type" not in schema or all(map(_is_constant, parts)):
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


def _is_constant(part: object) -> bool:
    return isinstance(part, Mapping) and "const" in part


def _resolved(declared: Schema, root: Schema) -> Schema:
    return _followed(declared, root, frozenset())[0]


def _followed(schema: Schema, root: Schema, seen: frozenset[str]) -> tuple[Schema, frozenset[str]]:
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
    """Return the target of a reference inside the same schema (RFC 6901)."""
    found: Any = root
    if not reference.startswith("#"):
        return {}
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or key not in found:
            return {}
        found = found[key]
    return found if isinstance(found, Mapping) else {}


def _words(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _hashable(value: object) -> object:
    return value if isinstance(value, str) else None

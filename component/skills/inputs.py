"""The inputs of a skill: its parameters, and how they become validated arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from component.skills.readers import Reader
from component.skills.spec import Schema

Arguments: TypeAlias = msgspec.Struct | dict[str, Any]
"""Validated arguments: a struct of a Python function, or a JSON object that fits a JSON Schema."""


class Param(msgspec.Struct, frozen=True):
    """One parameter as discovery lists it. `type` is a JSON Schema type, or `any`."""

    name: str
    type: str
    required: bool
    description: str = ""


class Inputs(msgspec.Struct, frozen=True):
    """The inputs of a skill.

    `type` is the class of validated arguments: a struct, or `dict[str, Any]` for a skill that knows
    only its JSON Schema. Then `complete` checks the values against that, and adds its defaults; it
    raises InvalidParam. `readers` convert the text of
    each parameter, and `verbatim` names the parameters whose text is their value.
    """

    type: Any
    params: tuple[Param, ...]
    readers: Mapping[str, Reader]
    verbatim: frozenset[str]
    complete: Callable[[dict[str, Any]], Arguments] | None = None


def params_of(schema: Schema) -> tuple[Param, ...]:
    """Return the parameters that an object's schema describes, in its order."""
    required = schema.get("required")
    needed = set(required) if isinstance(required, list | tuple) else set()
    properties = schema.get("properties", {})
    return tuple(
        Param(
            name=name,
            type=_type_of(prop, schema.get("$defs", {})),
            required=name in needed,
            description=_description(prop),
        )
        for name, prop in properties.items()
    )


def _description(prop: object) -> str:
    found = prop.get("description", "") if isinstance(prop, Mapping) else ""
    return found if isinstance(found, str) else ""


def _type_of(prop: object, definitions: Mapping[str, Schema]) -> str:
    """Return the one JSON type of a property besides null, or `any`."""
    found = _types_of(prop, definitions, frozenset()) - {"null"}
    return found.pop() if len(found) == 1 else "any"


def _types_of(prop: object, definitions: Mapping[str, Schema], seen: frozenset[str]) -> set[str]:
    if not isinstance(prop, Mapping):
        return {"any"}
    name = str(prop.get("$ref", "")).removeprefix("#/$defs/")
    if "$ref" in prop:
        if name in seen or name not in definitions:
            return {"any"}
        return _types_of(definitions[name], definitions, seen | {name})
    if "type" in prop:
        declared = prop["type"]
        return set(map(str, declared)) if isinstance(declared, list | tuple) else {str(declared)}
    if isinstance(values := prop.get("enum"), list | tuple):
        return {_json_type(value) for value in values if value is not None}
    found: set[str] = set()
    parts: Iterable[object] = prop.get("anyOf") or prop.get("oneOf") or ({},)
    for part in parts:
        found |= _types_of(part, definitions, seen) if part else {"any"}
    return found


def _json_type(value: object) -> str:
    match value:
        case bool():
            return "boolean"
        case str():
            return "string"
        case int():
            return "integer"
        case float():
            return "number"
        case list() | tuple():
            return "array"
        case None:
            return "null"
    return "object"

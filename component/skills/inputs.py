"""The inputs of a skill: its parameters, and how they become validated arguments.

A JSON Schema alone describes those of a tool of an MCP server, an operation of an API, or a skill
with a manifest. It comes from somebody who is not trusted: see `component.skills.validation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final, TypeAlias

import msgspec

from component.skills.errors import DeclarationError, InvalidParam
from component.skills.form_fields import FieldKind, Property, properties_of
from component.skills.params import Reader, read_boolean, read_choice, read_integer, read_number
from component.skills.spec import Schema
from component.skills.validation import SchemaValidator

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
    raises InvalidParam. `readers` convert the text of each parameter, and `verbatim` names the
    parameters whose text is their value. All parameters of a skill that is `plain` are texts, any
    text is valid, and its function takes them by position.
    """

    type: Any
    params: tuple[Param, ...]
    readers: Mapping[str, Reader]
    verbatim: frozenset[str]
    plain: bool = False
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
        return {_JSON_TYPES.get(type(value), "object") for value in values if value is not None}
    found: set[str] = set()
    parts: Iterable[object] = prop.get("anyOf") or prop.get("oneOf") or ({},)
    for part in parts:
        found |= _types_of(part, definitions, seen) if part else {"any"}
    return found


_JSON_TYPES: Final[Mapping[type, str]] = {
    bool: "boolean",
    str: "string",
    int: "integer",
    float: "number",
    list: "array",
    tuple: "array",
    type(None): "null",
}


_SCALARS: Final[Mapping[FieldKind, tuple[Callable[[str], Any], str]]] = {
    "text": (str, "text"),
    "integer": (read_integer, "an integer"),
    "number": (read_number, "a number"),
    "boolean": (read_boolean, "true or false"),
}


def schema_inputs(schema: Schema, *, adds_defaults: bool = True) -> Inputs:
    """Return the inputs that a JSON Schema describes, whose arguments are a `dict[str, Any]`.

    With `adds_defaults`, parameters that were not given have the defaults of the schema, if these
    are valid. Without, they are left out: in a schema of somebody else, a default says what happens
    then, and may be a value that is refused when it is sent.

    Raises DeclarationError, with the reason, for a schema that cannot be used.
    """
    if schema.get("type", "object") != "object":
        raise DeclarationError("The schema of the parameters is not one of an object.")
    made = _SchemaReaders(schema, adds_defaults=adds_defaults)
    _ = made.validator, made.defaults, made.readers
    return made.inputs()


def later_inputs(schema: Schema) -> Inputs:
    """Return the inputs of a JSON Schema that was checked when its skill was approved. They are
    made when they are first used: most of a thousand skills are never called.
    """
    return _SchemaReaders(schema, adds_defaults=True).inputs()


class _SchemaReaders(Mapping[str, Reader]):
    """The readers of the properties of a schema, and what validates values against it."""

    def __init__(self, schema: Schema, *, adds_defaults: bool) -> None:
        self._schema = schema
        self._adds_defaults = adds_defaults

    def inputs(self) -> Inputs:
        return Inputs(
            type=dict[str, Any],
            params=params_of(self._schema),
            readers=self,
            verbatim=frozenset(),  # nobody asks where `complete` is
            complete=self._complete,
        )

    @cached_property
    def validator(self) -> SchemaValidator:
        return SchemaValidator(self._schema)

    @cached_property
    def readers(self) -> dict[str, Reader]:
        return {one.name: _reader(one) for one in properties_of(self._schema)}

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The defaults to add: those that are valid."""
        found = {
            one.name: one.default
            for one in (properties_of(self._schema) if self._adds_defaults else ())
            if one.default is not msgspec.UNSET and not one.required
        }
        if not found:
            return {}
        # Without the key: an empty array is not valid in draft 4.
        alone = SchemaValidator(
            {key: one for key, one in self._schema.items() if key != "required"}
        )
        return {name: one for name, one in found.items() if alone.mismatch({name: one}) is None}

    def _complete(self, values: dict[str, Any]) -> Arguments:
        found = self.validator.mismatch(values)
        if found is not None:
            raise InvalidParam(found.member, found.reason, found.place or found.member)
        return {**self.defaults, **values}

    def __getitem__(self, name: str) -> Reader:
        return self.readers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.readers)

    def __len__(self) -> int:
        return len(self.readers)


def _reader(one: Property) -> Reader:
    """Return the reader for a property. Values that no text can express are given as JSON."""
    if one.kind in ("choice", "choices"):
        choices = {each.text: each.value for each in one.choices}
        words = f"one of {', '.join(list(choices)[:20])}"
        if one.kind == "choice":
            return Reader(words, read_choice(choices))
        return Reader(f"an array of {words}", items=(read_choice(choices),))
    if one.kind == "lines":
        item, words = _SCALARS[one.item]
        return Reader(f"an array of {words}", items=(item,))
    if one.kind == "json":
        return Reader("JSON", _read_json)
    scalar, words = _SCALARS[one.kind]
    return Reader(words, scalar, verbatim=one.kind == "text")


def _read_json(text: str) -> Any:
    """Read JSON, or take a text that is none as a string."""
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return text

"""The inputs of a skill that a JSON Schema alone describes: a tool of an MCP server, an operation
of an API, or a skill with a manifest.

The schema comes from somebody who is not trusted: see `component.skills.validation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from component.skills.errors import DeclarationError, InvalidParam, UsageError
from component.skills.inputs import Arguments, Inputs, params_of
from component.skills.readers import Reader, read_boolean, read_integer, read_number
from component.skills.schema_properties import properties_of
from component.skills.validation import SchemaValidator

if TYPE_CHECKING:
    from component.skills.form_fields import FieldKind, Property
    from component.skills.spec import Schema

_SCALARS: Final[Mapping[FieldKind, tuple[Callable[[str], Any], str]]] = {
    "text": (str, "text"),
    "integer": (read_integer, "an integer"),
    "number": (read_number, "a number"),
    "boolean": (read_boolean, "true or false"),
}


def checked_schema(schema: Mapping[str, Any]) -> Schema:
    """Return the JSON Schema of the answer to a question as a dict.

    Raises UsageError for one that is not of an object, or that cannot be validated in bounded work.
    """
    if schema.get("type") != "object":
        raise UsageError("A person is asked for an object: write 'type': 'object' in the schema.")
    try:
        schema_inputs(dict(schema))
    except DeclarationError as error:
        raise UsageError(f"What a person is asked for: {error}") from None
    return dict(schema)


def schema_inputs(schema: Schema, *, adds_defaults: bool = True) -> Inputs:
    """Return the inputs that a JSON Schema describes, whose arguments are a `dict[str, Any]`.

    With `adds_defaults`, parameters that were not given have the defaults of the schema, if these
    are valid. Without, they are left out: in a schema of somebody else, a default says what happens
    then, and may be a value that is refused when it is sent.

    Raises DeclarationError, with the reason, for a schema that cannot be used.
    """
    if schema.get("type", "object") != "object":
        raise DeclarationError("The schema of the parameters is not one of an object.")
    validator = SchemaValidator(schema)
    properties = properties_of(schema)
    defaults = _valid_defaults(schema, properties) if adds_defaults else {}

    def complete(values: dict[str, Any]) -> Arguments:
        found = validator.mismatch(values)
        if found is not None:
            raise InvalidParam(found.member, found.reason, found.place or found.member)
        return {**defaults, **values}

    readers = {one.name: _reader(one) for one in properties}
    return Inputs(
        type=dict[str, Any],
        params=params_of(schema),
        readers=readers,
        verbatim=frozenset(name for name, reader in readers.items() if reader.verbatim),
        complete=complete,
    )


def _valid_defaults(schema: Schema, properties: Sequence[Property]) -> dict[str, Any]:
    found = {
        one.name: one.default
        for one in properties
        if one.default is not msgspec.UNSET and not one.required
    }
    if not found:
        return {}
    alone = SchemaValidator({key: part for key, part in schema.items() if key != "required"})
    return {name: value for name, value in found.items() if alone.mismatch({name: value}) is None}


def _reader(one: Property) -> Reader:
    """Return the reader for a property. Values that no text can express are given as JSON."""
    if one.kind in ("choice", "choices"):
        choices = {each.text: each.value for each in one.choices}

        def choose(text: str) -> Any:
            if text not in choices:
                raise ValueError(text)
            return choices[text]

        words = f"one of {', '.join(list(choices)[:20])}"
        if one.kind == "choice":
            return Reader(verbatim=False, scalar=choose, items=(), expected=words)
        return Reader(verbatim=False, scalar=None, items=(choose,), expected=f"an array of {words}")
    if one.kind == "lines":
        item, words = _SCALARS[one.item]
        return Reader(verbatim=False, scalar=None, items=(item,), expected=f"an array of {words}")
    if one.kind == "json":
        return Reader(verbatim=False, scalar=_read_json, items=(), expected="JSON")
    scalar, words = _SCALARS[one.kind]
    return Reader(verbatim=one.kind == "text", scalar=scalar, items=(), expected=words)


def _read_json(text: str) -> Any:
    """Read JSON, or take a text that is none as a string."""
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return text

"""The inputs of a skill: its parameters, and how they become validated arguments.

A JSON Schema alone describes those of a tool of an MCP server, an operation of an API, or a skill
with a manifest. It comes from somebody who is not trusted: see `component.skills.validation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeAlias

import msgspec

from component.skills.errors import DeclarationError, InvalidParam
from component.skills.form_fields import json_type, properties_of
from component.skills.params import Reader
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


class Inputs:
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
    plain: bool
    complete: Callable[[dict[str, Any]], Arguments] | None


class StructInputs(Inputs):
    """The inputs that a struct describes, whose JSON Schema is given."""

    def __init__(
        self, struct: type[msgspec.Struct], schema: Schema, readers: Mapping[str, Reader]
    ) -> None:
        self.type = struct
        self.params = params_of(schema)
        self.readers = readers
        self.verbatim = frozenset(name for name, reader in readers.items() if reader.verbatim)
        self.complete = None
        self.plain = False


class SchemaInputs(Inputs):
    """The inputs that a JSON Schema describes, whose arguments are a `dict[str, Any]`.

    What validates and reads them is made when it is first used: most of a thousand skills are never
    called. `schema_inputs` does so at once.
    """

    type = dict[str, Any]
    verbatim = frozenset()  # nobody asks where `complete` is
    plain = False

    def __init__(self, schema: Schema, *, adds_defaults: bool = True) -> None:
        self._schema = schema
        self._adds_defaults = adds_defaults

    @cached_property
    def params(self) -> tuple[Param, ...]:  # type: ignore[override]  # it is not set
        """The parameters."""
        return params_of(self._schema)

    @cached_property
    def validator(self) -> SchemaValidator:
        """What validates values."""
        return SchemaValidator(self._schema)

    @cached_property
    def readers(self) -> Mapping[str, Reader]:  # type: ignore[override]  # it is not set
        """The readers of the properties."""
        return {one.name: one.reader for one in properties_of(self._schema)}

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

    def complete(self, values: dict[str, Any]) -> Arguments:
        """Return the arguments. Raises InvalidParam."""
        found = self.validator.mismatch(values)
        if found is not None:
            raise InvalidParam(found.member, found.reason, found.place or found.member)
        return {**self.defaults, **values}


def params_of(schema: Schema) -> tuple[Param, ...]:
    """Return the parameters that an object's schema describes, in its order."""
    required = schema.get("required")
    needed = set(required) if isinstance(required, list | tuple) else set()
    properties = schema.get("properties", {})
    return tuple(
        Param(
            name=name,
            type=json_type(prop, schema),
            required=name in needed,
            description=_description(prop),
        )
        for name, prop in properties.items()
    )


def _description(prop: object) -> str:
    found = prop.get("description", "") if isinstance(prop, Mapping) else ""
    return found if isinstance(found, str) else ""


def schema_inputs(schema: Schema, *, adds_defaults: bool = True) -> SchemaInputs:
    """Return the inputs that a JSON Schema describes.

    With `adds_defaults`, parameters that were not given have the defaults of the schema, if these
    are valid. Without, they are left out: in a schema of somebody else, a default says what happens
    then, and may be a value that is refused when it is sent.

    Raises DeclarationError, with the reason, for a schema that cannot be used.
    """
    if schema.get("type", "object") != "object":
        raise DeclarationError("The schema of the parameters is not one of an object.")
    made = SchemaInputs(schema, adds_defaults=adds_defaults)
    # First what bounds the work that a schema can cause.
    _ = made.validator, made.defaults, made.readers, made.params
    return made

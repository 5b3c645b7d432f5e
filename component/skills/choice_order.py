"""JSON Schemas of types, with enumerations in the order of their declaration.

msgspec sorts them, but the order says something: `low`, `medium`, `high`, or the usual choice
first. Forms and questions show them as they are in the schema.
"""

import enum
import typing
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import msgspec

_Key: TypeAlias = frozenset[tuple[type, Any]]


def schema_of(hint: Any) -> dict[str, Any]:
    """Return the JSON Schema of a type; raises what `msgspec.json.schema` does."""
    schema = msgspec.json.schema(hint)
    orders: dict[_Key, list[Any]] = {}
    for choices in _choices_in(hint, set()):
        orders.setdefault(_key_of(choices), choices)
    if orders:
        _reorder(schema, orders)
    return schema


def _key_of(choices: list[Any]) -> _Key:
    return frozenset((type(choice), choice) for choice in choices)


def _choices_in(hint: Any, seen: set[int]) -> Iterator[list[Any]]:
    """Yield the choices of each enumeration within a type."""
    if id(hint) in seen:
        return
    seen.add(id(hint))
    if typing.get_origin(hint) is typing.Literal:
        yield [choice for choice in typing.get_args(hint) if choice is not None]
    elif isinstance(hint, type) and issubclass(hint, enum.Enum):
        yield [member.value for member in hint]
    elif isinstance(hint, type) and hint.__module__ != "builtins":
        with suppress(NameError, TypeError):  # msgspec knows such types in other ways
            for inner in typing.get_type_hints(hint, include_extras=True).values():
                yield from _choices_in(inner, seen)
    for inner in typing.get_args(hint):
        if typing.get_origin(hint) is not typing.Literal:
            yield from _choices_in(inner, seen)


def _reorder(schema: Any, orders: Mapping[_Key, list[Any]]) -> None:
    if isinstance(schema, dict):
        choices = schema.get("enum")
        if isinstance(choices, list):
            order = orders.get(_key_of([choice for choice in choices if choice is not None]))
            if order is not None:
                schema["enum"] = [*order, *(each for each in choices if each is None)]
        for part in schema.values():
            _reorder(part, orders)
    elif isinstance(schema, list):
        for part in schema:
            _reorder(part, orders)

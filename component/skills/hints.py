"""Finds type hints that msgspec must never inspect.

msgspec 0.22 and earlier corrupt the process's memory, without an error, when they inspect a union
that joins a constrained type with an array or an object (`Annotated[str, Meta(pattern="…")] |
list[int]`). So this is checked with `typing` alone, before msgspec sees the hint.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

import msgspec

_CONSTRAINTS = (
    "gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz",
)  # fmt: skip


def constrained_union(hint: Any) -> Any | None:
    """Return a union of several types besides None that contains a constraint, None if there is
    none.

    The parts of the hint are inspected as well: items, and the fields of classes.
    """
    return _search(hint, set())


def _search(hint: Any, seen: set[Any]) -> Any | None:
    hint = getattr(hint, "__supertype__", hint)  # a NewType stands for another type
    if typing.get_origin(hint) in {typing.Union, types.UnionType, typing.Annotated}:
        several = [member for member in _members(hint) if member is not type(None)]
        if len(several) > 1 and _constrained(hint):
            return hint
    parts: list[Any] = [
        part for part in typing.get_args(hint) if not isinstance(part, msgspec.Meta)
    ]
    # The class itself, or that of a generic alias.
    described = typing.get_origin(hint) or hint
    if _has_fields(described) and described not in seen:
        seen.add(described)
        parts += typing.get_type_hints(described, include_extras=True).values()
    for part in parts:
        found = _search(part, seen)
        if found is not None:
            return found
    return None


def _members(hint: Any) -> list[Any]:
    hint = getattr(hint, "__supertype__", hint)
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return _members(typing.get_args(hint)[0])
    if origin in {typing.Union, types.UnionType}:
        return [member for part in typing.get_args(hint) for member in _members(part)]
    return [hint]


def _constrained(hint: Any) -> bool:
    """Return whether a union or one of its members has a constraint."""
    hint = getattr(hint, "__supertype__", hint)
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        inner, *notes = typing.get_args(hint)
        metas = [note for note in notes if isinstance(note, msgspec.Meta)]
        return _constrained(inner) or any(
            getattr(meta, name) is not None for meta in metas for name in _CONSTRAINTS
        )
    if origin in {typing.Union, types.UnionType}:
        return any(_constrained(part) for part in typing.get_args(hint))
    return False


def _has_fields(described: Any) -> bool:
    return isinstance(described, type) and (
        issubclass(described, msgspec.Struct)
        or dataclasses.is_dataclass(described)
        or typing.is_typeddict(described)
        or hasattr(described, "_fields")
    )

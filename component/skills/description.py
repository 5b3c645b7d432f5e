"""Descriptions of skills as JSON: to store them, and to pass them between processes."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any, Final, get_type_hints

import msgspec

from component.skills.spec import SkillSpec

_FIELDS: Final = {
    field.name: field
    for field in dataclasses.fields(SkillSpec)
    if field.init and field.name != "source"
}


def written(spec: SkillSpec) -> str:
    """Return the fields of a description as a JSON object, except those that have their defaults
    and the source.
    """
    found = {name: getattr(spec, name) for name in _FIELDS}
    return msgspec.json.encode(
        {name: value for name, value in found.items() if value != _FIELDS[name].default}
    ).decode()


def read(description: str | bytes) -> dict[str, Any]:
    """Return all fields of a description that `written` has written, except the source.

    Raises ValueError for any other text.
    """
    return msgspec.structs.asdict(_decoder().decode(description))


@cache
def _decoder() -> msgspec.json.Decoder[msgspec.Struct]:
    types = get_type_hints(SkillSpec)
    fields: list[Any] = [
        (name, types[name])
        if field.default is dataclasses.MISSING
        else (name, types[name], field.default)
        for name, field in _FIELDS.items()
    ]
    struct = msgspec.defstruct("Description", fields, kw_only=True, forbid_unknown_fields=True)
    return msgspec.json.Decoder(struct)

"""One change of the objects of an owner, within one transaction: versions, limits and schemas."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from component.features.objects import rows
from component.features.objects.params import ObjectName
from component.features.objects.rows import ObjectRow, Space
from component.features.objects.settings import ObjectLimits
from component.features.objects.stored import Content, ObjectError, StoredObject
from component.policy.taint import Taint
from component.skills.validation import SchemaValidator
from component.store.database import Database

_VALIDATORS: Final = 256
_CALLS: Final = 4
"""The number of calls that are remembered with an object, so that none is run twice."""


class Writer:
    """Changes the objects of one owner and type. Nobody else changes those of the owner until the
    transaction ends.

    Args:
        generation: that of the type, if it is new. Without one, it is not made.

    Attributes:
        type: the type as it is now; None if there is none.
    """

    def __init__(
        self,
        database: Database,
        space: Space,
        limits: ObjectLimits,
        type_: str,
        generation: str = "",
    ) -> None:
        self._database = database
        self._space = space
        self._limits = limits
        self._types = rows.lock(database, space, type_, generation)
        self.type = next((each for each in self._types if each.name == type_), None)

    def get(self, id_: str) -> ObjectRow | None:
        """Return an object; None if there is none."""
        if self.type is None:
            return None
        return rows.get(self._database, self._space, self.type.name, id_)

    def store(
        self, id_: str, content: Content, before: ObjectRow | None, call: str = ""
    ) -> StoredObject:
        """Store a version of an object after the one before; `call` is a digest of the call that
        does it, if it may be run again. Raises ObjectError: a limit is exceeded.
        """
        assert self.type is not None, "it was made"
        size = len(rows.encoded(content).encode())
        number, more = (1, size) if before is None else (0, size - before.size)
        self._check_limits(size, number, more)
        self._change(number, more, content.taints)
        version = 1 if before is None else before.object.version + 1
        made = StoredObject(self.type.name, id_, version, self.type.revision, content)
        former = None if before is None else before.object.content
        calls = (*(() if before is None else before.calls), *([call] if call else ()))
        rows.put(self._database, self._space, ObjectRow(made, size, former, calls[-_CALLS:]))
        return made

    def remove(self, row: ObjectRow) -> None:
        """Delete an object."""
        rows.delete(self._database, self._space, row.object.type, row.object.id)
        self._change(-1, -row.size)

    def remove_all(self) -> int:
        """Delete all objects of the type; return how many there were."""
        if self.type is None or not self.type.number:
            return 0
        number = self.type.number
        rows.delete_all(self._database, self._space, self.type.name)
        self._change(-number, -self.type.size)
        return number

    def set_schema(self, schema: str | None, taints: tuple[Taint, ...]) -> None:
        """Set the schema of the type, as JSON, or remove it. Raises ObjectError: there are too many
        types.
        """
        if self.type is None:
            return
        self._check_types()
        self.type = self.type._replace(schema=schema)
        self._change(0, 0, taints)

    def _change(self, number: int, size: int, taints: tuple[Taint, ...] = ()) -> None:
        """Count a change that adds so many objects and bytes; both may be negative."""
        assert self.type is not None, "it is changed"
        held = self.type
        self.type = held._replace(
            revision=held.revision + 1,
            number=held.number + number,
            size=held.size + size,
            taints=tuple(dict.fromkeys((*held.taints, *taints))),
        )
        rows.put_type(self._database, self._space, self.type)

    def _check_limits(self, size: int, number: int, more: int) -> None:
        """Raise ObjectError unless an object may have this size, and the owner so many objects and
        bytes more.
        """
        limits = self._limits
        if size > limits.object_bytes:
            raise ObjectError(
                f"The object has {size} bytes, and the maximum is {limits.object_bytes}: store less"
                " in it, or several objects.",
                "data",
            )
        self._check_types()
        if sum(each.number for each in self._types) + number > limits.per_owner:
            raise ObjectError(
                f"There are {limits.per_owner} objects, which is the maximum. Delete some first."
            )
        if more > 0 and sum(each.size for each in self._types) + more > limits.bytes_per_owner:
            raise ObjectError(
                f"All objects together may have {limits.bytes_per_owner} bytes, and would have"
                " more. Delete some first."
            )

    def _check_types(self) -> None:
        most, held = self._limits.types_per_owner, self.type
        if held is not None and not held.revision and len(self._types) > most:
            raise ObjectError(
                f"There are {most} types of objects, which is the maximum. Use one of these;"
                " object_types lists them.",
                "type",
            )


def missing(name: ObjectName) -> ObjectError:
    """Return the error that there is no such object."""
    return ObjectError(f"There is no {name.type} {name.id}.", "id")


def check_version(row: ObjectRow | None, name: str, if_version: int | None) -> None:
    """Raise ObjectError if an object has not the version that it must have, which is 0 if there
    must be none. `name` is its type and its id.
    """
    if if_version is None or if_version == (0 if row is None else row.object.version):
        return
    if row is None:
        why = f"There is no {name}, and if_version says that it has version {if_version}."
    elif if_version == 0:
        why = (
            f"There is a {name} already, of version {row.object.version}, and if_version says that"
            " there is none."
        )
    else:
        why = (
            f"The {name} has version {row.object.version}, and if_version says {if_version}: it was"
            " changed meanwhile. Read it again."
        )
    raise ObjectError(why, "if_version")


def merged(data: dict[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return data after a JSON merge patch (RFC 7396 §2); the data itself is not changed."""
    found = dict(data)
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        elif isinstance(value, Mapping):
            before = found.get(name)
            found[name] = merged(before if isinstance(before, dict) else {}, value)
        else:
            found[name] = value
    return found


@lru_cache(maxsize=_VALIDATORS)
def validator_of(schema: str) -> SchemaValidator:
    """Return what validates against a schema, given as JSON. Raises DeclarationError."""
    return SchemaValidator(msgspec.json.decode(schema))

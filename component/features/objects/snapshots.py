"""The objects of a type, decoded and kept in memory for queries.

Each query reads the row of the type, and only the objects that have changed since they were kept.
So several instances can write, and nobody notifies the others.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from component.features.objects import rows
from component.features.objects.rows import ObjectType, Space
from component.features.objects.stored import StoredObject
from component.memory.words import words
from component.store.database import Database
from component.store.storage import Storage

_OVERHEAD_BYTES: Final = 1_000
"""What a type costs besides its objects."""


class Snapshot(NamedTuple):
    """The objects of a type by id, the one that was changed last at the end; the same objects are
    never changed. `texts` has the words of those that were searched, by id, with their revisions.
    """

    type: ObjectType
    objects: Mapping[str, StoredObject]
    texts: dict[str, tuple[int, str]]

    def words_of(self, one: StoredObject) -> str:
        """Return all words of an object, each between two spaces."""
        found = self.texts.get(one.id)
        if found is None or found[0] != one.revision:
            content = one.content
            text = "\n".join((one.id, *content.tags, *_texts_in(content.data)))
            found = self.texts[one.id] = one.revision, f" {' '.join(words(text))} "
        return found[1]


def _texts_in(value: Any) -> Iterable[str]:
    left = [value]
    while left:
        one = left.pop()
        if type(one) is dict:
            left += one.values()
        elif type(one) is list:
            left += one
        elif type(one) is str:
            yield one
        elif one is not None:
            yield str(one)


def _refreshed(
    database: Database, space: Space, type_: ObjectType, known: Snapshot | None
) -> Snapshot:
    """Return the objects of a type, in the transaction that has read its row."""
    if known is not None and known.type.generation == type_.generation:
        if known.type.revision == type_.revision:
            return known._replace(type=type_)
        objects = dict(known.objects)
        for each in rows.changed_since(database, space, type_.name, known.type.revision):
            objects.pop(each.id, None)
            objects[each.id] = each
        if len(objects) == type_.number:  # otherwise some were deleted
            return Snapshot(type_, objects, known.texts)
    found = rows.changed_since(database, space, type_.name, 0)
    return Snapshot(type_, {each.id: each for each in found}, {})


class ObjectReader:
    """Reads objects, and keeps those of the owners that were read last, up to a size in bytes of
    JSON.

    Attributes:
        storage: the database.
        kept: what was read of each owner, by type; the owner that was read last is at the end.
    """

    def __init__(self, storage: Storage, most_bytes: int) -> None:
        self.storage = storage
        self.kept: OrderedDict[Space, dict[str, Snapshot]] = OrderedDict()
        self._most = most_bytes
        self._size = 0

    async def types(self, space: Space) -> list[ObjectType]:
        """Return the types of an owner. Raises StorageError."""
        return await self.storage.read(lambda database: rows.types(database, space))

    async def read(self, space: Space, name: str = "") -> list[Snapshot]:
        """Return the objects of a type, or of all types of an owner. Raises StorageError."""
        known = self.kept.get(space, {})

        def op(database: Database) -> list[Snapshot]:
            return [
                _refreshed(database, space, each, known.get(each.name))
                for each in rows.types(database, space, name)
            ]

        found = await self.storage.read(op)
        if found:
            self._keep(
                space, {**self.kept.get(space, {}), **{each.type.name: each for each in found}}
            )
        return found

    def forget(self, space: Space) -> None:
        """Keep nothing of an owner any more."""
        self._size -= _cost(self.kept.pop(space, {}))

    def _keep(self, space: Space, snapshots: dict[str, Snapshot]) -> None:
        self.forget(space)
        self.kept[space] = snapshots
        self._size += _cost(snapshots)
        while self._size > self._most:
            self.forget(next(iter(self.kept)))


def _cost(snapshots: Mapping[str, Snapshot]) -> int:
    return sum(_OVERHEAD_BYTES + each.type.size for each in snapshots.values())

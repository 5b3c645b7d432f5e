"""Stores and finds objects, for people and for models."""

import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from component import system
from component.features.objects import rows
from component.features.objects.node import ObjectNodes
from component.features.objects.params import NewObject, NewSchema, ObjectName, ObjectQuery
from component.features.objects.places import is_shared
from component.features.objects.rows import ObjectRow, Space
from component.features.objects.search import Search
from component.features.objects.settings import TYPE_PATTERN, ObjectLimits, check_schema
from component.features.objects.stored import (
    Author,
    Content,
    ObjectError,
    ObjectSheet,
    StoredObject,
    sheet_of,
)
from component.features.objects.writing import (
    Writer,
    check_version,
    merged,
    missing,
    validator_of,
)
from component.memory.sharing import PRIVATE
from component.memory_directory.layout import SessionKey
from component.policy.flows import TRUSTED
from component.policy.taint import TAINTS, Taint
from component.skills.errors import DeclarationError
from component.store.database import Database
from component.store.forgetting import Forgotten
from component.store.storage import Storage
from xep.binding.json_bounds import checked_json
from xep.jid import JID

_FEW: Final = 200
"""The maximum number of objects that are filtered on the event loop."""
_ID: Final = r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,127}"

_encode = msgspec.json.Encoder().encode


class Caller(NamedTuple):
    """Who uses objects: an agent with a person or a room, and who is noted as the author. `taints`
    are those of the texts that a model has read. `call` is the same if a call is run again.
    """

    whose: SessionKey
    author: Author
    taints: tuple[Taint, ...] = ()
    in_room: bool = False
    call: str = ""


class Found(NamedTuple):
    """A page of what a query has found: `total` is the number of objects on all pages, `cursor` is
    empty on the last one. `taints` are the possible authors of this page.
    """

    objects: Sequence[ObjectSheet]
    total: int
    cursor: str
    taints: tuple[Taint, ...]


class TypeSheet(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A type of objects: how many there are, their size, and the schema of their data, if there is
    one; `fixed` says that it is in the settings.
    """

    type: str
    number: int
    bytes: int
    json_schema: msgspec.Raw | None = None
    fixed: bool = False


class Objects:
    """The objects of all owners. Methods raise ObjectError and StorageError.

    Args:
        schemas: the schemas in the settings, by type.
        is_peer: returns whether a bare JID is an agent elsewhere.
    """

    def __init__(
        self,
        storage: Storage,
        nodes: ObjectNodes,
        limits: ObjectLimits,
        schemas: Mapping[str, Mapping[str, Any]],
        is_peer: Callable[[JID], bool],
    ) -> None:
        self._storage = storage
        self._nodes = nodes
        self.reader, self._places = nodes.reader, nodes.places
        self._limits = limits
        self._schemas = {name: _encode(schema).decode() for name, schema in schemas.items()}
        self._is_peer = is_peer

    # -- changes -----------------------------------------------------------------------------------

    async def put(self, caller: Caller, new: NewObject) -> StoredObject:
        """Store an object, and return it.

        The data replaces that of the object with this id; with `merge` it is a patch of it (RFC
        7396). Tags that are None stay as they are. Without an id, one is made. `if_version` is the
        version that the object must have now, 0 if there must be none. A call that is run again
        changes nothing, and returns the same.
        """
        space = self._places.space(caller.whose, new.scope, writes=True)
        id_ = new.id or _made_id(caller.call)
        _check_names(new.type, id_)
        _check_json(new.data)
        generation, call = system.token_urlsafe(9), _digest(caller.call)

        def op(database: Database) -> tuple[StoredObject, Sequence[str] | None]:
            writer = Writer(database, space, self._limits, new.type, generation)
            before = writer.get(id_)
            if before is not None and call in before.calls:
                return before.object, None
            check_version(before, f"{new.type} {id_}", new.if_version)
            content = self._content(caller, new, before, database.now, shared=is_shared(space))
            self._check_fits(writer, new, before, content.data)
            made = writer.store(id_, content, before, call)
            return made, self._nodes.audience(database, space, new.type)

        made, audience = await self._storage.write(op)
        if audience is not None:
            self._nodes.stored(space, made, audience)
        return made

    def _content(
        self, caller: Caller, new: NewObject, before: ObjectRow | None, now: int, *, shared: bool
    ) -> Content:
        """Return the content of the new version, with the authors of all that it has."""
        former = None if before is None else before.object.content
        data, tags = new.data, () if new.tags is None else tuple(dict.fromkeys(new.tags))
        taints = set(caller.taints)
        if self._is_peer(caller.whose.who):
            taints.add("peer")
        if new.merge:
            data = merged({} if former is None else former.data, new.data)
        if former is not None and (new.merge or (new.tags is None and former.tags)):
            taints |= set(former.taints)
            if shared and former.author.by != caller.author.by:
                taints.add("file")
        if former is not None and new.tags is None:
            tags = former.tags
        return Content(
            data=data,
            tags=tags,
            taints=_in_order(taints),
            created=now if former is None else former.created,
            updated=now,
            creator=caller.author if former is None else former.creator,
            author=caller.author,
        )

    def _check_fits(
        self, writer: Writer, new: NewObject, before: ObjectRow | None, data: dict[str, Any]
    ) -> None:
        """Raise ObjectError if data does not fit the schema of its type. The sentence has nothing
        that somebody else may have written.
        """
        held, schema = writer.type, self._schemas.get(new.type)
        authors: set[Taint] = set()
        if schema is None and held is not None:
            schema = held.schema
            authors.update(held.taints)
        mismatch = None if schema is None else validator_of(schema).mismatch(data)
        if mismatch is None:
            return
        if new.merge and before is not None:
            authors.update(before.object.content.taints)
        if not TRUSTED.issuperset(authors):
            raise ObjectError(
                f"The data does not fit the schema of {new.type}: look at it with object_types.",
                "data",
            )
        member = f"The member {mismatch.place}" if mismatch.place else "The data"
        raise ObjectError(
            f"{member} does not fit the schema of {new.type}: {mismatch.reason}", "data"
        )

    async def undo(self, caller: Caller, name: ObjectName) -> StoredObject:
        """Store the version before the latest one again, as a new version, and return it."""
        space = self._places.space(caller.whose, name.scope, writes=True)

        def op(database: Database) -> tuple[StoredObject, Sequence[str]]:
            writer = Writer(database, space, self._limits, name.type)
            row = writer.get(name.id)
            if row is None:
                raise missing(name)
            if row.former is None:
                raise ObjectError(
                    f"The {name.type} {name.id} has no version before this one.", "id"
                )
            former, taints = row.former, set(row.former.taints)
            if is_shared(space) and former.author.by != caller.author.by:
                taints.add("file")
            content = msgspec.structs.replace(
                former, taints=_in_order(taints), updated=database.now, author=caller.author
            )
            made = writer.store(name.id, content, row)
            return made, self._nodes.audience(database, space, name.type)

        made, audience = await self._storage.write(op)
        self._nodes.stored(space, made, audience)
        return made

    async def delete(self, caller: Caller, name: ObjectName, if_version: int | None = None) -> bool:
        """Delete an object; return whether there was one."""
        space = self._places.space(caller.whose, name.scope, writes=True)

        def op(database: Database) -> Sequence[str] | None:
            writer = Writer(database, space, self._limits, name.type)
            row = writer.get(name.id)
            if row is None:
                return None
            check_version(row, f"{name.type} {name.id}", if_version)
            writer.remove(row)
            return self._nodes.audience(database, space, name.type)

        audience = await self._storage.write(op)
        if audience is None:
            return False
        self._nodes.deleted(space, name.type, name.id, audience)
        return True

    async def delete_all(self, caller: Caller, type_: str, scope: str = PRIVATE) -> int:
        """Delete all objects of a type; return how many there were."""
        space = self._places.space(caller.whose, scope, writes=True)

        def op(database: Database) -> tuple[int, Sequence[str]]:
            number = Writer(database, space, self._limits, type_).remove_all()
            return number, self._nodes.audience(database, space, type_)

        number, audience = await self._storage.write(op)
        if number:
            self._nodes.emptied(space, type_, audience)
        return number

    def forget(self, database: Database, who: Forgotten) -> Callable[[], None]:
        """Delete the objects of a person; return what notifies subscribers."""
        space = Space(who.agent, str(who.person))
        audiences = {
            name: self._nodes.audience(database, space, name)
            for name in rows.forget(database, space)
        }

        def notify() -> None:
            self.reader.forget(space)
            for name, audience in audiences.items():
                self._nodes.emptied(space, name, audience)

        return notify

    async def set_schema(self, caller: Caller, new: NewSchema) -> None:
        """Set the schema of a type, or remove it. Objects that are stored already stay as they
        are.
        """
        space = self._places.space(caller.whose, new.scope, writes=True)
        _check_names(new.type)
        if new.type in self._schemas:
            raise ObjectError(
                f"The schema of {new.type} is in the settings, where an admin can change it.",
                "type",
            )
        schema = None
        if new.schema is not None:
            try:
                check_schema(new.schema)
            except DeclarationError as error:
                raise ObjectError(str(error), "schema") from None
            schema = _encode(new.schema).decode()
        generation = "" if schema is None else system.token_urlsafe(9)
        await self._storage.write(
            lambda database: Writer(database, space, self._limits, new.type, generation).set_schema(
                schema, caller.taints
            )
        )

    # -- reads -------------------------------------------------------------------------------------

    async def get(self, caller: Caller, name: ObjectName) -> Found:
        """Return one object."""
        space = self._places.space(caller.whose, name.scope)
        key = space, name.type, name.id
        row = await self._storage.read(lambda database: rows.get(database, *key))
        if row is None:
            raise missing(name)
        one = row.object
        return Found((sheet_of(one),), 1, "", _in_order(_taints(caller, one, space)))

    async def types(
        self, caller: Caller, scope: str = PRIVATE
    ) -> tuple[list[TypeSheet], tuple[Taint, ...]]:
        """Return the types of which there are objects or schemas, sorted by name, and the possible
        authors of the names and the schemas.
        """
        space = self._places.space(caller.whose, scope)
        found = {each.name: each for each in await self.reader.types(space)}
        taints = {taint for each in found.values() for taint in each.taints}
        if caller.in_room or is_shared(space):
            taints.add("room" if caller.in_room else "file")
        sheets: list[TypeSheet] = []
        for name in sorted({*found, *self._schemas}):
            held, fixed = found.get(name), self._schemas.get(name)
            schema = fixed or (None if held is None else held.schema)
            sheets.append(
                TypeSheet(
                    type=name,
                    number=0 if held is None else held.number,
                    bytes=0 if held is None else held.size,
                    json_schema=None if schema is None else msgspec.Raw(schema.encode()),
                    fixed=fixed is not None,
                )
            )
        return sheets, _in_order(taints or {"person"})

    async def query(self, caller: Caller, query: ObjectQuery) -> Found:
        """Return a page of the objects of a type, or of all types without one, that fit a filter,
        have all words of `text` and all `tags`.
        """
        space = self._places.space(caller.whose, query.scope)
        search = Search(query)
        snapshots = await self.reader.read(space, query.type)
        if sum(len(each.objects) for each in snapshots) <= _FEW:
            chosen, total, cursor = search.run(snapshots)
        else:
            chosen, total, cursor = await system.in_thread(search.run, snapshots)
        taints = {taint for one in chosen for taint in _taints(caller, one, space)}
        return Found([search.shown(one) for one in chosen], total, cursor, _in_order(taints))

    async def export(self, whose: SessionKey, type_: str = "") -> list[ObjectSheet]:
        """Return all objects of a person or a room, or those of a type, in the order of their last
        changes.
        """
        snapshots = await self.reader.read(self._places.space(whose), type_)
        return [sheet_of(one) for each in snapshots for one in each.objects.values()]


def _taints(caller: Caller, one: StoredObject, space: Space) -> set[Taint]:
    """Return the possible authors of an object, for a caller."""
    content = one.content
    found = set[Taint](content.taints)
    if caller.in_room:
        found.add("room")
    elif is_shared(space) and {content.creator.by, content.author.by} != {caller.author.by}:
        found.add("file")
    return found or {"person"}


def _in_order(taints: "set[Taint]") -> tuple[Taint, ...]:
    return tuple([taint for taint in TAINTS if taint in taints])


def _made_id(call: str) -> str:
    """Return an id for a new object, the same for a call that is run again."""
    return _digest(call) or system.token_hex(8)


def _digest(call: str) -> str:
    return sha256(call.encode()).hexdigest()[:16] if call else ""


def _check_names(type_: str, id_: str | None = None) -> None:
    if not re.fullmatch(TYPE_PATTERN, type_):
        raise ObjectError(
            "The name of a type has up to 64 lower-case letters, digits, - and _, and begins with a"
            " letter: task.",
            "type",
        )
    if id_ is not None and not re.fullmatch(_ID, id_):
        raise ObjectError(
            "An id has up to 128 letters, digits and _.:@- and begins with a letter or a digit.",
            "id",
        )


def _check_json(data: dict[str, Any]) -> None:
    """Raise ObjectError if the items of nodes could not have data."""
    try:
        checked_json(_encode(data))
    except ValueError as error:  # UnicodeEncodeError is one, for half of a surrogate pair
        raise ObjectError(f"The data cannot be stored: {error}.", "data") from None

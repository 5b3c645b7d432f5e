"""The tables of objects, and every statement on them.

A row of `object_types` stands for all objects of one owner and type. It counts them and their
changes, so a reader knows from this row alone whether it has read the latest objects. Each writer
locks the rows of the owner first, so the changes of an owner wait for each other. Its `generation`
is random: a type that was deleted and is made again counts from 1, and nobody takes the one for the
other.
"""

from typing import Final, NamedTuple

import msgspec

from component.features.objects.stored import Content, StoredObject
from component.policy.taint import Taint
from component.store.database import Database
from component.store.schema import Table

TABLES: Final = (
    Table(
        name="object_types",
        columns="""
            agent TEXT {C} NOT NULL,
            owner TEXT {C} NOT NULL,
            type TEXT {C} NOT NULL,
            generation TEXT NOT NULL,
            revision BIGINT NOT NULL,
            number BIGINT NOT NULL,
            bytes BIGINT NOT NULL,
            taints TEXT NOT NULL,
            schema TEXT,
            PRIMARY KEY (agent, owner, type)
        """,
    ),
    Table(
        name="objects",
        columns="""
            agent TEXT {C} NOT NULL,
            owner TEXT {C} NOT NULL,
            type TEXT {C} NOT NULL,
            id TEXT {C} NOT NULL,
            version BIGINT NOT NULL,
            revision BIGINT NOT NULL,
            content TEXT NOT NULL,
            former TEXT,
            calls TEXT NOT NULL,
            PRIMARY KEY (agent, owner, type, id)
        """,
        indexes={"objects_revision": "(agent, owner, type, revision)"},
        has_rowid=True,
    ),
)

_HERE: Final = "agent = ? AND owner = ? AND type = ?"


class Space(NamedTuple):
    """Whose objects with which agent: `owner` is the bare JID of a person or a room, the full one
    of an occupant, or `scope:` and the name of a scope.
    """

    agent: str
    owner: str


class ObjectType(NamedTuple):
    """All objects of an owner and a type: how many they are, their size in bytes, the possible
    authors of the name and the schema, and the schema that was set, as JSON. With the same
    `generation` and `revision`, the objects are the same.
    """

    name: str
    generation: str
    revision: int
    number: int
    size: int
    taints: tuple[Taint, ...]
    schema: str | None


class ObjectRow(NamedTuple):
    """An object, with what is needed to change it: its size in bytes, the content of the version
    before, if there is one, and digests of the last calls that have written it.
    """

    object: StoredObject
    size: int
    former: Content | None
    calls: tuple[str, ...]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Content).decode
_read_taints = msgspec.json.Decoder(tuple[Taint, ...]).decode
_TYPE: Final = "type, generation, revision, number, bytes, taints, schema"


def types(database: Database, space: Space, name: str = "") -> list[ObjectType]:
    """Return the types of an owner, or the one with a name, sorted by name."""
    where, values = ("AND type = ?", (*space, name)) if name else ("", tuple(space))
    found = database.execute(
        f"SELECT {_TYPE} FROM object_types WHERE agent = ? AND owner = ? {where} ORDER BY type",  # noqa: S608 - constants
        values,
    )
    return [
        ObjectType(name, generation, revision, number, size, _read_taints(taints), schema)
        for name, generation, revision, number, size, taints, schema in found.fetchall()
    ]


def lock(database: Database, space: Space, type_: str, generation: str) -> list[ObjectType]:
    """Return the types of an owner, which nobody else changes until this transaction ends. If there
    is no such type, it is made with this generation; without a generation, it is not.
    """
    if generation:
        database.execute(
            "INSERT INTO object_types"
            " (agent, owner, type, generation, revision, number, bytes, taints)"
            " VALUES (?, ?, ?, ?, 0, 0, 0, '[]') ON CONFLICT (agent, owner, type) DO NOTHING",
            (*space, type_, generation),
        )
    if database.dialect == "postgresql":
        database.execute(
            "SELECT 1 FROM object_types WHERE agent = ? AND owner = ? ORDER BY type FOR UPDATE",
            space,
        ).fetchall()
    return types(database, space)


def put_type(database: Database, space: Space, made: ObjectType) -> None:
    """Change a type; one that has neither objects nor a schema any more is deleted."""
    key = (*space, made.name)
    if not made.number and made.schema is None:
        database.execute(f"DELETE FROM object_types WHERE {_HERE}", key)  # noqa: S608 - constants
        return
    taints = _encode(made.taints).decode()
    database.execute(
        "UPDATE object_types SET revision = ?, number = ?, bytes = ?, taints = ?, schema = ?"  # noqa: S608 - constants
        f" WHERE {_HERE}",
        (made.revision, made.number, made.size, taints, made.schema, *key),
    )


def get(database: Database, space: Space, type_: str, id_: str) -> ObjectRow | None:
    """Return one object."""
    row = database.execute(
        f"SELECT version, revision, content, former, calls FROM objects WHERE {_HERE} AND id = ?",  # noqa: S608 - constants
        (*space, type_, id_),
    ).fetchone()
    if row is None:
        return None
    version, revision, content, former, calls = row
    return ObjectRow(
        StoredObject(type_, id_, version, revision, _decode(content)),
        len(content.encode()),
        None if former is None else _decode(former),
        tuple(calls.split()),
    )


def put(database: Database, space: Space, row: ObjectRow) -> None:
    """Store a version of an object in the place of the one before."""
    made, former = row.object, row.former
    database.execute(
        "INSERT INTO objects (version, revision, content, former, calls, agent, owner, type, id)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (agent, owner, type, id) DO UPDATE SET"
        " version = excluded.version, revision = excluded.revision, content = excluded.content,"
        " former = excluded.former, calls = excluded.calls",
        (
            made.version,
            made.revision,
            encoded(made.content),
            None if former is None else encoded(former),
            " ".join(row.calls),
            *space,
            made.type,
            made.id,
        ),
    )


def delete(database: Database, space: Space, type_: str, id_: str) -> None:
    """Delete an object."""
    database.execute(f"DELETE FROM objects WHERE {_HERE} AND id = ?", (*space, type_, id_))  # noqa: S608 - constants


def delete_all(database: Database, space: Space, type_: str) -> None:
    """Delete all objects of a type."""
    database.execute(f"DELETE FROM objects WHERE {_HERE}", (*space, type_))  # noqa: S608 - constants


def changed_since(
    database: Database, space: Space, type_: str, revision: int
) -> list[StoredObject]:
    """Return the objects of a type that were changed after a revision, the oldest change first."""
    found = database.execute(
        f"SELECT id, version, revision, content FROM objects WHERE {_HERE} AND revision > ?"  # noqa: S608 - constants
        " ORDER BY revision",
        (*space, type_, revision),
    )
    return [
        StoredObject(type_, id_, version, changed, _decode(content))
        for id_, version, changed, content in found.fetchall()
    ]


def encoded(content: Content) -> str:
    """Return a content as a row stores it."""
    return _encode(content).decode()


def forget(database: Database, space: Space) -> list[str]:
    """Delete all that an owner has with an agent; return the names of the types."""
    names = [each.name for each in types(database, space)]
    for table in ("objects", "object_types"):
        database.execute(f"DELETE FROM {table} WHERE agent = ? AND owner = ?", space)  # noqa: S608 - constants
    return names

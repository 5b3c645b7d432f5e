"""The index of all memories: what the files say, where it is found quickly.

Each file of memories is an owner here, named by its directory. The files are the truth: an owner
whose file is not in the state that was seen last is brought up to date before it is used.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from component.memory.files import Seen
from component.memory.index_database import IndexDatabase
from component.memory.index_words import words
from component.memory.knowledge_lines import Item
from component.memory.vectors import Embedder, pack

if TYPE_CHECKING:
    from sqlite3 import Connection

_TOGETHER: Final = 400  # items in one transaction, so that other writers get their turn
_COLUMNS: Final = (
    "key, body, title, topic, tags, version, versions, created, updated, creator, contributor,"
    " taint"
)
_TEXTS: Final = "rowid, title, key, tags, body, filters"

_encode = msgspec.json.Encoder().encode
_tags = msgspec.json.Decoder(tuple[str, ...]).decode


class Owner(NamedTuple):
    """What the index knows of one file: its number, the state it was seen in, its memories."""

    id: int
    seen: Seen
    items: int


class Index:
    """Keeps and finds memories. Its methods wait for the disk: call them in worker threads.

    One writer at a time for each owner; everything may be read meanwhile. All raise StorageError.
    """

    def __init__(self, path: Path, embedder: Embedder | None = None) -> None:
        """Open the index, made if it is missing; `embedder` makes vectors of the memories."""
        self.database = IndexDatabase(path, "" if embedder is None else embedder.name)
        self.embedder = embedder

    def close(self) -> None:
        """Close it."""
        self.database.close()

    def owners(self, names: Iterable[str]) -> dict[str, Owner]:
        """What is known of these owners; none of the others."""
        with self.database.reading() as connection:
            return owners_of(connection, names)

    def names(self) -> list[str]:
        """All owners there are."""
        with self.database.reading() as connection:
            return [name for (name,) in connection.execute("SELECT name FROM owners")]

    def get(self, name: str, key: str) -> Item | None:
        """One memory of an owner."""
        query = (
            f"SELECT {_COLUMNS} FROM items WHERE key = ?"  # noqa: S608 - names of columns
            " AND owner = (SELECT id FROM owners WHERE name = ?)"
        )
        with self.database.reading() as connection:
            row = connection.execute(query, (key, name)).fetchone()
        return None if row is None else item_of(row)

    def put(self, name: str, item: Item, seen: Seen) -> None:
        """Take in one memory, with the state of its file after it was stored there."""
        vectors = self._vectors([item])
        with self.database.writing() as connection:
            owner = _owner(connection, name)
            gone = _delete(connection, owner, [item.key])
            _insert(connection, owner, [item], vectors)
            _settle(connection, owner, seen, 1 - gone)

    def remove(self, name: str, keys: Sequence[str], seen: Seen) -> None:
        """Let go of memories so that nothing of them is left, with the state of the file then."""
        with self.database.writing() as connection:
            owner = _owner(connection, name)
            _settle(connection, owner, seen, -_delete(connection, owner, keys))
        self.database.expunge()

    def replace(self, name: str, items: Mapping[str, Item], seen: Seen) -> None:
        """Have exactly these memories of an owner; what is the same already is left alone."""
        with self.database.writing() as connection:
            owner = _owner(connection, name)
            had = {item.key: item for _, item in all_of(connection, owner)}
        gone = [key for key in had if key not in items]
        changed = [item for key, item in items.items() if had.get(key) != item]
        for some in _in_parts(gone):
            with self.database.writing() as connection:
                _delete(connection, owner, some)
        for part in _in_parts(changed):
            vectors = self._vectors(part)
            with self.database.writing() as connection:
                _delete(connection, owner, [item.key for item in part if item.key in had])
                _insert(connection, owner, part, vectors)
        with self.database.writing() as connection:
            _settle(connection, owner, seen, 0)
            connection.execute("UPDATE owners SET items = ? WHERE id = ?", (len(items), owner))
        if gone:
            self.database.expunge()

    def erase(self, name: str) -> int:
        """Let go of an owner and all it has; returns how many memories that were."""
        with self.database.writing() as connection:
            found = owners_of(connection, (name,)).get(name)
            keys = [] if found is None else _keys(connection, found.id)
        if found is None:
            return 0
        for some in _in_parts(keys):
            with self.database.writing() as connection:
                _delete(connection, found.id, some)
        with self.database.writing() as connection:
            connection.execute("DELETE FROM owners WHERE id = ?", (found.id,))
        self.database.expunge()
        return len(keys)

    def _vectors(self, items: Sequence[Item]) -> list[bytes]:
        if self.embedder is None:
            return []
        texts = [f"{item.title or item.key}\n{item.topic}\n{item.body}" for item in items]
        return [pack(vector) for vector in self.embedder.passages(texts)]


def owners_of(connection: "Connection", names: Iterable[str]) -> dict[str, Owner]:
    """What is known of these owners."""
    wanted = list(names)
    marks = ",".join("?" * len(wanted))
    columns = "name, id, mtime, ctime, size, inode, items"
    query = f"SELECT {columns} FROM owners WHERE name IN ({marks})"  # noqa: S608 - marks
    found = {
        row[0]: Owner(row[1], Seen(*row[2:6]), row[6]) for row in connection.execute(query, wanted)
    }
    return {name: found[name] for name in wanted if name in found}


def filters_of(topic: str, tags: Iterable[str]) -> list[str]:
    """Words that stand for a topic and for tags; no text of anybody has such words."""
    marks = [f"topic\n{topic.casefold()}"] if topic else []
    marks += [f"tag\n{tag.casefold()}" for tag in tags]
    return ["_" + hashlib.sha256(mark.encode()).hexdigest()[:24] for mark in marks]


def rows_of(connection: "Connection", ids: Sequence[int]) -> dict[int, tuple[int, Item]]:
    """Memories by their numbers, each with its owner's."""
    marks = ",".join("?" * len(ids))
    query = f"SELECT id, owner, {_COLUMNS} FROM items WHERE id IN ({marks})"  # noqa: S608
    return {row[0]: (row[1], item_of(row[2:])) for row in connection.execute(query, ids)}


def all_of(connection: "Connection", owner: int) -> list[tuple[int, Item]]:
    """All memories of an owner with their numbers, the oldest first."""
    query = f"SELECT id, {_COLUMNS} FROM items WHERE owner = ? ORDER BY id"  # noqa: S608
    return [(row[0], item_of(row[1:])) for row in connection.execute(query, (owner,))]


def item_of(row: Sequence[Any]) -> Item:
    """A memory of its row."""
    key, body, title, topic, tags, version, versions, created, updated, creator, by, taint = row
    return Item(
        key=key,
        body=body,
        title=title,
        topic=topic,
        tags=_tags(tags),
        version=version,
        versions=versions,
        created=created,
        updated=updated,
        creator=creator,
        by=by,
        taint=taint,
    )


def _keys(connection: "Connection", owner: int) -> list[str]:
    return [key for (key,) in connection.execute("SELECT key FROM items WHERE owner = ?", (owner,))]


def _owner(connection: "Connection", name: str) -> int:
    # In a state that no file has, until it is settled.
    connection.execute(
        "INSERT INTO owners (name, mtime, ctime, size, inode) VALUES (?, 0, 0, -1, 0)"
        " ON CONFLICT DO UPDATE SET size = -1",
        (name,),
    )
    found: tuple[int] = connection.execute(
        "SELECT id FROM owners WHERE name = ?", (name,)
    ).fetchone()
    return found[0]


def _settle(connection: "Connection", owner: int, seen: Seen, more: int) -> None:
    connection.execute(
        "UPDATE owners SET mtime = ?, ctime = ?, size = ?, inode = ?, items = items + ?"
        " WHERE id = ?",
        (*seen, more, owner),
    )


def _delete(connection: "Connection", owner: int, keys: Iterable[str]) -> int:
    deleted = 0
    for key in keys:
        row = connection.execute(
            f"SELECT id, {_COLUMNS} FROM items WHERE owner = ? AND key = ?",  # noqa: S608
            (owner, key),
        ).fetchone()
        if row is None:
            continue
        # The index of words keeps no texts, so it has to be told what it is to let go of.
        connection.execute(
            f"INSERT INTO texts (texts, {_TEXTS}) VALUES ('delete', ?, ?, ?, ?, ?, ?)",  # noqa: S608
            (row[0], *_texts(owner, item_of(row[1:]))),
        )
        connection.execute("DELETE FROM items WHERE id = ?", row[:1])
        connection.execute("DELETE FROM vectors WHERE item = ?", row[:1])
        deleted += 1
    return deleted


def _insert(
    connection: "Connection", owner: int, items: Sequence[Item], vectors: Sequence[bytes]
) -> None:
    for at, item in enumerate(items):
        cursor = connection.execute(
            f"INSERT INTO items (owner, {_COLUMNS})"  # noqa: S608
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                owner,
                item.key,
                item.body,
                item.title,
                item.topic,
                _encode(item.tags).decode(),
                item.version,
                item.versions,
                item.created,
                item.updated,
                item.creator,
                item.by,
                item.taint,
            ),
        )
        connection.execute(
            f"INSERT INTO texts ({_TEXTS}) VALUES (?, ?, ?, ?, ?, ?)",  # noqa: S608
            (cursor.lastrowid, *_texts(owner, item)),
        )
        if vectors:
            connection.execute(
                "INSERT INTO vectors VALUES (?, ?, ?)", (cursor.lastrowid, owner, vectors[at])
            )


def _texts(owner: int, item: Item) -> list[str]:
    """The columns of the index of words."""
    told = (words(item.title), words(item.key), words(" ".join((*item.tags, item.topic))))
    columns = (*told, words(item.body), filters_of(item.topic, item.tags))
    return [f"{owner}_{f' {owner}_'.join(column)}" if column else "" for column in columns]


def _in_parts(things: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(things), _TOGETHER):
        yield things[start : start + _TOGETHER]

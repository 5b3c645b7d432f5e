"""The index of all memories: the content of the files, for searches.

Each file of memories is an *owner*, named by its directory. The files are authoritative: if the
state of a file differs from the one in the index, it is read again before it is used.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from component.memory.index_database import IndexDatabase
from component.memory.knowledge_lines import Item
from component.memory.words import grams_of
from component.memory_directory.files import FileState

if TYPE_CHECKING:
    from sqlite3 import Connection

    from component.memory.embedding import LocalEmbedder

_BATCH: Final = 400  # items in one transaction, so that other writers get their turn
_FIELDS: Final = Item.__struct_fields__
_COLUMNS: Final = ", ".join("contributor" if name == "by" else name for name in _FIELDS)
# The state of an owner whose memories are in several files.
_NO_FILE: Final = FileState(0, 0, -1, 0)
_FAILURES: Final = 3  # of the model with one memory, until it is skipped
_IMMEDIATE_VECTORS: Final = 16
"""Maximum number of memories whose vectors are made when they are stored, and not later."""

_encode = msgspec.json.Encoder().encode
_tags = msgspec.json.Decoder(tuple[str, ...]).decode


class Owner(NamedTuple):
    """A file in the index: its number, its state when it was read, and the number of memories."""

    id: int
    seen: FileState
    items: int


class IndexedDocument(NamedTuple):
    """A document in the index: the state of its file when it was read, the number of its parts, and
    the error if it could not be read.
    """

    seen: FileState
    parts: int
    error: str


class Index:
    """The memories and their vectors. The methods wait for the disk: call them in worker threads.

    Each owner has one writer at a time; readers do not wait. All methods raise StorageError.

    Args:
        path: the file, which is created if it does not exist.
        embedder: makes vectors of the memories; None for no vectors.
    """

    def __init__(self, path: Path, embedder: "LocalEmbedder | None" = None) -> None:
        self.database = IndexDatabase(path, "" if embedder is None else embedder.name)
        self.embedder = embedder
        self._failures: dict[int, int] = {}

    def close(self) -> None:
        """Close the file."""
        self.database.close()

    def owners(self, names: Iterable[str]) -> dict[str, Owner]:
        """Return those of these owners that are in the index."""
        with self.database.reading() as connection:
            return owners_of(connection, names)

    def names(self) -> list[str]:
        """Return the names of all owners."""
        with self.database.reading() as connection:
            return [name for (name,) in connection.execute("SELECT name FROM owners")]

    def get(self, name: str, key: str) -> Item | None:
        """Return one memory of an owner."""
        query = (
            f"SELECT {_COLUMNS} FROM items WHERE key = ?"  # noqa: S608 - names of columns
            " AND owner = (SELECT id FROM owners WHERE name = ?)"
        )
        with self.database.reading() as connection:
            row = connection.execute(query, (key, name)).fetchone()
        return None if row is None else item_of_row(row)

    def share(self, name: str, by: str) -> tuple[int, int]:
        """Return how many memories of an owner have their last version from this contributor, and
        about how many bytes all their versions have.
        """
        query = (
            "SELECT count(*), coalesce(sum((length(body) + length(title)) * versions), 0)"
            " FROM items WHERE contributor = ? AND owner = (SELECT id FROM owners WHERE name = ?)"
        )
        with self.database.reading() as connection:
            items, size = connection.execute(query, (by, name)).fetchone()
        return int(items), int(size)

    def put(self, name: str, item: Item, seen: FileState) -> None:
        """Store one memory, with the state of its file after it was written."""
        vectors = self._vectors([item])
        with self.database.writing() as connection:
            owner = _owner(connection, name)
            deleted = _delete(connection, owner, [item.key])
            self._insert(connection, owner, [item], vectors)
            _set_state(connection, owner, seen, 1 - deleted)

    def remove(self, name: str, keys: Sequence[str], seen: FileState) -> None:
        """Delete memories without a trace, with the state of their file after it was written."""
        with self.database.writing() as connection:
            owner = _owner(connection, name)
            _set_state(connection, owner, seen, -_delete(connection, owner, keys))
        self.database.expunge()

    def replace(self, name: str, items: Mapping[str, Item], seen: FileState) -> None:
        """Replace all memories of an owner; unchanged ones are not written."""
        with self.database.writing() as connection:
            owner = _owner(connection, name)
            had = {item.key: item for _, item in all_of(connection, owner)}
        deleted = [key for key in had if key not in items]
        changed = [item for key, item in items.items() if had.get(key) != item]
        for some in _batches(deleted):
            with self.database.writing() as connection:
                _delete(connection, owner, some)
        for part in _batches(changed):
            vectors = self._vectors(part) if len(changed) <= _IMMEDIATE_VECTORS else None
            with self.database.writing() as connection:
                _delete(connection, owner, [item.key for item in part if item.key in had])
                self._insert(connection, owner, part, vectors)
        with self.database.writing() as connection:
            _set_state(connection, owner, seen, 0)
            connection.execute("UPDATE owners SET items = ? WHERE id = ?", (len(items), owner))
        if deleted:
            self.database.expunge()

    def erase(self, name: str) -> int:
        """Delete an owner and its memories; return how many there were."""
        with self.database.writing() as connection:
            found = owners_of(connection, (name,)).get(name)
            keys = [] if found is None else _keys(connection, found.id)
        if found is None:
            return 0
        for some in _batches(keys):
            with self.database.writing() as connection:
                _delete(connection, found.id, some)
        with self.database.writing() as connection:
            connection.execute("DELETE FROM owners WHERE id = ?", (found.id,))
        self.database.expunge()
        return len(keys)

    def documents(self, name: str) -> dict[str, IndexedDocument]:
        """Return the documents of an owner, by their names."""
        query = (
            "SELECT name, mtime, ctime, size, inode, parts, error FROM documents WHERE owner = ?"
        )
        with self.database.reading() as connection:
            rows = connection.execute(query, (name,)).fetchall()
        return {row[0]: IndexedDocument(FileState(*row[1:5]), *row[5:]) for row in rows}

    def put_document(
        self, name: str, document: str, seen: FileState, items: Sequence[Item], error: str = ""
    ) -> None:
        """Replace the parts of a document of an owner; `seen` is the state of its file."""
        with self.database.writing() as connection:
            owner = _owner(connection, name)
            deleted = _delete(connection, owner, _parts_of(connection, owner, document))
            self._insert(connection, owner, items, None)
            _set_state(connection, owner, _NO_FILE, len(items) - deleted)
            connection.execute(
                "INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (name, document, *seen, len(items), error),
            )

    def remove_document(self, name: str, document: str) -> None:
        """Delete a document of an owner without a trace."""
        with self.database.writing() as connection:
            owner = _owner(connection, name)
            deleted = _delete(connection, owner, _parts_of(connection, owner, document))
            _set_state(connection, owner, _NO_FILE, -deleted)
            connection.execute(
                "DELETE FROM documents WHERE owner = ? AND name = ?", (name, document)
            )
        self.database.expunge()

    def embed(self, most: int) -> int | None:
        """Make vectors of up to `most` memories that have none yet, and return their number.

        Return None if the model has failed. A memory with which it fails repeatedly, alone, is
        skipped from then on.
        """
        if self.embedder is None:
            return 0
        query = f"SELECT id, owner, {_COLUMNS} FROM items WHERE pending LIMIT ?"  # noqa: S608
        with self.database.reading() as connection:
            found = connection.execute(query, (most,)).fetchall()
        if not found:
            return 0
        vectors = self._vectors([item_of_row(row[2:]) for row in found])
        if vectors is None:
            self._failures[found[0][0]] = self._failures.get(found[0][0], 0) + (len(found) == 1)
            if self._failures[found[0][0]] < _FAILURES:
                return None
        with self.database.writing() as connection:
            for at, (number, owner, *_) in enumerate(found):
                # Nothing changes if the memory was deleted in the meantime.
                if (
                    connection.execute(
                        "UPDATE items SET pending = 0 WHERE id = ? AND pending", (number,)
                    ).rowcount
                    and vectors is not None
                ):
                    _add_vector(connection, number, owner, vectors[at])
        return None if vectors is None else len(found)

    def _vectors(self, items: Sequence[Item]) -> Sequence[bytes] | None:
        if self.embedder is None:
            return None
        return self.embedder.passages(
            [f"{item.title or item.key.replace('_', ' ')}\n{item.body}" for item in items]
        )

    def _insert(
        self,
        connection: "Connection",
        owner: int,
        items: Sequence[Item],
        vectors: Sequence[bytes] | None,
    ) -> None:
        pending = self.embedder is not None and vectors is None
        for at, item in enumerate(items):
            values = msgspec.structs.asdict(item) | {"tags": _encode(item.tags).decode()}
            cursor = connection.execute(
                f"INSERT INTO items (owner, pending, {_COLUMNS})"  # noqa: S608
                f" VALUES (?, ?, {placeholders(_FIELDS)})",
                (owner, pending, *values.values()),
            )
            number = cursor.lastrowid
            assert number is not None
            connection.execute(
                "INSERT INTO texts (rowid, grams, filters) VALUES (?, ?, ?)",
                (number, *_texts(owner, item)),
            )
            if vectors is not None:
                _add_vector(connection, number, owner, vectors[at])


def owners_of(connection: "Connection", names: Iterable[str]) -> dict[str, Owner]:
    """Return those of these owners that are in the index."""
    wanted = list(names)
    columns = "name, id, mtime, ctime, size, inode, items"
    query = f"SELECT {columns} FROM owners WHERE name IN ({placeholders(wanted)})"  # noqa: S608
    found = {
        row[0]: Owner(row[1], FileState(*row[2:6]), row[6])
        for row in connection.execute(query, wanted)
    }
    return {name: found[name] for name in wanted if name in found}


def filters_of(topic: str, tags: Iterable[str]) -> list[str]:
    """Return words that represent a topic and tags; no text contains such words."""
    marks = [f"topic\n{topic.casefold()}"] if topic else []
    marks += [f"tag\n{tag.casefold()}" for tag in tags]
    return ["_" + hashlib.sha256(mark.encode()).hexdigest()[:24] for mark in marks]


def items_by_number(connection: "Connection", ids: Sequence[int]) -> dict[int, tuple[int, Item]]:
    """Return memories by their numbers, each with the number of its owner."""
    query = f"SELECT id, owner, {_COLUMNS} FROM items WHERE id IN ({placeholders(ids)})"  # noqa: S608
    return {row[0]: (row[1], item_of_row(row[2:])) for row in connection.execute(query, ids)}


def items_of(
    connection: "Connection", owners: Mapping[str, Owner], keys: Collection[str]
) -> dict[tuple[str, str], Item]:
    """Return the memories of these owners with these keys, by the name of the owner and the key."""
    names = {owner.id: name for name, owner in owners.items()}
    query = (
        f"SELECT owner, {_COLUMNS} FROM items WHERE owner IN ({placeholders(names)})"  # noqa: S608
        f" AND key IN ({placeholders(keys)})"
    )
    rows = connection.execute(query, (*names, *keys))
    return {(names[row[0]], row[1]): item_of_row(row[1:]) for row in rows}


def all_of(connection: "Connection", owner: int) -> list[tuple[int, Item]]:
    """Return all memories of an owner with their numbers, the oldest first."""
    query = f"SELECT id, {_COLUMNS} FROM items WHERE owner = ? ORDER BY id"  # noqa: S608
    return [(row[0], item_of_row(row[1:])) for row in connection.execute(query, (owner,))]


def item_of_row(row: Sequence[Any]) -> Item:
    """Return the memory in a row with `_COLUMNS`."""
    values = dict(zip(_FIELDS, row, strict=True))
    values["tags"] = _tags(values["tags"])
    return Item(**values)


def placeholders(values: Collection[object]) -> str:
    """Return the question marks of a list of values in SQL."""
    return ",".join("?" * len(values))


def _parts_of(connection: "Connection", owner: int, document: str) -> list[str]:
    return [key for key in _keys(connection, owner) if key.rpartition("#")[0] == document]


def _keys(connection: "Connection", owner: int) -> list[str]:
    return [key for (key,) in connection.execute("SELECT key FROM items WHERE owner = ?", (owner,))]


def _owner(connection: "Connection", name: str) -> int:
    # In a state that no file has, until `_set_state`.
    connection.execute(
        "INSERT INTO owners (name, mtime, ctime, size, inode) VALUES (?, 0, 0, -1, 0)"
        " ON CONFLICT DO UPDATE SET size = -1",
        (name,),
    )
    found: tuple[int] = connection.execute(
        "SELECT id FROM owners WHERE name = ?", (name,)
    ).fetchone()
    return found[0]


def _set_state(connection: "Connection", owner: int, seen: FileState, more: int) -> None:
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
        # The full-text index stores no texts, so it needs them to delete their words.
        connection.execute(
            "INSERT INTO texts (texts, rowid, grams, filters) VALUES ('delete', ?, ?, ?)",
            (row[0], *_texts(owner, item_of_row(row[1:]))),
        )
        connection.execute("DELETE FROM items WHERE id = ?", row[:1])
        connection.execute("DELETE FROM vectors WHERE item = ?", row[:1])
        deleted += 1
    return deleted


def _add_vector(connection: "Connection", item: int, owner: int, vector: bytes) -> None:
    connection.execute(
        "INSERT INTO vectors (item, owner, vector) VALUES (?, ?, ?)", (item, owner, vector)
    )


def _texts(owner: int, item: Item) -> tuple[str, str]:
    grams = grams_of((item.title, item.key, " ".join((*item.tags, item.topic)), item.body))
    return _with_owner(owner, grams), _with_owner(owner, filters_of(item.topic, item.tags))


def _with_owner(owner: int, terms: Sequence[str]) -> str:
    return f"{owner}_" + f" {owner}_".join(terms) if terms else ""


def _batches(things: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(things), _BATCH):
        yield things[start : start + _BATCH]

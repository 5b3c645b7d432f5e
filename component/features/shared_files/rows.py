"""The files that are served, and for whom they were made."""

from collections.abc import Collection
from typing import Final

import msgspec

from component.store.database import Database
from component.store.forgetting import Forgotten
from component.store.schema import Table

TABLES: Final = (
    Table(
        name="shared_files",
        columns="""
            id TEXT {C} NOT NULL PRIMARY KEY,
            agent TEXT {C} NOT NULL,
            person TEXT {C} NOT NULL,
            name TEXT NOT NULL,
            media_type TEXT NOT NULL,
            size BIGINT NOT NULL,
            sha256 TEXT NOT NULL,
            expires BIGINT NOT NULL
        """,
        indexes={
            "shared_files_person": "(person, agent)",
            "shared_files_expires": "(expires)",
        },
    ),
)

_COLUMNS: Final = "id, agent, person, name, media_type, size, sha256, expires"
_MOST_DELETED: Final = 1_000


class SharedFile(msgspec.Struct, frozen=True):
    """A file. `id` is the secret part of its address; it is served until `expires`, in
    milliseconds on the steady clock.
    """

    id: str
    agent: str
    person: str
    name: str
    media_type: str
    size: int
    sha256: str
    expires: int


def insert(database: Database, file: SharedFile, quota_bytes: int) -> bool:
    """Insert a file; False if the files of its person would be larger than the quota together."""
    (used,) = database.execute(
        "SELECT coalesce(sum(size), 0) FROM shared_files WHERE person = ? AND expires > ?",
        (file.person, database.steady),
    ).fetchone() or (0,)
    if int(used) + file.size > quota_bytes:
        return False
    database.execute(
        f"INSERT INTO shared_files ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - constants
        msgspec.structs.astuple(file),
    )
    return True


def is_unfinished(database: Database) -> bool:
    """Return whether there are files to delete when they expire."""
    return database.execute("SELECT 1 FROM shared_files LIMIT 1").fetchone() is not None


def find(database: Database, id_: str) -> tuple[SharedFile, int] | None:
    """Return a file that has not expired, and how many seconds are left."""
    row = database.execute(
        f"SELECT {_COLUMNS} FROM shared_files WHERE id = ? AND expires > ?",  # noqa: S608 - constants
        (id_, database.steady),
    ).fetchone()
    if row is None:
        return None
    file = SharedFile(*row)
    return file, (file.expires - database.steady) // 1000


def delete_expired(database: Database) -> None:
    """Delete files that have expired."""
    database.execute(
        "DELETE FROM shared_files WHERE id IN"
        " (SELECT id FROM shared_files WHERE expires <= ? LIMIT ?)",
        (database.steady, _MOST_DELETED),
    )


def known(database: Database, ids: Collection[str]) -> set[str]:
    """Return which of these ids are those of files."""
    marks = ", ".join("?" * len(ids))
    found = database.execute(f"SELECT id FROM shared_files WHERE id IN ({marks})", tuple(ids))  # noqa: S608 - marks
    return {str(row[0]) for row in found.fetchall()}


def forget(database: Database, who: Forgotten) -> list[str]:
    """Delete the files of a person by an agent, and return their ids."""
    key = (str(who.person.bare), who.agent)
    found = database.execute("SELECT id FROM shared_files WHERE person = ? AND agent = ?", key)
    ids = [str(row[0]) for row in found.fetchall()]
    database.execute("DELETE FROM shared_files WHERE person = ? AND agent = ?", key)
    return ids

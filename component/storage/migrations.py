"""The shape of the database, as the steps that lead to it.

A step that has been released is never changed; a new shape is a new step at the end.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from component.storage.errors import StorageError

if TYPE_CHECKING:
    from sqlite3 import Connection

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    # 1: presence subscriptions (RFC 6121 §3)
    (
        """
        CREATE TABLE subscriptions (
            owner TEXT NOT NULL,
            contact TEXT NOT NULL,
            state TEXT NOT NULL CHECK (state IN ('none', 'from', 'to', 'both')),
            ask INTEGER NOT NULL CHECK (ask IN (0, 1)),
            PRIMARY KEY (owner, contact)
        ) WITHOUT ROWID
        """,
    ),
)


@contextmanager
def transaction(connection: "Connection", mode: str) -> Iterator[None]:
    """Commit what happens inside, or nothing of it. `mode` is IMMEDIATE, or DEFERRED to read."""
    connection.execute(f"BEGIN {mode}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite ends the transaction by itself after some errors, a full disk among them.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def migrate(
    connection: "Connection", path: Path, migrations: Sequence[Sequence[str]] = MIGRATIONS
) -> None:
    """Bring the database to the shape of this release, one transaction for each step.

    Its version is the number of steps it has taken, kept in SQLite's `user_version`. Raises
    StorageError, and changes nothing, if the database has taken more steps than are known here.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(migrations):
        raise StorageError(
            f"The database {path} was written by a newer release: it is of version {version}, and"
            f" this release knows versions up to {len(migrations)}. Install the newer release, or"
            " put back a backup from before the upgrade."
        )
    for number, statements in enumerate(migrations[version:], start=version + 1):
        with transaction(connection, "IMMEDIATE"):
            for statement in statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")

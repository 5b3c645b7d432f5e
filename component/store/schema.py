"""The schema of the database: all tables, made in one transaction when the database is new.

Each package and feature declares its tables in `TABLES` beside their statements. One text serves
both databases: `{C}` is `COLLATE "C"` on PostgreSQL, and nothing on SQLite.

There are no migrations before the first release.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from component import system
from component.store.database import Dialect
from component.store.errors import StorageError

if TYPE_CHECKING:
    from sqlite3 import Connection

    import psycopg

VERSION: Final = 100
"""The version of the schema. Versions below it were never released."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table with its indexes and triggers.

    Attributes:
        indexes: from the name of an index to its columns and, if it is partial, its condition.
        has_rowid: whether SQLite stores rows by number instead of by primary key; for wide rows.
        sqlite: statements that run after all tables are made, on SQLite, such as triggers.
        only: the database that has it; None for both.
        kept: why `/forget` leaves its rows unchanged; empty if it deletes those of the person, or
            empties them if their keys are still needed.
    """

    name: str
    columns: str
    indexes: Mapping[str, str] = {}
    has_rowid: bool = False
    sqlite: Sequence[str] = ()
    postgres: Sequence[str] = ()
    only: Dialect | None = None
    kept: str = ""

    def statement(self, dialect: Dialect) -> str:
        """Return the statement that makes it."""
        options = "" if self.has_rowid or dialect == "postgresql" else " WITHOUT ROWID"
        return f"CREATE TABLE {self.name} ({_collated(self.columns, dialect)}){options}"


class Schema:
    """The tables of the service.

    Args:
        tables: the tables; one that others refer to comes before them.
    """

    def __init__(self, tables: Sequence[Table]) -> None:
        self.tables: Final = tuple(tables)

    def statements(self, dialect: Dialect) -> Iterator[str]:
        """Yield the statements that make all tables of an empty database."""
        tables = [table for table in self.tables if table.only in (None, dialect)]
        for table in tables:
            yield table.statement(dialect)
            for name, on in table.indexes.items():
                yield f"CREATE INDEX {name} ON {table.name} {on}"
        for table in tables:
            yield from table.sqlite if dialect == "sqlite" else table.postgres


def _collated(columns: str, dialect: Dialect) -> str:
    return columns.replace("{C}", 'COLLATE "C"' if dialect == "postgresql" else "")


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


def make_sqlite(connection: "Connection", path: Path, schema: Schema) -> None:
    """Make the tables of a new database. Its version is SQLite's `user_version`.

    Raises StorageError, and changes nothing, if the database has another version.
    """
    with transaction(connection, "IMMEDIATE"):
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version:
            _check(f"The database {path}", version)
            return
        for statement in schema.statements("sqlite"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")


# Any number will do, as long as every release uses it.
_LOCK: Final = 0x786D7070  # "xmpp"
_TIMEOUT_S: Final = 60.0
_PAUSE_S: Final = 0.2
_OLDEST_SERVER: Final = 130_000
"""The first version that has ids of transactions which never come again (xid8)."""


def make_postgres(connection: "psycopg.Connection", name: str, schema: Schema) -> None:
    """Make the tables of a new database, all in one transaction.

    `name` begins the sentence of an error. Another instance that does the same at this time is
    waited for. The table `versions` has one row with the version.

    Raises StorageError, and changes nothing, if the database has another version.
    """
    from psycopg.errors import LockNotAvailable  # noqa: PLC0415

    if connection.info.server_version < _OLDEST_SERVER:
        raise StorageError(
            f"{name} is on PostgreSQL {connection.info.server_version // 10_000}, which is too old:"
            f" the agent needs {_OLDEST_SERVER // 10_000} or later."
        )
    give_up = system.monotonic() + _TIMEOUT_S
    while True:
        try:
            with connection.transaction():
                _make_postgres(connection, name, schema)
        except LockNotAvailable:
            if system.monotonic() > give_up:
                raise
            time.sleep(_PAUSE_S)
        else:
            return


def _make_postgres(connection: "psycopg.Connection", name: str, schema: Schema) -> None:
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    connection.execute("CREATE TABLE IF NOT EXISTS versions (version INTEGER NOT NULL)")
    found = connection.execute("SELECT version FROM versions").fetchone()
    if found is not None:
        _check(name, found[0])
        return
    for statement in schema.statements("postgresql"):
        connection.execute(statement)
    connection.execute("INSERT INTO versions VALUES (%s)", (VERSION,))


def _check(name: str, version: int) -> None:
    if version == VERSION:
        return
    if version < VERSION:
        raise StorageError(
            f"{name} was made before the first release, and cannot be used. Move it away: a new one"
            " is made, and memories are read from the files again."
        )
    raise StorageError(
        f"{name} was written by a newer release: it is of version {version}, and this release"
        f" knows version {VERSION}. Install the newer release, or put back a backup from before"
        " the upgrade."
    )

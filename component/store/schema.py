"""The schema of the database: all tables, made in one transaction when the database is new.

Each package and feature declares its tables in `TABLES` beside their statements. One text serves
both databases: `{C}` is `COLLATE "C"` on PostgreSQL, and nothing on SQLite.

A release that changes a table also adds a `Migration`, which makes the same change in a database
that exists (`component.store.upgrade`).
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from component import system
from component.store.database import Dialect
from component.store.errors import OutdatedError, StorageError

if TYPE_CHECKING:
    from sqlite3 import Connection

    import psycopg

FIRST: Final = 101
"""The version of the schema of the first release; each migration leads to the next version."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table with its indexes and triggers.

    Attributes:
        indexes: from the name of an index to its columns and, if it is partial, its condition.
        has_rowid: whether SQLite stores rows by number instead of by primary key; for wide rows.
        sqlite: statements that run after all tables are made, on SQLite, such as triggers.
        only: the database that has it; None for both.
        kept: why `/forget` leaves its rows unchanged; empty if it deletes those of the person, or
            empties them if their keys are still needed.
        is_work: whether its rows are work of people or decisions of admins, which are lost when a
            backup is put back; other rows are about processes, or are computed from others.
    """

    name: str
    columns: str
    indexes: Mapping[str, str] = {}
    has_rowid: bool = False
    sqlite: Sequence[str] = ()
    postgres: Sequence[str] = ()
    only: Dialect | None = None
    kept: str = ""
    is_work: bool = True

    def statement(self, dialect: Dialect) -> str:
        """Return the statement that makes it."""
        options = "" if self.has_rowid or dialect == "postgresql" else " WITHOUT ROWID"
        return f"CREATE TABLE {self.name} ({_collated(self.columns, dialect)}){options}"


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """Changes a database from one version of the schema to the next, in one transaction.

    It depends on nothing but the database, and not on the tables of this release, which later
    releases change: its statements stay as they are. It is rehearsed, so it runs twice: it reads
    no clock and draws nothing.

    Attributes:
        about: what it changes, for the log, such as `adds the priority of tasks`.
        statements: for both databases, with `{C}` as in `Table`.
        sqlite: statements that run after them on SQLite; likewise `postgres`. Foreign keys are
            off meanwhile on SQLite, so that a table can be replaced, and checked afterwards.
    """

    about: str
    statements: Sequence[str] = ()
    sqlite: Sequence[str] = ()
    postgres: Sequence[str] = ()

    def statements_for(self, dialect: Dialect) -> Iterator[str]:
        """Yield its statements for a database."""
        for each in self.statements:
            yield _collated(each, dialect)
        yield from self.sqlite if dialect == "sqlite" else self.postgres


_VERSIONS: Final = Table(
    name="versions",
    columns="version INTEGER NOT NULL, statements TEXT NOT NULL",
    only="postgresql",
    kept="it is about the database",
    is_work=False,
)
"""One row: the version of the schema, and the statements that make its tables, as JSON. A newer
release makes a copy of the database with them."""


class Schema:
    """The tables of the service.

    Args:
        tables: the tables; one that others refer to comes before them.
        migrations: the first one begins with the schema of the first release.

    Attributes:
        version: the version that a database of this release has.
    """

    def __init__(self, tables: Sequence[Table], migrations: Sequence[Migration] = ()) -> None:
        self.tables: Final = (_VERSIONS, *tables)
        self.migrations: Final = tuple(migrations)
        self.version: Final = FIRST + len(migrations)

    def migrations_from(self, version: int) -> Sequence[Migration]:
        """Return the migrations of a database of this version, in order."""
        return self.migrations[version - FIRST :]

    def tables_of(self, dialect: Dialect) -> Sequence[Table]:
        """Return the tables that a database has."""
        return [table for table in self.tables if table.only in (None, dialect)]

    def statements(self, dialect: Dialect) -> Iterator[str]:
        """Yield the statements that make all tables of an empty database."""
        tables = self.tables_of(dialect)
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

    Raises StorageError, and changes nothing, if the database has another version: OutdatedError if
    an upgrade can change that.
    """
    with transaction(connection, "IMMEDIATE"):
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version:
            check_version(f"The database {path}", version, schema)
            return
        for statement in schema.statements("sqlite"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {schema.version}")


# Any number will do, as long as every release uses it.
_LOCK: Final = 0x786D7070  # "xmpp"
IN_USE: Final = _LOCK + 1
"""Each instance shares this lock while its first connection lasts."""
_TIMEOUT_S: Final = 60.0
_PAUSE_S: Final = 0.2
_OLDEST_SERVER: Final = 130_000
"""The first version that has ids of transactions which never come again (xid8)."""


def make_postgres(connection: "psycopg.Connection", name: str, schema: Schema) -> None:
    """Make the tables of a new database, all in one transaction.

    `name` begins the sentence of an error. Another instance that does the same at this time is
    waited for.

    Raises StorageError, and changes nothing, if the database has another version: OutdatedError if
    an upgrade can change that.
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
    lock_postgres(connection)
    if (version := postgres_version(connection)) is not None:
        check_version(name, version, schema)
    else:
        for statement in schema.statements("postgresql"):
            connection.execute(statement)
        connection.execute("INSERT INTO versions VALUES (%s, %s)", version_row(schema))
    connection.execute("SELECT pg_advisory_lock_shared(%s)", (IN_USE,))


def lock_postgres(connection: "psycopg.Connection") -> None:
    """Let no other instance make or change tables until the transaction ends."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))


def postgres_version(connection: "psycopg.Connection") -> int | None:
    """Return the version of the database; None if it is new."""
    if connection.execute("SELECT to_regclass('versions')").fetchone() == (None,):
        return None
    row = connection.execute("SELECT version FROM versions").fetchone()
    return None if row is None else int(row[0])


def version_row(schema: Schema) -> tuple[int, str]:
    """Return the row of the table `versions` for this schema."""
    statements = tuple(schema.statements("postgresql"))
    return schema.version, msgspec.json.encode(statements).decode()


def check_version(name: str, version: int, schema: Schema) -> None:
    """Raise StorageError unless the database has the version of this schema.

    `name` begins the sentence.
    """
    if version == schema.version:
        return
    if version < FIRST:
        raise StorageError(
            f"{name} was made before the first release, and cannot be used. Move it away: a new one"
            " is made, and memories are read from the files again."
        )
    if version < schema.version:
        raise OutdatedError(
            f"{name} was written by an older release: it is of version {version}, and this release"
            f" uses version {schema.version}. Start the service, which upgrades it, or run"
            " `xmpp-agent upgrade`."
        )
    raise StorageError(
        f"{name} was written by a newer release: it is of version {version}, and this release"
        f" knows version {schema.version}. Install the newer release, or undo the upgrade with"
        " `xmpp-agent rollback`."
    )

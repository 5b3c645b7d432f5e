"""Upgrades of the database, and undoing the last one.

An upgrade changes the database of an older release to the schema of this one, by the migrations
between the two. It

1. rehearses them on a copy, whose tables must then be those of a new database;
2. keeps a backup: `before-upgrade/` in the data directory, or on PostgreSQL a second schema of the
   same database;
3. runs them in one transaction, so that an interrupted upgrade changes nothing.

Undoing it puts the backup back. What the service has accepted since the upgrade would be lost, so
that is refused unless the operator demands it, and then the newer database is kept aside. To know
about it, the upgrade records a digest of each table (`Table.is_work`).

The functions of this module are those of the command line; a service that starts upgrades its
database itself (`component.store.Storage.open`).
"""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from component import VERSION
from component.store.clock import wall_clock
from component.store.directory import locked
from component.store.errors import OutdatedError, StorageError, explained
from component.store.schema import Schema, make_postgres, make_sqlite

if TYPE_CHECKING:
    import psycopg

_log = structlog.get_logger("component.store")


class Upgrade(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about an upgrade, stored with its backup.

    Attributes:
        before: the version of the backup; `after` is that of the upgraded database.
        release: the release that made the upgrade.
        at: milliseconds since 1970, UTC.
        backup: where the backup is, for people.
        tables: the names of all tables of the upgraded database.
        contents: for each table with work, the number of its rows and a digest of them, right after
            the upgrade.
    """

    before: int
    after: int
    release: str = VERSION
    at: int = msgspec.field(default_factory=wall_clock)
    backup: str
    tables: tuple[str, ...]
    contents: Mapping[str, str]

    def logged(self, name: str) -> "Upgrade":
        """Log that this has happened to a database; return it."""
        _log.info(
            "upgraded the database",
            database=name,
            before=self.before,
            after=self.after,
            backup=self.backup,
        )
        return self

    def check_undoable(self, name: str, version: int) -> None:
        """Raise StorageError if a database of this version is not the upgraded one."""
        if version != self.after:
            raise StorageError(
                f"{name} is of version {version}, and the backup is from before an upgrade to"
                f" version {self.after}: there is no upgrade to undo."
            )

    def newer_work(self, contents: Mapping[str, str]) -> str:
        """Return which tables have changed since the upgrade; empty if none has."""
        return ", ".join(
            f"{name} ({_difference(then, contents[name])})"
            for name, then in self.contents.items()
            if contents[name] != then
        )

    def refused(self, name: str, changed: str) -> StorageError:
        """Return the error of an undo that would lose what has changed."""
        time = datetime.fromtimestamp(self.at / 1000, UTC).isoformat(" ", "seconds")
        return StorageError(
            f"Since its upgrade at {time}, {name} has accepted work that the backup lacks, in the"
            f" tables {changed}. To lose it, add --discard-newer; the newer data is kept aside."
        )


NO_UPGRADE: Final = "There is no upgrade to undo: no backup was made before one."


def failed(name: str, schema: Schema, reason: object) -> StorageError:
    """Return the error of a rehearsal that has failed."""
    text = " ".join(str(reason).split()).rstrip(".")
    return StorageError(
        f"{name} cannot be upgraded to version {schema.version}: {text}. Nothing was changed."
        " Continue with the release that you had, and report this."
    )


def check_structure(name: str, schema: Schema, found: set[str], expected: set[str]) -> None:
    """Raise StorageError if migrated tables differ from those of a new database."""
    if found != expected:
        surplus, missing = sorted(found - expected), sorted(expected - found)
        raise failed(name, schema, f"the tables would have {surplus} instead of {missing}")


def upgrade(schema: Schema, directory: Path, postgres: str) -> Upgrade | None:
    """Upgrade the database; return None if there is nothing to do.

    Arguments are those of `Storage.open`. Blocks. Raises StorageError: a service uses the database,
    the rehearsal has failed, or there is no database.
    """
    with locked(directory):
        if postgres:
            from component.store import postgres_upgrade  # noqa: PLC0415

            with _connected(postgres) as (connection, name):
                try:
                    make_postgres(connection, name, schema)
                except OutdatedError:
                    return postgres_upgrade.upgrade(connection, name, schema)
                return None
        from component.store import sqlite_upgrade  # noqa: PLC0415
        from component.store.sqlite import connect  # noqa: PLC0415

        path = _existing(directory)
        with explained(path), closing(connect(path)) as database:
            try:
                make_sqlite(database, path, schema)
            except OutdatedError:
                return sqlite_upgrade.upgrade(database, path, schema)
            return None


def rehearse(schema: Schema, directory: Path, postgres: str) -> int | None:
    """Run the migrations on a copy only; a service may run meanwhile.

    Returns the version of the database, or None if there is nothing to do. Arguments are those of
    `Storage.open`. Blocks. Raises StorageError.
    """
    if postgres:
        from component.store import postgres_upgrade  # noqa: PLC0415

        with _connected(postgres) as (connection, name):
            return postgres_upgrade.rehearse(connection, name, schema)
    from component.store import sqlite_upgrade  # noqa: PLC0415

    path = _existing(directory)
    with explained(path):
        return sqlite_upgrade.rehearse(path, schema)


def roll_back(directory: Path, postgres: str, *, discard_newer: bool = False) -> Upgrade:
    """Put the backup of the last upgrade back; the release of before or after it may do that.

    Arguments are those of `Storage.open`. Blocks. Raises StorageError: there is no upgrade to undo,
    a service uses the database, or it has accepted work since and `discard_newer` is not set.
    """
    with locked(directory):
        if postgres:
            from component.store import postgres_upgrade  # noqa: PLC0415

            with _connected(postgres) as (connection, name):
                return postgres_upgrade.roll_back(connection, name, discard_newer=discard_newer)
        from component.store import sqlite_upgrade  # noqa: PLC0415

        path = _existing(directory)
        with explained(path):
            return sqlite_upgrade.roll_back(path, discard_newer=discard_newer)


def _existing(directory: Path) -> Path:
    path = directory / "agent.db"
    if not path.exists():
        raise StorageError(f"There is no database in {directory}: no service has run there yet.")
    return path


@contextmanager
def _connected(conninfo: str) -> "Iterator[tuple[psycopg.Connection, str]]":
    from component.store.server import PostgresServer  # noqa: PLC0415

    server = PostgresServer.of(conninfo)
    with closing(server.connect()) as connection, server.explained():
        yield connection, str(server)


def _difference(then: str, now: str) -> str:
    more = int(now.partition(" ")[0]) - int(then.partition(" ")[0])
    return f"{more} more rows" if more > 0 else f"{-more} fewer rows" if more < 0 else "changed"

"""Upgrades of an SQLite database: the backup is a file in the directory `before-upgrade`."""

import os
import shutil
from collections.abc import Mapping
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from component.private import make_directory, open_private
from component.store.errors import StorageError
from component.store.schema import Schema, check_version, transaction
from component.store.sqlite import connect
from component.store.upgrade import NO_UPGRADE, Upgrade, check_structure, failed

if TYPE_CHECKING:
    from sqlite3 import Connection

_BACKUP: Final = "before-upgrade"
_DISCARDED: Final = "discarded"
_REHEARSAL: Final = "rehearsal"
_STATE: Final = "upgrade.json"


def upgrade(connection: "Connection", path: Path, schema: Schema) -> Upgrade:
    """Upgrade the database, after a rehearsal and a backup. Raises StorageError."""
    version = _version_of(connection)
    new = _empty_directory(path.with_name(f"{_BACKUP}.new"))
    backup = path.with_name(_BACKUP)
    _copy(connection, new / path.name)
    made = Upgrade(
        before=version,
        after=schema.version,
        backup=str(backup),
        tables=tuple(table.name for table in schema.tables_of("sqlite")),
        contents=_rehearsed(new / path.name, path, schema),
    )
    with open_private(new / _STATE, "wb") as file:
        file.write(msgspec.json.encode(made))
        file.flush()
        os.fsync(file.fileno())
    shutil.rmtree(backup, ignore_errors=True)
    new.rename(backup)
    _sync(path.parent)
    _migrate(connection, schema)
    return made.logged(f"The database {path}")


def rehearse(path: Path, schema: Schema) -> int | None:
    """Run the migrations on a copy; return the version of the database, None if it is current.

    Raises StorageError.
    """
    copy = _empty_directory(path.with_name(_REHEARSAL)) / path.name
    try:
        with closing(connect(path)) as connection:
            _copy(connection, copy)
        with closing(connect(copy)) as connection:
            version = _version_of(connection)
        if version >= schema.version:
            check_version(f"The database {path}", version, schema)
            return None
        _rehearsed(copy, path, schema)
        return version
    finally:
        shutil.rmtree(copy.parent)


def roll_back(path: Path, *, discard_newer: bool) -> Upgrade:
    """Put the backup back. Raises StorageError."""
    import sqlite3  # noqa: PLC0415

    directory = path.with_name(_BACKUP)
    try:
        undone = msgspec.json.decode((directory / _STATE).read_bytes(), type=Upgrade)
    except FileNotFoundError:
        raise StorageError(NO_UPGRADE) from None
    name = f"The database {path}"
    with closing(connect(path)) as live, closing(sqlite3.connect(directory / path.name)) as backup:
        undone.check_undoable(name, _version_of(live))
        if _version_of(backup) != undone.before or not _is_sound(backup):
            raise StorageError(f"The backup {directory / path.name} is damaged.")
        if changed := undone.newer_work(_contents(live, undone.contents)):
            if not discard_newer:
                raise undone.refused(name, changed)
            _copy(live, _empty_directory(path.with_name(_DISCARDED)) / path.name)
        backup.backup(live)  # in one transaction
    shutil.rmtree(directory)
    return undone


def _version_of(connection: "Connection") -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _is_sound(connection: "Connection") -> bool:
    return connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]


def _empty_directory(path: Path) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    make_directory(path)
    return path


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _copy(connection: "Connection", path: Path) -> None:
    import sqlite3  # noqa: PLC0415

    open_private(path, "x").close()
    with closing(sqlite3.connect(path)) as target:
        connection.backup(target)


def _rehearsed(copy: Path, path: Path, schema: Schema) -> Mapping[str, str]:
    """Run the migrations on a copy of a copy, and remove it; return the contents of its tables."""
    import sqlite3  # noqa: PLC0415

    name = f"The database {path}"
    file = copy.with_name("rehearsal.db")
    shutil.copyfile(copy, file)
    try:
        with closing(connect(file)) as connection:
            if not _is_sound(connection):
                raise failed(name, schema, "it is damaged, as SQLite's quick_check says")
            try:
                _migrate(connection, schema)
            except (sqlite3.OperationalError, sqlite3.IntegrityError) as error:
                if error.sqlite_errorcode & 0xFF not in (
                    sqlite3.SQLITE_ERROR,
                    sqlite3.SQLITE_CONSTRAINT,
                ):
                    raise
                raise failed(name, schema, error) from error
            with closing(sqlite3.connect(":memory:")) as expected:
                for statement in schema.statements("sqlite"):
                    expected.execute(statement)
                check_structure(name, schema, _structure(connection), _structure(expected))
            tables = {table.name: "" for table in schema.tables_of("sqlite") if table.is_work}
            return _contents(connection, tables)
    finally:
        for each in copy.parent.glob(f"{file.name}*"):
            each.unlink()


def _migrate(connection: "Connection", schema: Schema) -> None:
    import sqlite3  # noqa: PLC0415

    connection.execute("PRAGMA foreign_keys = OFF")
    try:
        with transaction(connection, "IMMEDIATE"):
            for migration in schema.migrations_from(_version_of(connection)):
                for statement in migration.statements_for("sqlite"):
                    connection.execute(statement)
            if connection.execute("PRAGMA foreign_key_check").fetchone() is not None:
                error = sqlite3.IntegrityError("a row refers to one that does not exist")
                error.sqlite_errorcode = sqlite3.SQLITE_CONSTRAINT
                raise error
            connection.execute(f"PRAGMA user_version = {schema.version}")
    finally:
        connection.execute("PRAGMA foreign_keys = ON")


def _structure(connection: "Connection") -> set[str]:
    """Return a text for each column, foreign key, index and trigger."""
    found = set()
    made = "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"
    for kind, name, sql in connection.execute(made).fetchall():
        if kind != "table":
            found.add(" ".join(str(sql).split()))
            continue
        for pragma in ("table_xinfo", "foreign_key_list"):
            for row in connection.execute(f"SELECT * FROM pragma_{pragma}(?)", (name,)):  # noqa: S608
                # Without the number of the column, since migrations add columns at the end.
                found.add(f"{name}: {' '.join(map(str, row[pragma == 'table_xinfo' :]))}")
    return found


def _contents(connection: "Connection", tables: Mapping[str, str]) -> Mapping[str, str]:
    """Return the number of rows and a digest of each of these tables."""
    return {name: _digest(connection, name) for name in tables}


def _digest(connection: "Connection", table: str) -> str:
    count = total = 0
    for row in connection.execute(f"SELECT * FROM {table}"):  # noqa: S608 - a table of the schema
        count += 1
        total += int.from_bytes(blake2b(repr(row).encode(), digest_size=8).digest())
    return f"{count} {total % 2**64:x}"

"""The tables of a new database: all of them or none."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from component.app.schema import SCHEMA
from component.store import StorageError
from component.store.schema import FIRST, Schema, Table, make_postgres, make_sqlite

PATH = Path("agent.db")
NUMBERS = Table(name="numbers", columns="n INTEGER PRIMARY KEY", indexes={"by_n": "(n)"})
BROKEN = Table(name="broken", columns="n INTEGER", indexes={"by_m": "(m)"}, has_rowid=True)


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        yield connection


def version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def test_the_tables_are_made_once(connection: sqlite3.Connection) -> None:
    make_sqlite(connection, PATH, Schema([NUMBERS]))
    connection.execute("INSERT INTO numbers VALUES (1)")
    make_sqlite(connection, PATH, Schema([NUMBERS]))
    assert version(connection) == FIRST
    assert connection.execute("SELECT n FROM numbers").fetchall() == [(1,)]


def test_a_table_that_cannot_be_made_leaves_the_database_empty(
    connection: sqlite3.Connection,
) -> None:
    with pytest.raises(sqlite3.OperationalError, match="column"):
        make_sqlite(connection, PATH, Schema([NUMBERS, BROKEN]))
    assert version(connection) == 0
    assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)


@pytest.mark.parametrize(
    ("other", "sentence"),
    [(FIRST + 1, "written by a newer release"), (33, "made before the first release")],
)
def test_a_database_of_another_version_is_left_as_it_is(
    connection: sqlite3.Connection, other: int, sentence: str
) -> None:
    connection.execute("CREATE TABLE kept (n)")
    connection.execute(f"PRAGMA user_version = {other}")
    before = list(connection.iterdump())
    with pytest.raises(StorageError, match=sentence):
        make_sqlite(connection, PATH, Schema([NUMBERS]))
    assert list(connection.iterdump()) == before


@pytest.mark.ports
def test_a_database_of_another_version_on_postgresql_is_refused(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        make_postgres(connection, "The database x", Schema([NUMBERS]))
        make_postgres(connection, "The database x", Schema([NUMBERS]))
        connection.execute("UPDATE versions SET version = version + 1")
        with pytest.raises(StorageError, match="The database x was written by a newer release"):
            make_postgres(connection, "The database x", Schema([NUMBERS]))


def test_the_tables_of_this_release_are_sound(connection: sqlite3.Connection) -> None:
    make_sqlite(connection, PATH, SCHEMA)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


def test_no_name_of_a_table_or_index_occurs_twice() -> None:
    names = [table.name for table in SCHEMA.tables]
    names += [name for table in SCHEMA.tables for name in table.indexes]
    assert len(set(names)) == len(names)

"""The steps that lead to the database's shape: all of one or nothing of it, in order, once."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from component.storage import StorageError
from component.storage.migrations import MIGRATIONS, Step, migrate

PATH = Path("agent.db")
FIRST = Step("CREATE TABLE a (x)", "INSERT INTO a VALUES (1)")
SECOND = Step("ALTER TABLE a ADD COLUMN y DEFAULT 2", "CREATE TABLE b (z)")
_INSERT = "INSERT INTO subscriptions (owner, contact, state, ask) VALUES (?, ?, ?, ?)"


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        yield connection


def version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def test_steps_are_taken_once_and_in_order(connection: sqlite3.Connection) -> None:
    migrate(connection, PATH, [FIRST])
    assert version(connection) == 1
    migrate(connection, PATH, [FIRST, SECOND])
    migrate(connection, PATH, [FIRST, SECOND])
    assert version(connection) == 2
    assert connection.execute("SELECT x, y FROM a").fetchall() == [(1, 2)]


def test_a_step_that_fails_leaves_the_shape_before_it(connection: sqlite3.Connection) -> None:
    broken = Step(*SECOND.statements, "INSERT INTO missing VALUES (1)")
    with pytest.raises(sqlite3.OperationalError, match="missing"):
        migrate(connection, PATH, [FIRST, broken])
    assert version(connection) == 1
    assert connection.execute("SELECT * FROM a").fetchall() == [(1,)]
    migrate(connection, PATH, [FIRST, SECOND])
    assert version(connection) == 2


def test_a_newer_database_is_left_as_it_is(connection: sqlite3.Connection) -> None:
    migrate(connection, PATH, [FIRST, SECOND])
    before = list(connection.iterdump())
    with pytest.raises(StorageError, match="written by a newer release"):
        migrate(connection, PATH, [FIRST])
    assert (version(connection), list(connection.iterdump())) == (2, before)


def test_the_steps_of_this_release(connection: sqlite3.Connection) -> None:
    migrate(connection, PATH)
    assert version(connection) == len(MIGRATIONS)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    row = ("assistant@agent.example", "a@example", "from", 0)
    connection.execute(_INSERT, row)
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute(_INSERT, row)
    for bad in [("o", "c", "maybe", 0), ("o", "c", "from", 2), (None, "c", "from", 0)]:
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute(_INSERT, bad)

"""SQLite in memory with the tables of this release: a copy, as making them takes long."""

import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path

from component.app.schema import SCHEMA
from component.store.schema import make_sqlite


def memory_database() -> sqlite3.Connection:
    """Return a connection in autocommit mode to a new database, with foreign keys checked."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.deserialize(_image())
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


@cache
def _image() -> bytes:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        make_sqlite(connection, Path(":memory:"), SCHEMA)
        return connection.serialize()

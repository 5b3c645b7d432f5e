"""A look into the database beside the service that has it: nothing is locked or made."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from component.storage.database import Database
from component.storage.errors import explained
from component.storage.sqlite import SQLite, process_clock

T = TypeVar("T")


def peek(directory: Path, postgres: str, op: Callable[[Database], T]) -> T | None:
    """Return `op(database)`, which may only read; None if there is no database, or an older one.

    It blocks. Arguments are those of `Storage.open`. Raises StorageError.
    """
    if postgres:
        from psycopg.errors import UndefinedTable  # noqa: PLC0415 - only who chose it

        from component.storage.postgres import PostgreSQL  # noqa: PLC0415
        from component.storage.server import Server  # noqa: PLC0415

        server = PostgreSQL(Server.of(postgres))
        try:
            return server.read(op)
        except UndefinedTable:
            return None
        finally:
            server.close()
    import sqlite3  # noqa: PLC0415

    path = directory / "agent.db"
    if not path.exists():
        return None
    with explained(path):
        reader = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None
        )
        database = SQLite(path, reader, reader, process_clock)
        try:
            return database.read(op)
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return None
            raise
        finally:
            reader.close()

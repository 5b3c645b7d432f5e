"""Read-only access to the database while a service may use it; locks and creates nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from component.storage.clock import SteadyClock, skew_in
from component.storage.database import Database
from component.storage.errors import explained
from component.storage.sqlite import SQLite

T = TypeVar("T")


def peek(directory: Path, postgres: str, op: Callable[[Database], T]) -> T | None:
    """Return `op(database)`, which may only read; None if there is no database.

    Blocks. Arguments are those of `Storage.open`. Raises StorageError.
    """
    if postgres:
        from psycopg.errors import UndefinedTable  # noqa: PLC0415 - only if it is configured

        from component.storage.postgres import PostgreSQL  # noqa: PLC0415
        from component.storage.server import Server  # noqa: PLC0415

        server = PostgreSQL(Server.of(postgres))
        try:
            return server.look(op)
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
        try:
            stored = SQLite(path, reader, reader).read(skew_in)
            return SQLite(path, reader, reader, steady=SteadyClock(stored=stored)).read(op)
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return None
            raise
        finally:
            reader.close()

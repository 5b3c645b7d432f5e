"""A look into the database beside the service."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from component.app.schema import SCHEMA
from component.store.schema import make_postgres, make_sqlite
from component.store.storage import peek
from tests.component.store.clocks import DAY, Life, Machine, life, machine

__all__ = ["life", "machine"]  # fixtures

pytestmark = [pytest.mark.anyio, pytest.mark.ports]


def tasks(database: Any) -> Any:
    return database.execute("SELECT count(*) FROM tasks").fetchone()


def test_peeking_creates_no_database(tmp_path: Path, postgres_url: str) -> None:
    assert peek(tmp_path, "", tasks) is None
    path = tmp_path / "agent.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        make_sqlite(connection, path, SCHEMA)
    assert peek(tmp_path, "", tasks) == (0,)
    assert peek(tmp_path, postgres_url, tasks) is None
    with psycopg.connect(postgres_url, autocommit=True) as other:
        make_postgres(other, "The database", SCHEMA)
    assert peek(tmp_path, postgres_url, tasks) == (0,)


async def test_it_knows_of_jumps(
    life: Life, machine: Machine, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The clock of the machine is that of the storage, and not that of the reader."""
    async with life() as storage:
        shared = await storage.read(lambda database: database.dialect) == "postgresql"
        url = request.getfixturevalue("migrated_url") if shared else ""
        machine.jumps(-DAY)
        await storage.write(lambda _: None)
        ahead = peek(tmp_path / "data", url, lambda database: database.steady - database.now)
        assert ahead == DAY

"""An upgrade of a large database: indexes are built beside the service, no table is rewritten."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from component.storage import Storage
from component.storage.indexes import IndexBuilder
from component.storage.migrations import MIGRATIONS, Index, Step, migrate, migrate_postgres
from component.storage.server import Server
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

BEFORE = 6
"""The last step before one that has an index."""
NAMES = [index.name for step in MIGRATIONS for index in step.indexes]
TASK = (
    "INSERT INTO tasks (id, principal, requester, target, skill, version, request, state, revision,"
    " priority, token, visible, created, updated, retain_until)"
    " VALUES ('{}', 'p', 'p', 't', 's', '1', '{{}}', 'running', 0, 0, 0, 1, 0, 0, 0)"
)
QUESTION = (
    "INSERT INTO inputs (id, task, step, kind, question, revision, expires, state)"
    " VALUES ('q', 't', '', 'input', '', 0, 0, 'open')"
)
INSERT = (
    "INSERT INTO subscriptions (owner, contact, state, ask) VALUES ('a', 'b', 'none', 0)",
    TASK.format("t"),
    "INSERT INTO journal (task, step, token, done) VALUES ('t', 'a', 0, 1)",
    QUESTION,
)


@pytest.fixture
def old(postgres_url: str) -> Iterator[psycopg.Connection]:
    """A connection to a database of an earlier release."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        migrate_postgres(connection, "The database", MIGRATIONS[:BEFORE])
        for statement in INSERT:
            connection.execute(statement)
        yield connection


def valid(connection: psycopg.Connection) -> list[str]:
    found = connection.execute(
        "SELECT indexrelid::regclass::text FROM pg_index WHERE indisvalid"
        " AND indexrelid::regclass::text = ANY(%s)",
        (NAMES,),
    )
    return sorted(name for (name,) in found.fetchall())


def building(connection: psycopg.Connection) -> int:
    found = connection.execute("SELECT count(*) FROM pg_stat_progress_create_index").fetchone()
    return 0 if found is None else int(found[0])


def test_there_are_some() -> None:
    assert "tasks_created" in NAMES


def test_a_new_database_has_them_at_once(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        migrate_postgres(connection, "The database")
        assert valid(connection) == sorted(NAMES)


@pytest.mark.ports
async def test_indexes_are_built_while_others_write(
    old: psycopg.Connection, postgres_url: str, tmp_path: Path
) -> None:
    async with Storage.open(tmp_path, postgres=postgres_url) as storage:
        assert valid(old) == []
        with psycopg.connect(postgres_url) as writer:
            # An index of the usual kind would wait for this one, and all others for that index.
            writer.execute("UPDATE tasks SET revision = revision + 1")
            async with anyio.create_task_group() as group:
                group.start_soon(storage.build_indexes)
                await eventually(lambda: building(old) == 1)
                await storage.write(lambda database: database.execute(TASK.format("u")))
                writer.commit()
        assert valid(old) == sorted(NAMES)
        await storage.build_indexes()


async def test_one_that_was_interrupted_is_built_again(
    old: psycopg.Connection, postgres_url: str, tmp_path: Path
) -> None:
    def left() -> bool:
        found = old.execute("SELECT count(*) FROM pg_index WHERE NOT indisvalid").fetchone()
        return found == (1,)

    async with Storage.open(tmp_path, postgres=postgres_url) as storage:
        with psycopg.connect(postgres_url) as writer:
            writer.execute("UPDATE tasks SET revision = revision + 1")
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as group:
                    group.start_soon(storage.build_indexes)
                    await eventually(left)
                    scope.cancel()
            # Nothing goes on behind a service that has stopped.
            await eventually(lambda: building(old) == 0)
            assert valid(old) == []
        await storage.build_indexes()
        assert valid(old) == sorted(NAMES)


def test_an_upgrade_makes_nobody_wait_for_a_table_that_it_waits_for(
    old: psycopg.Connection, postgres_url: str
) -> None:
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"
    old.execute("SET lock_timeout = '3s'")
    with psycopg.connect(postgres_url) as busy:
        busy.execute("UPDATE tasks SET revision = revision + 1")

        def upgrade() -> None:
            with Server.of(postgres_url).connect() as connection:
                migrate_postgres(connection, "The database")

        thread = threading.Thread(target=upgrade)
        thread.start()
        while old.execute(waiting).fetchone() == (0,):
            pass
        for number in range(10):  # these would wait until the busy one commits
            old.execute(TASK.format(f"u{number}"))
        assert thread.is_alive()
        busy.commit()
    thread.join()
    assert old.execute("SELECT version FROM versions").fetchone() == (len(MIGRATIONS),)


def test_one_instance_builds(old: psycopg.Connection, postgres_url: str) -> None:
    migrate_postgres(old, "The database")
    builders = [IndexBuilder(Server.of(postgres_url)) for _ in range(2)]
    with psycopg.connect(postgres_url) as other:
        other.execute("SELECT pg_advisory_lock(%s)", (0x786D7071,))
        assert builders[0].run() == "busy"
        assert valid(old) == []
        other.execute("SELECT pg_advisory_unlock(%s)", (0x786D7071,))
    assert [builder.run() for builder in builders] == ["complete"] * 2
    assert valid(old) == sorted(NAMES)


def test_no_table_is_rewritten(old: psycopg.Connection) -> None:
    def files() -> dict[str, int]:
        found = old.execute(
            "SELECT relname, relfilenode FROM pg_class WHERE relkind = 'r' AND relnamespace ="
            " 'public'::regnamespace"
        )
        return dict(found.fetchall())

    before = files()
    migrate_postgres(old, "The database")
    assert before.items() <= files().items()


def test_a_column_with_a_constant_default_rewrites_nothing(old: psycopg.Connection) -> None:
    """What the documentation of a step promises."""
    file = "SELECT relfilenode FROM pg_class WHERE relname = 'tasks'"
    before = old.execute(file).fetchone()
    column = Step("ALTER TABLE tasks ADD COLUMN more BIGINT NOT NULL DEFAULT 7")
    migrate_postgres(old, "The database", (*MIGRATIONS, column))
    assert old.execute(file).fetchone() == before


async def test_sqlite_builds_them_before_the_service_begins(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, path, MIGRATIONS[:BEFORE])
        for statement in INSERT:
            connection.execute(statement)
    async with Storage.open(tmp_path) as storage:

        def names(database: Any) -> set[str]:
            found = database.execute("SELECT name FROM sqlite_master WHERE type = 'index'")
            return {name for (name,) in found.fetchall()}

        assert set(NAMES) <= await storage.read(names)
        await storage.build_indexes()


def test_the_statement_of_an_index() -> None:
    index = Index("i", "t (a)")
    assert index.sql() == "CREATE INDEX i ON t (a)"
    assert index.sql(concurrently=True) == "CREATE INDEX CONCURRENTLY i ON t (a)"

"""PostgreSQL: what is written once though the server goes away, and what is wrong in a sentence."""

import builtins
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from anyio.abc import TaskStatus
from hypothesis import given
from hypothesis import strategies as st

from component.app.schema import SCHEMA
from component.store import Storage, StorageError
from component.store import postgres as postgres_module
from component.store import schema as schema_module
from component.store.database import Database
from component.store.pipeline import Placeholders
from tests.servers.postgres import PASSWORD, Postgres
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
Make = Callable[[], Postgres]


def make(database: Database) -> None:
    # No key: what is written twice shows.
    database.execute("CREATE TABLE numbers (n BIGINT)")


def add(number: int) -> Callable[[Database], int]:
    def op(database: Database) -> int:
        database.execute("INSERT INTO numbers (n) VALUES (?)", (number,))
        return number

    return op


def numbers(database: Database) -> list[int]:
    return [n for (n,) in database.execute("SELECT n FROM numbers ORDER BY n").fetchall()]


async def refusal(path: Path, url: str) -> str:
    with pytest.raises(StorageError) as caught:
        async with Storage.open(SCHEMA, path, postgres=url):
            pass
    message = str(caught.value)
    assert message.endswith(".")
    assert PASSWORD not in message
    assert "wrong password" not in message
    return message


@pytest.mark.ports
async def test_every_acknowledged_write_is_there_once_whatever_the_server_does(
    make_postgres: Make, tmp_path: Path
) -> None:
    server = make_postgres()
    told: list[int] = []
    refused: list[int] = []
    kept: list[int] = []
    over = False
    written = anyio.Event()

    async def writer(storage: Storage, first: int) -> None:
        number = first
        while not over:
            try:
                told.append(await storage.write(add(number)))
                written.set()
            except StorageError:
                refused.append(number)
                await anyio.lowlevel.checkpoint()
            number += 100

    async def keeper(storage: Storage, first: int) -> None:
        number = first
        while not over:
            kept.append(await storage.write(add(number), keep_trying=True))
            number += 100

    async with Storage.open(SCHEMA, tmp_path, postgres=server.new_database()) as storage:
        await storage.write(make)
        async with anyio.create_task_group() as tasks:
            for first in range(4):
                tasks.start_soon(writer, storage, first)
                tasks.start_soon(keeper, storage, 50 + first)
            for how in ("immediate", "fast", "immediate", "immediate"):
                so_far = len(told) + len(kept)
                while len(told) + len(kept) < so_far + 50:
                    written = anyio.Event()
                    await written.wait()
                await anyio.to_thread.run_sync(server.restart, how)
            over = True
        there = await storage.read(numbers)
    assert len(there) == len(set(there))
    assert set(told) | set(kept) <= set(there)
    assert sorted(kept) == [n for n in there if n % 100 >= 50]
    assert len(set(there)) == len(told) + len(kept) + len(set(refused) & set(there))


class CutConnection:
    """Does what a connection does, and breaks around one COMMIT."""

    def __init__(self, connection: Any, committed: bool) -> None:
        self._connection = connection
        self._committed = committed

    def execute(self, sql: str, *parameters: Any, **options: Any) -> Any:
        if sql == "COMMIT":
            if self._committed:
                self._connection.execute(sql)
            self._connection.close()
            raise psycopg.OperationalError("the connection is lost")
        return self._connection.execute(sql, *parameters, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@pytest.mark.parametrize("committed", [True, False])
async def test_a_commit_that_nobody_answered_is_settled(
    migrated_url: str, tmp_path: Path, committed: bool
) -> None:
    ran: list[int] = []

    def op(database: Database) -> int:
        ran.append(1)
        return add(7)(database)

    def fail(database: Database) -> None:
        database.execute("SELECT 1")
        raise LookupError("of the operation")

    async with Storage.open(SCHEMA, tmp_path, postgres=migrated_url) as storage:
        await storage.write(make)
        session = storage._engine._writer  # type: ignore[attr-defined]
        session._connection = CutConnection(session._connection, committed)
        assert await storage.write(op) == 7
        assert len(ran) == (1 if committed else 2)
        assert await storage.read(numbers) == [7]
        session._connection = CutConnection(session._connection, committed)
        with pytest.raises(LookupError, match="of the operation"):
            await storage.write(fail)


async def test_a_transaction_that_still_runs_is_waited_for(
    migrated_url: str, tmp_path: Path
) -> None:
    """The old session has the COMMIT, and has not come to it yet."""

    class Slow(CutConnection):
        def execute(self, sql: str, *parameters: Any, **options: Any) -> Any:
            if sql != "COMMIT":
                return self._connection.execute(sql, *parameters, **options)
            asked = threading.Thread(target=self._later)
            asked.start()
            threads.append(asked)
            self.closed = True
            raise psycopg.OperationalError("the connection is lost")

        def _later(self) -> None:
            assert waiting.wait(120)
            self._connection.execute("COMMIT")
            self._connection.close()

    threads: list[threading.Thread] = []
    waiting = threading.Event()
    locks = "SELECT count(*) FROM pg_locks WHERE NOT granted"

    def watch() -> None:
        with psycopg.connect(migrated_url, autocommit=True) as watcher:
            while watcher.execute(locks).fetchone() == (0,):
                pass
        waiting.set()

    async with Storage.open(SCHEMA, tmp_path, postgres=migrated_url) as storage:
        await storage.write(make)
        session = storage._engine._writer  # type: ignore[attr-defined]
        session._connection = Slow(session._connection, True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, watch)
            assert await storage.write(add(7)) == 7
        assert await storage.read(numbers) == [7]
    threads[0].join()


def test_the_id_of_a_transaction_says_nothing_after_a_crash(make_postgres: Make) -> None:
    """Why `pg_xact_status` does not settle anything: the id of a lost transaction is given again.

    If this fails, PostgreSQL has become better, and the table `writers` may go.
    """
    server = make_postgres()
    url = server.new_database()
    begin = "SELECT pg_current_xact_id()::text"
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE numbers (n BIGINT)")
    server.psql("CHECKPOINT")
    lost = psycopg.connect(url)
    (mine,) = lost.execute(begin).fetchone()
    lost.execute("INSERT INTO numbers VALUES (1)")
    server.restart("immediate")
    lost.close()
    with psycopg.connect(url) as connection:
        (others,) = connection.execute(begin).fetchone()
        connection.execute("INSERT INTO numbers VALUES (2)")
    with psycopg.connect(url) as connection:
        status = connection.execute("SELECT pg_xact_status(%s::text::xid8)", (mine,)).fetchone()
    assert (others, status) == (mine, ("committed",))


@pytest.mark.ports
async def test_a_server_that_is_away_refuses_and_comes_back(
    make_postgres: Make, tmp_path: Path
) -> None:
    server = make_postgres()
    url = server.new_database()
    name = url.rpartition("/")[2]
    async with Storage.open(SCHEMA, tmp_path, postgres=url) as storage:
        await storage.write(make)
        server.stop()
        where = f"{name} on 127.0.0.1:{server.port} for user agent cannot be opened"
        with pytest.raises(StorageError, match=where):
            await storage.write(add(1))
        with pytest.raises(StorageError, match=where):
            await storage.read(numbers)
        async with anyio.create_task_group() as tasks:

            async def kept() -> None:
                await storage.write(add(2), keep_trying=True)

            tasks.start_soon(kept)
            await anyio.to_thread.run_sync(server.start)
        await storage.write(add(3))
        assert await storage.read(numbers) == [2, 3]
        server.restart()
        assert await storage.read(numbers) == [2, 3]  # an idle connection that broke is no error


async def test_what_is_wrong_at_the_start_is_said_without_the_password(
    postgres_server: Postgres, make_postgres: Make, tmp_path: Path
) -> None:
    wrong = await refusal(tmp_path, postgres_server.url("postgres", "wrong password"))
    assert "postgres on 127.0.0.1" in wrong
    assert "password authentication failed" in wrong
    assert 'database "nowhere" does not exist' in await refusal(
        tmp_path, postgres_server.url("nowhere")
    )
    stopped = make_postgres()
    stopped.stop()
    assert "Connection refused" in await refusal(tmp_path, stopped.url("postgres"))
    for nonsense in (f"host=x password={PASSWORD} {PASSWORD}", "postgresql://a:wrong password@h:p"):
        assert "is not a valid connection string for PostgreSQL" in await refusal(
            tmp_path, nonsense
        )
    async with Storage.open(SCHEMA, tmp_path):
        pass  # a failed attempt holds no lock


async def test_a_database_that_the_user_may_not_change(
    postgres_server: Postgres, postgres_url: str, tmp_path: Path
) -> None:
    name = postgres_url.rpartition("/")[2]
    postgres_server.psql(f"ALTER DATABASE {name} OWNER TO postgres")
    message = await refusal(tmp_path, postgres_url)
    assert "GRANT CREATE" in message


async def test_a_database_without_all_characters(postgres_server: Postgres, tmp_path: Path) -> None:
    postgres_server.psql("DROP DATABASE IF EXISTS narrow")
    postgres_server.psql(
        "CREATE DATABASE narrow OWNER agent ENCODING 'LATIN1' TEMPLATE template0"
        " LC_COLLATE 'C' LC_CTYPE 'C'"
    )
    assert "has the encoding LATIN1" in await refusal(tmp_path, postgres_server.url("narrow"))


async def test_out_of_connections(postgres_url: str, tmp_path: Path) -> None:
    name = postgres_url.rpartition("/")[2]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} CONNECTION LIMIT 1")
        assert "too many connections" in await refusal(tmp_path, postgres_url)


async def test_a_read_only_database(migrated_url: str, tmp_path: Path) -> None:
    async with Storage.open(SCHEMA, tmp_path, postgres=migrated_url) as storage:
        await storage.write(make)

        def read_only(database: Database) -> None:
            database.execute("SET TRANSACTION READ ONLY")

        def both(database: Database) -> None:
            read_only(database)
            add(1)(database)

        with pytest.raises(StorageError, match="is read-only, like a standby"):
            await storage.write(both)
        await storage.write(add(2))
        assert await storage.read(numbers) == [2]


async def test_a_row_that_somebody_else_has_locked(migrated_url: str, tmp_path: Path) -> None:
    def lock(database: Database) -> None:
        database.execute("SET LOCAL lock_timeout = '10ms'")
        database.execute("SELECT n FROM numbers FOR UPDATE").fetchall()

    async with Storage.open(SCHEMA, tmp_path, postgres=migrated_url) as storage:
        await storage.write(make)
        await storage.write(add(1))
        with psycopg.connect(migrated_url) as other:
            other.execute("SELECT * FROM numbers FOR UPDATE")
            with pytest.raises(StorageError, match="holds a lock for another client"):
                await storage.write(lock)
        await storage.write(lock)


async def test_two_that_wait_for_each_other_are_both_served(
    migrated_url: str, tmp_path: Path
) -> None:
    barrier = threading.Barrier(2, timeout=120)
    met: list[int] = []

    def op(first: int, second: int) -> Callable[[Database], None]:
        def work(database: Database) -> None:
            change = "UPDATE numbers SET n = n + 10 WHERE n % 10 = ?"
            database.execute(change, (first,))
            if len(met) < 2:
                met.append(first)
                barrier.wait()
            database.execute(change, (second,))

        return work

    async with (
        Storage.open(SCHEMA, tmp_path / "a", postgres=migrated_url) as one,
        Storage.open(SCHEMA, tmp_path / "b", postgres=migrated_url) as other,
    ):
        await one.write(make)
        await one.write(add(1))
        await one.write(add(2))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.write, op(1, 2))
            tasks.start_soon(other.write, op(2, 1))
        assert await one.read(numbers) == [21, 22]


async def test_a_postgresql_session_has_its_timeouts_and_durable_commits(
    migrated_url: str, tmp_path: Path
) -> None:
    names = ("idle_in_transaction_session_timeout", "lock_timeout", "synchronous_commit")

    def session(database: Database) -> dict[str, str]:
        found = {}
        for name in (*names, "application_name"):
            (found[name],) = database.execute("SELECT current_setting(?)", (name,)).fetchone()
        return found

    with psycopg.connect(migrated_url, autocommit=True) as connection:
        connection.execute("ALTER ROLE agent SET synchronous_commit = off")
        try:
            async with Storage.open(SCHEMA, tmp_path, postgres=migrated_url) as storage:
                assert await storage.write(session) == {
                    "idle_in_transaction_session_timeout": "5s",
                    "lock_timeout": "10s",
                    "synchronous_commit": "on",
                    "application_name": "xmpp-agent",
                }
        finally:
            connection.execute("ALTER ROLE agent RESET synchronous_commit")


async def test_the_directory_is_still_one_processs(postgres_url: str, tmp_path: Path) -> None:
    async with Storage.open(SCHEMA, tmp_path, postgres=postgres_url) as storage:
        assert storage.directory == tmp_path
        assert "is in use by process" in await refusal(tmp_path, postgres_url)
        assert not (tmp_path / "agent.db").exists()


async def test_leaves_no_row_of_its_own_behind(migrated_url: str, tmp_path: Path) -> None:
    async with Storage.open(SCHEMA, tmp_path, postgres=migrated_url) as storage:
        await storage.write(make)
    with psycopg.connect(migrated_url) as connection:
        assert connection.execute("SELECT * FROM writers").fetchall() == []


async def test_without_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def without(name: str, *rest: Any, **options: Any) -> Any:
        if name.partition(".")[0] == "psycopg":
            raise ModuleNotFoundError("No module named 'psycopg'")
        return load(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(StorageError) as caught:
        async with Storage.open(SCHEMA, tmp_path, postgres="postgresql://h/d"):
            pass
    assert 'pip install "xmpp-agent-component[postgres]"' in str(caught.value)


# Migrations


async def test_many_that_open_a_new_database_at_once(postgres_url: str, tmp_path: Path) -> None:
    async def one(number: int) -> None:
        async with Storage.open(SCHEMA, tmp_path / str(number), postgres=postgres_url) as storage:
            assert await storage.read(lambda d: d.execute("SELECT * FROM tasks").fetchall()) == []

    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(one, number)


def test_a_server_that_is_too_old_is_refused_with_a_sentence(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_module, "_OLDEST_SERVER", 990_000)
    with pytest.raises(StorageError, match="which is too old: the agent needs 99 or later"):
        postgres_module.PostgreSQL.open(postgres_url, SCHEMA, SCHEMA)


# Listening


@pytest.mark.ports
async def test_a_notification_wakes_others_and_oneself(migrated_url: str, tmp_path: Path) -> None:
    async with (
        Storage.open(SCHEMA, tmp_path / "a", postgres=migrated_url) as one,
        Storage.open(SCHEMA, tmp_path / "b", postgres=migrated_url) as other,
        one.listen("tasks of mine") as here,
        other.listen("tasks of mine") as there,
        other.listen("another") as elsewhere,
    ):
        for _ in range(2):
            await one.write(lambda database: database.notify("tasks of mine"))
            await anext(here)
            await anext(there)
        with anyio.move_on_after(0.05) as scope:
            await anext(elsewhere)
        assert scope.cancelled_caught


async def test_what_is_undone_wakes_nobody(migrated_url: str, tmp_path: Path) -> None:
    def refused(database: Database) -> None:
        database.notify("tasks")
        raise LookupError

    async with (
        Storage.open(SCHEMA, tmp_path, postgres=migrated_url) as storage,
        storage.listen("tasks") as heard,
    ):
        with pytest.raises(LookupError):
            await storage.write(refused)
        with anyio.move_on_after(0.05) as scope:
            await anext(heard)
        assert scope.cancelled_caught


@pytest.mark.ports
async def test_listens_again_after_a_restart(make_postgres: Make, tmp_path: Path) -> None:
    server = make_postgres()
    async with (
        Storage.open(SCHEMA, tmp_path, postgres=server.new_database()) as storage,
        storage.listen("tasks") as heard,
    ):
        await anyio.to_thread.run_sync(server.restart)
        await anext(heard)  # something may have been missed
        await storage.write(lambda database: database.notify("tasks"))
        await anext(heard)


@pytest.mark.ports
async def test_one_connection_serves_all_channels(migrated_url: str, tmp_path: Path) -> None:
    count = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND usename = current_user"
    )

    async with (
        Storage.open(SCHEMA, tmp_path, postgres=migrated_url) as storage,
        storage.listen("first") as first,
        anyio.create_task_group() as group,
    ):
        heard: list[str] = []

        async def keep(channel: str, *, task_status: TaskStatus[None]) -> None:
            async with storage.listen(channel) as notified:
                task_status.started()
                async for _ in notified:
                    heard.append(channel)  # noqa: PERF401 - it never ends

        async def wait() -> None:
            async for _ in first:
                heard.append("first")  # noqa: PERF401 - as above

        group.start_soon(wait)  # it watches the connection while others join
        await anyio.wait_all_tasks_blocked()
        for channel in ("second", "third"):
            await group.start(keep, channel)
        assert await storage.read(lambda db: db.execute(count).fetchall()) == [(3,)]
        for channel in ("third", "first", "second"):
            heard.clear()
            await storage.write(lambda db, channel=channel: db.notify(channel))  # type: ignore[misc]  # mypy sees no default
            await eventually(lambda channel=channel: channel in heard)  # type: ignore[misc]  # as above
            assert set(heard) == {channel}
        group.cancel_scope.cancel()


@pytest.mark.ports
async def test_another_watches_when_the_one_who_did_leaves(
    migrated_url: str, tmp_path: Path
) -> None:
    async with (
        Storage.open(SCHEMA, tmp_path, postgres=migrated_url) as storage,
        storage.listen("first") as first,
        storage.listen("second") as second,
    ):
        done = anyio.Event()

        async def wait_for_second() -> None:
            await anext(second)
            done.set()

        async with anyio.create_task_group() as group:
            with anyio.CancelScope() as watching:
                async with anyio.create_task_group() as inner:
                    inner.start_soon(anext, first)
                    await anyio.wait_all_tasks_blocked()
                    group.start_soon(wait_for_second)
                    await anyio.wait_all_tasks_blocked()
                    watching.cancel()
            await storage.write(lambda db: db.notify("second"))
            with anyio.fail_after(120):
                await done.wait()


async def test_nobody_notifies_on_sqlite(tmp_path: Path) -> None:
    async with Storage.open(SCHEMA, tmp_path) as storage, storage.listen("tasks") as heard:
        await storage.write(lambda database: database.notify("tasks"))
        with anyio.move_on_after(0.02) as scope:
            await anext(heard)
        assert scope.cancelled_caught


# Statements


_PARTS = st.sampled_from(["?", "%", " ", "a", "'?'", "'it''s %?'", '"?%"', "--?\n", "/*?*/"])


@given(st.lists(_PARTS))
def test_only_parameters_are_translated(parts: list[str]) -> None:
    expected = "".join("%s" if part == "?" else part.replace("%", "%%") for part in parts)
    placeholders = Placeholders()
    for _ in range(2):
        assert placeholders.translate("".join(parts)) == expected


async def test_a_statement_that_was_skipped_behind_one_that_failed_is_prepared_again(
    migrated_url: str, tmp_path: Path
) -> None:
    """The driver counts as prepared what it has sent, also if the server passed over it."""

    def make(database: Database) -> None:
        database.execute("CREATE TABLE numbers (n BIGINT PRIMARY KEY)")
        database.execute("INSERT INTO numbers (n) VALUES (1)")

    def twice(database: Database) -> None:
        database.execute("INSERT INTO numbers (n) VALUES (?)", (1,))
        database.execute("UPDATE numbers SET n = n WHERE n = ?", (1,))

    def once(database: Database) -> None:
        database.execute("UPDATE numbers SET n = n WHERE n = ?", (1,))

    async with Storage.open(SCHEMA, tmp_path, postgres=migrated_url) as storage:
        await storage.write(make)
        for _ in range(20):
            with pytest.raises(Exception, match="duplicate key") as caught:
                await storage.write(twice)
            assert type(caught.value).__name__ == "UniqueViolation"
            await storage.write(once)

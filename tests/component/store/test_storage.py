"""The data directory: how it is made, held by one process, upgraded, and what can be wrong."""

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from component.app.schema import SCHEMA
from component.store import Storage, StorageError
from component.store import sqlite as sqlite_module

pytestmark = pytest.mark.anyio


async def refusal(path: Path) -> str:
    with pytest.raises(StorageError) as caught:
        async with Storage.open(SCHEMA, path):
            pass
    message = str(caught.value)
    assert str(path) in message
    assert message.endswith((".", ")."))
    return message


async def test_makes_a_private_directory(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    async with Storage.open(SCHEMA, path) as storage:
        assert storage.directory == path
        assert path.stat().st_mode & 0o777 == 0o700
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.iterdir()}
        assert {"agent.db", "agent.lock"} <= modes.keys()
        assert set(modes.values()) == {0o600}


async def test_leaves_the_mode_of_a_directory_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir(mode=0o750)
    async with Storage.open(SCHEMA, path):
        assert path.stat().st_mode & 0o777 == 0o750


async def test_settings_of_the_database(tmp_path: Path) -> None:
    def settings(connection: sqlite3.Connection) -> dict[str, object]:
        names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout", "user_version")
        return {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names}

    async with Storage.open(SCHEMA, tmp_path) as storage:
        assert await storage.read(settings) == {
            "journal_mode": "wal",
            "synchronous": 2,  # FULL
            "foreign_keys": 1,
            "busy_timeout": 5000,
            "user_version": SCHEMA.version,
        }


def make_table(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE numbers (number INTEGER)")


def insert(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO numbers VALUES (1)")


def count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM numbers").fetchone()[0])


async def test_what_is_written_is_there_after_reopening(tmp_path: Path) -> None:
    async with Storage.open(SCHEMA, tmp_path) as storage:
        await storage.write(make_table)
        await storage.write(insert)
    async with Storage.open(SCHEMA, tmp_path) as storage:
        assert await storage.read(count) == 1


async def test_a_write_that_raises_leaves_nothing(tmp_path: Path) -> None:
    def insert_and_fail(connection: sqlite3.Connection) -> None:
        insert(connection)
        raise RuntimeError("on purpose")

    async with Storage.open(SCHEMA, tmp_path) as storage:
        await storage.write(make_table)
        with pytest.raises(RuntimeError, match="on purpose"):
            await storage.write(insert_and_fail)
        assert await storage.read(count) == 0
        await storage.write(insert)
        assert await storage.read(count) == 1


@pytest.mark.ports
async def test_work_runs_one_at_a_time_and_off_the_event_loop(tmp_path: Path) -> None:
    at_work: list[int] = []
    overlaps: list[int] = []
    began = threading.Event()
    go_on = threading.Event()

    def work(_connection: sqlite3.Connection) -> None:
        assert threading.current_thread() is not threading.main_thread()
        at_work.append(1)
        overlaps.append(len(at_work))
        began.set()
        assert go_on.wait(120)
        at_work.pop()

    async with Storage.open(SCHEMA, tmp_path) as storage, anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(storage.read, work)
        assert await anyio.to_thread.run_sync(began.wait, 30)
        await anyio.wait_all_tasks_blocked()
        go_on.set()
    assert overlaps == [1] * 5


@pytest.mark.ports
async def test_a_write_that_has_begun_survives_its_caller(tmp_path: Path) -> None:
    began = threading.Event()
    go_on = threading.Event()

    def work(connection: sqlite3.Connection) -> None:
        began.set()
        assert go_on.wait(120)
        insert(connection)

    async with Storage.open(SCHEMA, tmp_path) as storage:
        await storage.write(make_table)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(storage.write, work)
            assert await anyio.to_thread.run_sync(began.wait, 30)
            tasks.cancel_scope.cancel()
            go_on.set()
        assert await storage.read(count) == 1


@pytest.mark.ports
async def test_closes_even_when_cancelled(tmp_path: Path) -> None:
    with anyio.CancelScope() as scope:
        async with Storage.open(SCHEMA, tmp_path):
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    async with Storage.open(SCHEMA, tmp_path):
        pass


async def test_a_second_opener_is_refused_by_name(tmp_path: Path) -> None:
    async with Storage.open(SCHEMA, tmp_path):
        assert f"in use by process {os.getpid()}." in await refusal(tmp_path)
        # and the refusal has not let go of the first one's lock
        assert f"in use by process {os.getpid()}." in await refusal(tmp_path)
    async with Storage.open(SCHEMA, tmp_path):
        pass


HOLD = """
import sys, anyio
from pathlib import Path
from component.app.schema import SCHEMA
from component.store import Storage
async def main():
    async with Storage.open(SCHEMA, Path(sys.argv[1])):
        print("open", flush=True)
        await anyio.sleep_forever()
anyio.run(main)
"""


async def test_another_process_holds_it_until_it_dies(tmp_path: Path) -> None:
    async with await anyio.open_process(
        [sys.executable, "-c", HOLD, str(tmp_path)], stderr=None
    ) as holder:
        try:
            assert holder.stdout is not None
            said = BufferedByteReceiveStream(holder.stdout)
            assert await said.receive_until(b"\n", 100) == b"open"
            assert f"in use by process {holder.pid}." in await refusal(tmp_path)
        finally:
            holder.kill()
    async with Storage.open(SCHEMA, tmp_path):
        pass


async def test_a_file_in_the_place_of_the_directory(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.touch()
    assert "there is a file where a directory should be" in await refusal(path)
    assert "there is a file where a directory should be" in await refusal(path / "below")


@contextmanager
def unprivileged() -> Iterator[None]:
    """Lay down root's power to write anywhere, if the tests have it."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


async def test_a_directory_that_may_not_be_written_to(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir(mode=0o500)
    with unprivileged():
        assert "Permission denied" in await refusal(path)
        assert "Permission denied" in await refusal(path / "below")


@pytest.mark.parametrize("name", ["agent.db", "agent.lock"])
async def test_a_directory_in_the_place_of_a_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert f"{name}, which cannot be created or opened: Is a directory" in await refusal(tmp_path)
    (tmp_path / name).rmdir()
    async with Storage.open(SCHEMA, tmp_path):
        pass  # the failed attempt holds no lock


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "agent.db").write_text("port = 5275\n" * 100)
    assert "is damaged or not an SQLite database" in await refusal(tmp_path)


async def test_a_damaged_database(tmp_path: Path) -> None:
    def fill(connection: sqlite3.Connection) -> tuple[int, int]:
        make_table(connection)
        insert(connection)
        where = "SELECT rootpage FROM sqlite_master WHERE name = 'numbers'"
        (page,) = connection.execute(where).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        return page, size

    async with Storage.open(SCHEMA, tmp_path) as storage:
        page, size = await storage.write(fill)
    # The table's own page: the shape of the database can still be read, its content cannot.
    with (tmp_path / "agent.db").open("r+b") as database:
        database.seek((page - 1) * size)
        database.write(b"\xff" * size)
    async with Storage.open(SCHEMA, tmp_path) as storage:
        with pytest.raises(StorageError, match="is damaged or not an SQLite database"):
            await storage.read(count)


async def test_a_write_that_does_not_fit_on_a_full_disk_fails(tmp_path: Path) -> None:
    def no_room(connection: sqlite3.Connection) -> None:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")

    def fill(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO numbers VALUES (zeroblob(100000))")

    async with Storage.open(SCHEMA, tmp_path) as storage:
        await storage.write(make_table)
        await storage.write(no_room)
        with pytest.raises(StorageError, match="the disk or the quota is full"):
            await storage.write(fill)
        assert await storage.read(count) == 0
        await storage.write(insert)  # what fits is still written


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process may grow beyond it: a full disk, in a way."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


async def test_what_is_tried_again_is_written_once_there_is_room(tmp_path: Path) -> None:
    def fill(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO numbers VALUES (zeroblob(1000000))")

    async with Storage.open(SCHEMA, tmp_path) as storage, anyio.create_task_group() as tasks:
        await storage.write(make_table)

        async def kept() -> None:
            await storage.write(fill, keep_trying=True)

        with largest_file(500_000):
            with pytest.raises(StorageError, match=r"The database .* cannot"):
                await storage.write(fill)
            tasks.start_soon(kept)
            await anyio.wait_all_tasks_blocked()
            assert await storage.read(count) == 0
    async with Storage.open(SCHEMA, tmp_path) as storage:
        assert await storage.read(count) == 1


async def test_a_database_held_by_another_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_module, "_BUSY_SECONDS", 0)
    async with Storage.open(SCHEMA, tmp_path) as storage:
        other = sqlite3.connect(tmp_path / "agent.db", isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StorageError, match="is locked by another process"):
                await storage.write(make_table)
            other.execute("ROLLBACK")
            await storage.write(make_table)
        finally:
            other.close()


async def test_mistakes_in_the_program_are_not_explained_away(tmp_path: Path) -> None:
    async with Storage.open(SCHEMA, tmp_path) as storage:
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            await storage.read(count)


async def test_a_database_of_a_newer_release(tmp_path: Path) -> None:
    async with Storage.open(SCHEMA, tmp_path):
        pass
    connection = sqlite3.connect(tmp_path / "agent.db")
    newer = SCHEMA.version + 1
    connection.execute(f"PRAGMA user_version = {newer}")
    connection.close()
    message = await refusal(tmp_path)
    assert f"written by a newer release: it is of version {newer}" in message
    assert f"knows version {SCHEMA.version}" in message


def test_importing_loads_no_database_driver() -> None:
    program = "import sys, component.store; assert not {'sqlite3', 'psycopg'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)

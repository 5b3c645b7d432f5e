"""The place of a process: what proves that its former life is over, and writes nothing more."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import anyio
import psycopg
import pytest
from anyio import to_thread

from component.app.schema import SCHEMA
from component.store import Storage
from component.store import directory as lock_module
from component.store import server as server_module
from component.store.database import Database
from component.store.directory import DirectoryLock, locked, sync_directory
from tests.kit.power import after_power_failures

pytestmark = pytest.mark.anyio


def place_of(directory: Path) -> str | None:
    directory.mkdir(exist_ok=True)
    with closing_lock(directory) as lock:
        return lock.place


@contextmanager
def closing_lock(directory: Path) -> Iterator[DirectoryLock]:
    lock = DirectoryLock.acquire(directory)
    try:
        yield lock
    finally:
        lock.release()


def write(database: Database) -> None:
    database.execute("CREATE TABLE IF NOT EXISTS written (n BIGINT)")


def test_it_is_the_same_in_the_next_life_and_nowhere_else(tmp_path: Path) -> None:
    first = place_of(tmp_path / "one")
    assert first is not None
    assert place_of(tmp_path / "one") == first
    assert place_of(tmp_path / "other") != first
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    assert place_of(tmp_path / "copy") != first


def test_a_lock_that_was_made_anew_is_another_place(tmp_path: Path) -> None:
    with closing_lock(tmp_path) as held:
        (tmp_path / "agent.lock").unlink()
        # Two processes have locked the directory now, and neither takes the other for dead.
        with closing_lock(tmp_path) as also:
            assert held.place != also.place


def test_a_new_data_directory_is_on_disk_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[Path] = set()
    monkeypatch.setattr(lock_module, "sync_directory", synced.add)
    with lock_module.locked(tmp_path / "new" / "deep"):
        assert {tmp_path, tmp_path / "new"} <= synced


def test_a_lock_is_released_while_the_disk_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_descriptor: int, _size: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    lock = DirectoryLock.acquire(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "ftruncate", fails)
        lock.release()
    with closing_lock(tmp_path):
        pass


def test_a_new_data_directory_survives_a_power_failure(tmp_path: Path) -> None:
    def start(data: Path) -> None:
        with locked(data / "new" / "deep"):
            (data / "new" / "deep" / "kept").touch()
            sync_directory(data / "new" / "deep")

    assert all("new/deep/kept" in left for left in after_power_failures(tmp_path, start))


def test_after_a_boot_it_is_another_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = place_of(tmp_path)
    boot = tmp_path / "boot"
    monkeypatch.setattr(lock_module, "_BOOT_ID", boot)
    assert place_of(tmp_path) is None  # no Linux
    boot.write_text("\n")
    assert place_of(tmp_path) is None
    boot.write_text("00000000-0000-0000-0000-000000000001\n")
    assert place_of(tmp_path) not in (None, before)


async def test_sqlite_needs_none(tmp_path: Path) -> None:
    async with Storage.open(SCHEMA, tmp_path) as storage:
        assert storage.place is None


async def test_who_opens_waits_for_what_was_being_committed_when_it_was_killed(
    tmp_path: Path, migrated_url: str
) -> None:
    storage = partial(Storage.open, SCHEMA, tmp_path, postgres=migrated_url)
    with closing(psycopg.connect(migrated_url, autocommit=True)) as watching:
        async with storage() as former:
            await former.write(write)
            place = former.place
            assert place is not None
            (row,) = watching.execute(
                "SELECT id, batch, at, place FROM writers WHERE place IS NOT NULL"
            ).fetchall()
        # Who is killed leaves its row, and perhaps a session that is not through yet.
        watching.execute("INSERT INTO writers VALUES (%s, %s, %s, %s)", row)
        with closing(psycopg.connect(migrated_url)) as session:
            session.execute("UPDATE writers SET batch = batch + 1 WHERE id = %s", (row[0],))
            opened: list[str | None] = []

            async def come_back() -> None:
                async with storage() as latter:
                    opened.append(latter.place)

            async with anyio.create_task_group() as group:
                group.start_soon(come_back)
                with anyio.fail_after(120):
                    waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                    while not watching.execute(waits).fetchall():  # noqa: ASYNC110
                        await anyio.sleep(0.005)
                assert opened == []
                await to_thread.run_sync(session.commit)
            assert opened == [place]


async def test_who_cannot_wait_for_it_opens_without_a_place(
    tmp_path: Path, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = partial(Storage.open, SCHEMA, tmp_path, postgres=migrated_url)
    async with storage() as former:
        place = former.place
    short = server_module._SESSION.replace("lock_timeout = '10s'", "lock_timeout = '10ms'")
    assert short != server_module._SESSION
    monkeypatch.setattr(server_module, "_SESSION", short)
    with closing(psycopg.connect(migrated_url)) as session:
        session.execute("INSERT INTO writers VALUES ('former', 1, 4102444800000, %s)", (place,))
        session.commit()
        session.execute("UPDATE writers SET batch = 2 WHERE id = 'former'")
        async with storage() as latter:
            assert latter.place is None
            await latter.write(write)
        session.rollback()
    async with storage() as last:
        assert last.place == place

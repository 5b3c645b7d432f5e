"""The simulated disk fails when a test says so, and loses what was not synced."""

import errno
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from component.private import open_private
from component.store.directory import sync_directory
from component.store.sqlite import connect
from tests.kit.power import SEEDS, after_power_failures, run_machine


def write(path: Path, data: bytes, *, sync: bool = False, append: bool = False) -> None:
    how = os.O_APPEND if append else os.O_TRUNC
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | how, 0o600)
    os.write(descriptor, data)
    if sync:
        os.fsync(descriptor)
    os.close(descriptor)


def test_what_was_synced_is_left(tmp_path: Path) -> None:
    def work(data: Path) -> None:
        write(data / "a", b"content", sync=True)
        sync_directory(data)

    assert all(left == {"a": b"content"} for left in after_power_failures(tmp_path, work))


def test_a_name_without_a_sync_of_its_directory_may_be_lost(tmp_path: Path) -> None:
    found = after_power_failures(tmp_path, lambda data: write(data / "a", b"content", sync=True))
    assert {} in found
    assert {"a": b"content"} in found
    assert all(left in ({}, {"a": b"content"}) for left in found)


def test_what_was_appended_without_a_sync_may_be_lost_or_torn(tmp_path: Path) -> None:
    def work(data: Path) -> None:
        write(data / "a", b"synced;", sync=True)
        sync_directory(data)
        write(data / "a", b"appended", append=True)

    found = [left["a"] for left in after_power_failures(tmp_path, work)]
    assert all(one.startswith(b"synced;") for one in found)
    assert {b"synced;", b"synced;appended"} < set(found), "some are torn"
    assert any(b"\0" in one for one in found), "some have a block that was not written"


def test_a_file_that_is_overwritten_has_either_content(tmp_path: Path) -> None:
    def work(data: Path) -> None:
        write(data / "a", b"before", sync=True)
        sync_directory(data)
        with open_private(data / "a", "wb") as file:
            file.write(b"after")

    found = {left["a"] for left in after_power_failures(tmp_path, work)}
    assert {b"before", b"after"} < found


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    def work(data: Path) -> None:
        write(data / "a", b"before", sync=True)
        sync_directory(data)
        write(data / "new", b"after", sync=True)
        (data / "new").replace(data / "a")

    found = after_power_failures(tmp_path, work)
    assert {left["a"] for left in found} == {b"before", b"after"}
    assert {"a": b"before", "new": b"after"} in found


def test_a_removed_file_may_be_there_again(tmp_path: Path) -> None:
    def work(data: Path) -> None:
        write(data / "a", b"content", sync=True)
        sync_directory(data)
        (data / "a").unlink()

    found = after_power_failures(tmp_path, work)
    assert {} in found
    assert {"a": b"content"} in found


def test_directories_are_lost_with_what_is_in_them(tmp_path: Path) -> None:
    def work(data: Path) -> None:
        (data / "folder").mkdir()
        write(data / "folder/a", b"content", sync=True)
        sync_directory(data / "folder")

    found = after_power_failures(tmp_path, work)
    assert {} in found
    assert {"folder/a": b"content"} in found


def test_the_kernel_writes_everything_after_a_while(tmp_path: Path) -> None:
    def work(data: Path) -> None:
        write(data / "a", b"content")
        (data / "a").rename(data / "b")

    assert all(
        left == {"b": b"content"} for left in after_power_failures(tmp_path, work, later_s=60)
    )


def test_after_a_kill_the_same_is_not_synced(tmp_path: Path) -> None:
    found = []
    for seed in SEEDS:
        root = tmp_path / str(seed)
        root.mkdir()
        with run_machine(root, seed) as machine:
            write(machine.data / "a", b"content")
            machine.kill(root / "killed")
            shutil.rmtree(machine.data)
            (root / "killed").rename(machine.data)
            found.append(machine.power_fails())
    assert {} in found
    assert {"a": b""} in found
    assert {"a": b"content"} in found


def test_commits_that_have_returned_are_left(tmp_path: Path) -> None:
    are_open: list[sqlite3.Connection] = []

    def work(data: Path) -> None:
        path = data / "agent.db"
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        connection = connect(path)
        are_open.append(connection)
        for statement in ("BEGIN", "CREATE TABLE t (n)", "INSERT INTO t VALUES (7)", "COMMIT"):
            connection.execute(statement)

    after_power_failures(tmp_path, work)
    for each in are_open:
        each.close()
    for seed in SEEDS:
        with sqlite3.connect(tmp_path / str(seed) / "left/agent.db") as connection:
            assert connection.execute("SELECT n FROM t").fetchall() == [(7,)]


def test_a_kill_strikes_between_two_operations_of_a_call(tmp_path: Path) -> None:
    seen = []
    with run_machine(tmp_path) as machine:

        def strike() -> None:
            machine.process.is_alive = False
            seen.append((machine.data / "a").read_bytes())

        machine.disk.strike_before(machine.process, 3, strike)  # it is opened, written, synced
        write(machine.data / "a", b"content", sync=True)
        assert machine.disk.operations == 3
    assert seen == [b"content"]


@pytest.mark.parametrize(("how", "number"), [("full", errno.ENOSPC), ("error", errno.EIO)])
def test_one_operation_fails(tmp_path: Path, how: str, number: int) -> None:
    with run_machine(tmp_path) as machine:
        machine.disk.fail_once(2, "full" if how == "full" else "error")
        with pytest.raises(OSError, match=os.strerror(number)):
            write(machine.data / "a", b"content")
        assert machine.disk.broken_since_start
        write(machine.data / "a", b"content")


def test_a_full_disk_still_removes_files(tmp_path: Path) -> None:
    with run_machine(tmp_path) as machine:
        write(machine.data / "a", b"content")
        machine.disk.fails = "full"
        (machine.data / "a").open("rb+").close()
        with pytest.raises(OSError, match="No space"):
            (machine.data / "b").touch()
        (machine.data / "a").unlink()
        machine.disk.fails = "error"
        with pytest.raises(OSError, match="Input/output"):
            (machine.data / "b").mkdir()


def test_a_full_disk_writes_what_fits_and_shortens_files(tmp_path: Path) -> None:
    with run_machine(tmp_path) as machine:
        write(machine.data / "a", b"content")
        descriptor = os.open(machine.data / "a", os.O_WRONLY | os.O_APPEND)
        machine.disk.fails = "full"
        assert os.write(descriptor, b"1234") == 2
        with pytest.raises(OSError, match="No space"):
            os.write(descriptor, b"34")
        assert (machine.data / "a").read_bytes() == b"content12"
        with pytest.raises(OSError, match="No space"):
            os.ftruncate(descriptor, 1000)
        os.ftruncate(descriptor, 7)
        os.close(descriptor)
        assert (machine.data / "a").read_bytes() == b"content"


def test_what_others_write_does_not_fail(tmp_path: Path) -> None:
    with run_machine(tmp_path) as machine:
        machine.process.is_alive = False
        machine.disk.fails = "error"
        (machine.data / "a").write_bytes(b"content")
        assert machine.power_fails() == {"a": b"content"}

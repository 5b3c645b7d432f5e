"""Errors of the disk become sentences that say how to correct them."""

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from component.store.errors import DiskFullError, StorageError, explained

PATH = Path("/data/agent.lock")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_file_that_finds_no_room_is_no_matter_of_permissions(number: int) -> None:
    with pytest.raises(DiskFullError) as caught, explained(PATH):
        raise OSError(number, os.strerror(number))
    assert str(caught.value) == (
        "The data directory needs /data/agent.lock, which cannot be written: the disk or the quota"
        " is full. Free some space."
    )


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE])
def test_a_database_that_finds_no_room_is_on_a_full_disk(code: int) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    match = "cannot grow: the disk or the quota is full"
    with pytest.raises(DiskFullError, match=match), explained(PATH):
        raise error


def test_other_errors_of_the_disk_are_not_for_want_of_room() -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
    match = "cannot be read or written"
    with pytest.raises(StorageError, match=match) as caught, explained(PATH):
        raise error
    assert not isinstance(caught.value, DiskFullError)

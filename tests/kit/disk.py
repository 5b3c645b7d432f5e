"""A disk that fails when a test says so."""

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

How = Literal["", "full", "error"]
_SAID: Final = {"full": "database or disk is full", "error": "disk I/O error"}
_CODES: Final = {"full": sqlite3.SQLITE_FULL, "error": sqlite3.SQLITE_IOERR}
_NUMBERS: Final = {"full": errno.ENOSPC, "error": errno.EIO}


class Disk:
    """What happens to writes of a service.

    Attributes:
        fails: how they fail; empty if they do not.
        broken_since_start: whether it has failed since the last start of the service.
        writes: how many there were: commits of the database, and writes to other files.
        on_write: is called before each of them.
    """

    def __init__(self) -> None:
        self.fails: How = ""
        self.broken_since_start = False
        self.writes = 0
        self.on_write: Callable[[], None] = lambda: None

    def write(self) -> None:
        """Count a write. Raises OSError."""
        self.writes += 1
        self.on_write()
        if self.fails:
            number = _NUMBERS[self.fails]
            raise OSError(number, os.strerror(number))


class _Connection(sqlite3.Connection):
    """A connection whose commits fail while the disk does."""

    disk: Disk

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        if sql == "COMMIT" and self.total_changes != self.changes_before:
            try:
                self.disk.write()
            except OSError:
                error = sqlite3.OperationalError(_SAID[self.disk.fails])
                error.sqlite_errorcode = _CODES[self.disk.fails]
                raise error from None
        elif sql.startswith("BEGIN"):
            self.changes_before = self.total_changes
        return super().execute(sql, *arguments)

    changes_before = 0


@contextmanager
def simulated_disk() -> Iterator[Disk]:
    """Let all services of the context write to a disk that can fail."""
    disk = Disk()

    class Connection(_Connection):
        pass

    Connection.disk = disk
    connect = sqlite3.connect

    def connected(*arguments: Any, **options: Any) -> sqlite3.Connection:
        return connect(*arguments, factory=Connection, **options)

    before = {name: getattr(os, name) for name in ("write", "pwrite", "fsync")}

    def failing(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            disk.write()
            return function(*arguments)

        return call

    sqlite3.connect = connected  # type: ignore[assignment]
    for name, function in before.items():
        setattr(os, name, failing(function))
    try:
        yield disk
    finally:
        sqlite3.connect = connect
        for name, function in before.items():
            setattr(os, name, function)

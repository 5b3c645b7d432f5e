"""The data directory and its database, behind an async face."""

import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio import to_thread

from component.storage.database import Database, Dialect, Rows, Value
from component.storage.errors import StorageError, explained
from component.storage.lock import DirectoryLock
from component.storage.migrations import migrate, transaction

if TYPE_CHECKING:
    from sqlite3 import Connection

T = TypeVar("T")

# Somebody may look into the database with the sqlite3 shell; a backup holds it for moments.
_BUSY_SECONDS = 5.0


class SQLite:
    """One transaction on SQLite."""

    dialect: Dialect = "sqlite"

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self.now = time.time_ns() // 1_000_000

    def execute(self, sql: str, parameters: Sequence[Value] = ()) -> Rows:
        """Run one statement."""
        return self._connection.execute(sql, parameters)

    def notify(self, channel: str) -> None:
        """Nobody listens: there is one process to a data directory."""


class Storage:
    """The data directory, open and locked; made by `Storage.open`.

    Stores bring functions that take a `Database` to `read` and `write`. They run one at
    a time in a worker thread, so the event loop never waits for the disk. A call that has begun
    runs to its end even if its caller is cancelled.
    """

    def __init__(self, directory: Path, connection: "Connection") -> None:
        """Take over an open connection; use `Storage.open`."""
        self.directory = directory
        """Where others may keep files of their own beside `agent.db`."""
        self._connection = connection
        self._one_at_a_time = anyio.CapacityLimiter(1)

    @classmethod
    @asynccontextmanager
    async def open(cls, directory: Path) -> "AsyncIterator[Storage]":
        """Open the directory (made with mode 0700 if it is missing) for the time of the context.

        Raises StorageError if it is no directory or cannot be written to, if another process has
        it, or if its database is damaged or was written by a newer release.
        """
        closing = ExitStack()
        connection = await to_thread.run_sync(_open, directory, closing)
        storage = cls(directory, connection)
        try:
            yield storage
        finally:
            with anyio.CancelScope(shield=True):
                await storage._run(closing.close)

    async def read(self, work: Callable[[Database], T]) -> T:
        """Return `work(database)`, which sees one state of the database throughout.

        Raises StorageError if the database cannot be read.
        """
        return await self._run(lambda: self._inside("DEFERRED", work))

    async def write(self, work: Callable[[Database], T]) -> T:
        """Return `work(database)` after all it changed is on disk; if it raises, nothing is.

        Raises StorageError if the change cannot be written: a full disk, a lock, damage.
        """
        return await self._run(lambda: self._inside("IMMEDIATE", work))

    def _inside(self, mode: str, work: Callable[[Database], T]) -> T:
        with explained(_database(self.directory)), transaction(self._connection, mode):
            return work(SQLite(self._connection))

    async def _run(self, call: Callable[[], T]) -> T:
        return await to_thread.run_sync(call, limiter=self._one_at_a_time)


def _database(directory: Path) -> Path:
    return directory / "agent.db"


def _open(directory: Path, closing: ExitStack) -> "Connection":
    """Do the blocking part of `Storage.open`; `closing` undoes it."""
    with ExitStack() as stack:
        with explained(directory):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with explained(directory / "agent.lock"):
            lock = DirectoryLock.acquire(directory)
        stack.callback(lock.release)
        connection = _connect(_database(directory))
        stack.callback(connection.close)
        closing.push(stack.pop_all())
    return connection


def _connect(path: Path) -> "Connection":
    import sqlite3  # noqa: PLC0415 - only who stores something pays for it

    with explained(path), ExitStack() as stack:
        # SQLite gives its own files beside this one the same mode.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(
            path,
            timeout=_BUSY_SECONDS,
            isolation_level=None,  # transactions are begun and ended by `transaction` alone
            check_same_thread=False,  # the limiter sees to it that one thread has it at a time
        )
        stack.callback(connection.close)
        (journal,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if journal != "wal":
            raise StorageError(
                f"The database {path} cannot keep a write-ahead log (SQLite offers {journal!r})."
                " Set path in [storage] to a directory on a local disk."
            )
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        migrate(connection, path)
        stack.pop_all()
    return connection

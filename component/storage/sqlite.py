"""SQLite: one file, one connection that writes and one that reads."""

import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from component.storage.batches import run_together
from component.storage.database import Database, Dialect, Rows, Value
from component.storage.errors import StorageError, explained, sqlite_sentence
from component.storage.listening import Never
from component.storage.migrations import migrate, transaction
from component.storage.writes import Write

if TYPE_CHECKING:
    from sqlite3 import Connection

T = TypeVar("T")

# Somebody may look into the database with the sqlite3 shell; a backup holds it for moments.
_BUSY_SECONDS: Final = 5.0


def process_clock() -> int:
    """The time of this machine, in milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


class SQLite:
    """The database `agent.db` of a data directory, open; made by `SQLite.open`.

    Used by two threads at most: one calls `write`, the other `read`.
    """

    def __init__(
        self, path: Path, writer: "Connection", reader: "Connection", clock: Callable[[], int]
    ) -> None:
        self.path = path
        self._writer = writer
        self._reader = reader
        self._clock = clock

    @classmethod
    def open(cls, path: Path, clock: Callable[[], int]) -> "SQLite":
        """Open the database, made if it is missing, and bring it to the shape of this release.

        Raises StorageError.
        """
        with ExitStack() as stack:
            with explained(path):
                # SQLite gives its own files beside this one the same mode.
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
                writer = _connect(path)
                stack.callback(writer.close)
                migrate(writer, path)
                # The second one sees the last commit while the first one writes the next.
                reader = _connect(path)
                stack.callback(reader.close)
            stack.pop_all()
        return cls(path, writer, reader, clock)

    def close(self) -> None:
        """Close both connections; the last one takes the write-ahead log into the file."""
        self._reader.close()
        self._writer.close()

    def write(self, writes: Sequence[Write[Any]]) -> None:
        """Run the operations in one transaction. Raises StorageError."""
        run_together(self, writes)

    @contextmanager
    def transaction(self) -> "Iterator[_Transaction]":
        """A transaction that may write. Raises StorageError if it cannot begin or be committed."""
        with explained(self.path), transaction(self._writer, "IMMEDIATE"):
            yield _Transaction(self._writer, self.path, self._clock())

    def read(self, op: Callable[[Database], T]) -> T:
        """Run an operation that reads. Raises StorageError."""
        with explained(self.path), transaction(self._reader, "DEFERRED"):
            return op(_Transaction(self._reader, self.path, self._clock()))

    @asynccontextmanager
    async def listen(self, channel: str) -> AsyncIterator[AsyncIterator[None]]:
        """Nobody else is there to notify."""
        yield Never()


class _Transaction:
    """One transaction."""

    dialect: Dialect = "sqlite"
    failed = False

    def __init__(self, connection: "Connection", path: Path, now: int) -> None:
        self.now = now
        self.changed = False
        self._connection = connection
        self._path = path

    def execute(self, sql: str, parameters: Sequence[Value] = (), /) -> Rows:
        """Run one statement."""
        if not sql.startswith("SELECT"):
            self.changed = True
        return self._connection.execute(sql, parameters)

    def notify(self, channel: str, /) -> None:
        """Nobody listens: there is one process to a data directory."""

    def savepoint(self) -> None:
        self._connection.execute("SAVEPOINT op")

    def release(self) -> None:
        self._connection.execute("RELEASE op")

    def back(self) -> None:
        self._connection.execute("ROLLBACK TO op")
        self._connection.execute("RELEASE op")

    def surroundings(self, error: BaseException) -> StorageError | None:
        sentence = sqlite_sentence(self._path, error)
        return None if sentence is None else StorageError(sentence)


def _connect(path: Path) -> "Connection":
    import sqlite3  # noqa: PLC0415 - only who stores something pays for it

    with ExitStack() as stack:
        connection = sqlite3.connect(
            path,
            timeout=_BUSY_SECONDS,
            isolation_level=None,  # transactions are begun and ended by `transaction` alone
            check_same_thread=False,  # one thread has it at a time
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
        stack.pop_all()
    return connection

"""SQLite: one file, one connection that writes and one that reads."""

import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from component.store.clock import SteadyClock, TransactionTimes, wall_clock
from component.store.database import Dialect, Rows, Value
from component.store.directory import is_used
from component.store.errors import (
    OutdatedError,
    StorageError,
    UnavailableError,
    UnstorableError,
    explained,
    sqlite_error,
)
from component.store.listening import Never
from component.store.schema import Schema, make_sqlite, transaction
from component.store.writes import Queued, run_together

if TYPE_CHECKING:
    from sqlite3 import Connection

T = TypeVar("T")

# The sqlite3 shell or a backup may lock the database for a moment.
_BUSY_SECONDS: Final = 5.0


class SQLite:
    """The database `agent.db` of a data directory, open; made by `SQLite.open`.

    Used by two threads at most: one calls `commit`, the other `reading`.
    """

    is_shared = False

    def __init__(
        self,
        path: Path,
        writer: "Connection",
        reader: "Connection",
        wall: Callable[[], int] = wall_clock,
        steady: SteadyClock | None = None,
    ) -> None:
        self.path = path
        self.place: str | None = None
        self._writer = writer
        self._reader = reader
        self._wall = wall
        self._steady = steady or SteadyClock()
        self.commit = partial(run_together, self)

    @classmethod
    def open(
        cls,
        path: Path,
        schema: Schema,
        wall: Callable[[], int] = wall_clock,
        steady: SteadyClock | None = None,
        *,
        upgrade: bool = False,
    ) -> "SQLite":
        """Open the database, and create it with the tables of `schema` if it is missing.

        `wall` and `steady` are its clocks. With `upgrade`, one of an older release is upgraded.
        Raises StorageError.
        """
        with ExitStack() as stack:
            with explained(path):
                _check_not_empty(path)
                # SQLite gives its own files beside this one the same mode.
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
                writer = connect(path)
                stack.callback(writer.close)
                try:
                    make_sqlite(writer, path, schema)
                except OutdatedError:
                    if not upgrade:
                        raise
                    from component.store import sqlite_upgrade  # noqa: PLC0415 - rarely needed

                    sqlite_upgrade.upgrade(writer, path, schema)
                # The reader sees the last commit while the writer writes the next.
                reader = connect(path)
                stack.callback(reader.close)
                database = cls(path, writer, reader, wall, steady)
                with transaction(writer, "IMMEDIATE"):
                    plain = _Transaction(writer, path, TransactionTimes(0, 0, 0))
                    database._steady.start(plain, wall(), shared=False)
            stack.pop_all()
        return database

    def close(self) -> None:
        """Close both connections; the last one checkpoints the write-ahead log."""
        self._reader.close()
        self._writer.close()

    @contextmanager
    def transaction(self, _writes: Sequence[Queued[Any]] = ()) -> "Iterator[_Transaction]":
        """Begin a transaction that may write.

        Raises UnavailableError if it cannot begin, StorageError if it cannot be committed.
        """
        begun = False
        try:
            with explained(self.path), transaction(self._writer, "IMMEDIATE"):
                begun = True
                made = _Transaction(self._writer, self.path, self._steady.times(self._wall))
                saved = self._steady.save(made, made.times)
                yield made
            if saved is not None:
                self._steady.saved(saved)
        except StorageError as error:
            if begun:
                raise
            raise UnavailableError(str(error)) from error

    @contextmanager
    def reading(self) -> "Iterator[_Transaction]":
        """Begin a transaction that only reads. Raises StorageError."""
        with explained(self.path), transaction(self._reader, "DEFERRED"):
            yield _Transaction(self._reader, self.path, self._steady.times(self._wall))

    def skew_ms(self) -> int | None:
        """Return how far the wall clock is ahead of the steady clock, in milliseconds; None while a
        jump does not count yet.
        """
        times = self._steady.times(self._wall)
        return times.now - times.steady if times.settled == times.now else None

    @asynccontextmanager
    async def listen(self, channel: str) -> AsyncIterator[AsyncIterator[None]]:
        """Return an iterator that never yields: there is no other process."""
        yield Never()

    def locks(self, name: str) -> None:
        """Return None: there is no other process."""


class _Transaction:
    """One transaction."""

    dialect: Dialect = "sqlite"
    failed = False
    assumed = False

    def __init__(self, connection: "Connection", path: Path, times: TransactionTimes) -> None:
        self.times = times
        self.now, self.settled, self.steady = times
        self.changed = False
        self._connection = connection
        self._path = path

    def execute(self, sql: str, parameters: Sequence[Value] = (), /) -> Rows:
        """Run one statement."""
        if not sql.startswith("SELECT"):
            self.changed = True
        return self._connection.execute(sql, parameters)

    def expect(self, sql: str, parameters: Sequence[Value] = (), /) -> bool:
        """See `Database`; the answer is known at once."""
        found = self.execute(sql, parameters)
        return found.fetchone() is not None if sql.startswith("SELECT") else found.rowcount > 0

    def notify(self, channel: str, /) -> None:
        """Do nothing: there is no other process."""

    def savepoint(self) -> None:
        self._connection.execute("SAVEPOINT op")

    def release(self) -> None:
        self._connection.execute("RELEASE op")

    def back(self) -> None:
        self._connection.execute("ROLLBACK TO op")
        self._connection.execute("RELEASE op")

    def explain(self, error: BaseException) -> StorageError | UnstorableError | None:
        import sqlite3  # noqa: PLC0415

        if (found := sqlite_error(self._path, error)) is not None:
            return found
        too_much = isinstance(error, OverflowError | UnicodeEncodeError | sqlite3.DataError)
        return UnstorableError(error) if too_much else None


def _check_not_empty(path: Path) -> None:
    """Raise StorageError if the file lost its contents: SQLite takes it for a new database."""
    if path.exists() and not path.stat().st_size and is_used(path.parent):
        raise StorageError(
            f"The database {path} is empty (0 bytes), although this data directory was used before:"
            " perhaps the disk was full, or a copy failed. Put it back from a backup. To begin with"
            " a new database, delete the file; memories in files are kept."
        )


def connect(path: Path) -> "Connection":
    """Open a connection to a database. Raises StorageError, and errors of SQLite."""
    import sqlite3  # noqa: PLC0415 - only if the storage is opened

    with ExitStack() as stack:
        connection = sqlite3.connect(
            path,
            timeout=_BUSY_SECONDS,
            isolation_level=None,  # transactions are begun and ended by `transaction` alone
            check_same_thread=False,  # one thread uses it at a time
        )
        stack.callback(connection.close)
        (journal,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if journal != "wal":
            raise StorageError(
                f"The database {path} cannot use a write-ahead log (SQLite offers {journal!r})."
                " Set path in [storage] to a directory on a local disk."
            )
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        # Else each statement with a trigger makes a temporary file, which takes longer than itself.
        connection.execute("PRAGMA temp_store = MEMORY")
        stack.pop_all()
    return connection

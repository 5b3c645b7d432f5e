"""PostgreSQL: one connection that writes and one that reads, both reopened when they break.

Only imported when `postgres` is set in `[storage]`; psycopg only when a database is opened.
"""

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    ExitStack,
    contextmanager,
)
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from component import system
from component.store.clock import Skew, SteadyClock, TransactionTimes, skew_in
from component.store.database import Database
from component.store.errors import ConflictError, ConnectionLostError, OutdatedError, StorageError
from component.store.listening import ChannelListener
from component.store.outages import Outages
from component.store.pipeline import ServerConnection, Transaction
from component.store.process_locks import ProcessLocks
from component.store.schema import Schema, make_postgres
from component.store.server import PostgresServer
from component.store.writes import ATTEMPTS, Doubt, LateError, Queued, read_once, run_together

if TYPE_CHECKING:
    from psycopg import Connection

T = TypeVar("T")

_CONFLICTS: Final = 50
"""Maximum number of attempts at a single operation that the server ends because of a deadlock. Each
time another transaction makes progress, so only a bug can reach this."""
_LONGEST_PAUSE_S: Final = 0.02
_REMOVE_KILLED: Final = (
    "DELETE FROM writers WHERE at < extract(epoch FROM now() - interval '30 days') * 1000"
)
"""Removes the rows of processes that were killed long ago."""
_BATCH_LOCK: Final = "SET LOCAL lock_timeout = '500ms'; "
"""A batch that waits longer for a row is split. This is shorter than the server's
`deadlock_timeout`, so that two batches that wait for each other lose less time."""
_DOUBT_S: Final = 10.0
"""How long the callers of a transaction in doubt wait for the server to come back."""
_SKEW: Final = (
    "(SELECT changes FROM clock), (SELECT skew FROM clock), (SELECT version FROM versions)"
)
"""What each transaction reads first: the stored skew, and the version of the tables."""
_NOW: Final = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"


class PostgreSQL:
    """A database of a PostgreSQL server, open; made by `PostgreSQL.open`.

    Used by two threads at most: one calls `write`, the other `read`.

    Every transaction also writes its number to the one row that this process has in the table
    `writers`. If the connection breaks while it is committed, that row tells whether it was: a
    session that reads it under a lock waits until the old one has ended. (`pg_xact_status` does not
    work: after a crash of the server the id of a lost transaction is reused, and the answer is
    that for the new one.)

    Attributes:
        place: the argument of `open`, if no transaction of an earlier run at that place can be
            committed any more; None if that is not certain, or no place was given.
    """

    is_shared = True

    def __init__(
        self,
        server: PostgresServer,
        steady: SteadyClock | None = None,
        version: int = 0,
        outages: Outages | None = None,
    ) -> None:
        """Use `PostgreSQL.open`."""
        self.server = server
        self._version = version
        self._steady = steady or SteadyClock()
        self.place: str | None = None
        self._writer = ServerConnection(server)
        self._reader = ServerConnection(server)
        self._listener = ChannelListener(server, outages or Outages())
        self._id = system.token_hex(16)
        self._batch = 0
        self._doubt: Doubt | None = None

    @classmethod
    def open(
        cls,
        conninfo: str,
        schema: Schema,
        place: str | None = None,
        steady: SteadyClock | None = None,
        outages: Outages | None = None,
        *,
        upgrade: bool = False,
    ) -> "PostgreSQL":
        """Connect, and make the tables of `schema` in a new database.

        `conninfo` is a connection string or URI of libpq; `place` is the same in every run of a
        process, of which only one exists at a time; `steady` detects jumps of the server's clock;
        `outages` learns when the connection that listens breaks. With `upgrade`, a database of an
        older release is upgraded.
        Raises StorageError, whose message names host and database, never the password.
        """
        database = cls(PostgresServer.of(conninfo), steady, schema.version, outages)
        with ExitStack() as stack:
            stack.callback(database.close)
            with database.server.explained():
                connection = database._writer.connection()
                name = str(database.server)
                try:
                    make_postgres(connection, name, schema)
                except OutdatedError:
                    if not upgrade:
                        raise
                    from component.store import postgres_upgrade  # noqa: PLC0415 - rarely needed

                    postgres_upgrade.upgrade(connection, name, schema)
                    make_postgres(connection, name, schema)
                connection.execute(_REMOVE_KILLED)
                database._start_clock(connection)
                if place is not None and _has_ended(connection, place):
                    database.place = place
            stack.pop_all()
        return database

    def _start_clock(self, connection: "Connection") -> None:
        with connection.transaction():
            connection.execute("SELECT 1 FROM clock FOR UPDATE")
            (wall,) = connection.execute(f"SELECT {_NOW}").fetchone() or (0,)
            plain = Transaction(
                self._writer, connection, TransactionTimes(0, 0, 0), pipelined=False
            )
            self._steady.start(plain, int(wall), shared=True)

    def look(self, op: Callable[[Database], T]) -> T:
        """Run an operation that reads, without `open`. Raises StorageError."""
        self._steady = SteadyClock(stored=read_once(self, skew_in))
        return read_once(self, op)

    def close(self) -> None:
        """Close the connections."""
        if self._batch and not self._writer.closed:
            with contextlib.suppress(Exception):
                self._writer.connection().execute("DELETE FROM writers WHERE id = %s", (self._id,))
        self._writer.close()
        self._reader.close()

    def commit(self, writes: Sequence[Queued[Any]], /) -> None:
        """Run the operations in one transaction, again if the connection breaks.

        Raises StorageError; ConflictError only for several operations.
        """
        lost = conflicts = 0
        while True:
            todo = writes
            try:
                self._settle()
                todo = [each for each in writes if each.doubt is None or not each.doubt.committed]
                if todo:
                    run_together(self, todo)
                break
            except ConnectionLostError:
                if self._doubt is not None:
                    for each in todo:
                        each.doubt = self._doubt
                lost += 1
                if lost == ATTEMPTS:
                    raise
            except ConflictError:
                conflicts += 1
                if len(todo) > 1 or conflicts == _CONFLICTS:
                    raise
                time.sleep(system.random() * _LONGEST_PAUSE_S)

    def _settle(self) -> None:
        """Ensure a connection, and find out whether the last transaction was committed."""
        if self._doubt is None:
            self._writer.connection()
            return
        give_up = system.monotonic() + _DOUBT_S
        wait = 0.1
        while True:
            try:
                found = self._ask()
                break
            except StorageError as error:
                if system.monotonic() > give_up:
                    raise StorageError(
                        f"{error} It is unknown whether the interrupted transaction was committed."
                    ) from error
                time.sleep(wait)
                wait = min(2 * wait, 1.0)
        self._doubt.committed = found == self._batch
        self._doubt = None

    def _ask(self) -> int | None:
        with self.server.explained():
            row = (
                self._writer.connection()
                .execute("SELECT batch FROM writers WHERE id = %s FOR UPDATE", (self._id,))
                .fetchone()
            )
        return None if row is None else row[0]

    @contextmanager
    def transaction(self, writes: Sequence[Queued[Any]] = ()) -> "Iterator[Transaction]":
        """Begin a transaction that may write.

        Raises StorageError if it cannot begin or be committed, and its subclasses
        ConnectionLostError or ConflictError if it may be run again; after ConnectionLostError,
        `_settle` finds out whether it was committed.
        """
        connection = self._writer.connection()
        self._batch += 1
        with self.server.explained():
            times = self._begin(connection, _BATCH_LOCK if len(writes) > 1 else "")
        transaction = Transaction(self._writer, connection, times)
        committing = False
        try:
            self._steady.save(transaction, times)
            tasks = {task for write in writes for task in write.tasks}
            if len(writes) > 1 or len(tasks) > 1:
                transaction.lock_tasks(tasks)
            yield transaction
            committing = True
            with self.server.explained():
                transaction.commit()
        except BaseException as error:
            with contextlib.suppress(Exception):
                transaction.stop_pipelining()
            with contextlib.suppress(Exception):
                if (
                    not connection.closed
                ):  # a broken one was rolled back by the server, or committed
                    connection.execute("ROLLBACK")
                    if transaction.skipped:
                        self._writer.prepare_again()
            if committing and isinstance(error, ConnectionLostError):
                self._doubt = Doubt()
            elif committing and _is_late(error):
                raise LateError from error
            elif (why := self.server.surroundings(error)) is not None:
                raise why from error  # an error of the statement that locks the tasks
            raise

    def _begin(self, connection: "Connection", settings: str) -> TransactionTimes:
        before = self._steady.elapsed()
        # One round trip: statements without parameters may be sent together.
        number = f"batch = {self._batch}, at = {_NOW}"
        cursor = connection.execute(
            f"BEGIN ISOLATION LEVEL READ COMMITTED; {settings}UPDATE writers SET {number}"  # noqa: S608 ours
            f" WHERE id = '{self._id}' RETURNING at, {_SKEW}",
            prepare=False,
        )
        while cursor.nextset():
            pass
        row = cursor.fetchone()
        if row is None:
            row = connection.execute(
                "INSERT INTO writers (id, batch, at, place)"  # noqa: S608 - ours
                f" VALUES (%s, %s, {_NOW}, %s) RETURNING at, {_SKEW}",
                (self._id, self._batch, self.place),
            ).fetchone()
        wall, changes, skew, version = cast("Any", row)
        if version != self._version:
            connection.execute("ROLLBACK")
            raise StorageError(
                f"{self.server} is of version {version} now, and this release knows version"
                f" {self._version}: another instance has upgraded it or put a backup back. Stop"
                " this instance, and start it with the same release as the others."
            )
        return self._steady.read(before, int(wall), self._steady.elapsed(), Skew(changes, skew))

    @contextmanager
    def reading(self) -> "Iterator[Transaction]":
        """Begin a transaction that only reads.

        Raises StorageError; after ConnectionLostError the operation may be run again.
        """
        connection = self._reader.connection()
        with self.server.explained():
            before = self._steady.elapsed()
            cursor = connection.execute(
                f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT {_NOW}",
                prepare=False,
            )
            cursor.nextset()
            (wall,) = cast("Any", cursor.fetchone())
            # The stored skew is that of the last write; a later jump is detected here, too.
            clock = self._steady
            times = clock.read(before, int(wall), clock.elapsed(), clock.stored)
            try:
                yield Transaction(self._reader, connection, times, pipelined=False)
            finally:
                with contextlib.suppress(Exception):
                    connection.execute("ROLLBACK")

    def skew_ms(self) -> None:
        """Return None: the clock is that of the server."""

    def listen(self, channel: str) -> AbstractAsyncContextManager[AsyncIterator[None]]:
        """Listen, on one connection for all channels."""
        return self._listener.listen(channel)

    def locks(self, name: str) -> ProcessLocks:
        """Return the locks of a name, with a connection of their own."""
        return ProcessLocks(self.server, name)


def _has_ended(connection: "Connection", place: str) -> bool:
    """Wait until no transaction of earlier runs at a place is in progress; False after a timeout.

    The server may have received a commit whose sender was then killed. Until it is complete, that
    transaction holds the row of its process in `writers`, which it has locked first.
    """
    import psycopg  # noqa: PLC0415

    try:
        connection.execute("SELECT 1 FROM writers WHERE place = %s FOR UPDATE", (place,))
    except psycopg.errors.LockNotAvailable:
        return False
    return True


def _is_late(error: BaseException) -> bool:
    """Whether it is the error of a statement, or of one that was skipped after an error."""
    import psycopg  # noqa: PLC0415

    return isinstance(error, psycopg.Error)

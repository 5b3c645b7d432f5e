"""PostgreSQL: one connection that writes and one that reads, both made again when they break.

Only imported when `postgres` is set in `[storage]`; psycopg only when a database is opened.
"""

import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    contextmanager,
)
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from component.storage.batches import LateError, run_together
from component.storage.database import Database, Dialect, Rows, Value
from component.storage.errors import StorageError
from component.storage.listening import listening
from component.storage.migrations import migrate_postgres
from component.storage.placeholders import Placeholders
from component.storage.server import LostError, Server
from component.storage.writes import Doubt, Write

if TYPE_CHECKING:
    from psycopg import Connection, Cursor, Pipeline

T = TypeVar("T")

_ATTEMPTS: Final = 4
"""How often a transaction is run that fails by no fault of its own: a broken connection, a
deadlock with another instance."""
_DOUBT_S: Final = 10.0
"""How long the callers of a transaction in doubt wait for the server to come back."""
_NOW: Final = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"


class PostgreSQL:
    """A database of a PostgreSQL server, open; made by `PostgreSQL.open`.

    Used by two threads at most: one calls `write`, the other `read`.

    Every transaction also writes its number to the one row that this process has in the table
    `writers`. If the connection breaks while it is committed, that row tells whether it was: a
    session that reads it under a lock waits until the old one has ended. (`pg_xact_status` cannot
    tell: after a crash of the server the id of a transaction that was lost is given again, and the
    answer is that of its next owner.)

    Attributes:
        place: what `open` was given, if nothing that an earlier life of that place has begun can be
            committed any more; None if that is not certain, or there is no such place.
    """

    def __init__(self, server: Server) -> None:
        """Use `PostgreSQL.open`."""
        self.server = server
        self.place: str | None = None
        self._writer = _Session(server)
        self._reader = _Session(server)
        self._id = secrets.token_hex(16)
        self._batch = 0
        self._doubt: Doubt | None = None

    @classmethod
    def open(cls, conninfo: str, place: str | None = None) -> "PostgreSQL":
        """Connect, and bring the database to the shape of this release.

        `conninfo` is a connection string or URI of libpq; `place` is the same in every life of a
        process, of which no two are at a time. Raises StorageError, whose sentence names host and
        database, never the password.
        """
        database = cls(Server.of(conninfo))
        with ExitStack() as stack:
            stack.callback(database.close)
            with database.server.explained():
                connection = database._writer.connection()
                migrate_postgres(connection, str(database.server))
                if place is not None and _has_ended(connection, place):
                    database.place = place
            stack.pop_all()
        return database

    def close(self) -> None:
        """Close the connections."""
        if self._batch and not self._writer.closed:
            with contextlib.suppress(Exception):
                self._writer.connection().execute("DELETE FROM writers WHERE id = %s", (self._id,))
        self._writer.close()
        self._reader.close()

    def write(self, writes: Sequence[Write[Any]]) -> None:
        """Run the operations in one transaction. Raises StorageError."""
        for left in reversed(range(_ATTEMPTS)):
            todo = writes
            try:
                self._settle()
                todo = [each for each in writes if each.doubt is None or not each.doubt.committed]
                if todo:
                    run_together(self, todo)
                break
            except LostError:
                if self._doubt is not None:
                    for each in todo:
                        each.doubt = self._doubt
                if not left:
                    raise

    def _settle(self) -> None:
        """Have a connection, and know of the last transaction whether it was committed."""
        if self._doubt is None:
            self._writer.connection()
            return
        give_up = time.monotonic() + _DOUBT_S
        wait = 0.1
        while True:
            try:
                found = self._ask()
                break
            except StorageError as error:
                if time.monotonic() > give_up:
                    raise StorageError(
                        f"{error} It is not known whether what was being written then is there."
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
    def transaction(self) -> "Iterator[_Transaction]":
        """A transaction that may write.

        Raises StorageError if it cannot begin or be committed, and LostError, a kind of it, if it
        may be run again; whether it was committed is then told by `_settle`.
        """
        connection = self._writer.connection()
        self._batch += 1
        with self.server.explained():
            now = self._begin(connection)
        transaction = _Transaction(self._writer, connection, now)
        committing = False
        try:
            yield transaction
            committing = True
            with self.server.explained():
                transaction.commit()
        except BaseException as error:
            with contextlib.suppress(Exception):
                transaction.stop_pipelining()
            with contextlib.suppress(Exception):
                if not connection.closed:  # a broken one has rolled back by itself, or committed
                    connection.execute("ROLLBACK")
                    if transaction.skipped:
                        self._writer.prepare_again()
            if committing and isinstance(error, LostError):
                self._doubt = Doubt()
            elif committing and _is_late(error):
                raise LateError from error
            raise

    def _begin(self, connection: "Connection") -> int:
        # Both in one round trip: statements without parameters may be sent together.
        number = f"batch = {self._batch}, at = {_NOW}"
        cursor = connection.execute(
            f"BEGIN ISOLATION LEVEL READ COMMITTED; UPDATE writers SET {number}"  # noqa: S608 ours
            f" WHERE id = '{self._id}' RETURNING at",
            prepare=False,
        )
        cursor.nextset()
        row = cursor.fetchone()
        if row is None:
            row = connection.execute(
                "INSERT INTO writers (id, batch, at, place)"  # noqa: S608 - ours
                f" VALUES (%s, %s, {_NOW}, %s) RETURNING at",
                (self._id, self._batch, self.place),
            ).fetchone()
        return int(cast("Any", row)[0])

    def read(self, op: Callable[[Database], T]) -> T:
        """Run an operation that reads. Raises StorageError."""
        for left in reversed(range(_ATTEMPTS)):
            try:
                return self._read(op)
            except LostError:
                if not left:
                    raise
        raise AssertionError("unreachable")

    def _read(self, op: Callable[[Database], T]) -> T:
        connection = self._reader.connection()
        with self.server.explained():
            cursor = connection.execute(
                f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT {_NOW}",
                prepare=False,
            )
            cursor.nextset()
            (now,) = cast("Any", cursor.fetchone())
            try:
                return op(_Transaction(self._reader, connection, now, pipelined=False))
            finally:
                with contextlib.suppress(Exception):
                    connection.execute("ROLLBACK")

    def listen(self, channel: str) -> AbstractAsyncContextManager[AsyncIterator[None]]:
        """Listen on a connection of its own."""
        return listening(self.server, channel)


def _has_ended(connection: "Connection", place: str) -> bool:
    """Wait until nothing of earlier lives of a place is under way any more; False: it still is.

    The server may have got a commit whose sender was killed then. Until it is through, that
    transaction holds the row in `writers` of its process, which it has locked before all else.
    """
    import psycopg  # noqa: PLC0415

    try:
        connection.execute("SELECT 1 FROM writers WHERE place = %s FOR UPDATE", (place,))
    except psycopg.errors.LockNotAvailable:
        return False
    return True


class _Session:
    """A connection that is made again when it has broken, and what it knows of statements."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.placeholders = Placeholders()
        self._connection: Connection | None = None
        self._forgotten = 0

    @property
    def closed(self) -> bool:
        return self._connection is None or self._connection.closed

    def connection(self) -> "Connection":
        """The connection, working as far as is known. Raises StorageError."""
        if self._connection is None or self._connection.closed:
            self._connection = self.server.connect()
        return self._connection

    def prepare_again(self) -> None:
        """Forget which statements are prepared, here and there.

        The driver counts as prepared what it has sent in a pipeline, also if the server passed
        over it after an error. Only the answer to a text that it has not seen makes it forget.
        """
        self._forgotten += 1
        self.connection().execute(f"DEALLOCATE ALL /* {self._forgotten} */", prepare=False)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Transaction:
    """One transaction.

    A round trip costs more than most statements. So nobody waits for one whose answer nobody looks
    at: it is on its way while the next is made (libpq's pipeline mode). The server skips all that
    follows a statement that failed, the COMMIT too; the error shows at the next answer that is
    looked at, in whichever operation that is. Then the batch runs again with savepoints, one
    statement at a time.
    """

    dialect: Dialect = "postgresql"

    def __init__(
        self, session: _Session, connection: "Connection", now: int, *, pipelined: bool = True
    ) -> None:
        self.now = now
        self.changed = False
        self.skipped = False
        """Whether the server passed over statements that were on their way to it."""
        self._session = session
        self._connection = connection
        self._pipelined = pipelined
        self._pipeline: AbstractContextManager[Pipeline] | None = None
        self._sent: Pipeline | None = None

    def execute(self, sql: str, parameters: Sequence[Value] = (), /) -> Rows:
        """Run one statement."""
        if not sql.startswith("SELECT"):
            self.changed = True
        translated = self._session.placeholders.translate(sql)
        if self._pipelined and self._sent is None:
            self._pipeline = self._connection.pipeline()
            self._sent = self._pipeline.__enter__()
        cursor = self._connection.execute(translated, parameters)
        return cursor if self._sent is None else _Answer(cursor, self._sent)

    def notify(self, channel: str, /) -> None:
        """Wake who listens, once this is committed."""
        self.changed = True
        self._connection.execute("SELECT pg_notify(%s, '')", (channel,))

    def savepoint(self) -> None:
        self.stop_pipelining()
        self._connection.execute("SAVEPOINT op")

    def release(self) -> None:
        self._connection.execute("RELEASE op")

    def back(self) -> None:
        self._connection.execute("ROLLBACK TO op; RELEASE op")

    def commit(self) -> None:
        self._connection.execute("COMMIT")
        self.stop_pipelining()

    def stop_pipelining(self) -> None:
        """Wait for all answers, and from now on for each."""
        self._pipelined = False
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            try:
                pipeline.__exit__(None, None, None)
            finally:
                self.skipped = self.failed

    @property
    def failed(self) -> bool:
        # Only ROLLBACK is left: INERROR, or what is on its way is skipped.
        pgconn = self._connection.pgconn
        return pgconn.transaction_status == 3 or pgconn.pipeline_status == 2

    def surroundings(self, error: BaseException) -> StorageError | None:
        return self._session.server.surroundings(error)


def _is_late(error: BaseException) -> bool:
    """Whether it is the error of a statement, or of one that was skipped after that."""
    import psycopg  # noqa: PLC0415

    return isinstance(error, psycopg.Error)


class _Answer:
    """What a statement that is on its way gives; to look at it is to wait for it."""

    __slots__ = ("_cursor", "_pipeline")

    def __init__(self, cursor: "Cursor[tuple[Any, ...]]", pipeline: "Pipeline") -> None:
        self._cursor = cursor
        self._pipeline = pipeline

    @property
    def rowcount(self) -> int:
        """How many rows it changed."""
        self._pipeline.sync()
        return self._cursor.rowcount

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, or None."""
        return self._cursor.fetchone()

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that are left."""
        return self._cursor.fetchall()

"""A transaction on PostgreSQL whose statements do not wait for each other's answers."""

import re
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from component.store.clock import TransactionTimes
from component.store.database import Dialect, Rows, Value
from component.store.errors import StorageError, UnstorableError
from component.store.server import PostgresServer
from component.store.writes import LateError

if TYPE_CHECKING:
    from psycopg import Connection, Cursor, Pipeline

_LOCK_TASKS: Final = "SELECT 1 FROM tasks WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE"


# Texts, names and comments, in which `?` is not a placeholder.
_PARTS: Final = re.compile(
    r"(?P<skip>'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/)|(?P<mark>\?)", re.DOTALL
)


class Placeholders:
    """Translates statements and caches the results, since a program has few statements."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def translate(self, sql: str) -> str:
        """Return the statement in psycopg's syntax, with or without parameters."""
        known = self._known.get(sql)
        if known is None:
            known = self._known[sql] = _PARTS.sub(_translated, sql.replace("%", "%%"))
        return known


def _translated(match: re.Match[str]) -> str:
    return "%s" if match["mark"] else match[0]


class ServerConnection:
    """A connection that is reopened when it has broken, with its translated statements."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.placeholders = Placeholders()
        self._connection: Connection | None = None
        self._forgotten = 0

    @property
    def closed(self) -> bool:
        """Whether there is no working connection."""
        return self._connection is None or self._connection.closed

    def connection(self) -> "Connection":
        """Return the connection; open it if needed. Raises StorageError."""
        if self._connection is None or self._connection.closed:
            self._connection = self.server.connect()
        return self._connection

    def prepare_again(self) -> None:
        """Discard prepared statements, in the driver and on the server.

        The driver regards statements sent in a pipeline as prepared, even if the server skipped
        them after an error. Only the answer to a statement with a new text makes it discard them.
        """
        self._forgotten += 1
        self.connection().execute(f"DEALLOCATE ALL /* {self._forgotten} */", prepare=False)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Transaction:
    """A transaction that uses libpq's pipeline mode.

    A round trip costs more than most statements. So a statement whose result is not used is sent
    without waiting for its answer. After a failed statement the server skips all others, including
    the COMMIT; the error is raised when the next result is used, possibly in another operation.
    Then the batch runs again with savepoints, one statement at a time.
    """

    dialect: Dialect = "postgresql"

    def __init__(
        self,
        session: ServerConnection,
        connection: "Connection",
        times: TransactionTimes,
        *,
        pipelined: bool = True,
    ) -> None:
        self.now, self.settled, self.steady = times
        self.changed = self.assumed = False
        self.skipped = False
        """Whether the server skipped statements that had been sent."""
        self._session = session
        self._connection = connection
        self._pipelined = pipelined
        self._pipeline: AbstractContextManager[Pipeline] | None = None
        self._sent: Pipeline | None = None
        self._expected: list[Cursor[tuple[Any, ...]]] = []

    def execute(self, sql: str, parameters: Sequence[Value] = (), /) -> Rows:
        """Run one statement."""
        cursor = self._run(sql, parameters)
        return cursor if self._sent is None else _Answer(cursor, self._sent)

    def expect(self, sql: str, parameters: Sequence[Value] = (), /) -> bool:
        """See `Database`."""
        cursor = self._run(sql, parameters)
        if self._sent is None:
            return cursor.rowcount > 0
        self._expected.append(cursor)
        self.assumed = True
        return True

    def _run(self, sql: str, parameters: Sequence[Value]) -> "Cursor[tuple[Any, ...]]":
        if not sql.startswith("SELECT"):
            self.changed = True
        return self._send(self._session.placeholders.translate(sql), parameters)

    def _send(self, sql: str, parameters: Sequence[Any]) -> "Cursor[tuple[Any, ...]]":
        if self._pipelined and self._sent is None:
            self._pipeline = self._connection.pipeline()
            self._sent = self._pipeline.__enter__()
        return self._connection.execute(sql, parameters)

    def lock_tasks(self, tasks: Collection[str]) -> None:
        """Lock the rows of tasks, in the order of their ids, without waiting for the answer."""
        if tasks:
            # The rows are sorted before they are locked. Operations cannot pass lists as values.
            self._send(_LOCK_TASKS, [sorted(tasks)])

    def notify(self, channel: str, /) -> None:
        """Notify listeners when this is committed."""
        self.changed = True
        self._connection.execute("SELECT pg_notify(%s, '')", (channel,))

    def savepoint(self) -> None:
        """Set a savepoint for `back`."""
        self.stop_pipelining()
        self._connection.execute("SAVEPOINT op")

    def release(self) -> None:
        """Release the savepoint and keep the changes since."""
        self._connection.execute("RELEASE op")

    def back(self) -> None:
        """Roll back to the savepoint and release it."""
        self._connection.execute("ROLLBACK TO op; RELEASE op")

    def commit(self) -> None:
        """Commit, and wait for all answers. Raises LateError if an expected row was not there."""
        if self._expected and self._sent is not None:
            self._sent.sync()
            if not all(cursor.rowcount for cursor in self._expected):
                raise LateError
        self._connection.execute("COMMIT")
        self.stop_pipelining()

    def stop_pipelining(self) -> None:
        """Wait for all answers, and from now on for each one."""
        self._pipelined = False
        pipeline, self._pipeline, self._sent = self._pipeline, None, None
        if pipeline is not None:
            try:
                pipeline.__exit__(None, None, None)
            finally:
                self.skipped = self.failed

    @property
    def failed(self) -> bool:
        """Whether an error only allows a rollback."""
        # INERROR, or the pipeline is aborted.
        pgconn = self._connection.pgconn
        return pgconn.transaction_status == 3 or pgconn.pipeline_status == 2

    def explain(self, error: BaseException) -> StorageError | UnstorableError | None:
        """See `component.store.writes.Transaction`."""
        server = self._session.server
        return server.surroundings(error) or server.unstorable(error)


class _Answer:
    """The result of a statement that was sent; using it waits for the answer."""

    __slots__ = ("_cursor", "_pipeline")

    def __init__(self, cursor: "Cursor[tuple[Any, ...]]", pipeline: "Pipeline") -> None:
        self._cursor = cursor
        self._pipeline = pipeline

    @property
    def rowcount(self) -> int:
        """The number of changed rows."""
        self._pipeline.sync()
        return self._cursor.rowcount

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, or None."""
        return self._cursor.fetchone()

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all remaining rows."""
        return self._cursor.fetchall()

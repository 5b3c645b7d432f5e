"""Builds the indexes of an upgrade on PostgreSQL while the service is running."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

import anyio
import structlog
from anyio import to_thread

from component.storage.errors import StorageError
from component.storage.migrations import MIGRATIONS, Index, Step
from component.storage.server import Server

if TYPE_CHECKING:
    from psycopg import Connection

_log = structlog.get_logger("component.storage")

_LOCK: Final = 0x786D7071
"""The advisory lock of the instance that builds, distinct from that of the migration."""
_AGAIN_S: Final = 60.0
"""Seconds until an instance that could not build checks again."""
_VALID: Final = (
    "SELECT c.relname, i.indisvalid FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid"
    " WHERE c.relname = ANY(%s) AND pg_table_is_visible(c.oid)"
)

Outcome = Literal["complete", "busy"]


async def build_indexes(server: Server, steps: Sequence[Step] = MIGRATIONS) -> None:
    """Build missing indexes, one after another, until all exist.

    Only one of several instances builds. It uses one more connection, and blocks neither
    reads nor writes. If it is cancelled, the running statement is cancelled too; the next start
    begins that index again. Errors of the database are logged, and building is retried.
    """
    _log.info("building indexes in the background; some queries may be slow until then")
    while True:
        builder = IndexBuilder(server, steps)
        try:
            if await to_thread.run_sync(builder.run, abandon_on_cancel=True) == "complete":
                return
        except StorageError as error:
            _log.warning("an index cannot be built now", reason=str(error))
        finally:
            builder.cancel()
        await anyio.sleep(_AGAIN_S)


class IndexBuilder:
    """Builds missing indexes, in a thread.

    Args:
        server: the database server.
        steps: the migrations whose indexes must exist.
    """

    def __init__(self, server: Server, steps: Sequence[Step] = MIGRATIONS) -> None:
        self._server = server
        self._indexes = {index.name: index for step in steps for index in step.indexes}
        self._connection: Connection | None = None
        self._cancelled = False

    def run(self) -> Outcome:
        """Build them; "busy" means that another instance is doing so. Raises StorageError."""
        connection = self._connection = self._server.connect()
        try:
            with self._server.explained():
                return self._run(connection)
        finally:
            self._connection = None
            connection.close()

    def cancel(self) -> None:
        """Cancel the running statement, if any; may be called from any thread."""
        import psycopg  # noqa: PLC0415

        self._cancelled = True
        connection = self._connection
        if connection is not None:
            try:
                connection.cancel()
            except psycopg.Error as error:
                _log.warning("an index is still being built", reason=str(error))

    def _run(self, connection: "Connection") -> Outcome:
        missing = self.missing(connection)
        if not missing:
            return "complete"
        # Building waits for earlier transactions, which may take long.
        connection.execute("SET lock_timeout = 0; SET statement_timeout = 0")
        row = connection.execute("SELECT pg_try_advisory_lock(%s)", (_LOCK,)).fetchone()
        if row != (True,):
            return "busy"
        for index in self.missing(connection):
            if self._cancelled:
                return "busy"
            self._build(connection, index)
        return "complete"

    def missing(self, connection: "Connection") -> list[Index]:
        """The indexes that do not exist or are not valid."""
        valid: dict[str, bool] = dict(connection.execute(_VALID, (list(self._indexes),)).fetchall())
        return [index for name, index in self._indexes.items() if not valid.get(name)]

    def _build(self, connection: "Connection", index: Index) -> None:
        _log.info("building an index", index=index.name)
        # An index whose build was interrupted exists and is updated, but is not used.
        connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {index.name}")
        connection.execute(index.sql(concurrently=True))
        _log.info("the index is built", index=index.name)

"""Being woken by other processes on the same PostgreSQL (LISTEN and NOTIFY)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

import anyio
import structlog
from anyio import to_thread

from component.storage.errors import StorageError
from component.storage.server import Server
from component.storage.writes import FIRST_WAIT_S, LONGEST_WAIT_S

if TYPE_CHECKING:
    from psycopg import Connection

_log = structlog.get_logger("component.storage")


class Never:
    """Yields nothing, for as long as anybody waits: there is no other process."""

    def __aiter__(self) -> Self:
        """Itself."""
        return self

    async def __anext__(self) -> None:
        """Wait until cancelled."""
        await anyio.sleep_forever()


@asynccontextmanager
async def listening(server: Server, channel: str) -> AsyncIterator[AsyncIterator[None]]:
    """Listen to the channel on a connection of its own; see `Storage.listen`."""
    ear = _Ear(server, channel)
    try:
        await ear.connect()
        yield ear
    finally:
        ear.close()


class _Ear:
    """The connection that listens, watched by the event loop: it costs no thread."""

    def __init__(self, server: Server, channel: str) -> None:
        self._server = server
        self._channel = channel
        self._connection: Connection | None = None

    async def connect(self) -> None:
        """Have a connection that listens. Raises StorageError."""
        self._connection = await to_thread.run_sync(self._connect)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # No generator: one that is left in the middle has to be closed by somebody.
    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> None:
        while self._connection is not None:
            if await self._wait(self._connection):
                return
        await self._again()  # and nobody knows what was said meanwhile

    def _connect(self) -> "Connection":
        from psycopg import sql  # noqa: PLC0415

        connection = self._server.connect()
        try:
            with self._server.explained():
                connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
        except BaseException:
            connection.close()
            raise
        return connection

    async def _again(self) -> None:
        wait = FIRST_WAIT_S
        while self._connection is None:
            try:
                await self.connect()
            except StorageError as error:
                if wait == FIRST_WAIT_S:
                    _log.warning("cannot_listen", reason=str(error))
                await anyio.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT_S)

    async def _wait(self, connection: "Connection") -> bool:
        """Wait until something comes in; whether it was a notification."""
        import psycopg  # noqa: PLC0415

        await anyio.wait_readable(connection.fileno())
        heard = False
        try:
            connection.pgconn.consume_input()
            while connection.pgconn.notifies() is not None:
                heard = True
        except psycopg.OperationalError:
            self.close()
        return heard

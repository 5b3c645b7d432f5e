"""Locks that are released when the process that holds them ends, however it ends.

They are advisory locks of a session of PostgreSQL. The server releases them when the connection is
closed, which the kernel of a killed process does immediately. If a machine is lost, the server
finds out within a quarter of a minute, because it probes the connection.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from component import system
from component.store.errors import StorageError

if TYPE_CHECKING:
    from psycopg import Connection

    from component.store.server import PostgresServer

_KEEPALIVE: Final = """
SET tcp_keepalives_idle = 5;
SET tcp_keepalives_interval = 2;
SET tcp_keepalives_count = 3
"""
_TAKE: Final = "SELECT pg_try_advisory_lock(%(space)s::int, %(number)s::int)"
_RELEASE: Final = "SELECT pg_advisory_unlock(%(space)s::int, %(number)s::int)"
_OWNERS: Final = (
    "SELECT CAST(objid AS bigint), pid FROM pg_locks WHERE locktype = 'advisory' AND granted"
    " AND objsubid = 2 AND CAST(classid AS bigint) = %(space)s AND database ="
    " (SELECT oid FROM pg_database WHERE datname = current_database())"
)


class ProcessLocks:
    """Locks with the numbers from 0 to 2**31 - 1; of each, at most one process holds it.

    They are lost with the connection to the server; the next call opens another one. Methods raise
    StorageError.

    Args:
        server: where to connect, at the first call.
        name: distinguishes these locks from others in the same schema.

    Attributes:
        held: the numbers of the locks that this process holds, as far as it knows.
    """

    def __init__(self, server: "PostgresServer", name: str) -> None:
        self.held: set[int] = set()
        self._server = server
        self._name = name
        self._connection: Connection | None = None
        self._space = 0

    async def owners(self) -> Mapping[int, int]:
        """Return all locks that are held, each with a number that identifies the process."""
        return dict(await self._run(_OWNERS))

    async def take(self, number: int) -> bool:
        """Take a lock; return False if another process holds it."""
        if number not in self.held:
            ((taken,),) = await self._run(_TAKE, number=number)
            if taken:
                self.held.add(number)
        return number in self.held

    async def release(self, number: int) -> None:
        """Release a lock, if this process holds it."""
        if number in self.held:
            self.held.discard(number)
            await self._run(_RELEASE, number=number)

    async def notify(self, channel: str) -> None:
        """Notify a channel; see `Storage.listen`."""
        await self._run("SELECT pg_notify(%(channel)s::text, '')", channel=channel)

    def close(self) -> None:
        """Release all locks."""
        self.held.clear()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _run(self, sql: str, **values: str | int) -> list[tuple[Any, ...]]:
        return await system.in_thread(self._run_now, sql, values)

    def _run_now(self, sql: str, values: Mapping[str, str | int]) -> list[tuple[Any, ...]]:
        try:
            with self._server.explained():
                if self._connection is None:
                    self._connection = self._server.connect()
                    self._connection.execute(_KEEPALIVE)
                    self._space = self._find_space(self._connection)
                return self._connection.execute(sql, {"space": self._space, **values}).fetchall()
        except StorageError:
            self.close()
            raise

    def _find_space(self, connection: "Connection") -> int:
        """Return the first number of the locks; PostgreSQL gives each two."""
        ((schema,),) = connection.execute("SELECT current_schema()").fetchall()
        digest = sha256(f"{schema} {self._name}".encode()).digest()
        return int.from_bytes(digest[:4], "big") >> 1

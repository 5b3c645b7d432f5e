"""What a worker does with the rows of its queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from component.features.workers.messages import Asked, Outcome, Progress, Stopped, encode
from component.features.workers.queue import ENDED, PROGRESS

_LONGEST_TEXT: Final = 500  # a notification has at most 8,000 bytes

Pool = AsyncConnectionPool[AsyncConnection[Any]]


class Begun(msgspec.Struct, frozen=True):
    """A call that this worker has begun.

    `fence` is the fencing token for its outcome, `seconds` are left until it expires, and `channel`
    is the one of its service.
    """

    id: str
    message: bytes
    fence: int
    seconds: float
    repeatable: bool
    channel: str


_BEAT: Final = (
    "INSERT INTO workers (id, queue, name, lanes, lost_after)"
    " VALUES (%s, %s, %s, %s, %s * interval '1s')"
    " ON CONFLICT (id) DO UPDATE SET seen = now(), lanes = excluded.lanes"
)


class WorkerRows:
    """The statements of one worker.

    Args:
        pool: connections that see only the tables of queues.
        id: identifies this process.
        lost_after_s: seconds without a sign of life after which it counts as lost.
    """

    def __init__(self, pool: Pool, id: str, queue: str, name: str, lost_after_s: float) -> None:  # noqa: A002
        self._pool = pool
        self._id = id
        self._queue = queue
        self._name = name
        self._lost_after_s = lost_after_s

    async def beat(self, lanes: Sequence[str]) -> None:
        """Show that the worker is alive, and which lanes it serves."""
        await self._execute(_BEAT, self._beating(lanes))

    async def announce(self, described: Mapping[str, tuple[str, str]]) -> None:
        """Announce versions of skills, names and descriptions by lane, and that the worker serves
        them: a service that saw one without the other would refuse calls.
        """
        async with self._pool.connection() as connection:
            await connection.execute(_BEAT, self._beating(list(described)))
            for lane, (skill, description) in sorted(described.items()):
                await connection.execute(
                    "INSERT INTO offers (queue, lane, skill, description) VALUES (%s, %s, %s, %s)"
                    " ON CONFLICT (queue, lane) DO UPDATE SET seen = now()",
                    (self._queue, lane, skill, description),
                )

    def _beating(self, lanes: Sequence[str]) -> tuple[Any, ...]:
        return (self._id, self._queue, self._name, list(lanes), self._lost_after_s)

    async def leave(self) -> None:
        """Remove the worker, whose calls have ended."""
        await self._execute("DELETE FROM workers WHERE id = %s", (self._id,))

    async def begin(self, call: str) -> Begun | None:
        """Begin a call, unless it has begun, ended or expired."""
        # The key lock keeps a service from counting this worker as lost in between, and does not
        # wait for its signs of life.
        row = await self._execute(
            "WITH me AS (SELECT id FROM workers WHERE id = %(me)s FOR KEY SHARE)"
            " UPDATE calls SET state = 'running', worker = me.id, attempts = attempts + 1,"
            " fence = nextval('fences') FROM me"
            " WHERE calls.id = %(call)s AND state = 'waiting' AND expires > now()"
            " RETURNING message, fence, extract(epoch FROM expires - now())::float8, repeatable,"
            " channel",
            {"me": self._id, "call": call},
        )
        return None if row is None else Begun(call, bytes(row[0]), *row[1:])

    async def end(self, begun: Begun, outcome: Outcome, *, failed: bool) -> bool:
        """Write the outcome of a call. Return False if it was taken from this worker."""
        row = await self._execute(
            "UPDATE calls SET state = 'ended', outcome = %s, failed = %s, asked = %s, ended = now()"
            " WHERE id = %s AND fence = %s AND state = 'running'"
            " RETURNING pg_notify(channel, %s || id)",
            (encode(outcome), failed, isinstance(outcome, Asked), begun.id, begun.fence, ENDED),
        )
        return row is not None

    async def give_back(self, begun: Begun) -> None:
        """End a call that was interrupted because this worker stops. A service lets another one
        begin it again if it is repeatable.
        """
        if begun.repeatable:
            await self._execute(
                "UPDATE calls SET worker = NULL WHERE id = %s AND fence = %s AND state = 'running'",
                (begun.id, begun.fence),
            )
        else:
            stopped = Stopped(begun=True, lost=True, worker=self._name)
            await self.end(begun, stopped, failed=True)

    async def progress(self, begun: Begun, fraction: float, text: str) -> None:
        """Report progress to the service, if it listens."""
        made = Progress(begun.id, fraction, text[:_LONGEST_TEXT])
        payload = PROGRESS + msgspec.json.encode(made).decode()
        await self._execute("SELECT pg_notify(%s, %s)", (begun.channel, payload))

    async def _execute(self, statement: str, values: Any) -> tuple[Any, ...] | None:
        async with self._pool.connection() as connection:
            cursor = await connection.execute(statement, values)
            return None if cursor.description is None else await cursor.fetchone()

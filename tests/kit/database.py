"""A PostgreSQL database that several simulated services share.

The server is a real one, and its transactions run at once, on the event loop. What would depend on
real time is simulated: its clock, notifications, and when it ends the session of a killed process.
"""

import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, Final, Self
from unittest.mock import patch

import anyio
import psycopg
import trio
from psycopg import sql

from component.store import postgres, schema
from component.store.listening import ChannelListener
from tests.kit.process import KilledError, Process, find_process
from tests.kit.system import SimulatedSystem

_connect: Final = psycopg.connect
_END_MS: Final = 10_000
_CANCELLED: Final = """
DO $$ BEGIN
    RAISE query_canceled USING MESSAGE = 'canceling statement due to user request';
END $$
"""


class Database:
    """The database, as the services of a test see it; made by `shared_database`.

    Attributes:
        refuses: whether it accepts no connections.
        statements: how many there were.
        sessions: the open connections.
    """

    def __init__(self, url: str, system: Callable[[], SimulatedSystem]) -> None:
        self.refuses = False
        self.statements = 0
        self.sessions: list[Session] = []
        self._system = system
        self._admin = _connect(url, autocommit=True)
        self._listeners: list[Listener] = []
        self._channels: list[str] = []
        self._armed: tuple[Process, int, Callable[[], None]] | None = None
        self._lost_commit = self._cancelled = False

    def stop(self) -> None:
        """End all sessions, and accept no others, as a server that is stopped does."""
        self.refuses = True
        for session in [*self.sessions]:
            self.end(session)

    def start(self) -> None:
        """Accept connections again."""
        self.refuses = False

    def end(self, session: "Session") -> None:
        """End a session, and return when the server has."""
        if session not in self.sessions:
            return
        self.sessions.remove(session)
        session.pgconn.finish()
        self._admin.execute("SELECT pg_terminate_backend(%s, %s)", (session.pid, _END_MS))
        for listener in self._listeners:
            listener.heard.set()

    def strike_before(self, process: Process, statements: int, call: Callable[[], None]) -> None:
        """Call a function before the statement of this number of a process, from 1.

        That happens within a call of the service, and the function cannot wait.
        """
        self._armed = process, self.statements + statements, call

    def lose_commit(self) -> None:
        """Let the next commit have no answer, since the session ends; it is committed."""
        self._lost_commit = True

    def cancel(self) -> None:
        """Let the next statement be cancelled, as an admin does with `pg_cancel_backend`."""
        self._cancelled = True

    def disarm(self) -> None:
        """Call no function, lose no commit, and cancel nothing."""
        self._armed, self._lost_commit, self._cancelled = None, False, False

    def close(self) -> None:
        """Close everything."""
        self.stop()
        self._admin.close()

    # What sessions and listeners call.

    def admit(self) -> Process | None:
        """Return the process that connects. Raises OperationalError, KilledError."""
        self._end_killed()
        process = _living_process()
        if self.refuses:
            raise psycopg.OperationalError("connection refused")
        return process

    def joined(self, session: "Session") -> None:
        """Note a new session."""
        self.sessions.append(session)
        for channel in self._channels:
            session.hear(channel)

    def operate(self, session: "Session") -> None:
        """Count a statement. Raises OperationalError if its process was killed."""
        self.statements += 1
        process = session.process
        if self._armed is not None:
            armed, number, call = self._armed
            if armed is process and self.statements >= number:
                self._armed = None
                call()
        if process is not None and not process.is_alive:
            raise psycopg.OperationalError("the process was killed")
        self._end_killed()
        if self._cancelled:
            self._cancelled = False
            session.cancelled()

    def _end_killed(self) -> None:
        """End the sessions of processes that were killed, before anybody can notice them."""
        for session in [*self.sessions]:
            if session.process is not None and not session.process.is_alive:
                self.end(session)

    def committed(self, session: "Session") -> None:
        """Note a commit. Raises OperationalError if its answer is lost."""
        if self._lost_commit:
            self._lost_commit = False
            session.settle()
            self.end(session)
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    def listen(self, listener: "Listener", channel: str) -> None:
        """Let a listener have the notifications of a channel."""
        if listener not in self._listeners:
            self._listeners.append(listener)
        if channel not in self._channels:
            self._channels.append(channel)
            for session in self.sessions:
                session.hear(channel)

    def forget(self, listener: "Listener") -> None:
        """Let a listener have no more notifications."""
        with suppress(ValueError):
            self._listeners.remove(listener)

    def notified(self, channel: str) -> None:
        """Give a notification to all listeners."""
        for listener in self._listeners:
            listener.pending.append(channel)
            listener.heard.set()

    def sleep(self, seconds: float) -> None:
        """Wait in a call, for which the clock jumps. Raises KilledError."""
        _living_process()
        clock: Any = trio.lowlevel.current_clock()
        clock.jump(seconds)

    def now_ms(self) -> int:
        """Return the time of the server: no jump of a service's clock changes it."""
        system = self._system()
        return system.time_ns() // 10**6 - round(system.jump_s * 1000)


def _living_process() -> Process | None:
    process = find_process()
    if process is not None and not process.is_alive:
        raise KilledError
    return process


class Session(psycopg.Connection[Any]):
    """A connection of a service.

    It listens to the channels of all listeners: a session gets its own notifications with the
    answer to its commit, and those of others some real time later.
    """

    database: ClassVar[Database]
    process: Process | None
    pid: int

    @classmethod
    def connect(cls, *arguments: Any, **options: Any) -> Self:
        process = cls.database.admit()
        session = super().connect(*arguments, **options)
        session.process, session.pid = process, session.info.backend_pid
        session.add_notify_handler(session._heard)
        cls.database.joined(session)
        return session

    def execute(self, query: Any, *arguments: Any, **options: Any) -> Any:
        self.database.operate(self)
        cursor = super().execute(query, *arguments, **options)
        if query == "COMMIT":
            self.database.committed(self)
        return cursor

    def settle(self) -> None:
        """Wait for the answers to all statements."""
        if self._pipeline is not None:
            self._pipeline.sync()

    def cancelled(self) -> None:
        """Let a statement be cancelled. Raises QueryCanceled; in a pipeline, a later one does."""
        super().execute(_CANCELLED)

    def hear(self, channel: str) -> None:
        """Listen to a channel."""
        super().execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))

    def close(self) -> None:
        self.database.end(self)
        super().close()

    def _heard(self, notified: psycopg.Notify) -> None:
        if notified.pid == self.pid:
            self.database.notified(notified.channel)


class Listener(ChannelListener):
    """Gets notifications from `Database`: when they would arrive in a socket depends on real time.

    Attributes:
        pending: the channels of notifications that were not taken yet.
        heard: is set when there is something to look at.
    """

    database: ClassVar[Database]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.pending: list[str] = []
        self.heard = anyio.Event()

    def close(self) -> None:
        self.database.forget(self)
        super().close()

    async def _input(self, connection: Any) -> None:
        while not self.pending and not connection.closed:
            self.heard = anyio.Event()
            await self.heard.wait()

    def _take(self, connection: Any) -> None:
        if connection.closed:
            self.close()
        while self.pending:
            self._wake(self.pending.pop(0))

    def _say(self, connection: Any, channel: str) -> None:
        with self._server.explained():
            connection.execute("SELECT 1")
        self.database.listen(self, channel)


class _Now(str):
    """The time of the server, as an expression: another one whenever it is formatted."""

    __slots__ = ("database",)
    database: Database

    def __format__(self, _spec: str) -> str:
        return f"{self.database.now_ms()}::bigint"


@contextmanager
def shared_database(url: str, system: Callable[[], SimulatedSystem]) -> Iterator[Database]:
    """Let all services of the context use a database of a real server.

    Args:
        url: where it is.
        system: returns the clocks of the services.
    """
    database = Database(url, system)
    session = types.new_class("Session", (Session,))
    listener = types.new_class("Listener", (Listener,))
    session.database = listener.database = database  # type: ignore[attr-defined]
    now = _Now("now")
    now.database = database
    time = types.SimpleNamespace(sleep=database.sleep)
    with (
        patch.object(psycopg, "connect", session.connect),  # type: ignore[attr-defined]
        patch.object(postgres, "ChannelListener", listener),
        patch.object(postgres, "_NOW", now),
        patch.object(postgres, "time", time),
        patch.object(schema, "time", time),
    ):
        try:
            yield database
        finally:
            database.close()

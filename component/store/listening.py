"""Notifications from other processes on the same PostgreSQL (LISTEN and NOTIFY).

One connection serves all channels of this process. There is no background task: the first task
that waits watches the connection for all, and the next one takes over when it leaves.
"""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

import anyio
import structlog

from component import system
from component.store.errors import StorageError
from component.store.outages import Outages
from component.store.server import PostgresServer
from component.store.writes import FIRST_WAIT_S, LONGEST_WAIT_S

if TYPE_CHECKING:
    from psycopg import Connection

_log = structlog.get_logger("component.store")


class Never:
    """An iterator that never yields, because there is no other process."""

    def __aiter__(self) -> Self:
        """Itself."""
        return self

    async def __anext__(self) -> None:
        """Wait until cancelled."""
        await anyio.sleep_forever()


class ChannelListener:
    """The connection on which this process receives notifications."""

    def __init__(self, server: PostgresServer, outages: Outages) -> None:
        """Connect when the first subscription is added."""
        self._server = server
        self._outages = outages
        self._connection: Connection | None = None
        self._subscriptions: list[ChannelSubscription] = []
        self._taken: deque[str] = deque()
        """Channels of notifications that the driver received with an answer."""
        self._using = anyio.Lock()
        """Held while the connection is used, also while waiting for input."""
        self._watching: anyio.CancelScope | None = None
        self._joining = 0
        """The number of tasks that wait to add their channel; the watching task yields to them."""
        self.watched = False
        """Whether a task is waiting for input, on behalf of all."""

    @asynccontextmanager
    async def listen(self, channel: str) -> AsyncIterator[AsyncIterator[None]]:
        """Listen to a channel for the duration of the context; see `Storage.listen`."""
        subscription = ChannelSubscription(self, channel)
        self._subscriptions.append(subscription)
        try:
            await self._join(channel)
            yield subscription
        finally:
            self._subscriptions.remove(subscription)
            if not self._subscriptions:
                self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def watch(self) -> None:
        """Wait for input, and wake the subscriptions that were notified."""
        async with self._using:
            if self._joining:
                return
            if self._connection is None:
                await self._connect_again()
                self._wake(None)  # notifications may have been missed
                return
            with anyio.CancelScope() as scope:
                self._watching = scope
                await self._input(self._connection)
            if not scope.cancelled_caught:
                self._take(self._connection)

    def make_way(self) -> None:
        """Let another task watch, after the watching one was woken or cancelled."""
        self.watched = False
        for each in self._subscriptions:
            each.look()

    async def _join(self, channel: str) -> None:
        self._joining += 1
        if self._watching is not None:
            self._watching.cancel()
        try:
            async with self._using:
                if self._connection is None:
                    self._connection = await system.in_thread(self._connect)
                    return
                await system.in_thread(self._say, self._connection, channel)
                while self._taken:
                    self._wake(self._taken.popleft())
        except StorageError:
            if self._connection is None:
                raise
            self.close()  # broken: the next watching task reconnects with all channels
        finally:
            self._joining -= 1

    async def _input(self, connection: "Connection") -> None:
        await anyio.wait_readable(connection.fileno())

    def _take(self, connection: "Connection") -> None:
        import psycopg  # noqa: PLC0415

        try:
            connection.pgconn.consume_input()
            while (notified := connection.pgconn.notifies()) is not None:
                self._wake(notified.relname.decode())
        except psycopg.OperationalError:
            self.close()

    def _wake(self, channel: str | None) -> None:
        """Wake the subscriptions of a channel, or all for None."""
        for each in self._subscriptions:
            if channel in (None, each.channel):
                each.wake()

    def _connect(self) -> "Connection":
        connection = self._server.connect()
        connection.add_notify_handler(lambda notified: self._taken.append(notified.channel))
        try:
            for channel in {each.channel for each in self._subscriptions}:
                self._say(connection, channel)
        except BaseException:
            connection.close()
            raise
        return connection

    def _say(self, connection: "Connection", channel: str) -> None:
        from psycopg import sql  # noqa: PLC0415

        with self._server.explained():
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))

    async def _connect_again(self) -> None:
        wait = FIRST_WAIT_S
        while self._connection is None:
            try:
                self._connection = await system.in_thread(self._connect)
            except StorageError as error:
                self._outages.failed("notifications", error)
                await anyio.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT_S)
        self._outages.succeeded("notifications")


class ChannelSubscription:
    """Yields when its channel was notified; used by one task at a time."""

    def __init__(self, listener: ChannelListener, channel: str) -> None:
        """Use `ChannelListener.listen`."""
        self.channel = channel
        self._listener = listener
        self._notified = False
        self._look = anyio.Event()

    def wake(self) -> None:
        """Note a notification."""
        self._notified = True
        self._look.set()

    def look(self) -> None:
        """Check whether a task still watches the connection."""
        self._look.set()

    # Not a generator, which would have to be closed if iteration stops early.
    def __aiter__(self) -> Self:
        """Itself."""
        return self

    async def __anext__(self) -> None:
        """Wait for a notification."""
        listener = self._listener
        while not self._notified:
            if listener.watched:
                self._look = anyio.Event()
                await self._look.wait()
                continue
            listener.watched = True
            try:
                await listener.watch()
            finally:
                listener.make_way()
        self._notified = False

"""Two ends of a TCP connection in memory."""

from collections import deque
from typing import Any

import anyio
import anyio.lowlevel

from component.config.server import Server
from component.link.connection import failure


class _Direction:
    """The bytes on their way from one end to the other."""

    def __init__(self) -> None:
        self.data: deque[bytes] = deque()
        self.ended = False
        self.reset = False
        self._changed = anyio.Event()

    def put(self, data: bytes) -> None:
        self.data.append(data)
        self._notify()

    def end(self, *, reset: bool = False) -> None:
        self.ended = True
        self.reset = self.reset or reset
        if reset:
            self.data.clear()
        self._notify()

    def take(self, most: int) -> bytes:
        """Return received bytes; empty at the end. Call it if there is something to take."""
        if self.reset:
            raise ConnectionResetError
        if not self.data:
            return b""
        first = self.data.popleft()
        if len(first) > most:
            self.data.appendleft(first[most:])
        return first[:most]

    @property
    def is_readable(self) -> bool:
        return bool(self.data) or self.ended

    async def wait(self) -> None:
        while not self.is_readable:
            await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class ServiceEnd:
    """The end of the service, a `component.link.connection.transport.Transport`.

    Output is always accepted.
    """

    certificate = None
    tls_version = None
    peer = "[memory]"

    def __init__(self, options: Server, received: _Direction, sent: _Direction) -> None:
        self._options = options
        self._received = received
        self._sent = sent

    async def receive(self, max_bytes: int) -> bytes:
        await anyio.lowlevel.checkpoint()
        await self._received.wait()
        return self._take(max_bytes)

    def receive_now(self, max_bytes: int) -> bytes | None:
        return self._take(max_bytes) if self._received.is_readable else None

    def try_send(self, data: bytes | memoryview) -> int:
        if self._received.reset:
            raise failure.lost(self._options, ConnectionResetError())
        self._sent.put(bytes(data))
        return len(data)

    async def send(self, data: bytes) -> None:
        self.try_send(data)
        await anyio.lowlevel.checkpoint()

    async def wait_sendable(self) -> None:
        await anyio.lowlevel.checkpoint()

    def close(self) -> None:
        self._sent.end()

    def abort(self) -> None:
        self._sent.end(reset=True)

    def _take(self, max_bytes: int) -> bytes:
        try:
            return self._received.take(max_bytes)
        except OSError as error:
            raise failure.lost(self._options, error) from error


class ServerEnd:
    """The end of the server; it has the interface of an anyio byte stream."""

    def __init__(self, received: _Direction, sent: _Direction) -> None:
        self._received = received
        self._sent = sent

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        await anyio.lowlevel.checkpoint()
        await self._received.wait()
        try:
            data = self._received.take(max_bytes)
        except OSError as error:
            raise anyio.BrokenResourceError from error
        if not data:
            raise anyio.EndOfStream
        return data

    async def send(self, data: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        if self._received.ended:
            raise anyio.BrokenResourceError
        self._sent.put(data)

    def reset(self) -> None:
        """Break the connection, as a server that is killed or a network that fails does."""
        self._sent.end(reset=True)
        self._received.end(reset=True)

    async def aclose(self) -> None:
        self._sent.end()


def connection(options: Server) -> tuple[Any, ServerEnd]:
    """Return the two ends of a new connection."""
    up, down = _Direction(), _Direction()
    return ServiceEnd(options, down, up), ServerEnd(up, down)

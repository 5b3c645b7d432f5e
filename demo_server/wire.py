"""One connection, with a bounded output buffer."""

import ssl
from collections.abc import Awaitable, Callable
from typing import Literal

import anyio
from anyio.abc import ByteStream, SocketStream
from anyio.streams.tls import TLSStream

from xep.stream import STREAM_CLOSE, StreamError

Direction = Literal["received", "sent"]
Tap = Callable[[Direction, str, str], None]
"""Called with each stanza after the login: the direction, seen from the server; the full JID
of the client or the domain of the component; and the XML. It must not raise."""

LINGER = 2.0
"""Seconds for a peer to read the last bytes before the connection is closed."""

# Errors that end a connection. BusyResourceError is raised if a peer makes TLS send an answer (a
# key update) while it does not read what is being sent.
_OVER = (
    OSError,
    anyio.EndOfStream,
    anyio.BrokenResourceError,
    anyio.BusyResourceError,
    anyio.ClosedResourceError,
)


class Wire:
    """Reads from a peer, and writes in a separate task, so that a peer that does not read does not
    delay others: when more than ``max_output`` bytes are queued for it, it is disconnected.

    Attributes:
        name: the authenticated name of the peer, passed to ``tap``.
    """

    def __init__(self, stream: SocketStream, max_output: int, tap: Tap | None = None) -> None:
        self.name = ""
        self._stream: ByteStream = stream
        self._max_output = max_output
        self._tap = tap
        self._waiting: list[bytes] = []
        self._size = 0  # of the queued bytes and those being sent
        self._something = anyio.Event()
        self._nothing = anyio.Event()
        self._nothing.set()
        self._closing = False
        self._reading = anyio.CancelScope()
        self._whole = anyio.CancelScope()

    async def run(self, talk: Callable[[], Awaitable[None]]) -> None:
        """Run ``talk``, then send queued bytes, wait until the peer has read them, and close."""
        try:
            with self._whole:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._write)
                    await talk()
                    await self._linger()
                    group.cancel_scope.cancel()
        finally:
            await anyio.aclose_forcefully(self._stream)

    async def receive(self) -> bytes | None:
        """Return the next bytes; None when either side has ended the connection."""
        if self._closing:
            return None
        with anyio.CancelScope() as self._reading:
            try:
                return await self._stream.receive()
            except _OVER:
                return None
        return None

    async def start_tls(self, context: ssl.SSLContext) -> bool:
        """Send queued bytes, then negotiate TLS as the server; return whether that succeeded."""
        await self._nothing.wait()
        try:
            self._stream = await TLSStream.wrap(
                self._stream, server_side=True, ssl_context=context, standard_compatible=False
            )
        except _OVER:
            return False
        return True

    def write(self, data: bytes) -> None:
        """Queue bytes; disconnect the peer if too many are queued."""
        if self._closing or not data:
            return
        self._waiting.append(data)
        self._size += len(data)
        if self._nothing.is_set():
            self._nothing = anyio.Event()
        self._something.set()
        if self._size > self._max_output:
            self._closing = True
            self._whole.cancel()

    def send(self, xml: str) -> None:
        """Queue a stanza."""
        if not self._closing:
            self.write(xml.encode())
            if self._tap is not None:
                self._tap("sent", self.name, xml)

    def show_received(self, xml: Callable[[], str]) -> None:
        """Pass a received stanza to ``tap``, if there is one."""
        if self._tap is not None:
            self._tap("received", self.name, xml())

    def close(self, error: StreamError | None = None) -> None:
        """Queue the end of the stream, stop reading, and end `run`."""
        if not self._closing:
            self.write((b"" if error is None else error.encode()) + STREAM_CLOSE)
            self.stop()

    def stop(self) -> None:
        """Stop reading and end `run`; the end of the stream is queued already."""
        self._closing = True
        self._reading.cancel()

    async def _write(self) -> None:
        while True:
            await self._something.wait()
            self._something = anyio.Event()
            data = b"".join(self._waiting)
            self._waiting.clear()
            try:
                await self._stream.send(data)
            except _OVER:
                self._closing = True
                self._whole.cancel()
                return
            self._size -= len(data)
            if not self._size:
                self._nothing.set()

    async def _linger(self) -> None:
        # Closing a connection with unread bytes resets it, which loses the last bytes sent.
        self._closing = True
        with anyio.move_on_after(LINGER):
            await self._nothing.wait()
            try:
                if isinstance(self._stream, SocketStream):
                    await self._stream.send_eof()
                while True:
                    await self._stream.receive()
            except _OVER:
                return

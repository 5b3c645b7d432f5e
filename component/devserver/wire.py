"""One connection: bytes as they come in, and a bounded buffer in front of what goes out."""

import ssl
from collections.abc import Awaitable, Callable
from typing import Literal

import anyio
from anyio.abc import ByteStream, SocketStream
from anyio.streams.tls import TLSStream

from xep.stream import STREAM_CLOSE, StreamError

Direction = Literal["received", "sent"]
Tap = Callable[[Direction, str, str], None]
"""Is shown each stanza of those who have logged in: which way, seen from the server; the full JID
of the client or the domain of the component; and the XML. It must not raise."""

LINGER = 2.0
"""Seconds that a peer has to take what was sent last, before the connection is cut."""

# The ways in which a connection can be over. Busy it is when a peer makes TLS answer by itself
# (a key update) while it does not read what is being sent: that is no reason to wait for it.
_OVER = (
    OSError,
    anyio.EndOfStream,
    anyio.BrokenResourceError,
    anyio.BusyResourceError,
    anyio.ClosedResourceError,
)


class Wire:
    """Reads for whoever talks to the peer, and writes in a task of its own, so that a peer that
    does not read delays nobody else: when more than ``max_output`` bytes wait for it, it is cut.

    Attributes:
        name: who the peer is, once that is certain; shown to ``tap``.
    """

    def __init__(self, stream: SocketStream, max_output: int, tap: Tap | None = None) -> None:
        self.name = ""
        self._stream: ByteStream = stream
        self._max_output = max_output
        self._tap = tap
        self._waiting: list[bytes] = []
        self._size = 0  # of what waits and of what is being sent
        self._something = anyio.Event()
        self._nothing = anyio.Event()
        self._nothing.set()
        self._closing = False
        self._reading = anyio.CancelScope()
        self._whole = anyio.CancelScope()

    async def run(self, talk: Callable[[], Awaitable[None]]) -> None:
        """Run ``talk``, then send what still waits, give the peer the time to take it, close."""
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
        """The next bytes; None when there will be none, whoever ended it."""
        if self._closing:
            return None
        with anyio.CancelScope() as self._reading:
            try:
                return await self._stream.receive()
            except _OVER:
                return None
        return None

    async def start_tls(self, context: ssl.SSLContext) -> bool:
        """Send what waits, then negotiate TLS as the server; False when that fails."""
        await self._nothing.wait()
        try:
            self._stream = await TLSStream.wrap(
                self._stream, server_side=True, ssl_context=context, standard_compatible=False
            )
        except _OVER:
            return False
        return True

    def write(self, data: bytes) -> None:
        """Queue bytes. Whoever has too much waiting is cut off."""
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
        """Show ``tap``, if there is one, a stanza that came."""
        if self._tap is not None:
            self._tap("received", self.name, xml())

    def close(self, error: StreamError | None = None) -> None:
        """Queue the end of the stream, read no more, and end what `run` runs."""
        if not self._closing:
            self.write((b"" if error is None else error.encode()) + STREAM_CLOSE)
            self.stop()

    def stop(self) -> None:
        """Read no more, and end what `run` runs; the end of the stream is queued already."""
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
        # Closed at once, a connection with unread bytes is reset, and what was sent last is lost.
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

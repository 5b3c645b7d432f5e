"""A server's component listener on loopback that does exactly what a test tells it.

    with Acceptor() as server:
        link = await server.component()        # accepted, handshake and all
        await link.send("<iq …/>")
        stanza = await link.stanza()

Nothing happens by itself: no task runs here, so a link of which nobody reads is a server that does
not read. The sockets are driven by readiness, with no buffer but the kernel's.
"""

import contextlib
import socket
import ssl
import struct
from collections import deque
from types import TracebackType
from typing import Self, TypeVar

import anyio

from xep.component_states import State
from xep.component_stream import AcceptorStream, ComponentStreamEvent, HandshakeReceived
from xep.stanza import Incoming
from xep.stanza_stream import StanzaReceived, StreamFailed
from xep.stream import Condition, StreamOpened

DOMAIN = "agent.test"
SECRET = "s3cr3t-of-the-test"
E = TypeVar("E")


def _is_probe(stanza: Incoming) -> bool:
    return (stanza.id or "").startswith("probe-") and stanza.to == stanza.sender


class Link:
    """The server's end of one connection.

    Attributes:
        loops_back: whether pings of the component to itself are sent back, and not seen.
    """

    loops_back = True

    def __init__(self, sock: socket.socket, secret: str) -> None:
        self.stream = AcceptorStream()
        self.received = bytearray()
        self._socket = sock
        self._secret = secret
        self._events: deque[ComponentStreamEvent] = deque()

    # -- bytes -----------------------------------------------------------------------------------

    async def send(self, data: str | bytes) -> None:
        """Send anything, well-formed or not."""
        rest = memoryview(data.encode() if isinstance(data, str) else data)
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                await anyio.wait_writable(self._socket)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """What the component sent; empty when it closed. A reset reads as the end, too."""
        while True:
            try:
                data = self._socket.recv(max_bytes)
            except (BlockingIOError, ssl.SSLWantReadError):
                await anyio.wait_readable(self._socket)
            except ConnectionError:
                return b""
            else:
                self.received += data
                return data

    async def ended(self) -> None:
        """Read until the component has closed its side."""
        while await self.receive():
            pass

    def close(self) -> None:
        """Close the socket, without a word on the stream."""
        self._socket.close()

    def end(self) -> None:
        """Send nothing more, but go on reading."""
        self._socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close with a reset (RST)."""
        if self._socket.fileno() != -1:
            linger = struct.pack("ii", 1, 0)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._socket.close()

    # -- stream ----------------------------------------------------------------------------------

    async def read(self) -> list[ComponentStreamEvent]:
        """The events of one read; empty when the component closed."""
        while data := await self.receive():
            if events := self.stream.receive(data):
                return events
        return []

    async def event(self) -> ComponentStreamEvent:
        """The next event. EOFError when the component closed without one."""
        while not self._events:
            events = await self.read()
            if not events:
                raise EOFError("the component closed the connection")
            self._events.extend(events)
        event = self._events.popleft()
        assert not isinstance(event, StreamFailed), event.error
        if self.loops_back and isinstance(event, StanzaReceived) and _is_probe(event.stanza):
            await self.send(event.stanza.forward())
            return await self.event()
        return event

    async def expect(self, kind: type[E]) -> E:
        """The next event, which must be a ``kind``."""
        event = await self.event()
        assert isinstance(event, kind), event
        return event

    async def stanza(self) -> Incoming:
        """The next stanza."""
        return (await self.expect(StanzaReceived)).stanza

    async def stanzas(self, count: int) -> list[Incoming]:
        """The next so many stanzas."""
        return [await self.stanza() for _ in range(count)]

    async def handshake(self) -> None:
        """Take the component in."""
        await self.expect(StreamOpened)
        await self.send(self.stream.open("stream-id", self._secret))
        proof = await self.expect(HandshakeReceived)
        assert proof.valid
        await self.send(self.stream.accept())

    async def refuse(self, condition: Condition, text: str = "") -> None:
        """End the stream with an error, wherever it stands, and close."""
        if self.stream.state is State.OPENED:
            await self.send(self.stream.open("stream-id", self._secret))
        await self.send(self.stream.fail(condition, text))
        self.close()

    async def finish(self) -> None:
        """Close the stream properly from our side, and wait for the component to have closed."""
        await self.send(self.stream.close())
        await self.ended()
        self.close()


class Acceptor:
    """A listener on a free port of 127.0.0.1. Leaving it closes every link.

    Args:
        secret: what components have to know.
        tls: serve TLS from the first byte.
        receive_buffer: size of the kernel's receive buffer, for servers that read slowly.
    """

    host = "127.0.0.1"

    def __init__(
        self,
        secret: str = SECRET,
        *,
        tls: ssl.SSLContext | None = None,
        receive_buffer: int | None = None,
    ) -> None:
        self.links: list[Link] = []
        self.port = 0
        self._secret = secret
        self._tls = tls
        self._receive_buffer = receive_buffer
        self._listener: socket.socket | None = None
        self.listen()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.deafen()
        for link in self.links:
            link.close()

    def listen(self) -> None:
        """Listen (again): on the same port, once one is taken."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self._receive_buffer is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
        listener.setblocking(False)
        listener.bind((self.host, self.port))
        listener.listen()
        self.port = listener.getsockname()[1]
        self._listener = listener

    def deafen(self) -> None:
        """Stop listening: who connects now is refused. Open links stay."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def accept(self) -> Link:
        """The next connection, on which nothing was said yet; TLS is set up.

        ssl.SSLError or OSError: the component did not like our TLS.
        """
        assert self._listener is not None, "not listening"
        while True:
            try:
                sock, _ = self._listener.accept()
                break
            except BlockingIOError:
                await anyio.wait_readable(self._listener)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is not None:
            sock = await _serve_tls(sock, self._tls)
        link = Link(sock, self._secret)
        self.links.append(link)
        return link

    async def component(self) -> Link:
        """The next connection, taken in."""
        link = await self.accept()
        await link.handshake()
        return link


async def _serve_tls(sock: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket:
    secured = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
    with contextlib.ExitStack() as on_failure:
        on_failure.callback(secured.close)
        while True:
            try:
                secured.do_handshake()
            except ssl.SSLWantReadError:
                await anyio.wait_readable(secured)
            except ssl.SSLWantWriteError:
                await anyio.wait_writable(secured)
            else:
                on_failure.pop_all()
                return secured

"""An agent on an account: a client's stream and its session (RFC 6120, XEP-0198)."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Final

import anyio

from component.link.connection import client_login
from component.link.connection.failure import ConnectionFailed
from component.link.connection.options import ConnectionOptions
from component.link.connection.session import Opened, StreamEvent
from component.link.connection.transport import Transport
from xep.client_states import State
from xep.client_stream import ClientStream
from xep.jid import JID, learn_spelling
from xep.stream_management import StanzaSplitter, StreamManagement

_WINDOW_BYTES: Final = 1 << 20
"""Bytes of stanzas that may wait for their acknowledgement; nothing more is sent meanwhile."""
_OPEN: Final = (State.READY, State.PEER_CLOSED)


class ClientLink:
    """A client's stream (RFC 6120), whose session is resumed if it broke (XEP-0198).

    Args:
        options: the server, and the address to connect as.
    """

    def __init__(self, options: ConnectionOptions) -> None:
        self._options = options
        learn_spelling(options.address)
        self._account = JID.parse(options.address)
        self._address: JID | None = None
        self._management: StreamManagement | None = None
        self._changed = anyio.Event()

    @property
    def resumable_s(self) -> float:
        """Seconds for which the session of the broken stream can be resumed; 0 if it cannot."""
        if self._management is None or self._management.id is None:
            return 0.0
        return float(self._management.max_s or client_login.RESUMABLE_S)

    async def open(self, transport: Transport) -> Opened:
        """Log in, and resume the session or bind a resource. Raises ConnectionFailed."""
        stream, bound, events = await client_login.open_stream(
            transport, self._options, self._account, self._management, self._address
        )
        self._address, self._management = bound.address, stream.management
        self._change()
        return Opened(
            ClientSession(transport, stream, self._change),
            [*events],
            bound.address.on_wire(),
            bound.resumed,
            bound.lost,
            bound.lost_for_certain,
        )

    def closed(self) -> None:
        """The stream was closed in order: there is nothing to resume."""
        if self._management is not None:
            self._management.id = None

    async def acknowledged(self) -> bool:
        """Wait until the server has acknowledged all that was sent so far (XEP-0198 §4), or it is
        certain that it will not; return False without stream management.
        """
        management = self._management
        if management is None:
            return False
        sent = management.sent_in_all
        while management is self._management and management.acknowledged_in_all < sent:
            await self._changed.wait()
        return True

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class ClientSession:
    """A client's stream. With stream management it keeps each stanza until it is acknowledged.

    Args:
        transport: the connection.
        stream: the state machine, bound.
        changed: called when stanzas were acknowledged.
    """

    def __init__(
        self, transport: Transport, stream: ClientStream, changed: Callable[[], None]
    ) -> None:
        self._transport = transport
        self._stream = stream
        self._changed = changed
        self._splitter = StanzaSplitter()
        self._buffer = bytearray(stream.data_to_send())
        self._acknowledged = anyio.Event()

    @property
    def closed(self) -> bool:
        """Whether both sides have closed the stream."""
        return self._stream.closed

    @property
    def pending(self) -> bool:
        """Whether something was taken that the kernel has not."""
        return bool(self._buffer)

    def receive(self, data: bytes) -> Sequence[StreamEvent]:
        """Take bytes from the server and give what happened."""
        management = self._stream.management
        waited = 0 if management is None else management.waiting_bytes
        events = self._stream.receive(data)
        self._buffer += self._stream.data_to_send()
        if management is not None and management.waiting_bytes < waited:
            self._acknowledged.set()
            self._acknowledged = anyio.Event()
            self._changed()
        return events

    def try_send(self, data: bytes | memoryview) -> int:
        """Take all, or nothing while the kernel is full or too much is not acknowledged."""
        self.push()
        if self._buffer or self._full or self._stream.state not in _OPEN:
            return 0
        if self._stream.management is None:
            return self._transport.try_send(data)
        for stanza in self._splitter.feed(bytes(data)):
            self._buffer += self._stream.send(stanza)
        # From here on the stanzas are kept here. If the connection is broken, the next call tells:
        # raised now, the outbox would keep them as well, and they would be sent twice.
        with contextlib.suppress(ConnectionFailed):
            self.push()
        return len(data)

    def push(self) -> None:
        """Hand to the kernel what waits here."""
        if self._buffer:
            del self._buffer[: self._transport.try_send(bytes(self._buffer))]

    async def wait_sendable(self) -> None:
        """Wait for the kernel, or for the server's acknowledgement."""
        if self._full and not self._buffer:
            await self._acknowledged.wait()
        else:
            await self._transport.wait_sendable()

    def close(self) -> bytes:
        """What closes our direction of the stream."""
        return bytes(self._buffer) + self._stream.close()

    @property
    def _full(self) -> bool:
        management = self._stream.management
        return management is not None and management.waiting_bytes > _WINDOW_BYTES

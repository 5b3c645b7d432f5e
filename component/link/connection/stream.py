"""The stream of a component (XEP-0114), and what streams of components and clients have in common.

`link_for` returns how an agent is attached to its server. `component.link.connection.connection`
knows neither kind.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio
import msgspec

from component.config.server import Server
from component.link.connection import failure
from component.link.connection.failure import ConnectionFailed
from component.link.connection.transport import READ_BYTES, Transport
from xep.component_states import State
from xep.component_stream import ComponentStream, ComponentStreamEvent, HandshakeAccepted
from xep.stanza_stream import StreamErrorReceived, StreamFailed
from xep.stream import StreamLimits, StreamOpened

if TYPE_CHECKING:
    from component.link.connection.client import ClientLink, ClientSession
    from xep.client_stream import ClientStreamEvent

_DEEPEST: Final = 64
_MOST_ELEMENTS: Final = 10_000
"""A stanza with deeper nested or more elements is skipped."""

StreamEvent: TypeAlias = "ComponentStreamEvent | ClientStreamEvent"
Session: TypeAlias = "ComponentSession | ClientSession"
"""An established stream and the connection under it."""
Link: TypeAlias = "ComponentLink | ClientLink"
"""One way of being attached to a server. It exists as long as the connection is wanted."""


class Opened(msgspec.Struct, frozen=True):
    """A session that was opened.

    Attributes:
        events: the events that followed the server's acceptance.
        address: our own address, to which probes are sent.
        resumed: it is the session of the previous stream.
        lost: stanzas of an earlier session that were not acknowledged and are not sent again.
        lost_for_certain: whether the server has said that it did not receive them.
    """

    session: Session
    events: list[StreamEvent]
    address: str
    resumed: bool = False
    lost: tuple[bytes, ...] = ()
    lost_for_certain: bool = False


class ComponentLink:
    """A component's stream (XEP-0114). It cannot be resumed."""

    resumable_s: Final = 0.0

    def __init__(self, server: Server) -> None:
        self._server = server

    async def open(self, transport: Transport) -> Opened:
        """Open the stream on a new connection and prove the secret (XEP-0114 §3).

        Raises:
            ConnectionFailed: the server refused, broke off, or did not answer in time.
        """
        server = self._server
        stream = ComponentStream(server.address, server.secret, limits_of(server))
        with anyio.move_on_after(server.connect_timeout_s):
            await say(transport, stream.open())
            while True:
                events = stream.receive(await hear(transport, server))
                for number, event in enumerate(events, 1):
                    if isinstance(event, StreamOpened):
                        # A server that refuses at once says so right behind its header.
                        if stream.state is State.OPENED:
                            await say(transport, stream.handshake())
                    elif isinstance(event, HandshakeAccepted):
                        session = ComponentSession(transport, stream)
                        return Opened(session, [*events[number:]], server.address)
                    else:
                        raise ended_by(event, server, established=False)
        raise failure.handshake_timed_out(server)

    def closed(self) -> None:
        """Note that the stream was closed properly."""

    async def acknowledged(self) -> bool:
        """Return False: XEP-0114 has no acknowledgements."""
        return False


class ComponentSession:
    """A component's stream: stanzas count as sent once the kernel has accepted them (XEP-0114 has
    no acknowledgements).
    """

    pending: Final = False

    def __init__(self, transport: Transport, stream: ComponentStream) -> None:
        self.receive: Callable[[bytes], Sequence[StreamEvent]] = stream.receive
        self.try_send = transport.try_send
        self.wait_sendable = transport.wait_sendable
        self.close = stream.close
        self._stream = stream

    @property
    def closed(self) -> bool:
        """Whether both sides have closed the stream."""
        return self._stream.state is State.CLOSED

    def push(self) -> None:
        """Nothing waits here."""


def link_for(server: Server) -> Link:
    """Return the way of being attached to a server that the settings describe."""
    if server.mode == "component":
        return ComponentLink(server)
    # Imported only in client mode: TLS, SASL and stream management.
    from component.link.connection.client import ClientLink  # noqa: PLC0415

    return ClientLink(server)


def limits_of(server: Server) -> StreamLimits:
    """Return the limits of the stanzas that are accepted."""
    return StreamLimits(server.max_stanza_bytes, _DEEPEST, _MOST_ELEMENTS)


def ended_by(event: StreamEvent, server: Server, *, established: bool) -> ConnectionFailed:
    """Return what it means that the server ended the stream with ``event``."""
    if isinstance(event, StreamErrorReceived):
        return failure.refused_by_server(server, event.error)
    if isinstance(event, StreamFailed):
        return failure.bad_xml(server, event.error.error, established=established)
    return failure.closed(server, established=established)


async def say(transport: Transport, data: bytes) -> None:
    """Send ``data``; a failure is ignored, because the input shows the reason better: a server that
    refuses may close before it has read this.
    """
    with contextlib.suppress(ConnectionFailed):
        await transport.send(data)


async def hear(transport: Transport, server: Server, *, established: bool = False) -> bytes:
    """Return the next input. Raises ConnectionFailed."""
    try:
        data = await transport.receive(READ_BYTES)
    except ConnectionFailed as error:
        if established:
            raise
        raise failure.closed(server, established=False) from error
    if not data:
        raise failure.closed(server, established=established)
    return data

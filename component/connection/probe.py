"""Probes: IQs to our own domain, which servers bring back to us."""

import secrets
from collections.abc import Iterable
from typing import Final

import anyio
import msgspec

from component.connection import failure
from component.connection.handshake import ended_by, open_stream, say
from component.connection.options import ConnectionOptions
from component.connection.transport import Transport, connect
from xep.component_states import State
from xep.component_stream import ComponentStream, Event, StanzaReceived
from xep.ping import Ping
from xep.stanza import IQ
from xep.stream import StanzaSkipped

REPEATS: Final = 6
"""Probes sent within one probe time-out, evenly. ejabberd deals the stanzas for a domain out to
all connections that serve it, so one probe may come out at another instance.
"""

_CLOSING_S: Final = 2.0


class Probes:
    """The pings that one component sends to itself, and knows when they come back.

    Args:
        domain: the component's domain.

    Attributes:
        used: whether there was any yet; until then nothing can come back.
    """

    def __init__(self, domain: str) -> None:
        self.used = False
        self._domain = domain
        # Nobody else can make an id of ours, so nobody's stanza is taken for a probe.
        self._prefix = f"probe-{secrets.token_hex(8)}-"
        self._count = 0

    def make(self) -> str:
        """The next probe, as XML."""
        self.used = True
        self._count += 1
        probe = IQ(
            type="get",
            id=f"{self._prefix}{self._count}",
            from_=self._domain,
            to=self._domain,
            payload=Ping(),
        )
        return probe.encode()

    def is_one(self, event: Event) -> bool:
        """Whether this is a probe come back, or the server's answer to one."""
        id_ = event.stanza.id if isinstance(event, StanzaReceived) else None
        return id_ is not None and id_.startswith(self._prefix)


class Established(msgspec.Struct, frozen=True, kw_only=True):
    """What one successful connection showed.

    Attributes:
        address: address and port that answered.
        tls: version of TLS in use; None without TLS.
        connect_s: seconds until TCP, and TLS, were up.
        handshake_s: seconds from there until the handshake was accepted.
        round_trip_s: seconds that an IQ took through the server and back.
    """

    address: str
    tls: str | None
    connect_s: float
    handshake_s: float
    round_trip_s: float


async def probe_once(options: ConnectionOptions) -> Established:
    """Connect once, send an IQ to ourselves, wait until it is back, and close.

    Raises:
        ConnectionFailed: whatever is wrong, as a sentence.
    """
    began = anyio.current_time()
    transport = await connect(options)
    try:
        address, connected = transport.peer, anyio.current_time()
        stream, events = await open_stream(transport, options)
        accepted = anyio.current_time()
        round_trip = await _round_trip(transport, stream, events, options)
        with anyio.move_on_after(_CLOSING_S):
            await _close(transport, stream, options)
        return Established(
            address=address,
            tls=transport.tls_version,
            connect_s=connected - began,
            handshake_s=accepted - connected,
            round_trip_s=round_trip,
        )
    finally:
        transport.close()


async def _round_trip(
    transport: Transport, stream: ComponentStream, events: list[Event], options: ConnectionOptions
) -> float:
    probes = Probes(options.domain)
    _came_back(events, probes, options)  # nothing could yet, but the stream may have ended
    for _ in range(REPEATS):
        sent = anyio.current_time()
        with anyio.move_on_after(options.probe_timeout_s / REPEATS):
            await say(transport, stream.send(probes.make().encode()))
            while not _came_back(stream.receive(await _hear(transport, options)), probes, options):
                pass
            return anyio.current_time() - sent
    raise failure.no_loop_back(options)


def _came_back(events: Iterable[Event], probes: Probes, options: ConnectionOptions) -> bool:
    for event in events:
        if isinstance(event, StanzaReceived):
            if probes.is_one(event):
                if event.stanza.type == "error":
                    raise failure.no_loop_back(options)
                return True
        elif not isinstance(event, StanzaSkipped):
            raise ended_by(event, options, established=True)
    return False


async def _hear(transport: Transport, options: ConnectionOptions) -> bytes:
    data = await transport.receive(options.read_bytes)
    if not data:
        raise failure.closed(options, established=True)
    return data


async def _close(transport: Transport, stream: ComponentStream, options: ConnectionOptions) -> None:
    """Say good-bye and wait until the server has too; how it goes is no news any more."""
    try:
        if stream.state is not State.CLOSED:
            await transport.send(stream.close())
        while stream.state is not State.CLOSED:
            stream.receive(await _hear(transport, options))
    except failure.ConnectionFailed:
        pass

"""Probes: IQs to our own address, which servers loop back."""

import contextlib
from collections.abc import Iterable
from typing import Final

import anyio
import msgspec

from component import system
from component.config.server import Server
from component.link.connection import failure
from component.link.connection.failure import ConnectionFailed
from component.link.connection.stream import Opened, Session, StreamEvent, ended_by, hear, link_for
from component.link.connection.transport import Transport, connect
from xep.ping import Ping
from xep.stanza import IQ
from xep.stanza_stream import StanzaReceived
from xep.stream import StanzaSkipped

REPEATS: Final = 6
"""Probes sent at even intervals within one probe time-out. ejabberd distributes the stanzas for a
domain over all its connections, so a single probe may arrive at another instance.
"""

PROBE: Final = "probe-"
"""The beginning of the ids of probes, after the tag."""
_NO_INSTANCE: Final = "00000000."
"""The tag of probes that no instance has sent; those that receive them ignore them."""
_FOR_EACH: Final = 4
"""With these probes for each connection, and `REPEATS`, one of 10,000,000,000 attempts finds no
probe that the server balances to this one.
"""
_CLOSING_S: Final = 2.0


class Probes:
    """Makes pings to our own address, and recognises them when they return.

    If the server balances stanzas among several connections by their senders, a ping from our own
    address always arrives on the same connection, which may not be this one. So each ping has
    another sender then.

    Args:
        address: the component's domain, or the client's full address.
        tag: identifies this instance at the beginning of each id; empty if it is the only one.
        connections: among how many connections the server balances stanzas.

    Attributes:
        at_once: how many probes to send at a time, so that one of them returns on this connection.
        used: whether a probe was sent; until then nothing can return.
        made: the number of probes so far.
        returned: the highest number of a probe that has returned.
        changed: set when a probe has returned, or a stream has ended; then replaced.
    """

    def __init__(self, address: str, tag: str = "", connections: int = 1) -> None:
        self.at_once = 1 if connections == 1 else _FOR_EACH * connections
        self.used = False
        self.address = address
        self.made = 0
        self.returned = 0
        self.changed = anyio.Event()
        # Nobody else can guess our ids, so no other stanza is mistaken for a probe.
        self._prefix = f"{tag}{PROBE}{system.token_hex(8)}-"

    def make(self) -> str:
        """Return the next probe, as XML."""
        self.used = True
        self.made += 1
        sender = self.address
        if self.at_once > 1:
            sender = f"probe-{system.token_hex(4)}@{sender}"
        probe = IQ(
            type="get",
            id=f"{self._prefix}{self.made}",
            from_=sender,
            to=self.address,
            payload=Ping(),
        )
        return probe.encode()

    def is_one(self, event: StreamEvent) -> bool:
        """Return whether this is a returned probe, or the server's answer to one."""
        id_ = event.stanza.id if isinstance(event, StanzaReceived) else None
        if id_ is None or not id_.startswith(self._prefix):
            return False
        with contextlib.suppress(ValueError):
            self.returned = max(self.returned, int(id_.removeprefix(self._prefix)))
        self.change()
        return True

    def change(self) -> None:
        """Wake those who wait for a probe."""
        self.changed.set()
        self.changed = anyio.Event()


class Established(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one successful connection.

    Attributes:
        address: address and port that answered.
        tls: version of TLS in use; None without TLS.
        connect_s: seconds until TCP, and TLS, were established.
        handshake_s: seconds from there until the handshake was accepted.
        round_trip_s: seconds that an IQ took through the server and back.
    """

    address: str
    tls: str | None
    connect_s: float
    handshake_s: float
    round_trip_s: float


async def probe_once(server: Server) -> Established:
    """Connect once, send an IQ to ourselves, wait for it to return, and close.

    Raises:
        ConnectionFailed: any failure, as a sentence.
    """
    began = anyio.current_time()
    transport = await connect(server)
    try:
        address, connected = transport.peer, anyio.current_time()
        opened = await link_for(server).open(transport)
        accepted = anyio.current_time()
        round_trip = await _round_trip(transport, opened, server)
        with anyio.move_on_after(_CLOSING_S):
            await _close(transport, opened.session, server)
        return Established(
            address=address,
            tls=transport.tls_version,
            connect_s=connected - began,
            handshake_s=accepted - connected,
            round_trip_s=round_trip,
        )
    finally:
        transport.close()


async def _round_trip(transport: Transport, opened: Opened, server: Server) -> float:
    probes = Probes(opened.address, _NO_INSTANCE, server.component_number)
    session = opened.session
    # no probe was sent yet, but the stream may have ended
    _came_back(opened.events, probes, server)
    for _ in range(REPEATS):
        sent = anyio.current_time()
        with anyio.move_on_after(server.probe_timeout_s / REPEATS):
            await _say(session, "".join(probes.make() for _ in range(probes.at_once)).encode())
            while not _came_back(
                session.receive(await hear(transport, server, established=True)), probes, server
            ):
                session.push()
            return anyio.current_time() - sent
    raise failure.no_loop_back(server)


async def _say(session: Session, data: bytes) -> None:
    """Send ``data``; a failure is ignored, because the input shows the reason better."""
    rest = memoryview(data)
    with contextlib.suppress(ConnectionFailed):
        while len(rest := rest[session.try_send(rest) :]) or session.pending:
            await session.wait_sendable()
            session.push()


def _came_back(events: Iterable[StreamEvent], probes: Probes, server: Server) -> bool:
    for event in events:
        if isinstance(event, StanzaReceived):
            if probes.is_one(event):
                if event.stanza.type == "error":
                    raise failure.no_loop_back(server)
                return True
        elif not isinstance(event, StanzaSkipped):
            raise ended_by(event, server, established=True)
    return False


async def _close(transport: Transport, session: Session, server: Server) -> None:
    """Close the stream and wait until the server has too; failures do not matter any more."""
    try:
        if not session.closed:
            await transport.send(session.close())
        while not session.closed:
            session.receive(await hear(transport, server, established=True))
    except ConnectionFailed:
        pass

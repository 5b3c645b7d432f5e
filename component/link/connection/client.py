"""An agent on an account: a client's stream and its session (RFC 6120, XEP-0198).

It is imported only in client mode: TLS, SASL and stream management.
"""

import contextlib
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Final

import anyio

from component.config.server import Server
from component.link.connection import failure
from component.link.connection.failure import ConnectionFailed, FailureCode
from component.link.connection.stream import Opened, StreamEvent, ended_by, hear, limits_of, say
from component.link.connection.transport import Transport
from xep.client_states import State
from xep.client_stream import Bound, ClientStream, ClientStreamEvent, LoginFailed, TlsWanted
from xep.jid import JID, learn_spelling
from xep.sasl import end_point_of
from xep.stanza_stream import StanzaReceived
from xep.stream import StanzaSkipped, StreamOpened
from xep.stream_management import StanzaSplitter, StreamManagement

_RESUMABLE_S: Final = 300
"""Seconds for which a session is assumed to be resumable if the server does not say (XEP-0198 §3
recommends five minutes).
"""
_WINDOW_BYTES: Final = 1 << 20
"""Bytes of stanzas that may wait for their acknowledgement; nothing more is sent meanwhile."""
_OPEN: Final = (State.READY, State.PEER_CLOSED)


class ClientLink:
    """A client's stream (RFC 6120), whose session is resumed if it broke (XEP-0198)."""

    def __init__(self, server: Server) -> None:
        self._server = server
        learn_spelling(server.address)
        self._account = JID.parse(server.address)
        self._address: JID | None = None
        self._management: StreamManagement | None = None
        self._changed = anyio.Event()

    @property
    def resumable_s(self) -> float:
        """Seconds for which the session of the broken stream can be resumed; 0 if it cannot."""
        if self._management is None or self._management.id is None:
            return 0.0
        return float(self._management.max_s or _RESUMABLE_S)

    async def open(self, transport: Transport) -> Opened:
        """Log in, and resume the session or bind a resource (RFC 6120 §4 to §7, XEP-0198 §5).

        Raises:
            ConnectionFailed: the server refused, closed the stream, or did not answer in time.
        """
        if find_spec("scramp") is None:
            raise login_impossible()
        server = self._server
        stream = ClientStream(
            self._account,
            server.secret,
            resource=server.resource,
            limits=limits_of(server),
            secure=transport.tls_version is not None,
            needs_tls=server.uses_tls,
            end_point=_end_point(transport),
            management=self._management,
            address=self._address,
        )
        with anyio.move_on_after(server.connect_timeout_s):
            await say(transport, stream.open())
            while True:
                events = stream.receive(await hear(transport, server))
                if answer := b"" if _is_bound(events) else stream.data_to_send():
                    await say(transport, answer)
                for number, event in enumerate(events, 1):
                    if isinstance(event, Bound):
                        return self._bound(transport, stream, event, events[number:])
                    if isinstance(event, TlsWanted):
                        await transport.start_tls()
                        await say(transport, stream.secured(_end_point(transport)))
                    elif isinstance(event, LoginFailed):
                        raise login_failed(server, event)
                    elif not isinstance(event, StreamOpened):
                        raise _ended(event, server)
        raise failure.handshake_timed_out(server)

    def _bound(
        self,
        transport: Transport,
        stream: ClientStream,
        bound: Bound,
        events: Sequence[ClientStreamEvent],
    ) -> Opened:
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


def _is_bound(events: list[ClientStreamEvent]) -> bool:
    """Return whether the session has begun: from then on the session sends the output."""
    return any(isinstance(event, Bound) for event in events)


def _ended(event: ClientStreamEvent, server: Server) -> ConnectionFailed:
    assert not isinstance(event, StanzaReceived | StanzaSkipped), "none comes before the session"
    return ended_by(event, server, established=False)


def _end_point(transport: Transport) -> bytes | None:
    certificate = transport.certificate
    return None if certificate is None else end_point_of(certificate)


def login_impossible() -> ConnectionFailed:
    """Return the failure for a missing package that computes SCRAM."""
    return ConnectionFailed(
        "login",
        'server.mode is "client", which needs the `client` extra: install it with '
        "pip install 'xmpp-agent-component[client]'.",
    )


def login_failed(server: Server, failed: LoginFailed) -> ConnectionFailed:
    """Return the failure for an event of the stream."""
    account, peer = server.address, f"the server at {server.host}:{server.port}"
    said = f" and says {failed.text!r}" if failed.text else ""
    code: FailureCode = "login"
    match failed.fault:
        case "no-tls":
            code = "tls"
            sentence = (
                f"{_begin(peer)} offers no STARTTLS, and the password is not sent without TLS: "
                "enable TLS for clients on the server, or use its port with direct TLS and tls = "
                "true."
            )
        case "tls":
            code = "tls"
            sentence = (
                f"{_begin(peer)} offers STARTTLS but refuses it: check the certificate that the "
                "server is configured with; its log may say more."
            )
        case "no-mechanism":
            offered = failed.text or "none"
            sentence = (
                f"{_begin(peer)} offers no supported login mechanism (it offers:"
                f" {offered}): enable SCRAM-SHA-256 or SCRAM-SHA-1 on the server."
            )
        case "unproved":
            code = "not-authorized"
            sentence = (
                f"The login of {account} was aborted, because {failed.text}: check that"
                f" {peer} is the right server and that nobody intercepts the connection."
            )
        case "no-bind":
            sentence = (
                f"{_begin(peer)} does not offer resource binding: it is not a server for clients."
            )
        case "bind":
            sentence = (
                f"{_begin(peer)} refuses {account} a resource ({failed.condition}){said}: close"
                " other sessions of the account, or raise the server's session limit."
            )
        case "sasl":
            code, sentence = _refused(account, peer, failed.condition, said)
    return ConnectionFailed(code, sentence)


def _refused(account: str, peer: str, condition: str, said: str) -> tuple[FailureCode, str]:
    if condition in ("not-authorized", "invalid-authzid"):
        return "not-authorized", (
            f"{_begin(peer)} refused the login of {account}{said}: there is no such account, or "
            "its password differs from server.password."
        )
    if condition == "account-disabled":
        return "not-authorized", f"{_begin(peer)} has disabled the account {account}{said}."
    if condition == "credentials-expired":
        return "not-authorized", (
            f"The password of {account} has expired{said}: set a new one on the server and in "
            "server.password."
        )
    if condition == "temporary-auth-failure":
        return "login", f"{_begin(peer)} cannot check passwords now{said}; the agent tries again."
    return "login", f"{_begin(peer)} refused the login of {account} ({condition}){said}."


def _begin(text: str) -> str:
    return text[0].upper() + text[1:]

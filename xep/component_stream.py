"""XEP-0114 Jabber Component Protocol: the stream between a component and its server.

Two state machines without I/O, one for each side: `ComponentStream` and `AcceptorStream`. Pass
received bytes to `receive`, which returns events; every other method returns bytes to send. The
tables in `xep.component_states` say what each side may do in each state.
"""

import hashlib
import hmac
from abc import ABC, abstractmethod
from typing import Final, cast

import msgspec

from xep.component_states import ACCEPTOR, COMPONENT, State, Step, Table
from xep.stanza_stream import (
    LocalProtocolError,
    RemoteProtocolError,
    StanzaReceived,
    StreamErrorReceived,
    StreamFailed,
    received,
)
from xep.stream import (
    STREAM_CLOSE,
    STREAMS,
    Condition,
    ElementReceived,
    Other,
    ParserOf,
    StanzaSkipped,
    StreamClosed,
    StreamError,
    StreamLimits,
    StreamOpened,
    encode_header,
)

NAMESPACE: Final = "jabber:component:accept"
"""The content namespace of a component's stream (XEP-0114 §3)."""

_HANDSHAKE: Final = "{jabber:client}handshake"  # canonical, as the parser gives it
_ERROR: Final = f"{{{STREAMS}}}error"


class HandshakeAccepted(msgspec.Struct):
    """Component side: the server accepted the handshake; from now on stanzas may be sent."""


class HandshakeReceived(msgspec.Struct):
    """Acceptor side: a component sent its proof. Answer with `accept()` or `fail(…)`."""

    domain: str
    """The domain the component asked to serve."""
    valid: bool
    """Whether it knows the secret."""


_STANZAS: Final = frozenset((StanzaReceived,))

ComponentStreamEvent = (
    StreamOpened
    | HandshakeAccepted
    | HandshakeReceived
    | StanzaReceived
    | StanzaSkipped
    | StreamErrorReceived
    | StreamClosed
    | StreamFailed
)


def handshake_digest(stream_id: str, secret: str) -> str:
    """Return the proof of the secret: SHA-1 over stream id and secret, in lower-case hex (XEP-0114
    §3).
    """
    return hashlib.sha1((stream_id + secret).encode(), usedforsecurity=False).hexdigest()


class _Stream(ABC):
    """The common part of both sides."""

    def __init__(self, table: Table, limits: StreamLimits | None) -> None:
        self._table = table
        self._parser = ParserOf(received, (NAMESPACE,), limits)
        self._state = State.NEW

    @property
    def state(self) -> State:
        """The state of the stream."""
        return self._state

    def receive(self, data: bytes) -> list[ComponentStreamEvent]:
        """Process bytes from the peer in chunks of any size; return the events, in order.

        It raises nothing: a protocol error of the peer is the last event, `StreamFailed`. After
        that, and after both sides have closed, input is ignored.
        """
        events: list[ComponentStreamEvent] = []
        if self._state is State.CLOSED:
            return events
        try:
            found = self._parser.receive(data)
            if self._state is State.READY and set(map(type, found)) <= _STANZAS:
                return cast(
                    "list[ComponentStreamEvent]", found
                )  # in a state where stanzas change nothing
            for event in found:
                events.append(self._event(event))  # noqa: PERF401 - what was before an error counts
        except StreamError as error:
            reply = self._failure(error)
            self._state = State.CLOSED
            events.append(StreamFailed(RemoteProtocolError(error, reply)))
        return events

    def send(self, stanza: bytes) -> bytes:
        """Return one or several encoded stanzas, if they may be sent now.

        Raises `LocalProtocolError` before the handshake is accepted and after `close()`.
        """
        self._step(Step.SEND_STANZA)
        return stanza

    def close(self) -> bytes:
        """Close our direction (RFC 6120 §4.4).

        If the stream was ready, stanzas of the peer and its closing tag are still received;
        otherwise the stream has ended. Raises `LocalProtocolError` if there is nothing to close.
        """
        self._step(Step.SEND_CLOSE)
        return STREAM_CLOSE

    def fail(self, condition: Condition, text: str = "") -> bytes:
        """End the stream with an error (RFC 6120 §4.9); the connection is to be closed after it.

        Raises `LocalProtocolError` if we have closed it already, or not opened it.
        """
        reply = self._failure(StreamError(condition, text))
        self._step(Step.SEND_ERROR)
        return reply

    def _step(self, step: Step) -> None:
        state = self._table[self._state].get(step)
        if state is None:
            message = f"Cannot {step.value} now: {self._state.value} ({self._state.name})."
            raise LocalProtocolError(message)
        self._state = state

    def _step_of_peer(self, step: Step) -> None:
        state = self._table[self._state].get(step)
        if state is None:
            condition: Condition = "unsupported-stanza-type"
            if step is Step.RECEIVE_STANZA:
                condition = "not-authorized"
            raise StreamError(condition, f"Unexpected: {step.value}; {self._state.value}.")
        self._state = state

    def _event(self, event: "StanzaReceived | ElementReceived | Other") -> ComponentStreamEvent:
        """Convert an event of the parser into a stream event. Raises `StreamError`."""
        if isinstance(event, StanzaReceived):
            self._step_of_peer(Step.RECEIVE_STANZA)
            return event
        if isinstance(event, ElementReceived):
            if event.element.tag == _HANDSHAKE:
                self._step_of_peer(Step.RECEIVE_HANDSHAKE)
                return self._handshake_received((event.element.text or "").strip())
            if event.element.tag == _ERROR:
                self._step_of_peer(Step.RECEIVE_ERROR)
                return StreamErrorReceived(StreamError.from_element(event.element))
            name = ascii(event.element.tag[:100])
            raise StreamError("unsupported-stanza-type", f"There is no stanza called {name}.")
        if isinstance(event, StanzaSkipped):
            self._step_of_peer(Step.RECEIVE_STANZA)
            return event
        if isinstance(event, StreamOpened):
            self._step_of_peer(self._header_step(event))
            if event.namespace != NAMESPACE:
                raise StreamError("invalid-namespace", f"The content namespace is {NAMESPACE}.")
            self._header_received(event)
            return event
        if isinstance(event, StreamClosed):
            self._step_of_peer(Step.RECEIVE_CLOSE)
            return event
        raise event.error

    def _header_step(self, header: StreamOpened) -> Step:
        return Step.RECEIVE_HEADER

    @abstractmethod
    def _header_received(self, header: StreamOpened) -> None: ...

    @abstractmethod
    def _handshake_received(self, proof: str) -> ComponentStreamEvent: ...

    def _failure(self, error: StreamError) -> bytes:
        """Return the bytes that end the stream from our side, unless we have ended it already."""
        return b"" if self._state is State.CLOSING else error.encode() + STREAM_CLOSE


class ComponentStream(_Stream):
    """The component's side.

    Call `open()` first; when `receive` leaves it in the state OPENED send `handshake()`; after
    `HandshakeAccepted` it is ready. A wrong secret arrives as `StreamErrorReceived` with
    `not-authorized`. A server that refuses right after its header has ended the stream before the
    caller sees `StreamOpened`, so decide by the state, not by the event.
    """

    def __init__(self, domain: str, secret: str, limits: StreamLimits | None = None) -> None:
        """Serve `domain`, proving knowledge of `secret`; `limits` apply to each received stanza."""
        super().__init__(COMPONENT, limits)
        self._domain = domain
        self._secret = secret
        self._stream_id = ""

    def open(self) -> bytes:
        """Give the header to send first. Raises `LocalProtocolError` the second time."""
        self._step(Step.SEND_HEADER)
        return encode_header(NAMESPACE, to=self._domain)

    def handshake(self) -> bytes:
        """Give the proof of the secret; it can be made once the server's header has arrived.

        Raises `LocalProtocolError` at any other moment.
        """
        self._step(Step.SEND_HANDSHAKE)
        digest = handshake_digest(self._stream_id, self._secret)
        return f"<handshake>{digest}</handshake>".encode()

    def receive(self, data: bytes) -> list[ComponentStreamEvent]:
        """As documented above. Raises `LocalProtocolError` before `open()`: nobody can answer."""
        if self._state is State.NEW:
            raise LocalProtocolError("Nothing can be received before the stream is opened.")
        return super().receive(data)

    def _header_step(self, header: StreamOpened) -> Step:
        return Step.RECEIVE_HEADER if header.id else Step.RECEIVE_REFUSAL

    def _header_received(self, header: StreamOpened) -> None:
        self._stream_id = header.id or ""

    def _handshake_received(self, proof: str) -> ComponentStreamEvent:
        return HandshakeAccepted()


class AcceptorStream(_Stream):
    """The server's end.

    Answer `StreamOpened`, whose `to` names the domain, with `open()` or with
    `fail("host-unknown")`; answer `HandshakeReceived` with `accept()`, `fail("not-authorized")`
    or `fail("conflict")`. A component that did not wait may have failed by the time the event is
    seen: answer only in the states OPENED and DECIDING.
    """

    def __init__(self, limits: StreamLimits | None = None) -> None:
        """Wait for a component; `limits` apply to each received stanza."""
        super().__init__(ACCEPTOR, limits)
        self._domain = ""
        self._opened = False
        self._proof = ""
        self._valid = False

    def open(self, stream_id: str, secret: str) -> bytes:
        """Return our header. `stream_id` must be unpredictable and new for each stream.

        Raises `LocalProtocolError` unless the component's header has just arrived.
        """
        self._step(Step.SEND_HEADER)
        self._opened = True
        self._proof = handshake_digest(stream_id, secret)
        return encode_header(NAMESPACE, from_=self._domain, id_=stream_id)

    def accept(self) -> bytes:
        """Accept the component.

        Raises `LocalProtocolError` if no handshake was received, or one that is not valid.
        """
        if self._state is State.DECIDING and not self._valid:
            raise LocalProtocolError("Cannot accept: the component does not know the secret.")
        self._step(Step.SEND_HANDSHAKE)
        return b"<handshake/>"

    def _header_received(self, header: StreamOpened) -> None:
        if not header.to:
            raise StreamError("host-unknown", "The stream header names no domain in 'to'.")
        self._domain = header.to

    def _handshake_received(self, proof: str) -> ComponentStreamEvent:
        self._valid = hmac.compare_digest(proof.encode(), self._proof.encode())
        return HandshakeReceived(self._domain, self._valid)

    def close(self) -> bytes:
        """As documented above; before `open()` it also returns a header, which is then closed."""
        header = self._late_header()
        return header + super().close()

    def _failure(self, error: StreamError) -> bytes:
        return self._late_header() + super()._failure(error)

    def _late_header(self) -> bytes:
        """Return our header, if it was not sent: only an open stream can be ended (RFC 6120
        §4.9.1.2).
        """
        if self._opened:
            return b""
        return encode_header(NAMESPACE, from_=self._domain or None)

"""A client's stream (RFC 6120): TLS, login, resource, stream management; without I/O.

`ClientStream` is a state machine. Pass bytes from the server to `receive`, which returns events;
after each `receive` send the bytes that `data_to_send` returns. The table in `xep.client_states`
says what is allowed in each state.

The stream negotiates by itself. Two events require an action of the caller: `TlsWanted` (send the
pending bytes, negotiate TLS, call `secured`) and `Bound` (stanzas may be sent from now on).
"""

from dataclasses import dataclass
from typing import Final, Literal
from xml.etree.ElementTree import Element

from xep import bind, sasl
from xep import stream_management as sm
from xep.binding import ContentError, encode
from xep.client_states import CLIENT, State, Step
from xep.jid import JID
from xep.sasl import SaslError
from xep.stanza import NAMESPACE, Incoming
from xep.stanza_error import StanzaError
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

TLS: Final = "urn:ietf:params:xml:ns:xmpp-tls"

_BIND_ID: Final = "bind"
_FEATURES: Final = f"{{{STREAMS}}}features"
_ERROR: Final = f"{{{STREAMS}}}error"


LoginFault = Literal[
    "bind",  # the server refuses to bind a resource; the condition says why
    "no-bind",  # it offers no resource binding
    "no-mechanism",  # it offers no supported mechanism
    "no-tls",  # it offers no TLS
    "sasl",  # it refuses the login; the condition says why
    "tls",  # it offers TLS and refuses it
    "unproved",  # it does not prove that it knows the account's password
]


@dataclass(slots=True)
class TlsWanted:
    """TLS is to be negotiated now. Always the last event."""


@dataclass(slots=True)
class Bound:
    """Stanzas may be sent from now on."""

    address: JID
    """Our full address."""
    resumed: bool
    """Whether this is the session of the earlier stream (XEP-0198 §5): `data_to_send` sends its
    unacknowledged stanzas again.
    """
    lost: tuple[bytes, ...] = ()
    """Stanzas of the earlier session that were not acknowledged, if it was not resumed."""
    lost_for_certain: bool = False
    """Whether the server has said that it did not receive them; otherwise it may have."""


@dataclass(slots=True)
class LoginFailed:
    """There is no session, and there will be none on this stream. Always the last event."""

    fault: LoginFault
    condition: str = ""
    """The server's own condition, such as ``not-authorized``."""
    text: str = ""
    """More details: the server's text, the mechanisms that it offers, or the error in its proof."""


ClientStreamEvent = (
    StreamOpened
    | TlsWanted
    | Bound
    | LoginFailed
    | StanzaReceived
    | StanzaSkipped
    | StreamErrorReceived
    | StreamClosed
    | StreamFailed
)


class ClientStream:
    """The client's side of one stream.

    Args:
        account: the bare address of the account.
        password: its password.
        resource: the resource to ask for; the server chooses one if it is None.
        limits: apply to each received stanza.
        secure: whether the connection already uses TLS (XEP-0368).
        needs_tls: never log in without TLS. Without it STARTTLS is used if it is offered.
        end_point: the data of the channel binding ``tls-server-end-point``, if the connection
            already uses TLS and it is known.
        management: the session to resume; None for a new one.
    """

    def __init__(
        self,
        account: JID,
        password: str,
        *,
        resource: str | None = None,
        limits: StreamLimits | None = None,
        secure: bool = False,
        needs_tls: bool = True,
        end_point: bytes | None = None,
        management: sm.StreamManagement | None = None,
        address: JID | None = None,
    ) -> None:
        self._account = account.bare
        self._password = password
        self._resource = resource
        self._secure = secure
        self._needs_tls = needs_tls
        self._end_point = end_point
        self._earlier = management
        self.management: sm.StreamManagement | None = None
        """Counts the stanzas of both directions on this stream; None if the server offers no stream
        management, and before the session has begun.
        """
        self.address: JID = address or account
        """Our full address, once there is a session; of the earlier one until then."""
        self._state = State.NEW
        self._parser = ParserOf(received, (NAMESPACE,), limits)
        self._to_send = bytearray()
        self._authenticated = False
        self._exchange: sasl.Exchange | None = None
        self._features: Element | None = None
        self._early: list[
            ClientStreamEvent
        ] = []  # stanzas that arrived before the session had begun
        self._lost: tuple[bytes, ...] = ()
        self._lost_for_certain = False

    @property
    def state(self) -> State:
        """The state of the stream."""
        return self._state

    @property
    def closed(self) -> bool:
        """Whether nothing more can be sent."""
        return self._state is State.CLOSED

    def open(self) -> bytes:
        """Return the header to send first. Raises `LocalProtocolError` the second time."""
        self._step(Step.SEND_HEADER)
        return self._header()

    def data_to_send(self) -> bytes:
        """Return the pending bytes to send; nothing the second time."""
        data = bytes(self._to_send)
        self._to_send.clear()
        return data

    def secured(self, end_point: bytes | None = None) -> bytes:
        """Return the header to send after TLS was negotiated (RFC 6120 §5.4.3.3).

        Raises `LocalProtocolError` if TLS was not requested.
        """
        self._step(Step.TLS_NEGOTIATED)
        self._secure = True
        self._end_point = end_point
        self._parser.reset()
        return self._header()

    def send(self, stanza: bytes) -> bytes:
        """Return one encoded stanza, or white space, if it may be sent now.

        With stream management it is stored until it is acknowledged, and an acknowledgement is
        requested. Raises `LocalProtocolError` before `Bound` and after `close()`.
        """
        self._step(Step.SEND_STANZA)
        if self.management is None or stanza.isspace():
            return stanza
        self.management.sent(stanza)
        return stanza + self._request()

    def close(self) -> bytes:
        """Close our direction (RFC 6120 §4.4). Raises `LocalProtocolError` if nothing is open."""
        self._step(Step.SEND_CLOSE)
        return STREAM_CLOSE

    def receive(self, data: bytes) -> list[ClientStreamEvent]:
        """Process bytes from the server in chunks of any size; return the events, in order.

        A protocol error of the server is the last event, `StreamFailed` or `LoginFailed`. After
        that, and after both sides have closed, input is ignored. Raises `LocalProtocolError` before
        `open()`, and while TLS is being negotiated.
        """
        if self._state in (State.NEW, State.SECURING):
            raise LocalProtocolError(f"Nothing can be received now: {self._state.value}.")
        events: list[ClientStreamEvent] = []
        if self.closed:
            return events
        try:
            self._take(self._parser.receive(data), events)
        except StreamError as error:
            reply = b"" if self._state is State.CLOSING else error.encode() + STREAM_CLOSE
            self._state = State.CLOSED
            events.append(StreamFailed(RemoteProtocolError(error, reply)))
        return events

    def _take(
        self, found: list[StanzaReceived | ElementReceived | Other], events: list[ClientStreamEvent]
    ) -> None:
        for number, event in enumerate(found, 1):
            before = self._state
            self._event(event, events)
            if self.closed:
                return
            if self._begins_anew(before):
                self._restart(more=number < len(found))

    def _begins_anew(self, before: State) -> bool:
        """Return whether a new stream begins: after ``<proceed/>`` of STARTTLS, and after the
        login.
        """
        return self._state is not before and (
            self._state is State.SECURING
            or (before is State.AUTHENTICATING and self._state is State.OPENING)
        )

    def _restart(self, *, more: bool) -> None:
        if more or self._parser.pending:
            # The server did not wait for TLS, or for our header; or somebody else sent this.
            raise StreamError("policy-violation", "You sent before it was your turn.")
        if self._state is State.OPENING:
            self._parser.reset()

    # -- events ----------------------------------------------------------------------------------

    def _event(
        self, event: "StanzaReceived | ElementReceived | Other", events: list[ClientStreamEvent]
    ) -> None:
        if isinstance(event, StanzaReceived):
            self._stanza(event, events)
        elif isinstance(event, ElementReceived):
            self._element(event.element, events)
        elif isinstance(event, StanzaSkipped):
            self._peer(Step.RECEIVE_STANZA)
            self._count()
            self._give(event, events)
        elif isinstance(event, StreamOpened):
            self._peer(Step.RECEIVE_HEADER)
            if event.version is None or not event.version.startswith("1."):
                raise StreamError("unsupported-version", "A client needs XMPP 1.0.")
            events.append(event)
        elif isinstance(event, StreamClosed):
            self._peer(Step.RECEIVE_CLOSE)
            events.append(event)
        else:
            raise event.error

    def _stanza(self, event: StanzaReceived, events: list[ClientStreamEvent]) -> None:
        self._peer(Step.RECEIVE_STANZA)
        stanza = event.stanza
        if self._state is State.BINDING and stanza.kind == "iq" and stanza.id == _BIND_ID:
            self._bound(stanza, events)
            return
        self._count()
        # RFC 6120 §8.1.2.1, §8.1.1.1: a stanza without addresses is between the account and us.
        if stanza.sender is None:
            stanza.sender = self._account.on_wire()
        if stanza.to is None:
            stanza.to = self._account.on_wire()
        self._give(event, events)

    def _give(self, event: ClientStreamEvent, events: list[ClientStreamEvent]) -> None:
        if self._state in (State.BINDING, State.ENABLING):
            self._early.append(event)
        else:
            events.append(event)

    def _count(self) -> None:
        if self.management is not None:
            self.management.count_received()

    def _element(self, element: Element, events: list[ClientStreamEvent]) -> None:
        tag = element.tag
        namespace, _, name = tag[1:].rpartition("}")
        if tag == _ERROR:
            self._peer(Step.RECEIVE_ERROR)
            events.append(StreamErrorReceived(StreamError.from_element(element)))
        elif tag == _FEATURES:
            self._offered(element, events)
        elif namespace == TLS:
            self._tls(name, events)
        elif namespace == sasl.NAMESPACE:
            self._sasl(name, element, events)
        elif namespace == sm.NAMESPACE:
            self._management(name, element, events)
        else:
            text = f"There is no stanza called {tag[:100]!a}."
            raise StreamError("unsupported-stanza-type", text)

    # -- negotiation -----------------------------------------------------------------------------

    def _offered(self, features: Element, events: list[ClientStreamEvent]) -> None:
        """Continue with the features that the server offers (RFC 6120 §4.3)."""
        if self._state is not State.OPENED:
            raise self._unexpected("stream features")
        self._features = features
        if self._authenticated:
            self._begin_session(features, events)
        elif not self._secure and features.find(f"{{{TLS}}}starttls") is not None:
            self._step(Step.SEND_STARTTLS)
            self._to_send += f"<starttls xmlns='{TLS}'/>".encode()
        elif not self._secure and self._needs_tls:
            self._give_up(LoginFailed("no-tls"), events)
        else:
            self._log_in(features, events)

    def _tls(self, name: str, events: list[ClientStreamEvent]) -> None:
        if name == "proceed":
            self._peer(Step.RECEIVE_PROCEED)
            events.append(TlsWanted())
        elif name == "failure" and self._state is State.STARTING_TLS:
            self._give_up(LoginFailed("tls"), events)
        else:
            raise self._unexpected(f"<{name}/> of TLS")

    def _log_in(self, features: Element, events: list[ClientStreamEvent]) -> None:
        mechanisms = [
            (each.text or "").strip()
            for each in features.findall(f"{{{sasl.NAMESPACE}}}mechanisms/*")
        ]
        bindings = [
            each.get("type", "") for each in features.findall(f"{{{sasl.CHANNEL_BINDING}}}*/*")
        ]
        try:
            self._exchange = sasl.choose(
                mechanisms,
                self._account.local or "",
                self._password,
                secure=self._secure,
                bindings=bindings,
                end_point=self._end_point,
            )
        except SaslError as error:
            self._give_up(LoginFailed("sasl", "not-authorized", str(error)), events)
            return
        if self._exchange is None:
            self._give_up(LoginFailed("no-mechanism", text=", ".join(mechanisms)), events)
            return
        self._step(Step.SEND_AUTH)
        first = sasl.encode_data(self._exchange.first())
        self._to_send += (
            f"<auth xmlns='{sasl.NAMESPACE}' mechanism='{self._exchange.mechanism}'>{first}</auth>"
        ).encode()

    def _sasl(self, name: str, element: Element, events: list[ClientStreamEvent]) -> None:
        exchange = self._exchange
        if exchange is None or self._state is not State.AUTHENTICATING:
            raise self._unexpected(f"<{name}/> of SASL")
        try:
            if name == "challenge":
                self._peer(Step.RECEIVE_CHALLENGE)
                answer = sasl.encode_data(exchange.respond(sasl.decode_data(element.text)))
                text = f"<response xmlns='{sasl.NAMESPACE}'>{answer}</response>"
                self._to_send += text.encode()
            elif name == "success":
                exchange.check(sasl.decode_data(element.text))
                self._peer(Step.RECEIVE_SUCCESS)
                self._authenticated = True
                self._exchange = None
                self._to_send += self._header()
            elif name == "failure":
                self._give_up(_refused(element), events)
            else:
                raise self._unexpected(f"<{name}/> of SASL")
        except SaslError as error:
            self._give_up(LoginFailed("unproved", text=str(error)), events)

    def _begin_session(self, features: Element, events: list[ClientStreamEvent]) -> None:
        managed = features.find(f"{{{sm.NAMESPACE}}}sm") is not None
        earlier, self._earlier = self._earlier, None
        if earlier is not None and earlier.id is not None and managed:
            self._step(Step.SEND_RESUME)
            self.management = earlier
            self._to_send += earlier.resume()
            return
        if earlier is not None:
            self._lost = earlier.unacknowledged
        self._bind(events)

    def _bind(self, events: list[ClientStreamEvent]) -> None:
        assert self._features is not None
        if self._features.find(f"{{{bind.NAMESPACE}}}bind") is None:
            self._give_up(LoginFailed("no-bind"), events)
            return
        self._step(Step.SEND_BIND)
        payload = encode(bind.Bind(resource=self._resource), NAMESPACE)
        self._to_send += f"<iq type='set' id='{_BIND_ID}'>{payload}</iq>".encode()

    def _bound(self, answer: Incoming, events: list[ClientStreamEvent]) -> None:
        if answer.type == "error":
            error: StanzaError = answer.error()
            self._give_up(LoginFailed("bind", error.condition, error.text), events)
            return
        try:
            address = answer.require(bind.Bind).jid
        except ContentError as fault:
            raise StreamError("invalid-xml", str(fault)) from fault
        if answer.type != "result" or address is None or address.bare != self._account:
            raise StreamError(
                "invalid-xml", "The answer to the binding contains no address for this client."
            )
        self.address = address
        assert self._features is not None
        if self._features.find(f"{{{sm.NAMESPACE}}}sm") is None:
            self._begin(Step.BOUND, events)
        else:
            self._step(Step.SEND_ENABLE)
            self._to_send += sm.ENABLE

    def _begin(self, step: Step, events: list[ClientStreamEvent]) -> None:
        """Start the session."""
        self._step(step)
        resumed = step is Step.RECEIVE_RESUMED
        events.append(Bound(self.address, resumed, self._lost, self._lost_for_certain))
        events += self._early
        self._early = []

    # -- stream management -----------------------------------------------------------------------

    def _management(self, name: str, element: Element, events: list[ClientStreamEvent]) -> None:
        match name, self._state:
            case "enabled", State.ENABLING:
                self.management = sm.StreamManagement()
                self.management.enabled(element)
                self._begin(Step.RECEIVE_ENABLED, events)
            case "failed", State.ENABLING:
                self._begin(Step.RECEIVE_ENABLED, events)  # continue without it
            case "resumed", State.RESUMING:
                assert self.management is not None
                self.management.acknowledge(element)
                self._begin(Step.RECEIVE_RESUMED, events)
                self._to_send += b"".join(self.management.unacknowledged) + self._request()
            case "failed", State.RESUMING:
                self._not_resumed(element, events)
            case "r", _ if self.management is not None:
                self._peer(Step.RECEIVE_COUNT)
                if self._state is State.READY:
                    self._to_send += self.management.answer()
            case "a", _ if self.management is not None:
                self._peer(Step.RECEIVE_COUNT)
                self.management.acknowledge(element)
                self.management.asked = False
                if self._state is State.READY:
                    self._to_send += self._request()
            case _:
                raise self._unexpected(f"<{name}/> of stream management")

    def _not_resumed(self, element: Element, events: list[ClientStreamEvent]) -> None:
        earlier, self.management = self.management, None
        assert earlier is not None
        if element.get("h") is not None:
            earlier.acknowledge(element)
            self._lost_for_certain = True
        self._lost = earlier.unacknowledged
        self._step(Step.RECEIVE_NOT_RESUMED)
        self._bind(events)

    def _request(self) -> bytes:
        """Return a request for an acknowledgement, unless one is outstanding."""
        management = self.management
        if management is None or management.asked or not management.waiting_bytes:
            return b""
        management.asked = True
        return sm.REQUEST

    # -- states ----------------------------------------------------------------------------------

    def _header(self) -> bytes:
        # The account is named under TLS only (RFC 6120 §4.7.1).
        from_ = self._account.on_wire() if self._secure else None
        to = self._account.domain_jid.on_wire()
        return encode_header(NAMESPACE, to=to, from_=from_, version="1.0", lang="en")

    def _give_up(self, failed: LoginFailed, events: list[ClientStreamEvent]) -> None:
        self._step(Step.GIVE_UP)
        self._to_send.clear()
        self._to_send += STREAM_CLOSE
        events.append(failed)

    def _step(self, step: Step) -> None:
        state = CLIENT[self._state].get(step)
        if state is None:
            text = f"Cannot {step.value} now: {self._state.value} ({self._state.name})."
            raise LocalProtocolError(text)
        self._state = state

    def _peer(self, step: Step) -> None:
        state = CLIENT[self._state].get(step)
        if state is None:
            raise self._unexpected(step.value, stanza=step is Step.RECEIVE_STANZA)
        self._state = state

    def _unexpected(self, what: str, *, stanza: bool = False) -> StreamError:
        condition: Condition = "not-authorized" if stanza else "unsupported-stanza-type"
        return StreamError(condition, f"Unexpected: {what}; {self._state.value}.")


def _refused(element: Element) -> LoginFailed:
    """Return the failed login of a ``<failure/>`` (RFC 6120 §6.5)."""
    condition = text = ""
    for child in element:
        name = child.tag.rpartition("}")[2]
        if name == "text":
            text = (child.text or "").strip()
        elif not condition:
            condition = name
    return LoginFailed("sasl", condition or "not-authorized", text[:500])

"""XEP-0114 from both ends: what is allowed when, and what the other side's faults lead to."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from xep.component_states import ACCEPTOR, COMPONENT, State, Step
from xep.component_stream import (
    AcceptorStream,
    ComponentStream,
    ComponentStreamEvent,
    HandshakeAccepted,
    HandshakeReceived,
    handshake_digest,
)
from xep.stanza import Incoming
from xep.stanza_stream import (
    LocalProtocolError,
    RemoteProtocolError,
    StanzaReceived,
    StreamErrorReceived,
    StreamFailed,
)
from xep.stream import StanzaSkipped, StreamClosed, StreamError, StreamLimits, StreamOpened

DOMAIN = "agent.example.org"
SECRET = "s3cr\u00e9t"
IQ = b"<iq type='get' id='1' from='a@example.org' to='agent.example.org'><x xmlns='urn:x'/></iq>"
SERVER_HEADER = (
    b"<stream:stream xmlns='jabber:component:accept' from='agent.example.org' id='3BF96D32'"
    b" xmlns:stream='http://etherx.jabber.org/streams'>"
)
CLIENT_HEADER = SERVER_HEADER.replace(b"from=", b"to=").replace(b"id='3BF96D32'", b"")


def _ready() -> tuple[ComponentStream, AcceptorStream]:
    component, acceptor = ComponentStream(DOMAIN, SECRET), AcceptorStream()
    acceptor.receive(component.open())
    component.receive(acceptor.open("3BF96D32", SECRET))
    acceptor.receive(component.handshake())
    component.receive(acceptor.accept())
    return component, acceptor


def _failure(events: list[ComponentStreamEvent]) -> RemoteProtocolError:
    assert isinstance(events[-1], StreamFailed)
    return events[-1].error


def test_the_digest_is_that_of_the_specification() -> None:
    # The example of XEP-0114 §3, whose secret is "test".
    assert handshake_digest("3BF96D32", "test") == "aaee83c26aeeafcbabeabfcbcd50df997e0a2a1e"


def test_both_ends_meet() -> None:
    component, acceptor = ComponentStream(DOMAIN, SECRET), AcceptorStream()
    [opened] = acceptor.receive(component.open())
    assert isinstance(opened, StreamOpened)
    assert (opened.to, opened.version) == (DOMAIN, None)
    [opened] = component.receive(acceptor.open("a<'&>b", SECRET))
    assert isinstance(opened, StreamOpened)
    assert (opened.id, opened.from_) == ("a<'&>b", DOMAIN)
    assert acceptor.receive(component.handshake()) == [HandshakeReceived(DOMAIN, valid=True)]
    assert component.receive(acceptor.accept()) == [HandshakeAccepted()]
    assert component.state is acceptor.state is State.READY

    for end, other in ((component, acceptor), (acceptor, component)):
        [event] = other.receive(end.send(IQ))
        assert isinstance(event, StanzaReceived)
        assert isinstance(event.stanza, Incoming)
        assert (event.stanza.kind, event.stanza.id, event.stanza.size) == ("iq", "1", len(IQ))

    assert acceptor.receive(component.close()) == [StreamClosed()]
    assert acceptor.state is State.PEER_CLOSED
    # What was under way is still delivered (RFC 6120 §4.4).
    [event, closed] = component.receive(acceptor.send(IQ) + acceptor.close())
    assert isinstance(event, StanzaReceived)
    assert closed == StreamClosed()
    assert component.state is acceptor.state is State.CLOSED


def test_stanzas_right_behind_the_handshake_are_delivered() -> None:
    component = ComponentStream(DOMAIN, SECRET)
    component.open()
    component.receive(SERVER_HEADER)
    component.handshake()
    accepted, stanza = component.receive(b"<handshake/>" + IQ)
    assert accepted == HandshakeAccepted()
    assert isinstance(stanza, StanzaReceived)


def test_a_wrong_secret_ends_a_component_stream_as_not_authorized() -> None:
    component, acceptor = ComponentStream(DOMAIN, "guess"), AcceptorStream()
    acceptor.receive(component.open())
    component.receive(acceptor.open("1", SECRET))
    assert acceptor.receive(component.handshake()) == [HandshakeReceived(DOMAIN, valid=False)]
    with pytest.raises(LocalProtocolError, match="does not know the secret"):
        acceptor.accept()
    [error, closed] = component.receive(acceptor.fail("not-authorized", "No."))
    assert isinstance(error, StreamErrorReceived)
    assert (error.error.condition, error.error.text) == ("not-authorized", "No.")
    assert closed == StreamClosed()
    assert component.state is State.ENDED
    assert component.close() == b"</stream:stream>"
    assert component.state is State.CLOSED


@pytest.mark.parametrize("proof", ["", "\u00e9", "0" * 40, "\U0001f600" * 40])
def test_a_proof_may_be_anything(proof: str) -> None:
    acceptor = AcceptorStream()
    acceptor.receive(CLIENT_HEADER)
    acceptor.open("1", SECRET)
    [event] = acceptor.receive(f"<handshake>{proof}</handshake>".encode())
    assert event == HandshakeReceived(DOMAIN, valid=False)


def test_an_unknown_host_is_told_inside_a_stream() -> None:
    component, acceptor = ComponentStream(DOMAIN, SECRET), AcceptorStream()
    acceptor.receive(component.open())
    opened, error, closed = component.receive(acceptor.fail("host-unknown"))
    assert isinstance(opened, StreamOpened)
    assert isinstance(error, StreamErrorReceived)
    assert error.error.condition == "host-unknown"
    assert closed == StreamClosed()


def test_a_conflict_is_told_after_the_handshake() -> None:
    component, acceptor = ComponentStream(DOMAIN, SECRET), AcceptorStream()
    acceptor.receive(component.open())
    component.receive(acceptor.open("1", SECRET))
    acceptor.receive(component.handshake())
    error = component.receive(acceptor.fail("conflict"))[0]
    assert isinstance(error, StreamErrorReceived)
    assert error.error.condition == "conflict"


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (IQ, "not-authorized"),
        (b"<iq>" + b"x" * 300_000 + b"</iq>", "not-authorized"),
        (b"<auth xmlns='urn:x'/>", "unsupported-stanza-type"),
        (b"x", "bad-format"),
        (b"<handshake>" + b"0" * 40 + b"</handshake>" + IQ, "not-authorized"),
        (b"<handshake/><handshake/>", "unsupported-stanza-type"),
    ],
)
def test_before_the_handshake_nothing_else_is_taken(data: bytes, condition: str) -> None:
    acceptor = AcceptorStream()
    acceptor.receive(CLIENT_HEADER)
    acceptor.open("1", SECRET)
    failure = _failure(acceptor.receive(data))
    assert failure.error.condition == condition
    assert failure.reply == failure.error.encode() + b"</stream:stream>"
    assert acceptor.state is State.CLOSED
    assert acceptor.receive(IQ) == []


def test_a_server_may_not_send_stanzas_before_it_accepts() -> None:
    component = ComponentStream(DOMAIN, SECRET)
    component.open()
    component.receive(SERVER_HEADER)
    component.handshake()
    assert _failure(component.receive(IQ)).error.condition == "not-authorized"


@pytest.mark.parametrize("element", [b"<handshake/>", b"<a xmlns='urn:x'/>", b"<body/>"])
def test_only_stanzas_come_when_ready(element: bytes) -> None:
    for end in _ready():
        stanza, failed = end.receive(IQ + element)
        assert isinstance(stanza, StanzaReceived)
        assert _failure([failed]).error.condition == "unsupported-stanza-type"


def test_what_is_too_big_is_reported_and_the_stream_stays() -> None:
    component = ComponentStream(DOMAIN, SECRET, StreamLimits(bytes=200))
    component.open()
    component.receive(SERVER_HEADER)
    component.handshake()
    component.receive(b"<handshake/>")
    skipped, stanza = component.receive(b"<iq id='9'>" + b"x" * 300 + b"</iq>" + IQ)
    assert isinstance(skipped, StanzaSkipped)
    assert (skipped.kind, skipped.id, skipped.limit) == ("iq", "9", "bytes")
    assert isinstance(stanza, StanzaReceived)


@pytest.mark.parametrize(
    ("header", "condition"),
    [
        (SERVER_HEADER.replace(b"xmlns='jabber:component:accept' ", b""), "invalid-namespace"),
        (SERVER_HEADER.replace(b"component:accept", b"server"), "invalid-namespace"),
        (b"HTTP/1.1 400 Bad Request\r\n", "not-well-formed"),
    ],
)
def test_headers_a_component_cannot_work_with(header: bytes, condition: str) -> None:
    component = ComponentStream(DOMAIN, SECRET)
    component.open()
    failure = _failure(component.receive(header))
    assert failure.error.condition == condition
    # Our stream is open, so the error goes into it.
    assert failure.reply.startswith(b"<stream:error>")


@pytest.mark.parametrize(
    ("header", "condition"),
    [
        (CLIENT_HEADER.replace(b" to='agent.example.org'", b""), "host-unknown"),
        (CLIENT_HEADER.replace(b"component:accept", b"client"), "invalid-namespace"),
        (b"GET / HTTP/1.1\r\n", "not-well-formed"),
    ],
)
def test_an_acceptor_opens_its_stream_to_refuse(header: bytes, condition: str) -> None:
    # RFC 6120 §4.9.1.2: an error during setup needs a response header first.
    component = ComponentStream(DOMAIN, SECRET)
    component.open()
    failure = _failure(AcceptorStream().receive(header))
    assert failure.error.condition == condition
    opened, error, closed = component.receive(failure.reply)
    assert isinstance(opened, StreamOpened)
    assert closed == StreamClosed()
    assert isinstance(error, StreamErrorReceived)


def test_we_may_not_do_everything_at_any_time() -> None:
    component = ComponentStream(DOMAIN, SECRET)
    for too_early in (component.handshake, component.close, lambda: component.send(IQ)):
        with pytest.raises(LocalProtocolError):
            too_early()
    with pytest.raises(LocalProtocolError):
        component.receive(SERVER_HEADER)
    component.open()
    with pytest.raises(LocalProtocolError, match="Cannot open the stream now"):
        component.open()
    with pytest.raises(LocalProtocolError):
        component.send(IQ)
    component, _ = _ready()
    component.close()
    for too_late in (
        lambda: component.send(IQ),
        component.close,
        component.handshake,
        lambda: component.fail("reset"),
    ):
        with pytest.raises(LocalProtocolError):
            too_late()


def test_a_server_that_refuses_in_its_header_cannot_be_answered() -> None:
    # Prosody sends no id when it is about to say host-unknown.
    component = ComponentStream(DOMAIN, SECRET)
    component.open()
    [opened] = component.receive(SERVER_HEADER.replace(b" id='3BF96D32'", b""))
    assert isinstance(opened, StreamOpened)
    with pytest.raises(LocalProtocolError):
        component.handshake()
    [error] = component.receive(StreamError("host-unknown").encode())
    assert isinstance(error, StreamErrorReceived)
    assert component.close() == b"</stream:stream>"


def test_an_acceptor_that_gives_up_early_opens_and_closes() -> None:
    component, acceptor = ComponentStream(DOMAIN, SECRET), AcceptorStream()
    acceptor.receive(component.open())
    assert component.receive(acceptor.close())[-1] == StreamClosed()
    assert component.state is State.ENDED


def test_giving_up_before_the_stream_is_ready_ends_it_at_once() -> None:
    component = ComponentStream(DOMAIN, SECRET)
    component.open()
    assert component.close() == b"</stream:stream>"
    assert component.state is State.CLOSED


def test_a_fault_after_we_closed_is_not_answered_any_more() -> None:
    component, _ = _ready()
    component.close()
    assert _failure(component.receive(b"<a/>")).reply == b""


def test_the_secret_is_in_no_representation() -> None:
    component = ComponentStream(DOMAIN, SECRET)
    component.open()
    assert SECRET not in repr(component)


class TwoEnds(RuleBasedStateMachine):
    """Both ends do what their tables allow, in any order; the wire cuts as it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.component = ComponentStream(DOMAIN, SECRET)
        self.acceptor = AcceptorStream()
        self.to_acceptor = b""
        self.to_component = b""
        self.sent = 0
        self.received = 0

    def _may(self, end: ComponentStream | AcceptorStream, step: Step) -> bool:
        return step in (COMPONENT if end is self.component else ACCEPTOR)[end.state]

    def _send(self, end: ComponentStream | AcceptorStream, data: bytes) -> None:
        if end is self.component:
            self.to_acceptor += data
        else:
            self.to_component += data

    @precondition(lambda self: self.component.state is State.NEW)
    @rule()
    def open_component(self) -> None:
        self.to_acceptor += self.component.open()

    @precondition(lambda self: self.acceptor.state is State.OPENED)
    @rule()
    def open_acceptor(self) -> None:
        self.to_component += self.acceptor.open("1", SECRET)

    @precondition(lambda self: self.component.state is State.OPENED)
    @rule()
    def prove(self) -> None:
        self.to_acceptor += self.component.handshake()

    @precondition(lambda self: self.acceptor.state is State.DECIDING)
    @rule()
    def accept(self) -> None:
        self.to_component += self.acceptor.accept()

    @rule(from_component=st.booleans(), count=st.integers(1, 3))
    def send(self, from_component: bool, count: int) -> None:
        end = self.component if from_component else self.acceptor
        if self._may(end, Step.SEND_STANZA):
            self._send(end, end.send(IQ * count))
            self.sent += count
        else:
            with pytest.raises(LocalProtocolError):
                end.send(IQ)

    @rule(from_component=st.booleans(), rarely=st.integers(0, 4))
    def close(self, from_component: bool, rarely: int) -> None:
        end = self.component if from_component else self.acceptor
        if not rarely and self._may(end, Step.SEND_CLOSE):
            self._send(end, end.close())

    @rule(size=st.integers(1, 300))
    def deliver(self, size: int) -> None:
        data, self.to_acceptor = self.to_acceptor[:size], self.to_acceptor[size:]
        self._check(self.acceptor.receive(data))
        if self.component.state is not State.NEW:
            data, self.to_component = self.to_component[:size], self.to_component[size:]
            self._check(self.component.receive(data))

    def _check(self, events: list[ComponentStreamEvent]) -> None:
        assert not any(isinstance(event, StreamFailed | StreamErrorReceived) for event in events)
        self.received += sum(isinstance(event, StanzaReceived) for event in events)

    @invariant()
    def nothing_appears_from_nowhere(self) -> None:
        assert self.received <= self.sent
        if State.CLOSED not in (self.component.state, self.acceptor.state) and not (
            self.to_acceptor or self.to_component
        ):
            assert self.received == self.sent


TestTwoEnds = TwoEnds.TestCase
TestTwoEnds.settings = settings(stateful_step_count=30)


@given(st.lists(st.binary(max_size=100) | st.sampled_from([IQ, b"<handshake/>", SERVER_HEADER])))
def test_nothing_a_peer_sends_raises(chunks: list[bytes]) -> None:
    component, acceptor = ComponentStream(DOMAIN, SECRET), AcceptorStream()
    component.open()
    acceptor.receive(CLIENT_HEADER)
    for end in (component, acceptor, *_ready()):
        failed = False
        for chunk in chunks:
            events = end.receive(chunk)
            assert not (failed and events)
            failed = failed or any(isinstance(event, StreamFailed) for event in events)

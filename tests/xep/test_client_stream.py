"""A client's stream: it logs in however its bytes are cut, and no server makes it do otherwise."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.xep.client_server import ACCOUNT, PASSWORD, SM, Connection, Server
from xep.client_states import State
from xep.client_stream import Bound, ClientStream, ClientStreamEvent, LoginFailed, TlsWanted
from xep.jid import JID
from xep.stanza_stream import (
    LocalProtocolError,
    StanzaReceived,
    StreamErrorReceived,
    StreamFailed,
)
from xep.stream import StanzaSkipped, StreamClosed, StreamLimits
from xep.stream_management import StreamManagement

HEADER = (
    "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'"
    " from='example.com' id='s' version='1.0'>"
)
MESSAGE = b"<message id='m' to='a@b.c'/>"


def client(**options: Any) -> ClientStream:
    options = {"password": PASSWORD, "needs_tls": False, "resource": "agent"} | options
    return ClientStream(JID.parse(ACCOUNT), **options)


def talk(stream: ClientStream, connection: Connection, cuts: Any = None) -> list[ClientStreamEvent]:
    """Let both ends speak until neither has more to say; ``cuts`` cuts what the client reads."""
    events: list[ClientStreamEvent] = []
    while True:
        data = connection.take()
        if not data:
            return events
        for piece in [data] if cuts is None else cuts(data):
            for event in stream.receive(piece):
                events.append(event)
                if isinstance(event, TlsWanted):
                    connection.receive(stream.data_to_send())
                    connection.receive(stream.secured())
        connection.receive(stream.data_to_send())


def open_(
    stream: ClientStream, connection: Connection, cuts: Any = None
) -> tuple[list[ClientStreamEvent], Bound | None]:
    connection.receive(stream.open())
    events = talk(stream, connection, cuts)
    return events, next((one for one in events if isinstance(one, Bound)), None)


def ready(server: Server | None = None) -> tuple[ClientStream, Connection]:
    stream, connection = client(), (server or Server()).connect()
    _, bound = open_(stream, connection)
    assert bound is not None
    return stream, connection


@given(data=st.data(), tls=st.booleans(), managed=st.booleans())
@examples(10)
def test_a_client_stream_logs_in_however_the_bytes_are_cut(
    data: st.DataObject, tls: bool, managed: bool
) -> None:
    def cuts(text: bytes) -> list[bytes]:
        # After the go-ahead for TLS the server waits, so nothing follows in the same piece.
        ends = sorted(data.draw(st.sets(st.integers(1, len(text)), max_size=6)) | {len(text)})
        return [text[a:b] for a, b in zip([0, *ends], ends, strict=False)]

    server = Server(tls=tls, managed=managed)
    stream, connection = client(needs_tls=tls), server.connect()
    _, bound = open_(stream, connection, cuts)
    assert bound == Bound(JID.parse(f"{ACCOUNT}/agent"), resumed=False)
    assert connection.secure == tls
    assert stream.state is State.READY
    assert (stream.management is not None) == managed


def test_stanzas_go_both_ways_and_are_acknowledged() -> None:
    stream, connection = ready()
    assert stream.management is not None
    connection.receive(stream.send(MESSAGE) + stream.send(MESSAGE.replace(b"'m'", b"'n'")))
    assert len(stream.management.unacknowledged) == 2
    for id_ in ("1", "2"):
        connection.push(id_)
    connection.ask()
    events = talk(stream, connection)
    assert [one.stanza.id for one in events if isinstance(one, StanzaReceived)] == ["1", "2"]
    assert connection.session is not None
    assert connection.session.taken == ["m", "n"]
    assert not connection.session.sent
    assert stream.management.unacknowledged == ()


def test_white_space_is_no_stanza() -> None:
    stream, _ = ready()
    assert stream.send(b" ") == b" "
    assert stream.management is not None
    assert not stream.management.unacknowledged


def test_without_addresses_a_stanza_is_between_the_account_and_us() -> None:
    stream, _ = ready()
    (event,) = stream.receive(b"<iq type='set' id='p'><x xmlns='urn:x'/></iq>")
    assert isinstance(event, StanzaReceived)
    assert (event.stanza.sender, event.stanza.to) == (ACCOUNT, ACCOUNT)


def test_what_is_skipped_is_counted_too() -> None:
    stream = client(limits=StreamLimits(bytes=4000))
    open_(stream, Server().connect())
    (event,) = stream.receive(b"<message><body>" + b"x" * 5000 + b"</body></message>")
    assert isinstance(event, StanzaSkipped)
    assert stream.management is not None
    assert stream.management.received == 1


def test_a_client_stream_reports_a_wrong_password_as_not_authorized() -> None:
    events, bound = open_(client(password="guess"), Server().connect())
    assert bound is None
    assert events[-1] == LoginFailed("sasl", "not-authorized")


def test_a_server_that_does_not_know_the_password_is_no_server_of_ours() -> None:
    stream, connection = client(), Server().connect()
    connection.receive(stream.open())
    stream.receive(connection.take())
    stream.data_to_send()
    (failed,) = stream.receive(b"<success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>")
    assert isinstance(failed, LoginFailed)
    assert failed.fault == "unproved"
    assert stream.closed


def test_without_tls_nothing_is_said_of_the_password() -> None:
    stream, connection = client(needs_tls=True), Server().connect()
    events, bound = open_(stream, connection)
    assert bound is None
    assert events[-1] == LoginFailed("no-tls")
    assert connection.seen == []


def test_what_comes_before_tls_is_not_taken_for_what_comes_under_it() -> None:
    stream = client(needs_tls=True)
    stream.open()
    offer = "<stream:features><starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/></stream:features>"
    stream.receive((HEADER + offer).encode())
    proceed = b"<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"
    for injected in (b"<stream:features/>", b"<stream:fea", b"<iq type='set' id='x'/>"):
        tried = client(needs_tls=True)
        tried.open()
        tried.receive((HEADER + offer).encode())
        events = tried.receive(proceed + injected)
        assert isinstance(events[-1], StreamFailed), injected
    assert stream.receive(proceed) == [TlsWanted()]
    with pytest.raises(LocalProtocolError):
        stream.receive(b" ")


def test_mechanisms_that_nobody_knows_here_are_listed() -> None:
    events, _ = open_(client(), Server(("GSSAPI", "X-OAUTH2")).connect())
    assert events[-1] == LoginFailed("no-mechanism", text="GSSAPI, X-OAUTH2")


def test_a_resource_that_is_refused() -> None:
    server = Server()
    stream, connection = client(), server.connect()
    connection._bind = lambda element: connection._say(  # type: ignore[method-assign]
        "<iq type='error' id='bind'><error type='cancel'>"
        "<conflict xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
    )
    events, bound = open_(stream, connection)
    assert bound is None
    assert events[-1] == LoginFailed("bind", "conflict")


def test_an_address_of_somebody_else_is_no_binding() -> None:
    server = Server()
    stream, connection = client(), server.connect()
    bound_to = (
        "<iq type='result' id='bind'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'>"
        "<jid>other@example.com/x</jid></bind></iq>"
    )
    connection._bind = lambda element: connection._say(bound_to)  # type: ignore[method-assign]
    events, bound = open_(stream, connection)
    assert bound is None
    assert isinstance(events[-1], StreamFailed)


def test_the_end_of_the_stream() -> None:
    stream, connection = ready()
    connection.receive(stream.close())
    assert talk(stream, connection) == [StreamClosed()]
    assert stream.closed
    stream, _ = ready()
    error = "<stream:error><conflict xmlns='urn:ietf:params:xml:ns:xmpp-streams'/></stream:error>"
    (event,) = stream.receive(error.encode())
    assert isinstance(event, StreamErrorReceived)
    assert event.error.condition == "conflict"
    with pytest.raises(LocalProtocolError):
        stream.send(MESSAGE)


HOSTILE = [
    b"<message/>",
    b"<iq type='result' id='bind'/>",
    b"<iq type='result' id='bind'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>",
    b"<stream:features/>",
    b"<stream:features><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></stream:features>",
    b"<success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>",
    b"<challenge xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>cj0=</challenge>",
    b"<challenge xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>!</challenge>",
    b"<failure xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>",
    b"<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>",
    b"<failure xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>",
    *(
        f"<{name} xmlns='{SM}' h='{count}'/>".encode()
        for name in ("a", "r", "resumed", "failed", "enabled", "x")
        for count in (0, 7, "x")
    ),
    b"</stream:stream>",
    b"<stream:error/>",
    b"<other xmlns='urn:x'/>",
    HEADER.encode(),
    b"<!--",
    b"\xff",
    b"<message><body>" + b"x" * 300_000 + b"</body></message>",
    b" ",
]


@given(data=st.data(), steps=st.lists(st.sampled_from(HOSTILE), max_size=6))
@examples(50)
def test_a_hostile_server_gets_an_answer_and_no_exception(
    data: st.DataObject, steps: list[bytes]
) -> None:
    stage = data.draw(st.integers(0, 12))  # how many times the honest server has spoken before
    stream, connection = client(), Server().connect()
    connection.receive(stream.open())
    for _ in range(stage):
        answer = connection.take()
        if not answer:
            break
        stream.receive(answer)
        connection.receive(stream.data_to_send())
    honest = stream.state
    for step in steps:
        if stream.state is State.SECURING:
            break
        events = stream.receive(step)
        if stream.closed:
            break
        if honest not in (State.READY, State.BINDING, State.ENABLING, State.RESUMING):
            assert not any(isinstance(one, StanzaReceived | Bound) for one in events)
    stream.data_to_send()


# -- resumption ----------------------------------------------------------------------------------


def reopen(
    server: Server, management: StreamManagement | None, address: JID
) -> tuple[ClientStream, Connection, list[ClientStreamEvent]]:
    stream, connection = client(management=management, address=address), server.connect()
    events, _ = open_(stream, connection)
    return stream, connection, events


@given(data=st.data())
@examples(20)
def test_nothing_is_lost_or_taken_twice_wherever_the_connection_breaks(data: st.DataObject) -> None:
    server = Server()
    stream, connection = ready(server)
    said: list[str] = []
    pushed: list[str] = []
    heard: list[str | None] = []

    def hear(events: list[ClientStreamEvent]) -> None:
        heard.extend(one.stanza.id for one in events if isinstance(one, StanzaReceived))

    def cut(text: bytes) -> bytes:
        return text[: data.draw(st.integers(0, len(text)))]

    for _ in range(data.draw(st.integers(1, 4))):
        to_server = b""
        for _ in range(data.draw(st.integers(0, 4))):
            said.append(f"said{len(said)}")
            to_server += stream.send(f"<message id='{said[-1]}' to='a@b.c'/>".encode())
        for _ in range(data.draw(st.integers(0, 4))):
            pushed.append(f"pushed{len(pushed)}")
            connection.push(pushed[-1])
        if data.draw(st.booleans()):
            connection.ask()
        # Both directions break, each at some byte; the answers of either side may not arrive.
        hear(stream.receive(cut(connection.take())))
        connection.receive(cut(to_server + stream.data_to_send()))
        hear(stream.receive(cut(connection.take())))
        stream, connection, events = reopen(server, stream.management, stream.address)
        assert any(isinstance(one, Bound) and one.resumed for one in events)
        hear(events)
    assert connection.session is not None
    assert connection.session.taken == said
    assert heard == pushed
    assert stream.management is not None
    assert stream.management.unacknowledged == ()


def test_what_a_lost_session_did_not_acknowledge_is_told() -> None:
    server = Server()
    stream, _ = ready(server)
    stream.send(MESSAGE)
    server.sessions.clear()
    again, _, events = reopen(server, stream.management, stream.address)
    (bound,) = [one for one in events if isinstance(one, Bound)]
    assert (bound.resumed, bound.lost, bound.lost_for_certain) == (False, (MESSAGE,), False)
    assert again.management is not None
    assert again.management.unacknowledged == ()


def test_a_server_that_knows_what_it_took_says_so() -> None:
    server = Server()
    stream, connection = ready(server)
    stream.send(MESSAGE)
    management = stream.management
    again, connection = client(management=management, address=stream.address), server.connect()
    failed = f"<failed xmlns='{SM}' h='0'><item-not-found xmlns='urn:x'/></failed>"
    connection._resume = lambda element: connection._say(failed)  # type: ignore[method-assign]
    _events, bound = open_(again, connection)
    assert bound is not None
    assert (bound.resumed, bound.lost, bound.lost_for_certain) == (False, (MESSAGE,), True)


def test_a_server_without_stream_management_loses_the_session() -> None:
    server = Server()
    stream, _ = ready(server)
    stream.send(MESSAGE)
    server.managed = False
    _, _, events = reopen(server, stream.management, stream.address)
    (bound,) = [one for one in events if isinstance(one, Bound)]
    assert (bound.resumed, bound.lost) == (False, (MESSAGE,))

"""A client's stream up to the login, without sockets (RFC 6120 §4 to §6)."""

import re
from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramClient  # type: ignore[import-untyped]

from demo_server.c2s import (
    MAX_ATTEMPTS,
    Action,
    ClientStream,
    End,
    Received,
    Send,
    StartTls,
)
from demo_server.sasl import Credentials

HEADER = (
    b"<?xml version='1.0'?><stream:stream xmlns='jabber:client' to='localhost' version='1.0'"
    b" xmlns:stream='http://etherx.jabber.org/streams'>"
)
SASL = "urn:ietf:params:xml:ns:xmpp-sasl"
STARTTLS = b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"
CREDENTIALS = Credentials("localhost", {"juliet": "pässword", "romeo": "r"})


def plain(text: str) -> bytes:
    encoded = b64encode(text.encode()).decode()
    return f"<auth xmlns='{SASL}' mechanism='PLAIN'>{encoded}</auth>".encode()


def sent(actions: list[Action]) -> str:
    return b"".join(action.data for action in actions if isinstance(action, Send)).decode()


def opened(*, secure: bool = False, can_secure: bool = True) -> ClientStream:
    stream = ClientStream("localhost", CREDENTIALS, can_secure=can_secure)
    if secure:
        stream.secured()
    stream.receive(HEADER)
    return stream


def offered(stream: ClientStream) -> list[str]:
    return re.findall("<mechanism>(.*?)</mechanism>", sent(stream.receive(HEADER)))


def test_plain_is_offered_and_taken_under_tls_alone() -> None:
    stream = ClientStream("localhost", CREDENTIALS)
    assert offered(stream) == ["SCRAM-SHA-256", "SCRAM-SHA-1"]
    assert "<invalid-mechanism/>" in sent(stream.receive(plain("\0juliet\0pässword")))
    assert stream.account is None
    stream = ClientStream("localhost", CREDENTIALS)
    stream.secured()
    assert offered(stream) == ["SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN"]
    assert "<success" in sent(stream.receive(plain("\0juliet\0pässword")))
    assert stream.account == "juliet"


def test_starttls_is_offered_once_and_begins_the_stream_anew() -> None:
    stream = ClientStream("localhost", CREDENTIALS)
    assert STARTTLS.decode() in sent(stream.receive(HEADER))
    # What an attacker puts behind the request must not count as sent under TLS (CVE-2011-0411).
    actions = stream.receive(STARTTLS + HEADER + plain("\0juliet\0pässword"))
    assert sent(actions) == "<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"
    assert actions[-1] == StartTls()
    stream.secured()
    features = sent(stream.receive(HEADER))
    assert "starttls" not in features
    actions = stream.receive(STARTTLS)
    assert "<failure" in sent(actions)
    assert actions[-1] == End()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-1", "SCRAM-SHA-256"])
@pytest.mark.parametrize("first_in_auth", [True, False])
@pytest.mark.parametrize("password", ["pässword", "wrong"])
def test_scram_admits_the_right_password_only(
    mechanism: str, first_in_auth: bool, password: str
) -> None:
    stream = opened()
    client = ScramClient([mechanism], "juliet", password)
    first = b64encode(client.get_client_first().encode()).decode()
    if first_in_auth:
        auth = f"<auth xmlns='{SASL}' mechanism='{mechanism}'>{first}</auth>"
        answer = sent(stream.receive(auth.encode()))
    else:
        auth = f"<auth xmlns='{SASL}' mechanism='{mechanism}'/>"
        assert sent(stream.receive(auth.encode())) == f"<challenge xmlns='{SASL}'/>"
        answer = sent(stream.receive(f"<response xmlns='{SASL}'>{first}</response>".encode()))
    client.set_server_first(b64decode(re.sub("<.*?>", "", answer)).decode())
    final = b64encode(client.get_client_final().encode()).decode()
    answer = sent(stream.receive(f"<response xmlns='{SASL}'>{final}</response>".encode()))
    if password == "wrong":
        assert "<not-authorized/>" in answer
        assert stream.account is None
    else:
        client.set_server_final(b64decode(re.sub("<.*?>", "", answer)).decode())
        assert stream.account == "juliet"


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("\0juliet\0wrong", "not-authorized"),
        ("\0nobody\0pässword", "not-authorized"),
        ("\0nobody\0", "not-authorized"),
        ("\0@/\0x", "not-authorized"),
        ("juliet", "malformed-request"),
        ("romeo@localhost\0juliet\0pässword", "invalid-authzid"),
        ("@@\0juliet\0pässword", "invalid-authzid"),
    ],
)
def test_plain_that_is_refused(text: str, condition: str) -> None:
    stream = opened(secure=True)
    assert f"<{condition}/>" in sent(stream.receive(plain(text)))
    assert stream.account is None
    stream.receive(plain("juliet@localhost\0JULIET\0pässword"))
    assert stream.account == "juliet"


@pytest.mark.parametrize(
    ("xml", "condition"),
    [
        (f"<auth xmlns='{SASL}' mechanism='PLAIN'>%%</auth>", "incorrect-encoding"),
        (f"<auth xmlns='{SASL}' mechanism='ANONYMOUS'/>", "invalid-mechanism"),
        (f"<auth xmlns='{SASL}'/>", "invalid-mechanism"),
        (f"<auth xmlns='{SASL}' mechanism='SCRAM-SHA-1'>=</auth>", "not-authorized"),
        (f"<auth xmlns='{SASL}' mechanism='SCRAM-SHA-1'>/w==</auth>", "malformed-request"),
        (f"<response xmlns='{SASL}'>=</response>", "malformed-request"),
        (f"<abort xmlns='{SASL}'/>", "aborted"),
    ],
)
def test_authentication_that_goes_wrong(xml: str, condition: str) -> None:
    assert f"<{condition}/>" in sent(opened(secure=True).receive(xml.encode()))


def test_who_keeps_guessing_is_sent_away() -> None:
    stream = opened(secure=True)
    for _ in range(MAX_ATTEMPTS - 1):
        assert stream.receive(plain("\0juliet\0guess"))[-1] != End()
    actions = stream.receive(plain("\0juliet\0guess"))
    assert "<policy-violation" in sent(actions)
    assert actions[-1] == End()


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (HEADER.replace(b"localhost", b"elsewhere"), "host-unknown"),
        (HEADER.replace(b" version='1.0' ", b" "), "unsupported-version"),
        (HEADER.replace(b"jabber:client", b"jabber:server"), "invalid-namespace"),
        (b"GET / HTTP/1.1\r\n\r\n", "not-well-formed"),
        (HEADER + b"<message/>", "not-authorized"),
        (HEADER + b"<a>" + b"x" * 20_000 + b"</a>", "policy-violation"),
        (HEADER + b"<!-- x -->", "restricted-xml"),
        (HEADER + b"<a></b>", "not-well-formed"),
    ],
)
def test_what_ends_a_stream_before_the_login(data: bytes, condition: str) -> None:
    stream = ClientStream("localhost", CREDENTIALS)
    actions = stream.receive(data)
    text = sent(actions)
    assert text.count("<stream:stream ") == 1
    assert f"<{condition} " in text
    assert text.endswith("</stream:stream>")
    assert actions[-1] == End()
    assert stream.receive(HEADER) == []


def test_after_the_login_stanzas_come_and_nothing_else() -> None:
    stream = opened(secure=True)
    stream.receive(plain("\0juliet\0pässword"))
    features = sent(stream.receive(HEADER))
    assert "urn:ietf:params:xml:ns:xmpp-bind" in features
    assert "urn:xmpp:sm" not in features
    big = b"<iq type='get' id='1'><q xmlns='a'>" + b"x" * 300_000 + b"</q></iq>"
    actions = stream.receive(b"<message id='a'/>" + big + b"<presence/>")
    ids = [action.stanza.kind for action in actions if isinstance(action, Received)]
    assert ids == ["message", "presence"]
    assert len(actions) == 3
    actions = stream.receive(b"<r xmlns='urn:xmpp:sm:3'/>")
    assert "unsupported-stanza-type" in sent(actions)
    assert actions[-1] == End()


SESSION = [
    HEADER,
    plain("\0juliet\0wrong"),
    plain("\0juliet\0pässword"),
    HEADER,
    b"<iq type='set' id='1'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq> <presence/>",
    b"<message to='a@b'><body>&lt;&#xe9;</body></message></stream:stream>",
]


def kinds(actions: list[Action]) -> list[object]:
    """What was said, without the random id of each stream."""
    text = re.sub("id='[0-9a-f]{16}'", "", sent(actions))
    received = [a.stanza.forward() for a in actions if isinstance(a, Received)]
    return [text, received, actions[-1:] == [End()]]


@given(st.data())
def test_it_does_not_matter_how_the_bytes_are_cut(data: st.DataObject) -> None:
    whole, cut = (ClientStream("localhost", CREDENTIALS) for _ in range(2))
    for stream in (whole, cut):
        stream.secured()
    for step in SESSION:
        expected = whole.receive(step)
        places = sorted(data.draw(st.sets(st.integers(1, len(step) - 1), max_size=5)))
        actions: list[Action] = []
        for start, end in zip([0, *places], [*places, len(step)], strict=True):
            actions += cut.receive(step[start:end])
        assert kinds(actions) == kinds(expected)


@given(
    steps=st.lists(st.sampled_from([*SESSION, STARTTLS, b"<a/>", b" "]), max_size=8),
    junk=st.binary(max_size=40) | st.text(alphabet="<>/='\" !?&;a:").map(str.encode),
    place=st.integers(0),
    secure=st.booleans(),
)
def test_no_bytes_make_it_raise(steps: list[bytes], junk: bytes, place: int, secure: bool) -> None:
    stream = ClientStream("localhost", CREDENTIALS)
    if secure:
        stream.secured()
    data = b"".join(steps)
    at = place % (len(data) + 1)
    for byte in (data[:at], junk, data[at + len(junk) // 2 :], *steps):
        for action in stream.receive(byte):
            if isinstance(action, StartTls):
                stream.secured()


@given(
    mechanism=st.sampled_from(CREDENTIALS.mechanisms(secure=True)),
    messages=st.lists(
        st.binary(max_size=60)
        | st.text(max_size=60).map(str.encode)
        | st.sampled_from([b"n,,n=juliet,r=abc", b"y,,n=juliet,r=a", b"c=biws,r=abc,p=AAAA"])
        | st.text(alphabet="nyp=,acrsimve\0juliet", max_size=40).map(str.encode),
        max_size=4,
    ),
)
def test_no_message_logs_in_without_the_password(mechanism: str, messages: list[bytes]) -> None:
    stream = opened(secure=True)
    for index, message in enumerate(messages):
        name = "response" if index else f"auth mechanism='{mechanism}'"
        data = b64encode(message).decode() or "="
        end = name.partition(" ")[0]
        xml = f"<{name} xmlns='{SASL}'>{data}</{end}>"
        stream.receive(xml.encode())
    assert stream.account is None

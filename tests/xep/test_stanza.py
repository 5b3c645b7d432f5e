"""Stanzas: what is sent reads back the same, and what arrives is read as far as asked."""

from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.xep.strategies import LANGUAGES, elements, jids, payloads, xml_text
from xep.binding import ContentError
from xep.delay import Delay
from xep.fluux_agent.execute import Execute, Param
from xep.jid import JID
from xep.ping import Ping
from xep.stanza import IQ, NAMESPACE, Incoming, Message, Presence
from xep.stanza_error import StanzaError

addresses = jids | xml_text


def arrive(xml: str) -> Incoming:
    return Incoming.of(ET.fromstring(f"<stream xmlns='{NAMESPACE}'>{xml}</stream>")[0], len(xml))


def text(address: Any) -> str | None:
    return address.on_wire() if isinstance(address, JID) else address


@given(
    st.sampled_from(["get", "set", "result"]),
    xml_text,
    addresses,
    addresses,
    st.none() | payloads(Execute),
)
def test_an_iq_is_read_as_it_was_written(
    kind: Any, id_: str, to: Any, from_: Any, payload: Execute | None
) -> None:
    iq = IQ(type=kind, id=id_, to=to, from_=from_, payload=payload)
    found = arrive(iq.encode())
    assert (found.kind, found.type, found.id) == ("iq", kind, id_)
    assert (found.to, found.sender) == (text(to), text(from_))
    assert found.payload(Execute, strict=True) == payload
    assert found.sole_child == (None if payload is None else Execute.xml.tag)
    assert found.payload_names == ([] if payload is None else [Execute.xml.tag])


@given(
    st.sampled_from(["chat", "groupchat", "headline", "normal"]),
    st.none() | xml_text,
    st.none() | LANGUAGES,
    st.none() | xml_text,
    st.none() | xml_text,
    st.none() | xml_text,
    st.lists(payloads(Delay) | payloads(Execute), max_size=2),
)
def test_a_message_is_read_as_it_was_written(
    kind: Any,
    id_: str | None,
    lang: str | None,
    body: str | None,
    subject: str | None,
    thread: str | None,
    extra: list[Any],
) -> None:
    message = Message(
        to="b.test",
        from_="a@b.test",
        type=kind,
        id=id_,
        lang=lang,
        body=body,
        subject=subject,
        thread=thread,
        payloads=tuple(extra),
    )
    found = arrive(message.encode())
    assert (found.kind, found.type, found.id, found.lang) == ("message", kind, id_, lang)
    assert found.text_of("body", lang) == body
    assert (found.text_of("subject"), found.text_of("thread")) == (subject, thread)
    assert found.payload_names == [payload.xml.tag for payload in extra]
    for cls in (Delay, Execute):
        first = next((payload for payload in extra if isinstance(payload, cls)), None)
        assert found.payload(cls, strict=True) == first


@given(
    st.none() | addresses,
    st.sampled_from([None, "probe", "subscribe", "unavailable"]),
    st.sampled_from([None, "away", "chat", "dnd", "xa"]),
    st.none() | xml_text,
)
def test_a_presence_is_read_as_it_was_written(
    to: Any, kind: Any, show: Any, status: str | None
) -> None:
    presence = Presence(to=to, from_="a.test", type=kind, show=show, status=status)
    found = arrive(presence.encode())
    assert (found.kind, found.type) == ("presence", kind or "available")
    assert (found.to, found.sender) == (text(to), "a.test")
    assert (found.text_of("show"), found.text_of("status")) == (show, status)


def test_error_stanzas_are_read_as_they_were_written() -> None:
    error = StanzaError("item-not-found", "no")
    for stanza in (
        IQ(type="error", id="1", to="a.test", from_="b.test", error=error, payload=Ping()),
        Message(type="error", to="a.test", from_="b.test", error=error),
        Presence(type="error", to="a.test", from_="b.test", error=error),
    ):
        found = arrive(stanza.encode())
        assert found.type == "error"
        assert (found.error().condition, found.error().text) == ("item-not-found", "no")


@pytest.mark.parametrize(
    "stanza",
    [
        IQ(type="get", id="\x00", to="a.test", from_="b.test"),
        IQ(type="get", id="1", to="\ud800", from_="b.test"),
        Message(to="a.test", from_="b.test", body="\x0b"),
        Message(to="a.test", from_="b.test", lang="\ufffe"),
        Presence(from_="b.test", status="\x1f"),
    ],
)
def test_what_xml_cannot_carry_is_replaced(stanza: IQ | Message | Presence) -> None:
    assert "\ufffd" in stanza.encode()


BODIES = (
    "<message><body xml:lang='de'>hallo</body><body>hello</body>"
    "<body xml:lang='fr'>salut</body></message>"
)


@pytest.mark.parametrize(
    ("xml", "lang", "chosen"),
    [
        (BODIES, "de", "hallo"),
        (BODIES, "fr", "salut"),
        (BODIES, None, "hello"),
        (BODIES, "el", "hello"),
        ("<message><body xml:lang='de'>a</body><body xml:lang='fr'>b</body></message>", "el", "a"),
        ("<message><body xml:lang='de'>a</body></message>", None, "a"),
        ("<message><body/></message>", None, ""),
        ("<message><body xmlns='urn:x'>not ours</body></message>", None, None),
        ("<message/>", "de", None),
    ],
)
def test_the_body_in_the_language_asked_for(xml: str, lang: str | None, chosen: str | None) -> None:
    assert arrive(xml).text_of("body", lang) == chosen


def test_defaults_of_the_type() -> None:
    assert arrive("<message/>").type == "normal"
    assert arrive("<presence/>").type == "available"
    assert arrive("<iq/>").type == ""
    other = arrive("<other xmlns='urn:x' type='t'/>")
    assert (other.kind, other.type, other.name) == (None, "t", "{urn:x}other")


@pytest.mark.parametrize(
    ("xml", "sole"),
    [
        ("<iq/>", None),
        ("<iq><ping xmlns='urn:xmpp:ping'/></iq>", Ping.xml.tag),
        ("<iq><ping xmlns='urn:xmpp:ping'/><ping xmlns='urn:xmpp:ping'/></iq>", None),
    ],
)
def test_the_sole_child(xml: str, sole: str | None) -> None:
    assert arrive(xml).sole_child == sole


def test_addresses_are_kept_byte_for_byte() -> None:
    found = arrive("<iq from='☃@LOCALHOST/ x' to='not a jid@'/>")
    assert (found.sender, found.to) == ("☃@LOCALHOST/ x", "not a jid@")


def test_a_payload_that_must_be_there() -> None:
    assert arrive("<iq><ping xmlns='urn:xmpp:ping'/></iq>").require(Ping) == Ping()
    with pytest.raises(ContentError, match="<ping/> is missing"):
        arrive("<iq/>").require(Ping)
    with pytest.raises(ContentError, match="'skill' is missing"):
        arrive("<iq><execute xmlns='urn:fluux:agent:0#execute'/></iq>").require(Execute)


@given(st.lists(elements(Execute), max_size=3), st.data())
def test_any_stanza_gives_values_or_a_content_error(
    children: list[ET.Element], data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(["iq", "message", "presence", "other"]))
    element = ET.Element(f"{{{NAMESPACE}}}{name}")
    element.extend(children)
    found = Incoming.of(element, 0)
    found.text_of("body", "de")
    found.error().encode()
    assert len(found.payload_names) == len(children)
    try:
        found.payload(Execute)
    except ContentError:
        assert children


def test_children_of_a_stanza_do_not_reach_each_other() -> None:
    found = arrive(
        "<message><delay xmlns='urn:xmpp:delay'/><execute xmlns='urn:fluux:agent:0#execute'"
        " skill='s'><param name='p'>v</param></execute></message>"
    )
    assert found.payload(Execute) == Execute(skill="s", params=(Param(name="p", text="v"),))
    with pytest.raises(ContentError, match="'stamp' is missing"):
        found.payload(Delay)


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        ("a<b>b</b>c", "abc"),
        ("<p>a</p><p>b<br/>c</p>d", "a\nb\nc\nd"),
        ("<div><p>a</p></div>b", "a\n\nb"),
        ("<ul><li>a</li><li>b</li></ul>", "a\nb\n"),
        ("", ""),
    ],
)
def test_formatted_text_has_lines_where_its_blocks_end(inner: str, text: str) -> None:
    body = f"<body xmlns='http://www.w3.org/1999/xhtml'>{inner}</body>"
    found = arrive(f"<message><html xmlns='urn:x'>{body}</html>after</message>")
    assert found.inner_text("{urn:x}html") == text

"""How an outbound message is written as stanzas."""

from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.link.messages.inbound import Reference, ReplyAddress
from component.link.messages.outbound import (
    OutboundMessage,
    Text,
    conversation_with,
    render,
    split_text,
)
from xep.file_sharing import File, FileSharing, Sources, UrlData
from xep.jid import JID
from xep.out_of_band import OutOfBand
from xep.receipts import Received
from xep.stanza import Message

AGENT = JID.parse("assistant@agent.example")
JULIET = JID.parse("juliet@a.example/balcony")
BIG = 262_144


def outbound(*texts: str, type_: Any = "chat", **more: Any) -> OutboundMessage:
    return OutboundMessage(
        id="m1",
        conversation=conversation_with(AGENT, JULIET, "th"),
        to=ReplyAddress(str(JULIET), AGENT, type_, "th"),
        parts=tuple(map(Text, texts)),
        **more,
    )


def names(message: Message) -> list[str]:
    return [child.tag.rpartition("}")[2] for child in ET.fromstring(message.encode())]


def test_a_message_has_its_id_as_origin_id() -> None:
    (message,) = render(outbound("Hi"), BIG)
    sent = ET.fromstring(message.encode())
    assert sent.attrib == {
        "type": "chat",
        "id": "m1",
        "from": str(AGENT),
        "to": str(JULIET),
    }
    assert [(child.tag, child.text) for child in sent][:2] == [("body", "Hi"), ("thread", "th")]
    assert sent[2].tag == "{urn:xmpp:sid:0}origin-id"
    assert sent[2].get("id") == "m1"


def test_several_parts_are_paragraphs_in_the_language_of_the_first_that_has_one() -> None:
    message = outbound()
    parts = (Text("1"), Text("Zwei", "de"), Text("Three", "en"))
    message = OutboundMessage(id="m", conversation=message.conversation, to=message.to, parts=parts)
    (stanza,) = render(message, BIG)
    assert (stanza.body, stanza.lang) == ("1\n\nZwei\n\nThree", "de")


def test_what_is_asked_for_is_written() -> None:
    (message,) = render(
        outbound(
            "Hi",
            chat_state="active",
            replies_to=Reference("q1", is_ours=True),
            replaces="m0",
            stored=True,
            asks_for_reports=True,
        ),
        BIG,
    )
    assert names(message) == [
        *("body", "thread", "reply", "replace", "active", "request", "markable", "store"),
        "origin-id",
    ]


def test_nobody_is_asked_to_report_a_message_without_text() -> None:
    (message,) = render(
        outbound(payloads=(Received(id="x"),), stored=False, asks_for_reports=True), BIG
    )
    assert names(message) == ["thread", "received", "no-store", "origin-id"]


def test_a_text_of_nothing_has_no_stanza() -> None:
    assert list(render(outbound(""), BIG)) == []
    (state,) = render(outbound(chat_state="composing"), BIG)
    assert names(state) == ["thread", "composing", "origin-id"]


def test_a_rendered_message_has_no_characters_that_xml_forbids() -> None:
    (message,) = render(outbound("a\x00b\x1bc"), BIG)
    assert message.body is not None
    assert message.body.replace("\N{REPLACEMENT CHARACTER}", "") == "abc"


@given(st.text(max_size=6_000), st.sampled_from([8_000, 10_000, BIG]), st.booleans())
def test_every_stanza_fits_and_has_an_id_of_its_own(text: str, limit: int, carries: bool) -> None:
    payloads = (Received(id="x"),) if carries else ()
    stanzas = list(render(outbound(text, payloads=payloads), limit))
    assert all(len(each.encode().encode()) <= limit for each in stanzas)
    ids = [each.id for each in stanzas]
    assert ids == ["m1", *(f"m1-{number}" for number in range(2, len(stanzas) + 1))][: len(ids)]
    origins = [ET.fromstring(each.encode())[-1].get("id") for each in stanzas]
    assert origins == ids
    assert [name for each in stanzas for name in names(each)].count("received") == carries


@given(st.text(max_size=300), st.integers(8, 60))
def test_the_parts_are_the_text(text: str, most: int) -> None:
    found = list(split_text(text, most))
    assert all(len(part.encode()) <= most and part for part in found)
    assert "".join("".join(found).split()) == "".join(text.split())


@pytest.mark.parametrize(("is_ours", "author"), [(True, str(AGENT)), (False, str(JULIET))])
def test_a_reply_names_the_author_of_the_other_message(is_ours: bool, author: str) -> None:
    (message,) = render(outbound("Hi", replies_to=Reference("q1", is_ours)), BIG)
    reply = ET.fromstring(message.encode()).find("{urn:xmpp:reply:0}reply")
    assert reply is not None
    assert reply.attrib == {"id": "q1", "to": author}


def test_no_message_shows_the_language_of_a_code_block() -> None:
    (message,) = render(outbound("So:", "```python\nx = 1\n```"), BIG)
    assert message.body == "So:\n\n```\nx = 1\n```"


def test_a_file_is_a_stanza_whose_body_is_its_url_after_the_texts() -> None:
    url = "https://files.example/map.png"
    file = FileSharing(file=File(name="map.png"), sources=Sources(urls=(UrlData(target=url),)))
    message = outbound("Here it is.", payloads=(Received(id="r"),), asks_for_reports=True)
    message = msgspec.structs.replace(message, parts=(file, *message.parts))
    text, shown = render(message, BIG)
    assert (text.id, text.body) == ("m1", "Here it is.")
    assert "received" in names(text)
    assert (shown.id, shown.body) == ("m1-2", url)
    assert names(shown)[2:5] == ["x", "file-sharing", "fallback"]
    assert "received" not in names(shown)
    (oob,) = [one for one in shown.payloads if isinstance(one, OutOfBand)]
    assert oob.url == url


def test_a_message_that_is_only_a_file_has_the_id_and_the_payloads() -> None:
    source = UrlData(target="https://files.example/map.png")
    file = FileSharing(file=File(name="map.png"), sources=Sources(urls=(source,)))
    message = msgspec.structs.replace(outbound(payloads=(Received(id="r"),)), parts=(file,))
    (shown,) = render(message, BIG)
    assert (shown.id, shown.body) == ("m1", source.target)
    assert names(shown)[2:4] == ["received", "x"]

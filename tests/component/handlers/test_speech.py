"""What agents say: to whom, in which thread, and in how many messages."""

from typing import Any
from xml.etree import ElementTree as ET

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.agent.protocol import Incoming, Reply
from component.handlers.speech import Speech, parts
from tests.component.handlers.outgoing import Outgoing
from xep.jid import JID

STATES = "{http://jabber.org/protocol/chatstates}"


def incoming(**more: Any) -> Incoming:
    return Incoming(
        id="t1",
        agent="assistant",
        principal=JID.parse("juliet@a.example"),
        requester=JID.parse("juliet@a.example/balcony"),
        target=JID.parse("assistant@agent.example"),
        body="Hello",
        **more,
    )


class Out:
    def __init__(self, limit: int = 262_144) -> None:
        self.sent: list[ET.Element] = []
        self.there = True
        self.out = Outgoing(lambda xml: self.sent.append(ET.fromstring(xml)))
        self.speech = Speech(self.out, lambda: self.there, limit)


def test_an_answer_goes_where_the_message_came_from() -> None:
    out = Out()
    to = incoming(thread="th", type="normal")
    assert out.speech.say(Reply(id="t1.answer", to=to, body="Hi <you>"))
    (message,) = out.sent
    assert message.attrib == {
        "type": "normal",
        "id": "t1.answer",
        "from": "assistant@agent.example",
        "to": "juliet@a.example/balcony",
    }
    assert [(child.tag, child.text) for child in message] == [
        ("body", "Hi <you>"),
        ("thread", "th"),
    ]


def test_without_a_stream_nothing_is_said() -> None:
    out = Out()
    out.there = False
    assert not out.speech.say(Reply(id="1", to=incoming(chat_states=True), body="Hi"))
    out.speech.composing(incoming(chat_states=True), True)
    assert out.sent == []


@pytest.mark.anyio
async def test_what_the_server_has_not_taken_is_not_sent() -> None:
    out = Out()
    await out.speech.sent()
    assert not out.speech.waits()
    out.out.gone = anyio.Event()
    assert out.speech.waits()
    with anyio.move_on_after(0) as waiting:
        await out.speech.sent()
    assert waiting.cancelled_caught


def test_who_shows_it_is_shown_who_is_writing() -> None:
    out = Out()
    out.speech.composing(incoming(), True)
    assert out.sent == []
    to = incoming(chat_states=True)
    out.speech.composing(to, True)
    out.speech.composing(to, False)
    out.speech.say(Reply(id="1", to=to, body="Hi"))
    assert [child.tag.removeprefix(STATES) for message in out.sent for child in message] == [
        "composing",
        "paused",
        "body",
        "active",
    ]


def test_what_xml_cannot_carry_is_left_out() -> None:
    out = Out()
    out.speech.say(Reply(id="1", to=incoming(), body="a\x00b\x1bc"))
    assert "".join(out.sent[0].itertext()).replace("\N{REPLACEMENT CHARACTER}", "") == "abc"


def test_a_long_answer_is_several_messages_that_fit() -> None:
    out = Out(10_000)
    text = "\n".join(f"{number} & <line>" for number in range(2000))
    out.speech.say(Reply(id="t", to=incoming(), body=text))
    assert len(out.sent) > 1
    assert all(len(ET.tostring(message)) < 10_000 for message in out.sent)
    assert [m.get("id") for m in out.sent][:3] == ["t", "t-2", "t-3"]
    said = "\n".join(m.findtext("body", "") for m in out.sent)
    assert said.split() == text.split()


@given(st.text(max_size=300), st.integers(8, 60))
def test_the_parts_are_the_text(text: str, most: int) -> None:
    found = list(parts(text, most))
    assert all(len(part.encode()) <= most and part for part in found)
    assert "".join("".join(found).split()) == "".join(text.split())

"""What agents say: to whom, in which thread, and in how many messages."""

from typing import Any
from xml.etree import ElementTree as ET

import anyio
import pytest

from component.agent.requests import Reply
from component.kernel.speech import Speech
from component.link.messages.inbound import Conversation, Reference, ReplyAddress
from component.link.messages.messenger import Messenger
from tests.component.link.router.wire import ListOutput
from xep.jid import JID

STATES = "{http://jabber.org/protocol/chatstates}"


def address(**more: Any) -> ReplyAddress:
    return ReplyAddress("juliet@a.example/balcony", JID.parse("assistant@agent.example"), **more)


class Out:
    def __init__(self, limit: int = 262_144) -> None:
        self.there = True
        self.output = ListOutput()
        self.messenger = Messenger(self.output, limit)
        self.speech = Speech(self.messenger, lambda: self.there)

    @property
    def sent(self) -> list[ET.Element]:
        return [ET.fromstring(xml) for xml in self.output.sent]


def test_an_answer_goes_where_the_message_came_from() -> None:
    out = Out()
    to = address(thread="th", type="normal")
    assert out.speech.say(Reply(id="t1.answer", to=to, text="Hi <you>"))
    (message,) = out.sent
    assert message.attrib == {
        "type": "normal",
        "id": "t1.answer",
        "from": "assistant@agent.example",
        "to": "juliet@a.example/balcony",
    }
    assert [(child.tag, child.text) for child in message][:2] == [
        ("body", "Hi <you>"),
        ("thread", "th"),
    ]


def test_the_markdown_of_an_answer_becomes_message_styling() -> None:
    out = Out()
    out.speech.say(Reply(id="1", to=address(), text="# News\n**Bold** & [more](http://a.example)"))
    (message,) = out.sent
    assert message.findtext("body") == "*News*\n*Bold* & more (http://a.example)"


def test_nothing_is_sent_without_a_stream() -> None:
    out = Out()
    out.there = False
    assert not out.speech.say(Reply(id="1", to=address(shows_states=True), text="Hi"))
    out.speech.composing(address(shows_states=True), True)
    assert out.sent == []


@pytest.mark.anyio
async def test_what_the_server_has_not_taken_is_not_sent() -> None:
    out = Out()
    await out.speech.sent()
    assert not out.speech.waits()
    out.output.holds = True
    out.speech.say(Reply(id="1", to=address(), text="Hi"))
    assert out.speech.waits()
    with anyio.move_on_after(0) as waiting:
        await out.speech.sent()
    assert waiting.cancelled_caught
    out.output.settle("written")
    await out.speech.sent()
    assert not out.speech.waits()


@pytest.mark.anyio
async def test_what_was_dropped_is_said_again_when_there_is_room() -> None:
    out, done = Out(), []
    out.output.holds, out.output.room = True, anyio.Event()
    for number in ("1", "2"):
        out.speech.say(Reply(id=number, to=address(), text=number))
    out.output.waiting[0].settle("dropped")
    out.output.settle("written")
    assert out.speech.waits()

    async def listen() -> None:
        await out.speech.sent()
        done.append(True)

    async with anyio.create_task_group() as group:
        group.start_soon(listen)
        await anyio.wait_all_tasks_blocked()
        assert [message.get("id") for message in out.sent] == ["1", "2"]
        out.output.room.set()
        await anyio.wait_all_tasks_blocked()
        assert [message.get("id") for message in out.sent] == ["1", "2", "1"]
        assert not done
        out.output.settle("written")
        await anyio.wait_all_tasks_blocked()
        assert done
        assert not out.speech.waits()


@pytest.mark.anyio
async def test_what_may_be_lost_with_the_connection_is_said_again_under_its_id() -> None:
    out, losses = Out(), [False, True]

    async def handled() -> bool:
        return losses.pop(0)

    out.speech = Speech(Messenger(out.output, handled=handled), lambda: True)
    out.speech.say(Reply(id="t1.answer", to=address(), text="Hi"))
    assert out.speech.waits()
    await out.speech.sent()
    assert [message.get("id") for message in out.sent] == ["t1.answer", "t1.answer"]
    assert not out.speech.waits()


def test_who_shows_it_is_shown_who_is_writing() -> None:
    out = Out()
    out.speech.composing(address(), True)
    assert out.sent == []
    to = address(shows_states=True)
    out.speech.composing(to, True)
    out.speech.composing(to, False)
    out.speech.say(Reply(id="1", to=to, text="Hi"))
    states = [child.tag for message in out.sent for child in message if STATES in child.tag]
    assert states == [f"{STATES}composing", f"{STATES}paused", f"{STATES}active"]
    stored = [message.find("{urn:xmpp:hints}no-store") is None for message in out.sent]
    assert stored == [False, False, True]


def test_who_wants_no_messages_gets_only_what_they_asked_for() -> None:
    out = Out()
    messenger = Messenger(out.output)
    out.speech = Speech(messenger, lambda: True, lambda _agent, who: who.local != "juliet")
    assert out.speech.say(Reply(id="1", to=address(), text="Hi", unrequested=True))
    assert out.sent == []
    assert out.speech.say(Reply(id="2", to=address(), text="Hi"))
    assert len(out.sent) == 1


def test_a_reply_has_no_characters_that_xml_forbids() -> None:
    out = Out()
    out.speech.say(Reply(id="1", to=address(), text="a\x00b\x1bc"))
    assert "".join(out.sent[0].itertext()).replace("\N{REPLACEMENT CHARACTER}", "") == "abc"


def test_a_long_answer_is_several_messages_that_fit() -> None:
    out = Out(10_000)
    text = "\n".join(f"{number} & <line>" for number in range(2000))
    out.speech.say(Reply(id="t", to=address(), text=text))
    assert len(out.sent) > 1
    assert all(len(ET.tostring(message)) < 10_000 for message in out.sent)
    assert [m.get("id") for m in out.sent][:3] == ["t", "t-2", "t-3"]
    said = "\n".join(m.findtext("body", "") for m in out.sent)
    assert said.split() == text.split()


ROOM = "garden@rooms.example"


def in_room(nick: str = "") -> ReplyAddress:
    to = f"{ROOM}/{nick}" if nick else ROOM
    kind: Any = "chat" if nick else "groupchat"
    at = JID.parse("assistant@agent.example/rooms")
    return ReplyAddress(to, at, kind, shows_states=True, is_occupant=bool(nick))


def test_an_answer_in_a_room_is_for_all_and_replies_to_one() -> None:
    out = Out()
    answered = Reference("s1", is_ours=False, author=f"{ROOM}/Alice")
    out.speech.say(Reply(id="1", to=in_room(), text="Hi", replies_to=answered))
    (message,) = out.sent
    assert (message.get("type"), message.get("to")) == ("groupchat", ROOM)
    reply = message.find("{urn:xmpp:reply:0}reply")
    assert reply is not None
    assert reply.attrib == {"id": "s1", "to": f"{ROOM}/Alice"}
    named = {child.tag for child in message}
    assert not named & {
        "{urn:xmpp:receipts}request",
        "{urn:xmpp:chat-markers:0}markable",
        f"{STATES}active",
    }


def test_the_room_s_copy_of_an_answer_is_recognised() -> None:
    out = Out()
    out.speech.say(Reply(id="1", to=in_room(), text="Hi"))
    here = Conversation(JID.parse("assistant@agent.example"), JID.parse(ROOM), in_room=True)
    out.messenger.sent.reflected(here, "1", "s9")
    assert out.messenger.sent.id_of(here, "s9") == "1"


def test_a_long_answer_in_a_room_replies_once() -> None:
    out = Out(limit=8192)
    answered = Reference("s1", is_ours=False, author=f"{ROOM}/Alice")
    out.speech.say(Reply(id="1", to=in_room(), text="word " * 2000, replies_to=answered))
    assert len(out.sent) > 2
    replies = [message.find("{urn:xmpp:reply:0}reply") is not None for message in out.sent]
    assert replies == [True] + [False] * (len(out.sent) - 1)
    assert {message.get("type") for message in out.sent} == {"groupchat"}


def test_a_private_message_to_an_occupant_is_marked_as_one() -> None:
    out = Out()
    out.speech.say(Reply(id="1", to=in_room("Alice"), text="Hi"))
    (message,) = out.sent
    assert message.find("{http://jabber.org/protocol/muc#user}x") is not None
    assert message.get("to") == f"{ROOM}/Alice"


@pytest.mark.parametrize("nick", ["", "Alice"])
def test_an_answer_in_a_room_where_the_agent_cannot_write_is_dropped(nick: str) -> None:
    out, state = Out(), ["joins", "silent", "speaks"]
    out.speech.in_room = lambda _to: state[0]  # type: ignore[return-value]
    reply = Reply(id="1", to=in_room(nick), text="Hi")
    assert not out.speech.say(reply), "it waits until the agent is in the room"
    state.pop(0)
    assert out.speech.say(reply)
    assert out.sent == []
    state.pop(0)
    assert out.speech.say(reply)
    assert len(out.sent) == 1


def test_a_reaction_says_that_a_message_was_seen() -> None:
    out = Out()
    out.speech.acknowledge(in_room(), "s1", "\U0001f440")
    (message,) = out.sent
    reactions = message.find("{urn:xmpp:reactions:0}reactions")
    assert reactions is not None
    assert reactions.get("id") == "s1"
    assert [child.text for child in reactions] == ["\U0001f440"]
    assert message.find("body") is None


HINTS = "{urn:xmpp:hints}"


def hints(message: ET.Element) -> set[str]:
    return {child.tag.removeprefix(HINTS) for child in message if child.tag.startswith(HINTS)}


def test_drafts_are_neither_stored_nor_copied_and_the_answer_corrects_them() -> None:
    out, to = Out(), address(shows_states=True)
    assert out.speech.draft(Reply(id="1.draft", to=to, text="It **was** the …"))
    assert out.speech.draft(Reply(id="1.draft-2", to=to, text="It was", corrects="1.draft"))
    out.speech.say(Reply(id="1.answer", to=to, text="It was the lark.", corrects="1.draft"))
    first = out.sent[0]
    assert first.findtext("body") == "It *was* the …"
    never = {"no-store", "no-permanent-store", "no-copy"}
    assert [hints(message) for message in out.sent] == [never, never, set()]
    replaces = [message.find("{urn:xmpp:message-correct:0}replace") for message in out.sent]
    assert [None if one is None else one.get("id") for one in replaces] == [
        None,
        "1.draft",
        "1.draft",
    ]
    asks = [message.find("{urn:xmpp:receipts}request") is not None for message in out.sent]
    assert asks == [False, False, True]


@pytest.mark.parametrize(
    ("setting", "to", "corrects", "shown"),
    [
        ("off", address(shows_states=True), True, False),
        ("direct", address(shows_states=True), True, True),
        ("direct", address(shows_states=True), False, False),
        ("direct", address(), True, False),
        ("direct", address(shows_states=True, type="normal"), True, False),
        ("direct", in_room(), True, False),
        ("everywhere", in_room(), False, True),
        ("everywhere", address(shows_states=True), False, False),
    ],
)
def test_drafts_are_shown_where_the_settings_and_the_client_allow_it(
    setting: Any, to: ReplyAddress, corrects: bool, shown: bool
) -> None:
    out = Out()
    out.speech.shows_drafts, out.speech.corrects = setting, lambda _client: corrects
    assert out.speech.drafts(to) == shown


def test_no_draft_is_sent_where_the_agent_cannot_write() -> None:
    out = Out()
    out.speech.in_room = lambda _to: "silent"
    assert not out.speech.draft(Reply(id="1.draft", to=in_room(), text="It"))
    out.there = False
    assert not out.speech.draft(Reply(id="1.draft", to=address(), text="It"))
    assert out.sent == []


@pytest.mark.anyio
async def test_what_may_be_lost_is_said_again_in_a_room_when_the_agent_is_there() -> None:
    out, losses, looks = Out(), [False, True], ["joins"] * 3
    sent_after: list[int] = []

    async def handled() -> bool:
        return losses.pop(0)

    def in_it(_to: ReplyAddress) -> Any:
        if looks and losses != [False, True]:
            sent_after.append(len(out.sent))
            return looks.pop()
        return "speaks"

    out.speech = Speech(Messenger(out.output, handled=handled), lambda: True)
    out.speech.in_room = in_it
    out.speech.say(Reply(id="1", to=in_room(), text="Hi"))
    await out.speech.sent()
    assert sent_after == [1, 1, 1]
    assert [message.get("id") for message in out.sent] == ["1", "1"]

"""A message is for the agent if it mentions it, replies to it, or has its nickname as a word."""

import re
import unicodedata
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.features.rooms.addressed import (
    Address,
    Named,
    Pointers,
    Us,
    addressed,
    names,
    pointers_of,
)
from component.link.messages.inbound import Conversation, InboundMessage, Occupant, ReplyAddress
from component.link.messages.parsing import parse_message
from tests.component.link.messages.clients import NOON, QUESTION_IN_ROOM_ID, Shape, shapes
from tests.profiles import examples
from xep.jid import JID
from xep.stanza import Incoming

ROOM = JID.parse("garden@rooms.example")
AGENT = JID.parse("assistant@agent.example.com")
US = Us(room=ROOM, nicks=("FluuxBot",), account=AGENT, occupant_id="o-us", others=("Alice", "bob"))
US_HERE = f"xmpp:{ROOM}/FluuxBot?join"
CLIENTS = Path("tests/component/link/messages/clients/rooms")


class Case(NamedTuple):
    client: str
    of: str
    how: str
    text: str
    xml: str

    def __str__(self) -> str:
        return f"{self.client}: {self.of}"


def cases() -> list[Case]:
    found = []
    for file in sorted(CLIENTS.glob("*.xml")):
        text = file.read_text()
        client = ET.fromstring(text)
        sent = re.findall("<message .*?</message>", text, re.DOTALL)
        for each, xml in zip(client, sent, strict=True):
            of, how_, said_ = (each.attrib[name] for name in ("of", "how", "text"))
            found.append(
                Case(client.attrib["name"], of, how_, said_, re.sub(r">\n\s*<", "><", xml))
            )
    return found


def is_ours(id_: str) -> bool:
    return id_ == "s-ours"


def read(xml: str, us: Us = US) -> Address | None:
    xml = xml.replace("<message", "<message xmlns='jabber:client'", 1)
    stanza = Incoming.of(ET.fromstring(xml), len(xml))
    sender = JID.parse(stanza.sender or "")
    message = parse_message(stanza, sender, AGENT.with_resource("rooms"), NOON)
    return addressed(message, pointers_of(stanza), us, is_ours)


RECORDED = [each for each in shapes() if each.of in ("mention", "reply in a room")]


@pytest.mark.parametrize("shape", RECORDED, ids=str)
def test_what_was_recorded_from_clients_is_understood(shape: Shape) -> None:
    us = msgspec.structs.replace(US, nicks=("Assistant",))
    message = parse_message(shape.stanza, shape.sender, AGENT.with_resource("rooms"), NOON)
    found = addressed(message, pointers_of(shape.stanza), us, QUESTION_IN_ROOM_ID.__eq__)
    assert found is not None
    assert found.text == ("yes" if shape.of == "reply in a room" else "how are you?")


@pytest.mark.parametrize("case", cases(), ids=str)
def test_each_client_is_understood(case: Case) -> None:
    found = read(case.xml)
    assert found == (Address(case.how, case.text) if case.how else None)  # type: ignore[arg-type]


def test_there_are_at_least_seven_clients() -> None:
    assert len({case.client for case in cases()}) >= 7


def said(text: str, **more: Any) -> InboundMessage:
    sender = ROOM.with_resource("Alice")
    plain = InboundMessage(
        id="m1",
        type="groupchat",
        sender=sender,
        principal=ROOM,
        actor=Occupant(ROOM, "Alice"),
        conversation=Conversation(AGENT, ROOM, in_room=True),
        reply_to=ReplyAddress(str(ROOM), AGENT, "groupchat"),
        text=text,
    )
    return msgspec.structs.replace(plain, **more)


def how(text: str, pointers: Pointers | None = None, us: Us = US) -> tuple[str, str] | None:
    found = addressed(said(text), pointers or Pointers(), us, is_ours)
    return None if found is None else (found.how, found.text)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("FluuxBot: hello", "hello"),
        ("FluuxBot, hello", "hello"),
        ("fluuxbot hello", "hello"),
        ("@FluuxBot what's up", "what's up"),
        ("@FluuxBot: what's up", "what's up"),
        ("FluuxBot:hello", "hello"),
        ("FluuxBot - hello", "hello"),
        ("  FluuxBot,\nhello", "hello"),
        ("FluuxBot", "FluuxBot"),
        ("FluuxBot?", "FluuxBot?"),
        ("@FluuxBot", "@FluuxBot"),
        ("Hello FluuxBot!", "Hello FluuxBot!"),
        ("What does FluuxBot's owner say?", "What does FluuxBot's owner say?"),
        ("(FluuxBot)", "(FluuxBot)"),
        ("Well... FluuxBot, hello", "Well... FluuxBot, hello"),
        ("> FluuxBot: it is warm\nFluuxBot: is it?", "> FluuxBot: it is warm\nFluuxBot: is it?"),
        ("*FluuxBot* hello", "*FluuxBot* hello"),
        ("FluuxBot /new", "/new"),
    ],
)
def test_the_nickname_as_a_word_addresses_the_agent(text: str, rest: str) -> None:
    assert how(text) == ("name", rest)


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        "FluuxBots are nice",
        "MyFluuxBot",
        "my-FluuxBot is not it",
        "FluuxBot-2: hello",
        "FluuxBot@example.com",
        "juliet@FluuxBot",
        "https://example.com/FluuxBot",
        "https://example.com/?q=FluuxBot is a link",
        "xmpp:garden@rooms.example/FluuxBot",
        "www.example.com/FluuxBot",
        "see /home/FluuxBot",
        "FluuxBot.example.com is down",
        "> FluuxBot: it is warm",
        ">FluuxBot: it is warm\nIs it?",
        "#FluuxBot",
    ],
)
def test_the_nickname_in_another_word_a_link_or_a_quotation_does_not(text: str) -> None:
    assert how(text) is None


@pytest.mark.parametrize(
    ("nick", "text", "rest"),
    [
        ("Fluux Bot", "fluux  bot: hi", "hi"),
        ("Fluux Bot", "@Fluux Bot hi", "hi"),
        ("Flu(x)+", "Flu(x)+: hi", "hi"),
        ("Jos\u00e9", "Jose\u0301, hi", "hi"),
        (
            "\u673a\u5668\u4eba",
            "@\u673a\u5668\u4eba\u4f60\u597d",
            "@\u673a\u5668\u4eba\u4f60\u597d",
        ),
        ("\u673a\u5668\u4eba", "\u673a\u5668\u4eba\uff0c\u4f60\u597d", "\u4f60\u597d"),
        ("\ubd07", "\ubd07\uc544 \uc548\ub155", "\ubd07\uc544 \uc548\ub155"),
        ("Робот", "робот, привет", "привет"),
        ("\U0001f916", "\U0001f916hello", "\U0001f916hello"),
        ("@bot", "@bot: hi", "hi"),
    ],
)
def test_nicknames_of_all_kinds_are_found(nick: str, text: str, rest: str) -> None:
    us = msgspec.structs.replace(US, nicks=(nick,))
    assert how(text, us=us) == ("name", rest)


def test_the_longer_nickname_of_another_one_is_not_ours() -> None:
    us = msgspec.structs.replace(US, nicks=("Bot",), others=("Bot Two", "Alice"))
    assert how("Bot Two: hello", us=us) is None
    assert how("Bot Two and Bot: hello", us=us) is not None
    assert how("Bot: hello", us=us) == ("name", "hello")


@pytest.mark.parametrize(
    "named",
    [
        Named(address=f"{ROOM}/FluuxBot"),
        Named(address=str(AGENT)),
        Named(address=f"{AGENT}/rooms"),
        Named(occupant_id="o-us"),
        Named(occupant_id="o-us", address="somebody@example.com"),
    ],
)
def test_a_mention_by_address_or_occupant_id_is_ours(named: Named) -> None:
    assert how("you there, hello", Pointers((named,))) == ("mention", "you there, hello")


@pytest.mark.parametrize(
    "named",
    [
        Named(address=f"{ROOM}/bob"),
        Named(address=str(ROOM)),
        Named(address="other@rooms.example/FluuxBot"),
        Named(occupant_id="o-bob"),
        Named(occupant_id="o-bob", address=f"{ROOM}/FluuxBot"),
        Named(address="@@not an address"),
        Named(),
    ],
)
def test_a_mention_of_another_one_is_not_ours(named: Named) -> None:
    assert how("hello", Pointers((named,))) is None


def test_without_an_occupant_id_of_ours_no_mention_by_id_is_ours() -> None:
    us = msgspec.structs.replace(US, occupant_id="")
    assert how("hello", Pointers((Named(occupant_id="o-us"),)), us) is None


def message(inside: str, body: str = "Fluux, hello") -> str:
    return (
        f"<message from='{ROOM}/Alice' to='{AGENT}/rooms' type='groupchat' id='m1'>"
        f"<body>{body}</body>{inside}</message>"
    )


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        (
            "<mention xmlns='urn:xmpp:mentions:0' begin='0' end='5' occupantid='o-us'/>",
            Address("mention", "hello"),
        ),
        (
            f"<mention xmlns='urn:xmpp:mentions:0' begin='0' end='5' jid='{AGENT}'/>",
            Address("mention", "hello"),
        ),
        ("<mention xmlns='urn:xmpp:mentions:0' mentions='urn:xmpp:mentions:0#channel'/>", None),
        (
            f"<reference xmlns='urn:xmpp:reference:0' type='mention' uri='xmpp:{AGENT}'/>",
            Address("mention", "Fluux, hello"),
        ),
        (
            f"<reference xmlns='urn:xmpp:reference:0' type='mention' begin='x' uri='{US_HERE}'/>",
            Address("mention", "Fluux, hello"),
        ),
        (f"<reference xmlns='urn:xmpp:reference:0' type='data' uri='xmpp:{AGENT}'/>", None),
        (
            "<reference xmlns='urn:xmpp:reference:0' type='mention' uri='https://example.com'/>",
            None,
        ),
    ],
)
def test_elements_of_mentions_are_read(inside: str, expected: Address | None) -> None:
    assert read(message(inside)) == expected


def test_a_percent_encoded_nickname_in_a_reference_is_read() -> None:
    us = msgspec.structs.replace(US, nicks=("Fluux Bot",))
    uri = f"xmpp:{ROOM}/Fluux%20Bot"
    reference = f"<reference xmlns='urn:xmpp:reference:0' type='mention' uri='{uri}'/>"
    assert read(message(reference), us) == Address("mention", "Fluux, hello")


def test_a_reply_is_ours_by_the_id_that_the_room_gave_or_by_our_address_in_the_room() -> None:
    assert how("Why?", Pointers(reply="s-ours")) == ("reply", "Why?")
    assert how("Why?", Pointers(reply="s-ours", author=f"{ROOM}/Alice")) == ("reply", "Why?")
    assert how("Why?", Pointers(reply="s-old", author=f"{ROOM}/FluuxBot")) == ("reply", "Why?")
    assert how("FluuxBot: why?", Pointers(reply="s-ours")) == ("reply", "why?")
    assert how("Why?", Pointers(reply="s-bob", author=f"{ROOM}/bob")) is None
    assert how("Why?", Pointers(reply="s-bob")) is None
    assert how("Why?", Pointers(reply="s-bob", author="<>")) is None


def test_two_replies_in_one_message_are_none() -> None:
    twice = f"<reply xmlns='urn:xmpp:reply:0' id='s-ours' to='{ROOM}/FluuxBot'/>" * 2
    assert read(message(twice)) is None


words = st.text(st.sampled_from("ab \n>:,.@/-_é机F"), max_size=30)


@examples(60, 2000)
@given(text=words, nick=words.filter(lambda nick: bool(nick.strip())))
def test_no_text_and_no_nickname_break_it(text: str, nick: str) -> None:
    us = msgspec.structs.replace(US, nicks=(nick,))
    found = how(text, us=us)
    assert found is None or found[1]
    assert (found is not None) == names(text, (nick,), US.others)


@examples(60, 2000)
@given(rest=st.text(st.characters(categories=("L", "N")), min_size=1, max_size=30))
def test_the_text_after_the_name_reaches_the_model_unchanged(rest: str) -> None:
    assert how(f"FluuxBot: {rest}") == ("name", unicodedata.normalize("NFC", rest))

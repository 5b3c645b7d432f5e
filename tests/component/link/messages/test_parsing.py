"""A message says what its author says, refers to what it refers to, and never fails to be read."""

from itertools import count
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.link.messages.inbound import (
    Account,
    Attachment,
    Conversation,
    InboundMessage,
    Occupant,
    Reacted,
    Reference,
)
from component.link.messages.parsing import parse_message
from tests.component.link.messages.clients import NOON
from tests.hostile.stanzas import Addresses, Stanzas
from xep.jid import JID
from xep.stanza import Incoming

ROMEO = JID.parse("romeo@example.org/orchard")
AGENT = JID.parse("assistant@agent.example.org")
ROOM = JID.parse("garden@muc.example.org/romeo")
QUOTE = "> The gate is open.\n"


def message(
    inner: str, *, sender: JID = ROMEO, head: str = "type='chat' id='m1'"
) -> InboundMessage:
    xml = f"<message xmlns='jabber:client' from='{sender}' to='{AGENT}' {head}>{inner}</message>"
    return parse_message(Incoming.of(ET.fromstring(xml), len(xml)), sender, AGENT, NOON)


def reply(body: str, marked: str, to: str | None = str(AGENT)) -> InboundMessage:
    author = "" if to is None else f" to='{to}'"
    return message(
        f"<body>{body}</body><reply xmlns='urn:xmpp:reply:0' id='q1'{author}/>"
        f"<fallback xmlns='urn:xmpp:fallback:0' for='urn:xmpp:reply:0'>{marked}</fallback>"
    )


def test_a_plain_message() -> None:
    found = message("<body> Hello. </body><thread>t1</thread>")
    assert found.text == "Hello."
    assert found.unclear is None
    assert (found.id, found.type, found.sender) == ("m1", "chat", ROMEO)
    assert found.actor == Account(ROMEO.bare)
    assert found.conversation == Conversation(AGENT, ROMEO.bare, thread="t1")
    assert (found.reply_to.to, found.reply_to.from_) == (str(ROMEO), AGENT)
    assert (found.reply_to.type, found.reply_to.thread) == ("chat", "t1")


def test_what_clients_add_to_every_message_changes_nothing() -> None:
    found = message(
        "<body>yes</body><active xmlns='http://jabber.org/protocol/chatstates'/>"
        "<request xmlns='urn:xmpp:receipts'/><markable xmlns='urn:xmpp:chat-markers:0'/>"
        "<origin-id xmlns='urn:xmpp:sid:0' id='o1'/><store xmlns='urn:xmpp:hints'/>"
        "<stanza-id xmlns='urn:xmpp:sid:0' id='s1' by='romeo@example.org'/>"
    )
    assert found.unclear is None
    assert found.origin_id == "o1"
    assert found.stanza_id is None, "anybody could have written that one"
    assert found.wants_receipt
    assert found.markable
    assert found.reply_to.shows_states


def test_the_quotation_of_a_reply_is_cut_off() -> None:
    found = reply(f"{QUOTE}yes", f"<body start='0' end='{len(QUOTE)}'/>")
    assert found.text == "yes"
    assert found.unclear is None
    assert found.replies_to == Reference("q1", is_ours=True)
    assert reply("yes", "<body/>", to="bob@example.org").replies_to == Reference("q1", False)


QUOTED = "> Wie w\u00e4re \U0001f375?\n> Ja?\n"


@pytest.mark.parametrize(
    "length",
    [len(QUOTED), len(QUOTED.encode("utf-16-le")) // 2, len(QUOTED.encode())],
    ids=["code points", "UTF-16 units", "bytes"],
)
@pytest.mark.parametrize("answer", ["yes", "\u00fcber alles"])
def test_a_quotation_is_cut_off_in_whatever_units_its_range_is(length: int, answer: str) -> None:
    found = reply(f"{QUOTED}{answer}".replace(">", "&gt;"), f"<body start='0' end='{length}'/>")
    assert (found.text, found.unclear) == (answer, None)


HARMLESS = [
    "<x xmlns='jabber:x:event'><composing/></x>",
    "<c xmlns='http://jabber.org/protocol/caps' hash='sha-1' node='x' ver='y'/>",
    "<x xmlns='vcard-temp:x:update'><photo/></x>",
    "<x xmlns='jabber:x:signed'>abc</x>",
    "<x xmlns='google:nosave' value='disabled'/>",
    "<record xmlns='http://jabber.org/protocol/archive' otr='false'/>",
    "<spoiler xmlns='urn:xmpp:spoiler:0'/>",
    "<markup xmlns='urn:xmpp:markup:0'><span start='0' end='3'><emphasis/></span></markup>",
    "<subject/>",
    "<subject> </subject>",
    (
        "<html xmlns='http://jabber.org/protocol/xhtml-im'>"
        "<body xmlns='http://www.w3.org/1999/xhtml'><p><b>ye</b>s </p></body></html>"
    ),
]


@pytest.mark.parametrize("element", HARMLESS)
def test_what_clients_add_to_a_text_does_not_make_it_unclear(element: str) -> None:
    assert message(f"<body>yes</body>{element}").unclear is None


def test_formatted_text_that_differs_and_a_subject_make_a_text_unclear() -> None:
    html = HARMLESS[-1].replace("ye</b>s", "no</b>")
    assert message(f"<body>yes</body>{html}").unclear == "it also contains <html/>"
    assert message("<body>yes</body><subject>No</subject>").unclear == "it has a subject"


@pytest.mark.parametrize("before", ["\ufeff", "\u200b", "\u2060\u200e", " \u200f "])
def test_a_command_may_follow_invisible_characters(before: str) -> None:
    assert message(f"<body>{before}/help</body>").text == "/help"
    assert message(f"<body>{before}yes</body>").text == f"{before}yes".strip()


@pytest.mark.parametrize(
    ("lang", "text"),
    [
        ("de", "Ja"), ("de-DE", "Ja"), ("DE-AT", "Ja"), ("fr", "Oui"), ("fr-CA", "Oui!"),
        ("fr-CA-x-a", "Oui!"), ("nl", "Yes"), (None, "Yes"),
    ],
)  # fmt: skip
def test_of_several_bodies_the_one_of_the_message_s_language_counts(
    lang: str | None, text: str
) -> None:
    head = "type='chat' id='m1'" + ("" if lang is None else f" xml:lang='{lang}'")
    found = message(
        "<body xml:lang='fr'>Oui</body><body xml:lang='fr-CA'>Oui!</body><body>Yes</body>"
        "<body xml:lang='de'>Ja</body>",
        head=head,
    )
    assert found.text == text


@pytest.mark.parametrize(
    ("body", "marked"),
    [
        ("yes", "<body start='0' end='20'/>"),  # as before the reply was corrected
        ("yes, I do mean it", "<body start='0' end='5'/>"),
        ("yes", "<body start='7'/>"),
        ("yes", "<body start='3' end='1'/>"),
        ("yes", ""),
    ],
)
def test_a_range_that_marks_no_quotation_is_ignored(body: str, marked: str) -> None:
    found = reply(body, marked)
    assert found.text == body
    assert found.unclear == "it is unclear which part of its text is quoted"


@pytest.mark.parametrize(
    "element",
    [
        f"<reply xmlns='urn:xmpp:reply:0' id='q1' to='{AGENT}'/>" * 2,
        "<reply xmlns='urn:xmpp:reply:0'/>",
        "<fallback xmlns='urn:xmpp:fallback:0' for='urn:xmpp:reply:0'><body start='x'/></fallback>",
    ],
)
def test_a_message_whose_reply_or_fallback_cannot_be_read_is_unclear(element: str) -> None:
    found = message(f"<body>yes</body>{element}")
    assert found.text == "yes"
    assert found.unclear == "a part of its text is only for other clients"


def test_a_correction_names_the_message_that_it_replaces() -> None:
    found = message("<body>no</body><replace xmlns='urn:xmpp:message-correct:0' id='m0'/>")
    assert found.replaces == "m0"
    assert found.text == "no"
    assert found.unclear == "it corrects an earlier message"


@pytest.mark.parametrize(
    "element",
    [
        "<retract xmlns='urn:xmpp:message-retract:1' id='m0'/>",
        (
            "<apply-to xmlns='urn:xmpp:fasten:0' id='m0'>"
            "<retract xmlns='urn:xmpp:message-retract:0'/></apply-to>"
        ),
    ],
)
def test_a_retraction_says_nothing(element: str) -> None:
    found = message(
        f"<body>I took back a message.</body>{element}"
        "<fallback xmlns='urn:xmpp:fallback:0' for='urn:xmpp:message-retract:1'/>"
    )
    assert found.retracts == "m0"
    assert found.text == ""
    assert found.unclear == "it retracts an earlier message"


def test_a_reaction_names_its_message_and_its_emojis() -> None:
    found = message(
        "<reactions xmlns='urn:xmpp:reactions:0' id='q1'><reaction>\U0001f44d</reaction>"
        "</reactions>"
        f"<body>{QUOTE}\U0001f44d</body>"
        "<fallback xmlns='urn:xmpp:fallback:0' for='urn:xmpp:reactions:0'/>"
    )
    assert found.reacted == Reacted("q1", frozenset("\U0001f44d"))
    assert found.text == ""
    none = message("<reactions xmlns='urn:xmpp:reactions:0' id='q1'/>")
    assert none.reacted == Reacted("q1", frozenset())


@pytest.mark.parametrize(
    ("element", "name"),
    [
        ("<encrypted xmlns='eu.siacs.conversations.axolotl'/>", "OMEMO"),
        ("<encrypted xmlns='urn:xmpp:omemo:2'/>", "OMEMO"),
        ("<openpgp xmlns='urn:xmpp:openpgp:0'/>", "OpenPGP"),
        ("<x xmlns='jabber:x:encrypted'/>", "OpenPGP"),
        ("<encryption xmlns='urn:xmpp:eme:0' namespace='urn:xmpp:omemo:2'/>", "OMEMO"),
        ("<encryption xmlns='urn:xmpp:eme:0' namespace='urn:x' name='Enigma'/>", "Enigma"),
        ("<encryption xmlns='urn:xmpp:eme:0' namespace='urn:x'/>", "an encryption"),
    ],
)
def test_an_encrypted_message_says_nothing(element: str, name: str) -> None:
    found = message(f"<body>You cannot read this.</body>{element}")
    assert found.encryption == name
    assert found.text == ""
    assert found.unclear == "it is encrypted"


def test_a_message_in_otr() -> None:
    assert message("<body>?OTRv23?</body>").encryption == "OTR"


def test_a_file_is_an_attachment_and_its_url_no_text() -> None:
    url = "https://upload.example.org/x/cat.jpg"
    shared = (
        "<file-sharing xmlns='urn:xmpp:sfs:0'><file xmlns='urn:xmpp:file:metadata:0'>"
        "<media-type>image/jpeg</media-type><name>cat.jpg</name><size>3032449</size></file>"
        f"<sources><url-data xmlns='http://jabber.org/protocol/url-data' target='{url}'/></sources>"
        "</file-sharing>"
    )
    old = f"<x xmlns='jabber:x:oob'><url>{url}</url></x>"
    found = message(f"<body>{url}</body>{shared}{old}")
    assert found.text == ""
    assert found.attachments == (
        Attachment(url=url, name="cat.jpg", media_type="image/jpeg", size=3032449),
    )
    assert message(f"<body>{url}</body>{old}").attachments == (Attachment(url=url),)
    assert message(f"<body>Look: {url}</body>{old}").text == f"Look: {url}"


@pytest.mark.parametrize(
    ("around", "file"),
    [
        (
            (
                "<file-sharing xmlns='urn:xmpp:sfs:0'>{}<sources><url-data"
                " xmlns='http://jabber.org/protocol/url-data' target='https://u.example/a'/>"
                "</sources></file-sharing>"
            ),
            "urn:xmpp:file:metadata:0",
        ),
        (
            (
                "<reference xmlns='urn:xmpp:reference:0' type='data'><media-sharing"
                " xmlns='urn:xmpp:sims:1'>{}<sources><reference xmlns='urn:xmpp:reference:0'"
                " type='data' uri='https://u.example/a'/></sources></media-sharing></reference>"
            ),
            "urn:xmpp:jingle:apps:file-transfer:5",
        ),
    ],
)
def test_the_digests_of_a_file_are_those_that_its_sender_states(around: str, file: str) -> None:
    described = (
        f"<file xmlns='{file}'><size>3</size>"
        "<hash xmlns='urn:xmpp:hashes:2' algo='SHA-256'>qrs=</hash>"
        "<hash xmlns='urn:xmpp:hashes:2' algo='sha-1'>not base64!</hash></file>"
    )
    (found,) = message(around.format(described)).attachments
    assert found == Attachment(url="https://u.example/a", size=3, hashes=(("sha-256", "aabb"),))


def shared_inline(*uris: str) -> str:
    sources = "".join(
        f"<reference xmlns='urn:xmpp:reference:0' type='data' uri='{uri}'/>" for uri in uris
    )
    return (
        "<reference xmlns='urn:xmpp:reference:0' type='data'>"
        "<media-sharing xmlns='urn:xmpp:sims:1'>"
        "<file xmlns='urn:xmpp:jingle:apps:file-transfer:5'><name>cat.jpg</name></file>"
        f"<sources>{sources}</sources></media-sharing></reference>"
    )


@pytest.mark.parametrize(
    ("uris", "used"),
    [
        (
            ("xmpp:romeo@example.org/orchard?jingle-ft", "HTTPS://a.example/c"),
            "HTTPS://a.example/c",
        ),
        (("http://a.example/1", "https://a.example/2"), "http://a.example/1"),
        (("xmpp:romeo@example.org/orchard?jingle-ft",), "xmpp:romeo@example.org/orchard?jingle-ft"),
    ],
)
def test_of_the_sources_of_a_file_one_on_the_web_is_used(uris: tuple[str, ...], used: str) -> None:
    found = message(f"<body>a cat {used}</body>{shared_inline(*uris)}")
    assert found.attachments == (Attachment(url=used, name="cat.jpg"),)
    assert found.text == "a cat"


ABOUT = (
    "<file xmlns='urn:xmpp:file:metadata:0'><name>cat.jpg</name><size>7</size>"
    "<media-type>image/jpeg</media-type></file>"
)


def test_a_description_beside_the_only_link_is_that_of_its_file() -> None:
    link = "<x xmlns='jabber:x:oob'><url>https://a.example/c</url><desc>Tom</desc></x>"
    (found,) = message(f"{link}{ABOUT}").attachments
    assert (found.name, found.media_type, found.size) == ("cat.jpg", "image/jpeg", 7)
    assert found.description == "Tom"
    other = link.replace("/c<", "/d<")
    assert [one.name for one in message(f"{link}{other}{ABOUT}").attachments] == [None, None]
    assert message(f"<body>hi</body>{ABOUT}").attachments == ()


def test_me_is_an_action() -> None:
    found = message("<body>/me waves</body>")
    assert (found.text, found.is_action) == ("waves", True)
    assert not message("<body>/mean</body>").is_action


def test_an_occupant_of_a_room() -> None:
    found = message(
        "<body>hello</body><occupant-id xmlns='urn:xmpp:occupant-id:0' id='o7'/>"
        "<stanza-id xmlns='urn:xmpp:sid:0' id='s9' by='garden@muc.example.org'/>",
        sender=ROOM,
        head="type='groupchat' id='m1'",
    )
    assert found.actor == Occupant(ROOM.bare, "romeo", "o7")
    assert found.conversation == Conversation(AGENT, ROOM.bare, in_room=True)
    assert (found.reply_to.to, found.reply_to.type) == (str(ROOM.bare), "groupchat")
    assert found.stanza_id == "s9"
    private = message(
        "<body>hello</body><x xmlns='http://jabber.org/protocol/muc#user'/>", sender=ROOM
    )
    assert private.actor == Occupant(ROOM.bare, "romeo")
    assert private.conversation == Conversation(AGENT, ROOM)
    assert private.reply_to.to == str(ROOM)


@pytest.mark.parametrize(
    ("element", "copy"),
    [
        ("<received xmlns='urn:xmpp:carbons:2'/>", "carbon"),
        ("<result xmlns='urn:xmpp:mam:2'/>", "archive"),
        ("<forwarded xmlns='urn:xmpp:forward:0'/>", "forwarded"),
    ],
)
def test_a_carbon_an_archived_and_a_forwarded_message_are_copies(element: str, copy: str) -> None:
    assert message(f"<body>yes</body>{element}").copy == copy


def test_a_delayed_message_has_the_time_when_it_was_sent() -> None:
    late = message("<body>yes</body><delay xmlns='urn:xmpp:delay' stamp='2002-09-10T23:08:25Z'/>")
    assert late.delayed
    assert late.sent_at is not None
    for element in ("<x xmlns='jabber:x:delay'/>", "<delay xmlns='urn:xmpp:delay' stamp='soon'/>"):
        late = message(f"<body>yes</body>{element}")
        assert late.delayed
        assert late.sent_at is None


def test_what_is_unknown_may_change_what_a_message_means() -> None:
    found = message("<body>yes</body><sarcasm xmlns='urn:x'/>")
    assert found.text == "yes"
    assert found.unclear == "it also contains <sarcasm/>"


STANZAS = Stanzas(
    11,
    Addresses(
        agent="agent.example.org",
        host="example.org",
        second="evil.test",
        friends=("friend0",),
        accounts=("juliet", "mallory"),
    ),
)


@given(st.integers(0, 1 << 40), st.sampled_from(["chat", "normal", "groupchat"]))
def test_whatever_comes_is_read(number: int, type_: str) -> None:
    stanza = next(
        made.data
        for made in map(STANZAS.make, count(number))
        if made.data.startswith(b"<message") and not made.breaks
    )
    try:
        element = ET.fromstring(
            b"<s xmlns='jabber:client' xmlns:hostile='urn:hostile'>%s</s>" % stanza
        )[0]
    except ET.ParseError:
        return
    element.set("type", type_)
    found = parse_message(Incoming.of(element, len(stanza)), ROOM, AGENT, NOON)
    assert found.text == found.text.strip()
    if found.encryption is not None:
        assert not found.text
    if found.replaces or found.retracts or found.copy or found.attachments:
        assert found.unclear is not None


@pytest.mark.parametrize(
    "stamp",
    [
        *("2002-09-10T23:08:25.5Z", "2002-09-10T23:08:25z", "2002-09-10 23:08:25Z"),
        *("2002-09-11T01:08:25+0200", "2002-09-10T23:08:25", "20020910T23:08:25"),
    ],
)
@pytest.mark.parametrize(
    "element",
    ["<delay xmlns='urn:xmpp:delay' stamp='{}'/>", "<x xmlns='jabber:x:delay' stamp='{}'/>"],
)
def test_a_stamp_is_read_in_each_format_that_servers_write(element: str, stamp: str) -> None:
    late = message(f"<body>yes</body>{element.format(stamp)}")
    assert late.delayed
    assert late.sent_at is not None
    assert late.sent_at.replace(microsecond=0).isoformat() == "2002-09-10T23:08:25+00:00"


def test_a_range_that_ends_inside_a_quoted_line_is_no_quotation() -> None:
    reply = (
        "<body>&gt; May I?\nyes</body><reply xmlns='urn:xmpp:reply:0' id='q'/>"
        "<fallback xmlns='urn:xmpp:fallback:0' for='urn:xmpp:reply:0'><body start='0' end='{}'/>"
        "</fallback>"
    )
    assert message(reply.format(9)).text == message(reply.format(8)).text == "yes"
    inside = message(reply.format(5))
    assert inside.unclear == "it is unclear which part of its text is quoted"

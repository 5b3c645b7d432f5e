"""What counts as a plain answer: what clients send, and nothing that says something besides."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.component.features.questions.chat_world import HINT, World
from tests.component.link.router.wire import AGENT

pytestmark = pytest.mark.anyio

ACTIVE = "<active xmlns='http://jabber.org/protocol/chatstates'/>"
RECEIPT = "<request xmlns='urn:xmpp:receipts'/>"
MARKABLE = "<markable xmlns='urn:xmpp:chat-markers:0'/>"
ORIGIN = "<origin-id xmlns='urn:xmpp:sid:0' id='o-1'/>"
STANZA = "<stanza-id xmlns='urn:xmpp:sid:0' by='alice@a.example' id='s-1'/>"
STORE = "<store xmlns='urn:xmpp:hints'/>"
NICK = "<nick xmlns='http://jabber.org/protocol/nick'>Alice</nick>"
UNSTYLED = "<unstyled xmlns='urn:xmpp:styling:0'/>"
PRIVATE = "<private xmlns='urn:xmpp:carbons:2'/>"
NO_COPY = "<no-copy xmlns='urn:xmpp:hints'/>"
# Elements that clients of 2023 to 2026 add to a message that is nothing but its text.
CLIENTS = {
    "Conversations": ORIGIN + RECEIPT + MARKABLE + ACTIVE,
    "Cheogram": ORIGIN + RECEIPT + MARKABLE + NICK + ACTIVE,
    "Dino": RECEIPT + MARKABLE + STORE + ACTIVE,
    "Gajim": ACTIVE + ORIGIN + RECEIPT + MARKABLE + NICK,
    "Profanity": ACTIVE + ORIGIN + RECEIPT,
    "Converse": ACTIVE + RECEIPT + ORIGIN,
    "Movim": ACTIVE + MARKABLE + RECEIPT + ORIGIN + UNSTYLED,
    "Monal": ORIGIN + RECEIPT + MARKABLE + STORE,
    "Fluux Messenger": ACTIVE + ORIGIN,
    "a library": "",
    "a server that archives": STANZA + STANZA + ACTIVE,
    "a message that is not to be copied": PRIVATE + NO_COPY,
}


def reply(body: str, quoted: str = "> May I run report?\n", id_: str = "c-t1") -> tuple[str, str]:
    """A reply as clients write it: its body, and what stands beside it."""
    return quoted + body, (
        f"<reply xmlns='urn:xmpp:reply:0' to='{AGENT}' id='{id_}'/>"
        "<fallback xmlns='urn:xmpp:fallback:0' for='urn:xmpp:reply:0'>"
        f"<body start='0' end='{len(quoted)}'/></fallback>"
    )


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_plain_message_of_any_client_answers(chat: World, client: str) -> None:
    chat.confirm("t1")
    assert (await chat.say("yes", more=CLIENTS[client]) or "").startswith("Approved")


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("quoted", ["", "> May I run report?\n> \U0001f600 topic\n"])
async def test_so_does_a_reply(chat: World, client: str, quoted: str) -> None:
    chat.confirm("t1")
    chat.confirm("t2")
    body, beside = reply("Yes.", quoted)
    assert (await chat.say(body, more=CLIENTS[client] + beside) or "").startswith("Approved")
    assert (chat.state("t1"), chat.state("t2")) == ("accepted", "input-required")
    body, beside = reply("/deny c-t2", quoted)
    assert (await chat.say(body, more=beside) or "").startswith("Denied")


REFUSED = re.compile("haven't taken that as an answer|can't read this message|too late")
FALLBACK = "<fallback xmlns='urn:xmpp:fallback:0' for='{}'/>"
OTHER_LANGUAGE = "<body xml:lang='de'>nein</body>"
# What stands beside a body that is not, or not alone, what its sender says.
BESIDES = {
    "a correction": "<replace xmlns='urn:xmpp:message-correct:0' id='m0'/>",
    "a retraction": "<retract xmlns='urn:xmpp:message-retract:1' id='m0'/>",
    "an old retraction": (
        "<apply-to xmlns='urn:xmpp:fasten:0' id='m0'><retract xmlns='urn:xmpp:message-retract:0'/>"
        "</apply-to>"
    ),
    "OMEMO": "<encrypted xmlns='eu.siacs.conversations.axolotl'/>",
    "OMEMO 2": "<encrypted xmlns='urn:xmpp:omemo:2'/>",
    "OpenPGP": "<openpgp xmlns='urn:xmpp:openpgp:0'>x</openpgp>",
    "old OpenPGP": "<x xmlns='jabber:x:encrypted'>x</x>",
    "explicit encryption": "<encryption xmlns='urn:xmpp:eme:0' namespace='urn:example'/>",
    "the fallback of a reaction": FALLBACK.format("urn:xmpp:reactions:0"),
    "a fallback of everything": "<fallback xmlns='urn:xmpp:fallback:0'/>",
    "a fallback without a reply": (
        "<fallback xmlns='urn:xmpp:fallback:0' for='urn:xmpp:reply:0'><body start='0' end='0'/>"
        "</fallback>"
    ),
    "a fallback out of its range": (
        "<reply xmlns='urn:xmpp:reply:0' id='c-t1'/><fallback xmlns='urn:xmpp:fallback:0'"
        " for='urn:xmpp:reply:0'><body start='0' end='99'/></fallback>"
    ),
    "a displayed marker": "<displayed xmlns='urn:xmpp:chat-markers:0' id='m0'/>",
    "a receipt": "<received xmlns='urn:xmpp:receipts' id='m0'/>",
    "XHTML": "<html xmlns='http://jabber.org/protocol/xhtml-im'/>",
    "a file": "<x xmlns='jabber:x:oob'><url>https://a.example/yes</url></x>",
    "a form": "<x xmlns='jabber:x:data' type='submit'/>",
    "an addressee": "<addresses xmlns='http://jabber.org/protocol/address'/>",
    "a subject": "<subject>Shall we have lunch?</subject>",
    "another language": OTHER_LANGUAGE,
    "several threads": "<thread>t1</thread><thread>t2</thread>",
    "what nobody knows": "<x xmlns='urn:example:unknown'/>",
}
UNREADABLE = (
    *("a retraction", "an old retraction", "OMEMO", "OMEMO 2", "OpenPGP", "old OpenPGP"),
    "explicit encryption",
)
"""Whose body is for clients that lack a feature."""


@pytest.mark.parametrize("what", BESIDES)
async def test_what_says_something_besides_approves_nothing_and_is_told_so(
    chat: World, what: str
) -> None:
    chat.confirm("t1")
    chat.input("t2")
    for body in ("yes", "/approve c-t1", "/answer q-t2 Rhine"):
        said = await chat.say(body, more=BESIDES[what]) or ""
        assert REFUSED.search(said), (body, said)
    assert {chat.state("t1"), chat.state("t2")} == {"input-required"}


@pytest.mark.parametrize("body", ["no", "/deny c-t1"])
@pytest.mark.parametrize("what", [each for each in BESIDES if each not in UNREADABLE])
async def test_a_no_counts_whatever_is_beside_it(chat: World, what: str, body: str) -> None:
    chat.confirm("t1")
    assert (await chat.say(body, more=BESIDES[what]) or "").startswith("Denied")
    assert chat.state("t1") == "failed"


@pytest.mark.parametrize("what", UNREADABLE)
async def test_a_no_that_its_sender_has_not_written_does_not_count(chat: World, what: str) -> None:
    chat.confirm("t1")
    assert REFUSED.search(await chat.say("no", more=BESIDES[what]) or "")
    assert chat.state("t1") == "input-required"


@pytest.mark.parametrize("what", BESIDES)
async def test_where_nothing_is_asked_it_goes_on_as_a_message(chat: World, what: str) -> None:
    said = await chat.say("yes", more=BESIDES[what]) or ""
    assert HINT in said or REFUSED.search(said)
    chat.confirm("t1")
    again = await chat.say("hello", more=BESIDES[what])
    assert again == said


async def test_an_old_delay_is_a_delay(chat: World) -> None:
    chat.confirm("t1")
    late = "<x xmlns='jabber:x:delay' stamp='20260101T00:00:00'/>"
    for body in ("yes", "/approve c-t1"):
        assert "Approved" not in (await chat.say(body, more=late) or "")
    assert await chat.press("approve:c-t1") == "Approved."


@pytest.mark.parametrize(
    "more",
    [
        "<delay xmlns='urn:xmpp:delay' stamp='2026-11-24T11:59:58+00:00'/>",
        "<x xmlns='jabber:x:delay' stamp='20261124T11:59:58'/>",
        "<amp xmlns='http://jabber.org/protocol/amp'/>",
        "<x xmlns='jabber:x:expire' seconds='1800'/>",
        "<ephemeral xmlns='urn:xmpp:ephemeral:0' timer='60'/>",
    ],
)
@pytest.mark.parametrize("body", ["yes", "/approve c-t1"])
async def test_elements_about_delivery_do_not_change_the_answer(
    chat: World, body: str, more: str
) -> None:
    chat.confirm("t1")
    assert (await chat.say(body, more=more) or "").startswith("Approved")


@pytest.mark.parametrize(
    "body",
    [
        *("\u200bno", "\ufeffNo", "\u200eno\u200e", "`no`", "~no~", "\U0001f44e no", "\u274c no"),
        *("/\u200bdeny c-t1", "/deny\u200b c-t1", "/deny \u2068c-t1\u2069", "\u3164/deny c-t1"),
        *("/deny \u201cc-t1\u201d", "/deny \u00abc-t1\u00bb", "/deny c-t1.", "/DENY C-T1"),
    ],
)
async def test_invisible_characters_symbols_and_quotation_marks_do_not_hide_a_no(
    chat: World, body: str
) -> None:
    chat.confirm("t1")
    assert (await chat.say(body) or "").startswith("Denied")
    assert chat.state("t1") == "failed"


@pytest.mark.parametrize("body", ["\u200byes", "`yes`", "\U0001f44d yes", "yes\ufe0f"])
async def test_a_yes_with_anything_around_it_is_asked_for_again(chat: World, body: str) -> None:
    chat.confirm("t1")
    assert "Reply just *yes*" in (await chat.say(body) or "")
    assert chat.state("t1") == "input-required"


@pytest.mark.parametrize("body", ["> no", ">no", "> yes"])
async def test_a_quotation_without_a_reply_is_not_an_answer(chat: World, body: str) -> None:
    chat.confirm("t1")
    assert HINT in (await chat.say(body) or "")
    assert chat.state("t1") == "input-required"


SELECTED = "<action-selected xmlns='urn:xmpp:tmp:quick-response' id='{}'/>"


@pytest.mark.parametrize(
    ("body", "identifier", "more"),
    [
        ("no", "approve:c-t1", ""),
        ("Tell me more", "approve:c-t1", ""),
        ("yes?", "approve:c-t1", ""),
        (None, "approve:c-t1", SELECTED.format("approve:c-t2")),
        (None, "approve:c-t1", BESIDES["a correction"]),
        (None, "approve:c-t1", BESIDES["what nobody knows"]),
    ],
)
async def test_an_action_beside_something_else_decides_nothing(
    chat: World, body: str | None, identifier: str, more: str
) -> None:
    chat.confirm("t1")
    chat.confirm("t2")
    said = await chat.say(body, more=SELECTED.format(identifier) + more) or ""
    assert "haven't taken that as an answer" in said
    assert {chat.state("t1"), chat.state("t2")} == {"input-required"}


@pytest.mark.parametrize(
    ("body", "more"), [("yes", ""), ("Tell me more", ""), (None, BESIDES["what nobody knows"])]
)
async def test_an_action_that_denies_counts_whatever_is_beside_it(
    chat: World, body: str | None, more: str
) -> None:
    chat.confirm("t1")
    said = await chat.say(body, more=SELECTED.format("deny:c-t1") + more) or ""
    assert said.startswith("Denied")
    assert chat.state("t1") == "failed"


@pytest.mark.parametrize("identifier", ["buy:42", "approve", "", "approve-c-t1"])
async def test_an_action_of_somebody_else_is_no_yes_to_us(chat: World, identifier: str) -> None:
    chat.confirm("t1")
    assert HINT in (await chat.say("yes", more=SELECTED.format(identifier)) or "")
    assert chat.state("t1") == "input-required"


async def test_an_action_may_stand_beside_its_own_label(chat: World) -> None:
    chat.confirm("t1")
    assert await chat.say("Yes", more=SELECTED.format("approve:c-t1") + ACTIVE) == "Approved."


async def test_the_same_text_in_several_languages_is_one(chat: World) -> None:
    chat.confirm("t1")
    said = await chat.say("no", more="<body xml:lang='it'>no</body>") or ""
    assert said.startswith("Denied")


NAMES = st.sampled_from(["x", "body", "thread", "delay", "replace", "yes", "confirm"])
SPACES = st.from_regex(r"urn:[a-z:0-9]{1,20}", fullmatch=True)


@given(NAMES, SPACES)
async def test_no_unknown_element_stands_beside_a_plain_answer(name: str, space: str) -> None:
    chat = World()
    async with chat.bench.running():
        chat.confirm("t1")
        await chat.say("yes", more=f"<{name} xmlns='{space}'/>")
        assert chat.state("t1") == "input-required"

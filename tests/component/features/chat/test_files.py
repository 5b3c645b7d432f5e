"""Files that cannot be opened: the sender is told once, and offers of clients are refused."""

from pathlib import Path
from typing import Any

import pytest

from tests.kit import AGENT, Peer, Script, anyio_backend, service
from tests.kit.xmpp import body
from xep import call_invites, jingle_messages

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

JULIET = "juliet@capulet.example/balcony"
URL = "https://upload.capulet.example/1/cat.jpg"
AES = "aesgcm://upload.capulet.example/1/cat.jpg#" + "ab" * 44
SORRY = "I can't open files yet"
OOB = f"<x xmlns='jabber:x:oob'><url>{URL}</url></x>"
FILE = "<file xmlns='urn:xmpp:file:metadata:0'><name>cat.jpg</name></file>"
SOURCE = f"<url-data xmlns='http://jabber.org/protocol/url-data' target='{URL}'/>"
SHARED = f"<file-sharing xmlns='urn:xmpp:sfs:0'>{FILE}<sources>{SOURCE}</sources></file-sharing>"
INLINE = (
    "<reference xmlns='urn:xmpp:reference:0' type='data'>"
    "<media-sharing xmlns='urn:xmpp:sims:1'>"
    "<file xmlns='urn:xmpp:jingle:apps:file-transfer:5'><name>cat.jpg</name></file>"
    f"<sources><reference xmlns='urn:xmpp:reference:0' type='data' uri='{URL}'/></sources>"
    "</media-sharing></reference>"
)
QUIET: dict[str, Any] = {"agent": {"notice": ""}}


def jingle(action: str) -> str:
    """Return an action of a session for a file."""
    return (
        f"<jingle xmlns='urn:xmpp:jingle:1' action='{action}' sid='s'>"
        "<content creator='initiator' name='f'>"
        "<description xmlns='urn:xmpp:jingle:apps:file-transfer:5'/></content></jingle>"
    )


async def send(peer: Peer, text: str, more: str = "") -> None:
    """Send a message with a body and other elements."""
    said = f"<body>{text}</body>" if text else ""
    await peer.send(f"<message to='{AGENT}' type='chat'>{said}{more}</message>")


def heard(peer: Peer) -> list[str]:
    """Return the bodies that have arrived since the last call."""
    return [body(one) for one in peer.take() if body(one)]


@pytest.mark.parametrize(
    ("text", "more", "name"),
    [
        (URL, OOB, "a file"),
        (URL, SHARED, "cat.jpg"),
        ("", SHARED.replace(SOURCE, ""), "cat.jpg"),
        (URL, INLINE, "cat.jpg"),
        (AES, "", "a file"),
        (AES, f"<x xmlns='jabber:x:oob'><url>{AES}</url></x>", "a file"),
    ],
)
async def test_a_file_alone_gets_a_sentence_and_no_turn(
    tmp_path: Path, text: str, more: str, name: str
) -> None:
    model = Script()
    async with service(tmp_path, QUIET, model=model) as kit:
        juliet = kit.peer(JULIET)
        await send(juliet, text, more)
        await kit.settled()
        (said,) = heard(juliet)
        assert said.startswith(SORRY)
        assert f"you have sent {name}, " in said
    assert model.requests == []


async def test_the_text_beside_a_file_is_answered_too(tmp_path: Path) -> None:
    model = Script("Cats are fine.")
    async with service(tmp_path, QUIET, model=model) as kit:
        juliet = kit.peer(JULIET)
        await send(juliet, "Do you like cats?", SHARED)
        await juliet.hear("Cats are fine.")
        await send(juliet, "/ping", OOB)
        await kit.settled()
        said = [body(one) for one in juliet.stanzas if body(one)]
        assert [SORRY in one for one in said] == [True, False, False]
        assert "cat.jpg" in said[0]
    assert "Do you like cats?" in model.asked


async def test_several_files_get_one_sentence_within_a_minute(tmp_path: Path) -> None:
    async with service(tmp_path, QUIET) as kit:
        juliet = kit.peer(JULIET)
        for number in range(5):
            url = f"{URL}?{number}"
            await send(juliet, url, f"<x xmlns='jabber:x:oob'><url>{url}</url></x>")
            await kit.settled()
        assert [SORRY in one for one in heard(juliet)] == [True]
        await kit.advance(61)
        await send(juliet, URL, OOB)
        await kit.settled()
        assert [SORRY in one for one in heard(juliet)] == [True]


async def test_a_page_that_a_skill_can_read_goes_to_the_model(tmp_path: Path) -> None:
    page = "https://upload.capulet.example/1/report.pdf"
    link = f"<x xmlns='jabber:x:oob'><url>{page}</url></x>"
    settings = {"url_fetch": {"enabled": True}, **QUIET}
    async with service(tmp_path, settings, model=Script("A report.")) as kit:
        juliet = kit.peer(JULIET)
        await send(juliet, page, link)
        assert await juliet.hear() == "A report."


@pytest.mark.parametrize(
    ("payload", "condition"),
    [
        (jingle("session-initiate"), "service-unavailable"),
        ("<si xmlns='http://jabber.org/protocol/si' id='a' profile='p'/>", "forbidden"),
        (
            "<open xmlns='http://jabber.org/protocol/ibb' sid='a' block-size='4096'/>",
            "not-acceptable",
        ),
        (f"<query xmlns='jabber:iq:oob'><url>{URL}</url></query>", "not-acceptable"),
    ],
)
async def test_what_a_client_offers_is_refused_with_one_sentence(
    tmp_path: Path, payload: str, condition: str
) -> None:
    async with service(tmp_path) as kit:
        juliet = kit.peer(JULIET)
        for _ in range(3):
            answer = await juliet.iq("set", payload)
            assert answer.error().condition == condition
        (said,) = heard(juliet)
        assert said.startswith("I can't take files or calls that your client offers")


async def test_an_action_of_no_session_is_an_error_without_a_sentence(tmp_path: Path) -> None:
    async with service(tmp_path) as kit:
        juliet = kit.peer(JULIET)
        answer = await juliet.iq("set", jingle("session-info"))
        assert answer.error().condition == "item-not-found"
        assert heard(juliet) == []


PROPOSAL = "<propose xmlns='urn:xmpp:jingle-message:0' id='c1'>{}</propose>"
CALL = "<description xmlns='urn:xmpp:jingle:apps:rtp:1' media='audio'/>"


@pytest.mark.parametrize(
    ("offer", "reject"),
    [
        (PROPOSAL.format(CALL), jingle_messages.Reject),
        (
            "<invite xmlns='urn:xmpp:call-invites:0' video='true'><jingle sid='s'/></invite>",
            call_invites.Reject,
        ),
    ],
)
async def test_a_call_is_rejected_so_that_it_does_not_ring_for_ever(
    tmp_path: Path, offer: str, reject: type[jingle_messages.Reject | call_invites.Reject]
) -> None:
    async with service(tmp_path, QUIET) as kit:
        juliet = kit.peer(JULIET)
        for _ in range(2):
            await juliet.send(f"<message to='{AGENT}' type='chat' id='c1'>{offer}</message>")
            answer = await juliet.receive(lambda one: reject.xml.tag in one.child_names)
            assert (answer.to, answer.require(reject).id) == (JULIET, "c1")
        await kit.settled()
        (said,) = heard(juliet)
        assert said.startswith("I can't take files or calls")


@pytest.mark.parametrize("action", ["retract", "accept", "proceed", "finish", "ringing"])
async def test_what_follows_a_call_is_ignored(tmp_path: Path, action: str) -> None:
    async with service(tmp_path, QUIET) as kit:
        juliet = kit.peer(JULIET)
        content = f"<{action} xmlns='urn:xmpp:jingle-message:0' id='c1'/>"
        await juliet.send(f"<message to='{AGENT}' type='chat' id='c2'>{content}</message>")
        await kit.settled()
        assert juliet.take() == []

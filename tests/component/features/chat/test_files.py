"""Offers of clients are refused, and the sender is told once."""

from pathlib import Path
from typing import Any

import pytest

from tests.kit import AGENT, Peer, anyio_backend, service
from tests.kit.xmpp import body
from xep import call_invites, jingle_messages

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

JULIET = "juliet@capulet.example/balcony"
URL = "https://upload.capulet.example/1/cat.jpg"
QUIET: dict[str, Any] = {"agent": {"notice": ""}}


def jingle(action: str) -> str:
    """Return an action of a session for a file."""
    return (
        f"<jingle xmlns='urn:xmpp:jingle:1' action='{action}' sid='s'>"
        "<content creator='initiator' name='f'>"
        "<description xmlns='urn:xmpp:jingle:apps:file-transfer:5'/></content></jingle>"
    )


def heard(peer: Peer) -> list[str]:
    """Return the bodies that have arrived since the last call."""
    return [body(one) for one in peer.take() if body(one)]


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

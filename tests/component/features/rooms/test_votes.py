"""A room that decides a question is also one in which the agent talks."""

from pathlib import Path
from typing import Any

import pytest

from tests.component.features.questions.test_room_questions import (
    FLUUX,
    ROOM,
    done,
    pay,
    rule,
    stanza_id,
)
from tests.component.features.rooms.lobby import spoken
from tests.kit import Script, anyio_backend, call, service
from tests.kit.rooms import Rooms
from xep.fluux_agent.confirm import Confirm

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("answer", ["mention", "always"])
async def test_a_vote_in_words_is_not_a_message_to_the_agent(tmp_path: Path, answer: Any) -> None:
    done.clear()
    room = {"jid": ROOM, "nick": "assistant", "answer": answer}
    settings = rule(need=2) | {"rooms": [room]}
    model = Script("You are welcome.")
    async with service(tmp_path, settings, skills=[pay], model=model) as kit:
        ops = Rooms(kit.xmpp).create("ops")
        ops.shows_accounts = True
        alice = kit.peer("alice@capulet.example/desk")
        bob = kit.peer("bob@capulet.example/desk")
        await ops.enter(alice, "alice", affiliation="admin")
        await ops.enter(bob, "bob", affiliation="admin")
        await kit.advance(20)
        assert "assistant" in ops.occupants
        juliet = kit.peer("juliet@capulet.example/balcony")
        await juliet.iq(
            "set",
            f"<execute xmlns='{FLUUX}#execute' skill='pay' mode='async'>"
            "<params type='application/json'>{\"amount\": 5}</params></execute>",
        )
        asked = await alice.receive(lambda each: each.payload(Confirm) is not None)
        reply = f"<reply xmlns='urn:xmpp:reply:0' id='{stanza_id(asked)}' to='{ROOM}/assistant'/>"
        await ops.say(alice, "yes", reply)
        await kit.advance(5)
        assert done == []
        await ops.say(bob, "yes", reply)
        await kit.advance(5)
        assert done == ["paid 5"]
        assert model.requests == []
        await ops.say(bob, "assistant: thank you", reply)
        await bob.hear("You are welcome.")


async def test_a_room_that_is_asked_is_not_told_that_somebody_is_asked(tmp_path: Path) -> None:
    done.clear()
    room = {"jid": ROOM, "nick": "assistant"}
    settings = rule(need=2) | {"rooms": [room]}
    model = Script(call("pay", amount=5), "It is paid.")
    async with service(tmp_path, settings, skills=[pay], model=model) as kit:
        ops = Rooms(kit.xmpp).create("ops")
        ops.shows_accounts = True
        alice = kit.peer("alice@capulet.example/desk")
        bob = kit.peer("bob@capulet.example/desk")
        await ops.enter(alice, "alice", affiliation="admin")
        await ops.enter(bob, "bob", affiliation="admin")
        await kit.advance(20)
        await ops.say(alice, "assistant: pay five")
        asked = await alice.receive(lambda each: each.payload(Confirm) is not None)
        for peer in (alice, bob):
            await ops.say(
                peer,
                "",
                f"<reactions xmlns='urn:xmpp:reactions:0' id='{stanza_id(asked)}'>"
                "<reaction>\U0001f44d</reaction></reactions>",
            )
        await bob.hear("It is paid.")
        said = [body for nick, body in spoken(bob) if nick == "assistant"]
    assert done == ["paid 5"]
    assert not any("I have asked for it" in one for one in said)
    assert said[0].startswith("For alice@capulet.example: May I run pay")

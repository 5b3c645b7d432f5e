"""Invitations: those of the right people are accepted and remembered, others are declined."""

from pathlib import Path

import pytest

from component.features.rooms import rows
from tests.component.features.rooms.lobby import spoken
from tests.kit import Kit, Peer, Script, anyio_backend, service
from tests.kit.rooms import Room, Rooms
from xep.muc import USER

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

ADMINS = '[agent]\nname = "FluuxBot"\nadmins = ["juliet@capulet.example"]\n'
GARDEN = "garden@rooms.capulet.example"
NICK = "FluuxBot"


async def invite(peer: Peer, room: str = GARDEN, more: str = "") -> None:
    """Invite the agent directly (XEP-0249)."""
    await peer.send(
        f"<message to='agent.capulet.example' id='i1'><x xmlns='jabber:x:conference'"
        f" jid='{room}' reason='Come!'{more}/></message>"
    )


async def garden(kit: Kit, name: str = "garden") -> tuple[Room, Peer]:
    rooms = Rooms(kit.xmpp)
    room = rooms.create(name)
    juliet = kit.peer("juliet@capulet.example/balcony")
    await room.enter(juliet, "Juliet")
    return room, juliet


async def test_an_admin_invites_it_and_it_stays_silently(tmp_path: Path) -> None:
    async with service(tmp_path, ADMINS, model=Script("Hello.", "Again.")) as kit:
        room, juliet = await garden(kit)
        await invite(juliet)
        await kit.advance(5)
        assert NICK in room.occupants
        assert spoken(juliet) == []
        await room.say(juliet, f"{NICK}: hello")
        await juliet.hear("Hello.")
        await kit.restart()
        await kit.advance(400)
        assert NICK in room.occupants
        await room.say(juliet, f"{NICK}: hello again")
        await juliet.hear("Again.")


@pytest.mark.parametrize(
    ("accept", "who", "comes"),
    [
        ("admins", "juliet@capulet.example", True),
        ("admins", "nurse@capulet.example", False),
        ("admitted", "nurse@capulet.example", True),
        ("admitted", "tybalt@montague.example", False),
        ("nobody", "nurse@capulet.example", False),
        ("nobody", "juliet@capulet.example", True),
    ],
)
async def test_the_policy_says_whose_invitations_are_accepted(
    tmp_path: Path, accept: str, who: str, comes: bool
) -> None:
    settings = f'{ADMINS}[room_invitations]\naccept = "{accept}"\n'
    async with service(tmp_path, settings) as kit:
        room, _ = await garden(kit)
        person = kit.peer(f"{who}/x")
        await invite(person)
        await invite(person)
        await kit.advance(5)
        assert (NICK in room.occupants) == comes
        answers = [each.text_of("body") for each in person.stanzas if each.kind == "message"]
        if comes or who.startswith("tybalt"):
            assert answers == []
        else:
            assert len(answers) == 1, "a reason is given once a minute"


async def test_only_rooms_of_certain_servers_and_not_too_many(tmp_path: Path) -> None:
    settings = f'{ADMINS}[room_invitations]\nservers = ["rooms.capulet.example"]\nmost = 1\n'
    async with service(tmp_path, settings) as kit:
        _, juliet = await garden(kit)
        await invite(juliet, "garden@elsewhere.example")
        await juliet.hear("rooms of these servers only: rooms.capulet.example")
        await kit.advance(61)
        await invite(juliet)
        await kit.advance(5)
        await invite(juliet, "other@rooms.capulet.example")
        await juliet.hear("in 1 rooms already")
        await kit.advance(61)
        await invite(juliet, "agent.capulet.example")
        await juliet.hear("is not the address of a room")


async def test_the_inviter_is_told_why_it_cannot_come(tmp_path: Path) -> None:
    async with service(tmp_path, ADMINS) as kit:
        room, juliet = await garden(kit)
        room.members_only = True
        await invite(juliet)
        assert "only members may join" in await juliet.hear("I can't enter garden@")


async def test_an_invitation_that_a_room_passes_on_proves_nothing(tmp_path: Path) -> None:
    async with service(tmp_path, ADMINS) as kit:
        rooms = Rooms(kit.xmpp)
        room = rooms.create("garden")
        juliet = kit.peer("juliet@capulet.example/balcony")
        invitation = (
            f"<message from='{GARDEN}' to='agent.capulet.example' id='i1'>"
            f"<x xmlns='{USER}'><invite from='juliet@capulet.example/x'><reason>Come!</reason>"
            f"</invite></x><x xmlns='jabber:x:conference' jid='{GARDEN}'/></message>"
        )
        rooms.say(invitation)
        said = await juliet.hear("directly")
        assert f"/room join {GARDEN}" in said
        await kit.advance(5)
        assert room.occupants == {}
        declined = [xml for way, xml in kit.stanzas if way == "received" and "<decline" in xml]
        assert len(declined) == 1


async def test_a_room_that_it_knows_may_call_it_back(tmp_path: Path) -> None:
    async with service(tmp_path, ADMINS) as kit:
        room, juliet = await garden(kit)
        await invite(juliet)
        await kit.advance(5)
        room.remove(NICK, 307)
        await kit.advance(600)
        assert NICK not in room.occupants
        room._service.say(
            f"<message from='{GARDEN}' to='assistant@agent.capulet.example' id='i1'>"
            f"<x xmlns='{USER}'><invite from='{GARDEN}/Juliet'/></x></message>"
        )
        await kit.advance(5)
        assert NICK in room.occupants


async def test_who_invited_it_is_forgotten_and_the_room_is_not(tmp_path: Path) -> None:
    async with service(tmp_path, ADMINS, model=Script("Hello.")) as kit:
        room, juliet = await garden(kit)
        await invite(juliet)
        await kit.advance(5)
        await juliet.say("/forget")
        await kit.advance(5)
        (row,) = await kit.kernel.storage.read(rows.all_rows)
        assert row.inviter == ""
        assert "has invited me" not in await juliet.ask("/room", GARDEN)
        await kit.restart()
        await kit.advance(400)
        assert NICK in room.occupants

"""The rooms of the kit behave as those of servers."""

from pathlib import Path

import pytest

from component.kernel.rooms.membership import Membership, Stay
from component.kernel.rooms.occupants import Change, Joined, Moved, Out
from tests.kit import Kit, anyio_backend, service
from tests.kit.rooms import Rooms, Server
from xep.jid import JID

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio


async def enter(kit: Kit, room: JID) -> tuple[Membership, list[Change]]:
    """Let the agent enter a room; return its membership, and the changes from now on."""
    changes: list[Change] = []
    agent = kit.kernel.stream.addresses.default
    stay = Stay(lambda _, change: changes.append(change), nick="Agent")
    member = kit.kernel.rooms.enter(agent, room, "test", stay)
    await kit.settled()
    return member, changes


@pytest.mark.parametrize("server", ["prosody", "ejabberd"])
async def test_an_agent_sees_who_is_in_a_room(tmp_path: Path, server: Server) -> None:
    async with service(tmp_path) as kit:
        room = Rooms(kit.xmpp, server=server).create("lobby")
        juliet = kit.peer("juliet@capulet.example/balcony")
        await room.enter(juliet, "Juliet")
        member, changes = await enter(kit, room.jid)
        assert member.is_in
        romeo = kit.peer("romeo@capulet.example/orchard")
        await room.enter(romeo, "Romeo", affiliation="admin")
        await room.leave(juliet)
        room.remove("Agent", 307)
        await kit.settled()
        assert not member.is_in
    joined, entered, left, out = changes
    assert isinstance(joined, Joined)
    assert [one.nick for one in joined.occupants] == ["Juliet"]
    assert isinstance(entered, Moved)
    assert (entered.what, entered.occupant.affiliation) == ("joined", "admin")
    assert isinstance(left, Moved)
    assert (left.what, left.occupant.nick) == ("left", "Juliet")
    assert isinstance(out, Out)
    assert out.reason == "the agent was kicked"


async def test_occupants_hear_each_other_with_the_ids_of_the_room(tmp_path: Path) -> None:
    async with service(tmp_path) as kit:
        room = Rooms(kit.xmpp).create("lobby")
        juliet = kit.peer("juliet@capulet.example/balcony")
        romeo = kit.peer("romeo@capulet.example/orchard")
        await room.enter(juliet, "Juliet")
        await room.enter(romeo, "Romeo")
        await room.say(juliet, "Wherefore art thou?")
        heard = await romeo.receive(lambda one: one.text_of("body") == "Wherefore art thou?")
        assert heard.sender == "lobby@rooms.capulet.example/Juliet"
        assert "{urn:xmpp:sid:0}stanza-id" in heard.child_names
        assert "{urn:xmpp:occupant-id:0}occupant-id" in heard.child_names
        await room.whisper(romeo, "Juliet", "Here.")
        assert await juliet.hear("Here.") == "Here."


async def test_a_room_that_does_not_exist_is_not_created(tmp_path: Path) -> None:
    async with service(tmp_path) as kit:
        rooms = Rooms(kit.xmpp)
        member, changes = await enter(kit, JID.parse("nowhere@rooms.capulet.example"))
        assert not rooms.rooms
        assert member.state == "out"
        assert [one.reason for one in changes if isinstance(one, Out)] == ["there is no such room"]


@pytest.mark.parametrize("server", ["prosody", "ejabberd"])
async def test_the_accounts_are_known_when_a_room_begins_to_show_them(
    tmp_path: Path, server: Server
) -> None:
    async with service(tmp_path) as kit:
        room = Rooms(kit.xmpp, server=server).create("lobby")
        juliet = kit.peer("juliet@capulet.example/balcony")
        await room.enter(juliet, "Juliet")
        member, changes = await enter(kit, room.jid)
        before = member.occupant("Juliet")
        assert before is not None
        assert not before.jid
        room.show_accounts()
        await kit.settled()
        after = member.occupant("Juliet")
        assert after is not None
        assert after.jid == "juliet@capulet.example"
        assert after.visit == before.visit
        assert member.is_in
    assert [one.what for one in changes if isinstance(one, Moved)] == ["changed"]

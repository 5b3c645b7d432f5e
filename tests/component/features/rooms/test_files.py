"""Files in rooms: which file a question is about, and who has it afterwards."""

from pathlib import Path

import pytest

from tests.component.features.files.sending import PNG, images, uploading
from tests.component.features.rooms.lobby import NICK, ROOM
from tests.kit import Kit, Peer, Script, anyio_backend
from tests.kit.rooms import Room, Rooms

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

SECTIONS = {"rooms": [{"jid": ROOM, "nick": NICK}]}


def link(url: str) -> str:
    return f"<x xmlns='jabber:x:oob'><url>{url}</url></x>"


def stored_for(directory: Path) -> set[str]:
    """Return the names of the directories of people and rooms that have files."""
    files = [file for file in directory.rglob("files/*") if file.is_file()]
    return {file.parent.parent.name for file in files}


async def entered(kit: Kit) -> tuple[Room, Peer, Peer]:
    """Let two people enter the room of the agent."""
    room = Rooms(kit.xmpp).create("lobby")
    juliet = kit.peer("juliet@capulet.example/balcony")
    romeo = kit.peer("romeo@montague.example/garden")
    await room.enter(juliet, "Juliet")
    await room.enter(romeo, "Romeo")
    await kit.advance(20)
    assert NICK in room.occupants
    return room, juliet, romeo


async def test_a_file_belongs_to_the_next_question_of_its_sender(tmp_path: Path) -> None:
    model = Script("I see nothing.", "A cat.", "A question without a file.")
    async with uploading(tmp_path, {"cat.png": PNG}, model, sections=SECTIONS) as (kit, uploads):
        room, juliet, romeo = await entered(kit)
        url = uploads.url("cat.png")
        await room.say(juliet, url, link(url))
        await room.say(romeo, f"{NICK}: what is that?")
        await romeo.hear("I see nothing.")
        assert images(model.requests[0]) == []
        await room.say(juliet, f"{NICK}: what is that?")
        await juliet.hear("A cat.")
        assert images(model.requests[1]) == [PNG]
        await room.say(romeo, f"{NICK}: and this?")
        await romeo.hear("A question without a file.")
    assert stored_for(tmp_path) == {ROOM}


async def test_a_reply_asks_about_the_file_of_somebody_else(tmp_path: Path) -> None:
    model = Script("A cat.")
    async with uploading(tmp_path, {"cat.png": PNG}, model, sections=SECTIONS) as (kit, uploads):
        room, juliet, romeo = await entered(kit)
        url = uploads.url("cat.png")
        sent = await room.say(juliet, url, link(url))
        await kit.advance(600)
        reply = f"<reply xmlns='urn:xmpp:reply:0' to='{ROOM}/Juliet' id='{sent}'/>"
        await room.say(romeo, f"{NICK}: what is that?", reply)
        await romeo.hear("A cat.")
        assert images(model.requests[0]) == [PNG]


async def test_a_file_of_a_private_message_is_of_that_occupant(tmp_path: Path) -> None:
    model = Script("A cat.", "I see nothing.")
    async with uploading(tmp_path, {"cat.png": PNG}, model, sections=SECTIONS) as (kit, uploads):
        room, juliet, romeo = await entered(kit)
        url = uploads.url("cat.png")
        await juliet.send(
            f"<message to='{ROOM}/{NICK}' type='chat' id='f1'><body>{url}</body>{link(url)}"
            "<x xmlns='http://jabber.org/protocol/muc#user'/></message>"
        )
        await juliet.hear("A cat.")
        assert images(model.requests[0]) == [PNG]
        await room.say(romeo, f"{NICK}: what is that?")
        await romeo.hear("I see nothing.")
        assert "cat.png" not in model.asked

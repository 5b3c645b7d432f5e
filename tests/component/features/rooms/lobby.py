"""A service whose agent is in a room, with people in the same room."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from component.skills import Skill
from tests.kit import Kit, Peer, Script, service
from tests.kit.rooms import Room, Rooms
from xep.stanza import Incoming

ROOM = "lobby@rooms.capulet.example"
NICK = "FluuxBot"


class Lobby(msgspec.Struct, eq=False):
    """The service, the room and two people in it."""

    kit: Kit
    rooms: Rooms
    room: Room
    juliet: Peer
    romeo: Peer

    @property
    def model(self) -> Script:
        assert self.kit.model is not None
        return self.kit.model

    def said(self) -> list[str]:
        """Return what the agent has said to all so far, besides reactions."""
        return [body for nick, body in spoken(self.juliet) if nick == NICK]

    async def again(self) -> None:
        """Wait until the agent is in the room again."""
        await self.kit.advance(400)
        assert NICK in self.room.occupants


def spoken(peer: Peer) -> list[tuple[str, str]]:
    """Return who has said what to all, as a client has got it."""
    return [
        ((stanza.sender or "").partition("/")[2], stanza.text_of("body") or "")
        for stanza in peer.stanzas
        if stanza.kind == "message" and stanza.type == "groupchat" and stanza.text_of("body")
    ]


def from_room(peer: Peer, nick: str = NICK) -> list[Incoming]:
    """Return the private messages of an occupant that a client has got."""
    return [
        stanza
        for stanza in peer.stanzas
        if stanza.kind == "message" and stanza.type == "chat" and stanza.sender == f"{ROOM}/{nick}"
    ]


@asynccontextmanager
async def lobby(
    directory: Path,
    model: Script | None,
    more: str = "",
    *,
    room: str = "",
    server: Any = "prosody",
    skills: Sequence[Skill] = (),
    seed: int = 0,
) -> AsyncIterator[Lobby]:
    """Run a service whose agent is in the lobby; `room` are more keys of its section."""
    settings = f'{more}\n[[rooms]]\njid = "{ROOM}"\nnick = "{NICK}"\n{room}\n'
    async with service(directory, settings, model=model, skills=skills, seed=seed) as kit:
        rooms = Rooms(kit.xmpp, server=server)
        made = rooms.create("lobby")
        juliet = kit.peer("juliet@capulet.example/balcony")
        romeo = kit.peer("romeo@montague.example/garden")
        await made.enter(juliet, "Juliet")
        await made.enter(romeo, "Romeo")
        await kit.advance(20)
        assert NICK in made.occupants
        yield Lobby(kit, rooms, made, juliet, romeo)

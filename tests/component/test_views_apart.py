"""What one person or one room sees of an agent does not depend on what others do.

The same person and the same room talk with the agent twice: alone, and beside nine other rooms and
a hundred other people. What the model is shown for them, and what they receive, is compared byte
for byte. Only random identifiers and the time may differ.
"""

import re
from pathlib import Path

import pytest

from component.models.protocol import Completion, ModelRequest
from tests.kit import Kit, Peer, Script, anyio_backend, call, service
from tests.kit.rooms import DOMAIN, Room, Rooms

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

NICK = "FluuxBot"
ROOMS = 10
PEOPLE = 100
_RANDOM = re.compile(r"[0-9a-f]{12,}(?:-[0-9a-f-]+)?|call-\d+|(?<=id=')s\d+(?=')")
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z?)?"
    r"|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
)


def plain(text: str) -> str:
    """Replace times, and random identifiers by their order."""
    seen: dict[str, str] = {}

    def numbered(found: re.Match[str]) -> str:
        return seen.setdefault(found[0], f"#{len(seen) + 1}")

    return _RANDOM.sub(numbered, _TIME.sub("TIME", text))


def answer(request: ModelRequest) -> Completion | str:
    """Look into the memory where that is asked for; else repeat what the model was shown."""
    asked = next(one.text for one in reversed(request.messages) if one.role == "user")
    last = request.messages[-1]
    if "remember" in asked and last.role != "tool":
        return call("memory_store", key="note", body=asked.rsplit("remember ", 1)[1])
    if "what do you know" in asked and last.role != "tool":
        return call("memory_search", query="mine secret key ball nine mat")
    known = "" if last.role != "tool" else f" I have {last.parts}"
    return f"You said: {asked.rsplit(chr(10), 1)[-1]}.{known}"


class World:
    """A service in rooms, with the person and the room that are compared."""

    def __init__(self, kit: Kit, rooms: Rooms) -> None:
        self.kit = kit
        self.rooms = [rooms.create(f"room{number}") for number in range(ROOMS)]
        self.alice = kit.peer("alice@capulet.example/home")
        self.occupants = [
            kit.peer(f"{name}@montague.example/here") for name in ("juliet", "romeo", "alice")
        ]

    async def tell(self, peer: Peer, text: str) -> None:
        await peer.say(text)
        await peer.hear(text)

    async def talk(self, room: Room, peer: Peer, text: str) -> None:
        await room.say(peer, f"{NICK}: {text}")
        await peer.hear(f"You said: {text}")

    async def other(self, number: int) -> None:
        """Let somebody else talk, in another room and directly."""
        name = f"other{number}"
        peer = self.kit.peer(f"{name}@capulet.example/home")
        await self.tell(peer, f"my secret is {name}")
        await self.tell(peer, f"remember {name} is mine")
        if number % (PEOPLE // (ROOMS - 1)) == 0:
            room = self.rooms[1 + number // (PEOPLE // (ROOMS - 1)) % (ROOMS - 1)]
            await room.enter(peer, f"Other {number}")
            await room.say(peer, f"this room does not know {name}")
            await self.talk(room, peer, f"remember {name} is of this room")


async def views(directory: Path, *, beside: bool) -> tuple[str, str]:
    """Return what is shown for Alice and to her, and for one room and to its occupants."""
    model = Script(otherwise=answer)
    sections = {
        "agent": {"allowed_domains": ["capulet.example", "montague.example"]},
        "rooms": [
            {"jid": f"room{number}@{DOMAIN}", "nick": NICK, "read_only": False}
            for number in range(ROOMS)
        ],
    }
    async with service(directory, sections, model=model) as kit:
        world = World(kit, Rooms(kit.xmpp))
        room, alice = world.rooms[0], world.alice
        for peer, nick in zip(world.occupants, ("Juliet", "Romeo", "Alice"), strict=True):
            await room.enter(peer, nick)
        await kit.advance(400)
        assert all(NICK in each.occupants for each in world.rooms)
        others = iter(range(PEOPLE if beside else 0))

        async def others_talk(count: int) -> None:
            for number, _ in zip(others, range(count), strict=False):
                await world.other(number)

        juliet, romeo, namesake = world.occupants
        await others_talk(25)
        await world.tell(alice, "good morning")
        await world.tell(alice, "remember the key is under the mat")
        await others_talk(25)
        await room.say(romeo, "what a night")
        await world.talk(room, juliet, "remember the ball is at nine")
        await world.talk(room, namesake, "what do you know of the key")
        await others_talk(25)
        await world.tell(alice, "what do you know about me")
        await world.talk(room, romeo, "what do you know about us")
        await others_talk(25)
        await room.whisper(romeo, NICK, "and between us")
        await romeo.hear("and between us")
        await alice.say("/memory")
        await alice.hear("note")
        await kit.advance(1)
    asked = [str(one) for one in model.requests]
    mine = [one for one in asked if str(alice.jid.bare) in one]
    rooms = [one for one in asked if str(room.jid) in one]
    assert not set(mine) & set(rooms)
    assert (len(mine), len(rooms)) == (5, 7)
    heard = [stanza.forward() for stanza in alice.stanzas]
    there = [stanza.forward() for each in world.occupants for stanza in each.stanzas]
    return plain("\n".join((*mine, *heard))), plain("\n".join((*rooms, *there)))


async def test_a_person_and_a_room_see_the_same_whoever_else_talks(tmp_path: Path) -> None:
    alone = await views(tmp_path / "alone", beside=False)
    beside = await views(tmp_path / "beside", beside=True)
    for view in beside:
        assert "other" not in view.replace("another", "").replace("others", "")
    assert "the mat" not in beside[1]
    assert "the ball" not in beside[0]
    for first, second in zip(alone, beside, strict=True):
        for number, (one, two) in enumerate(
            zip(first.split("\n"), second.split("\n"), strict=False)
        ):
            assert one == two, f"line {number}"
        assert first == second

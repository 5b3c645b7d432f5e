"""The scene of rooms: one in which people and an agent are, whose model is scripted."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.component.models.endpoint import Answer, Calls, Request, Text
from tests.docs.clients.client import Client
from tests.servers.base import Server
from tests.servers.chatting import Chat, chatting
from tests.servers.room_people import Occupant, entered

NICK = "Assistant"
OTHER = "Romeo"
PICTURE = Path(__file__).with_name("river.png")
SKILLS = '''
from pathlib import Path
import anyio
from component.skills import File, skill

@skill(read_only=True, open_world=False)
def weather(city: str) -> str:
    """Say how the weather is in a city."""
    return f"Sunny in {city}."

@skill(read_only=True, open_world=False)
async def walk(way: str) -> str:
    """Walk, which takes until one is stopped."""
    Path("walk.begun").touch()
    await anyio.sleep_forever()

@skill(name="open-gate", title="Open the gate", question="May I open the gate {gate}?")
def open_gate(gate: str) -> str:
    """Open a gate."""
    with Path("gates").open("a") as gates:
        gates.write(gate + "\\n")
    return f"The gate {gate} is open."

@skill(name="draw-map", read_only=True, open_world=False)
def draw_map(place: str) -> File:
    """Draw a map."""
    return File(Path("map.png").read_bytes(), "image/png", f"{place}.png")
'''


class Play:
    """Who is there.

    Attributes:
        person: the client of the person.
        other: another occupant of the room, whose account has opened it.
        chat: the service.
    """

    def __init__(self, person: Client, other: Occupant, chat: Chat) -> None:
        self.person = person
        self.other = other
        self.chat = chat

    def asked(self) -> int:
        """Return how often the model was asked."""
        return len(self.chat.model.requests)


def says(request: Request) -> Answer:
    """What the model makes of the newest message."""
    newest = request.messages[-1]
    text = str(newest.get("content"))
    sees = "image_url" in text
    # The images of a result follow it in a message of their own.
    if newest["role"] == "tool" or (sees and request.messages[-2]["role"] == "tool"):
        for city in ("Verona", "Venice"):
            if f"Sunny in {city}" in text:
                return Text(f"It is sunny in {city}{', too' if city == 'Venice' else ''}.")
        return Text("The gate North is open." if "is open" in text else "Here is the map.")
    if sees:
        return Text("A white river between green hills.")
    wanted = text.rpartition("\n\n")[2]
    for word, call in _CALLS.items():
        if word in wanted:
            return Calls(call)
    return Text("Good evening!")


_CALLS: dict[str, tuple[str, dict[str, object]]] = {
    "Venice": ("weather", {"city": "Venice"}),
    "weather": ("weather", {"city": "Verona"}),
    "lake": ("walk", {"way": "around the lake"}),
    "gate": ("open-gate", {"gate": "North"}),
    "map of Verona": ("draw-map", {"place": "Verona"}),
    "map of Padua": ("draw-map", {"place": "Padua"}),
}


@contextmanager
def garden(
    directory: Path, server: Server, name: str = "garden"
) -> Iterator[tuple[Chat, Occupant, str]]:
    """A room in which the agent is, for the time of the context: the service, its owner, and its
    address.
    """
    room = f"{name}@conference.{server.host}"
    home = directory / "agent"
    home.mkdir()
    shutil.copy(PICTURE.with_name("map.png"), home)
    settings: dict[str, object] = {
        "agent__name": NICK,
        "llm__vision": True,
        # Scenarios ask more in a minute than a person does.
        "rooms": [
            {"jid": room, "nick": NICK, "answers_per_minute": 100, "answers_per_occupant": 100}
        ],
        "policy__rules": [
            {
                "skills": ["open-gate"],
                "approvers": [f"room:{room}"],
                "affiliation": "none",
                "need": 2,
            }
        ],
    }
    with pytest.MonkeyPatch.context() as patch, entered(server, room, romeo=OTHER) as (romeo,):
        romeo.configure(whois="anyone", persistentroom="1", roomname="Garden")
        patch.setenv("SSL_CERT_FILE", str(server.ca_file))
        with chatting(server, home, skills=SKILLS, **settings) as chat:
            chat.model.otherwise = says
            romeo.sees(NICK)
            yield chat, romeo, room

"""Plays scenes in rooms and chats with the agent, in real clients on a real server.

    make clients                                      # all
    python -m tests.docs.clients.scenarios converse   # those of one client

Each client does what it can: where it has no replies or reactions, the scene is played without. A
client that is missing is left out, and named.
"""

import argparse
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from tests.docs.clients import converse, dino, gajim, profanity
from tests.docs.clients.client import PERSON, Client, left_out
from tests.docs.clients.garden import NICK, PICTURE, Play, garden
from tests.docs.clients.scene import WebServer, web_server
from tests.servers.room_people import entered
from tests.servers.watching import wait_for


def answers_who_mentions_it(play: Play) -> None:
    """What is said to others is free, and a mention is answered, as a reply."""
    before = play.asked()
    play.person.say("What a beautiful evening in Verona!")
    play.other.hears("beautiful evening", by=PERSON)
    assert play.asked() == before
    play.person.mention(NICK, "how is the weather in Verona?")
    said = play.other.hears("It is sunny in Verona.", by=NICK)
    assert said.find("{urn:xmpp:reply:0}reply") is not None
    play.person.shows("It is sunny in Verona.")
    assert play.asked() == before + 2


def answers_who_replies(play: Play) -> None:
    """A reply to the agent needs no nickname."""
    if "reply" in play.person.can:
        play.person.reply("It is sunny in Verona.", "And in Venice?")
        play.other.hears("It is sunny in Venice, too.", by=NICK)
        play.person.shows("It is sunny in Venice, too.")


def stops(play: Play) -> None:
    """Everybody can stop the agent, in a word."""
    begun = play.chat.agent.directory / "walk.begun"
    play.person.mention(NICK, "walk around the lake.")
    wait_for(begun.exists, bool)
    play.person.say("stop")
    play.other.hears("Stopped", by=NICK)
    play.person.shows("Stopped")


def two_decide(play: Play) -> None:
    """A question in the room needs the approval of two."""
    play.person.mention(NICK, "please open the gate North.")
    question = play.other.hears("May I open the gate", by=NICK)
    play.person.shows("May I open the gate")
    play.other.react(question, "👍")
    play.other.hears("1 of 2: approved by romeo", by=NICK)
    gates = play.chat.agent.directory / "gates"
    assert not gates.exists()
    if "react" in play.person.can:
        play.person.react("May I open the gate")
    else:  # the person takes another client for it
        with entered(play.chat.server, play.other.room, juliet="Phone") as (phone,):
            phone.react(question, "👍")
            wait_for(gates.exists, bool)
    wait_for(gates.exists, bool)
    assert gates.read_text() == "North\n"
    play.other.hears("The gate North is open", by=NICK)


def draws(play: Play) -> None:
    """A file of a skill is a file in the room, which some clients show between the messages."""
    play.person.mention(NICK, "draw a map of Verona.")
    drawn = play.other.hears("/Verona.png", by=NICK)
    url = drawn.findtext("{jabber:x:oob}x/{jabber:x:oob}url")
    assert drawn.findtext("{jabber:client}body") == url
    if "see in rooms" in play.person.can:
        play.person.shows_image("Verona.png")


def describes_to_all(play: Play) -> None:
    """A picture that a person has sent to the room is what a question is about."""
    play.person.send(PICTURE)
    play.other.hears("https://", by=PERSON)
    play.person.mention(NICK, "what do you see?")
    play.other.hears("A white river between green hills.", by=NICK)
    play.person.shows("A white river between green hills.")


def describes_a_picture(play: Play) -> None:
    """A picture that a person uploads is shown to the model."""
    play.person.send(PICTURE)
    play.person.shows("A white river between green hills.")


def draws_for_one(play: Play) -> None:
    """A file of a skill is a file in the chat, and an image is shown between the messages."""
    play.person.say("Draw a map of Padua.")
    play.person.shows("Here is the map.")
    if "see" in play.person.can:
        play.person.shows_image("Padua.png")


IN_ROOM = (
    *(answers_who_mentions_it, answers_who_replies, stops, two_decide, draws),
    describes_to_all,
)
IN_CHAT = (describes_a_picture, draws_for_one)


Opens = Callable[[WebServer, str, Path], AbstractContextManager[Client]]
CLIENTS: dict[str, tuple[Opens, Opens]] = {  # a room, a chat
    "converse": (converse.in_room, converse.in_chat),
    "dino": (dino.in_room, dino.in_chat),
    "gajim": (gajim.in_room, gajim.in_chat),
    "profanity": (profanity.in_room, profanity.in_chat),
}


PICTURES = {
    ("converse", answers_who_mentions_it): ("converse-room", "What a beautiful evening in Verona!"),
    ("converse", two_decide): ("converse-decision", "Assistant please open the gate North."),
    ("converse", draws): ("converse-map", "Assistant draw a map of Verona."),
    ("gajim", draws_for_one): ("gajim-map", ""),
    ("dino", describes_a_picture): ("dino-file", ""),
}
"""The pictures that are taken after a scene, and the first message that they show."""


def play(
    name: str, directory: Path, out: Path | None = None, *, server_name: str = "prosody"
) -> bool:
    """Play all scenes with a client, and take pictures if there is a directory for them; return
    whether all went well.
    """
    in_room, in_chat = CLIENTS[name]
    with (
        web_server(directory / "server", server_name) as server,
        garden(directory, server) as (chat, romeo, room),
    ):
        with in_room(server, room, directory / "room") as person:
            went_well = _play(name, IN_ROOM, Play(person, romeo, chat), out)
        with in_chat(server, chat.assistant, directory / "chat") as person:
            return _play(name, IN_CHAT, Play(person, romeo, chat), out) and went_well


def _play(
    client: str, scenes: tuple[Callable[[Play], None], ...], given: Play, out: Path | None
) -> bool:
    went_well = True
    for scene in scenes:
        name = f"{given.person.name} {scene.__name__.replace('_', ' ')}"
        try:
            scene(given)
            print(name, flush=True)
            if out is not None and (client, scene) in PICTURES:
                picture, first = PICTURES[client, scene]
                given.person.picture(out / f"{picture}.png", first)
        except (AssertionError, TimeoutError):
            went_well = False
            shown = Path(tempfile.gettempdir()) / f"{name.replace(' ', '-')}.png"
            given.person.picture(shown)
            print(f"FAILED: {name}, see {shown}", flush=True)
            traceback.print_exc()
    return went_well


def main() -> int:
    """Play the scenes of the clients that are named, of all if none is; 1 if one has failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clients", nargs="*", choices=[*CLIENTS, []], default=[])
    parser.add_argument("--server", choices=["prosody", "ejabberd"], default="prosody")
    given = parser.parse_args()
    went_well = True
    for name in given.clients or CLIENTS:
        if left_out(name):
            continue
        with tempfile.TemporaryDirectory() as directory:
            went_well &= play(name, Path(directory), server_name=given.server)
    return 0 if went_well else 1


if __name__ == "__main__":
    sys.exit(main())

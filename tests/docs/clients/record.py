"""Records what clients write on the wire in a room: a mention, a reply, a reaction, a file.

    python -m tests.docs.clients.record converse

The stanzas are those that reach another occupant of the room, whose nickname is that of an agent.
They are the facts behind the stanzas in tests/component/link/messages/clients/.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.docs.clients.client import Client, left_out
from tests.docs.clients.garden import NICK, PICTURE
from tests.docs.clients.scenarios import CLIENTS
from tests.docs.clients.scene import web_server
from tests.servers.clients import Element, SlixClient
from tests.servers.room_people import entered

LIMIT_S = 60.0
OWN = "An answer."
QUESTION = "May I do that?"


def record(person: Client, agent: SlixClient, room: str) -> None:
    """Have a person do all that the client can, and print what reaches the agent."""

    def came(what: str, tell: Callable[[Element], bool]) -> Element:
        stanza = agent.messages.take(tell, LIMIT_S)
        print(f"{what}: {ET.tostring(stanza, 'unicode')}", flush=True)
        return stanza

    def speak(text: str) -> None:
        agent.send_raw(
            f"<message to='{room}' type='groupchat' id='{text[:2]}'><body>{text}</body></message>"
        )
        person.shows(text)

    def has(words: str) -> Callable[[Element], bool]:
        return lambda stanza: words in (stanza.findtext("{jabber:client}body") or "")

    def holds(tag: str) -> Callable[[Element], bool]:
        return lambda stanza: stanza.find(tag) is not None

    person.say("Good evening")
    came("room", has("Good evening"))
    person.mention(NICK, "how are you?")
    came("mention", has("how are you"))
    speak(OWN)
    if "reply" in person.can:
        person.reply(OWN, "why so?")
        came("reply", has("why so"))
    speak(QUESTION)
    if "react" in person.can:
        person.react(QUESTION)
        came("reaction", holds("{urn:xmpp:reactions:0}reactions"))
    person.say("A mistake")
    came("room", has("A mistake"))
    if "retract" in person.can:
        person.retract("A mistake")
        came("retraction", holds("{urn:xmpp:message-retract:1}retract"))
    if "send" in person.can:
        person.send(PICTURE)
        came("file", holds("{jabber:x:oob}x"))
    if "see in rooms" in person.can:
        person.shows_image(PICTURE.name)


def main() -> None:
    """Record the clients that are named, all if none is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clients", nargs="*", choices=[*CLIENTS, []], default=[])
    for name in parser.parse_args().clients or CLIENTS:
        if left_out(name):
            continue
        in_room, _ = CLIENTS[name]
        with (
            tempfile.TemporaryDirectory() as directory,
            web_server(Path(directory) / "p") as server,
        ):
            room = f"garden@conference.{server.host}"
            home = Path(directory) / "home"
            with (
                entered(server, room, romeo=NICK) as (agent,),
                in_room(server, room, home) as person,
            ):
                record(person, agent.client, room)


if __name__ == "__main__":
    main()

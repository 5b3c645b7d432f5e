"""profanity in tmux."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docs.clients.client import PERSON, Client
from tests.docs.clients.terminal import Terminal
from tests.servers.base import Server


@contextmanager
def profanity(server: Server, home: Path) -> Iterator[Terminal]:
    """profanity after the login, for the time of the context."""
    home.mkdir()
    environment = {
        "HOME": str(home),
        "XDG_CONFIG_HOME": f"{home}/config",
        "XDG_DATA_HOME": f"{home}/data",
        "TERM": "screen-256color",
        "LC_ALL": "C.UTF-8",
        "LANG": "C.UTF-8",
    }
    with Terminal("profanity", home, environment) as screen:
        screen.shows("Type /help for help")
        screen.types("/time all set %H:%M")
        screen.types("/correction on")
        screen.types("/receipts request on")
        where = f"server {server.address} port {server.c2s_port} tls trust"
        screen.types(f"/connect {server.jid('juliet')} {where}", until="password")
        screen.types(server.accounts["juliet"], until="logged in successfully")
        yield screen


class ProfanityClient(Client):
    """A room or a chat in profanity."""

    name = "profanity"
    can = frozenset({"send"})

    def __init__(self, screen: Terminal) -> None:
        self._screen = screen

    def say(self, text: str) -> None:
        """Type a text and send it."""
        self._screen.types(text)

    def mention(self, nick: str, text: str) -> None:
        """Have a nickname completed with Tab, which adds a colon."""
        self._screen.completes(nick[:4], f"{nick}:")
        self._screen.types(text)

    def shows(self, words: str) -> None:
        """Wait until the screen shows these words."""
        self._screen.shows(words)

    def picture(self, file: Path, first: str = "") -> None:
        """Write the screen as a PNG."""
        self._screen.picture(file)

    def send(self, file: Path) -> None:
        """Upload a file and send it."""
        self._screen.types(f"/sendfile {file}")


@contextmanager
def in_room(server: Server, room: str, home: Path) -> Iterator[ProfanityClient]:
    """profanity with a room, for the time of the context."""
    with profanity(server, home) as screen:
        screen.types(f"/join {room} nick {PERSON}", until=f"You have joined the room as {PERSON}")
        yield ProfanityClient(screen)


@contextmanager
def in_chat(server: Server, contact: str, home: Path) -> Iterator[ProfanityClient]:
    """profanity with a chat with a contact, for the time of the context."""
    with profanity(server, home) as screen:
        screen.types(f"/msg {contact}", until=f"{contact}")
        yield ProfanityClient(screen)

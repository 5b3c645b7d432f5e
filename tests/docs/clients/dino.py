"""Dino under Xvfb: driven by the pointer and the keyboard, read from its own database.

Dino has no setting for where a server is, and trusts only the certificates of the system. So it
runs in a mount namespace with its own /etc/hosts, /etc/resolv.conf and list of certificates.
"""

import os
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from tests.docs.clients import window
from tests.docs.clients.accounts import add_contact, bookmark
from tests.docs.clients.client import Client
from tests.docs.clients.window import Window
from tests.servers.base import Server

WIDTH, HEIGHT = 900, 389
"""Pixels of Dino's window, which has its own mind about its height."""
ENTRY = (540, 350)
ASIDE = (150, 250)
"""Points in the window: where one types, and where nothing is."""
NEWEST = (600, 290)
"""A point on the newest message."""

_ADDRESS = "127.0.7.7"  # on the loopback interface, for the port that clients look for
_PORT = 5222
_SCRIPT = """
mount --bind "$1/hosts" /etc/hosts
mount --bind "$1/resolv.conf" /etc/resolv.conf
mount --bind "$1/certificates" /etc/ssl/certs/ca-certificates.crt
exec dbus-run-session -- sh -c '
  dino-im & while [ ! -e "$1/written" ]; do sleep 0.1; done; kill $!; wait; : > "$1/ended"
  while [ ! -e "$1/account" ]; do sleep 0.1; done
  dino-im & while [ ! -e "$1/open" ]; do sleep 0.1; done; dino-im "xmpp:$2"
  wait' sh "$1" "$2"
"""


class Dino(Window):
    """The window of Dino, with what one can do with the newest message."""

    def reply(self, text: str) -> None:
        """Reply to the newest message."""
        self.clicks(NEWEST, (825, self._top()))
        self.types(text)

    def react(self) -> None:
        """React with a thumb up to the newest message."""
        reactions = "SELECT 1 FROM reaction"
        before = self.count(reactions)

        def is_done() -> bool:
            top = self._top()
            self.clicks(NEWEST, (866, top + 8))
            self.types("thumbs up", send=False)
            time.sleep(2 * window.SETTLED_S)  # it searches
            self.clicks((544, top + 142))  # the first one that is found
            self.clicks(ENTRY)
            return self.count(reactions) > before

        window.await_(is_done, "it does not react")

    def _top(self) -> int:
        """Return where the newest message begins, whose background is darker under the pointer."""
        column: list[str] = []

        def is_under_the_pointer() -> bool:
            self.points(ASIDE)
            self.points(NEWEST)
            column[:] = self.column(310, HEIGHT)
            return column[NEWEST[1]] != column[NEWEST[1] + 35]

        window.await_(is_under_the_pointer, "no message is under the pointer")
        top = NEWEST[1]
        while column[top - 1] == column[top]:
            top -= 1
        return top


@contextmanager
def dino(server: Server, opened: str, directory: Path) -> Iterator[Dino]:
    """Dino with a chat, the path of whose URI is given, for the time of the context."""
    home = directory / "home"
    home.mkdir()
    (directory / "hosts").write_text(f"127.0.0.1 localhost\n{_ADDRESS} {server.host}\n")
    (directory / "resolv.conf").write_text(f"nameserver {_ADDRESS}\noptions timeout:1 attempts:1\n")
    trusted = window.CERTIFICATES.read_text() + server.ca_file.read_text()
    (directory / "certificates").write_text(trusted)
    database = home / "data" / "dino" / "dino.db"
    with ExitStack() as stack:
        stack.enter_context(_forwarding((_ADDRESS, _PORT), (server.address, server.c2s_port)))
        display = stack.enter_context(window.display(WIDTH))
        unshare = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--mount", "-r")
        command = (*unshare, "sh", "-c", _SCRIPT, "sh", str(directory), opened)
        given = window.environment(home, display)
        stack.enter_context(window.running(command, given, directory / "dino.log"))
        window.await_(
            lambda: bool(window.rows(database, "SELECT 1 FROM _meta")), "Dino has no database"
        )
        (directory / "written").touch()
        account = (server.jid("juliet"), "dino", server.accounts["juliet"], 1)
        insert = "INSERT INTO account (bare_jid, resourcepart, password, enabled) VALUES (?,?,?,?)"
        window.await_((directory / "ended").exists, "Dino does not end")
        with closing(sqlite3.connect(database)) as written, written:
            written.execute(insert, account)
        (directory / "account").touch()
        time.sleep(5)  # it has no way to say that it has logged in
        (directory / "open").touch()
        conversations = "SELECT 1 FROM conversation WHERE active = 1"
        window.await_(lambda: bool(window.rows(database, conversations)), "the chat does not open")
        time.sleep(window.SETTLED_S)
        messages = "SELECT 1 FROM message WHERE body LIKE ?"
        # The pointer leaves the messages, so that no actions are shown.
        yield Dino(display, database, messages, (WIDTH, HEIGHT), (NEWEST, ASIDE))


@contextmanager
def _forwarding(at: tuple[str, int], to: tuple[str, int]) -> Iterator[None]:
    """Passes what comes to one address on to another."""
    with socket.create_server(at) as listener:
        threading.Thread(target=_accept, args=(listener, to), daemon=True).start()
        yield
        listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, to: tuple[str, int]) -> None:
    with suppress(OSError):
        while True:
            here, _ = listener.accept()
            there = socket.create_connection(to)
            for pair in ((here, there), (there, here)):
                threading.Thread(target=_pump, args=pair, daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)


class DinoClient(Client):
    """A room or a chat in Dino."""

    name = "Dino 0.4"
    can = frozenset({"reply", "react", "send", "see"})

    def __init__(self, shown: Dino) -> None:
        self._window = shown

    def say(self, text: str) -> None:
        """Type a text and send it."""
        self._window.types(text)

    def mention(self, nick: str, text: str) -> None:
        """Have a nickname completed with Tab, which adds a comma."""
        self._window.types(nick[:4], send=False)
        self._window.press("Tab")
        self._window.types(text)

    def shows(self, words: str) -> None:
        """Wait until a message has these words in it."""
        self._window.shows(words)

    def picture(self, file: Path, first: str = "") -> None:
        """Write the window as a PNG."""
        self._window.picture(file)

    def reply(self, words: str, text: str) -> None:
        """Reply to the newest message."""
        self._window.reply(text)

    def react(self, words: str) -> None:
        """React to the newest message."""
        self._window.react()

    def send(self, file: Path) -> None:
        """Paste an image, confirm that it is to be sent, and remove what is pasted as a text."""
        self._window.copies(file, "image/png")
        self._window.press("ctrl+v")
        self._window.confirms("SELECT 1 FROM file_transfer")
        self._window.clicks(ENTRY)
        self._window.press("ctrl+a", "BackSpace")

    def shows_image(self, name: str) -> None:
        """Wait until a file has arrived."""
        complete = "SELECT 1 FROM file_transfer WHERE state = 0 AND file_name LIKE ?"
        self._window.finds(complete, f"%{name}")


@contextmanager
def in_room(server: Server, room: str, home: Path) -> Iterator[DinoClient]:
    """Dino with a room, for the time of the context."""
    home.mkdir()
    bookmark(server, room)
    with dino(server, f"{room}?join", home) as shown:
        time.sleep(2 * window.SETTLED_S)
        shown.press("Escape")  # it asks whether to join the room, and is there already
        shown.clicks(ENTRY)
        yield DinoClient(shown)


@contextmanager
def in_chat(server: Server, contact: str, home: Path) -> Iterator[DinoClient]:
    """Dino with a chat with a contact, for the time of the context."""
    home.mkdir()
    add_contact(server, contact)
    with dino(server, f"{contact}?message", home) as shown:
        shown.clicks(ENTRY)
        yield DinoClient(shown)

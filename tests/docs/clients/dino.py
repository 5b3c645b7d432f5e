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
from tests.docs.clients.window import Window
from tests.servers.base import Server

WIDTH, HEIGHT = 900, 389
"""Pixels of Dino's window, which has its own mind about its height."""
ENTRY = (540, 350)
ASIDE = (150, 250)
"""Points in the window: where one types, and where nothing is."""
QUESTION_LINES = 2
"""Lines that a question takes in the window."""
_TOP = 294 - 16 * QUESTION_LINES
LAST_QUESTION = (600, 290)
REPLY, REACT = (832, _TOP), (866, _TOP)
"""A question that is the newest message, and its actions while the pointer is on it."""
FIRST_FOUND_EMOJI = (544, _TOP + 134)

_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_ADDRESS = "127.0.7.7"  # on the loopback interface, for the port that clients look for
_PORT = 5222
_SCRIPT = """
mount --bind "$1/hosts" /etc/hosts
mount --bind "$1/resolv.conf" /etc/resolv.conf
mount --bind "$1/certificates" /etc/ssl/certs/ca-certificates.crt
exec dbus-run-session -- sh -c '
  dino-im & while [ ! -e "$1/written" ]; do sleep 0.1; done; kill $!; wait; : > "$1/ended"
  while [ ! -e "$1/account" ]; do sleep 0.1; done
  dino-im & while [ ! -e "$1/open" ]; do sleep 0.1; done; dino-im "xmpp:$2?message"
  wait' sh "$1" "$2"
"""


@contextmanager
def dino(server: Server, contact: str, directory: Path) -> Iterator[Window]:
    """Dino with the chat with a contact, for the time of the context."""
    home = directory / "home"
    home.mkdir()
    (directory / "hosts").write_text(f"127.0.0.1 localhost\n{_ADDRESS} {server.host}\n")
    (directory / "resolv.conf").write_text(f"nameserver {_ADDRESS}\noptions timeout:1 attempts:1\n")
    trusted = Path(_CERTIFICATES).read_text() + server.ca_file.read_text()
    (directory / "certificates").write_text(trusted)
    database = home / "data" / "dino" / "dino.db"
    with ExitStack() as stack:
        stack.enter_context(_forwarding((_ADDRESS, _PORT), (server.address, server.c2s_port)))
        display = stack.enter_context(window.display(WIDTH))
        unshare = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--mount", "-r")
        command = (*unshare, "sh", "-c", _SCRIPT, "sh", str(directory), contact)
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
        yield Window(display, database, messages, (WIDTH, HEIGHT), (LAST_QUESTION, ASIDE))


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

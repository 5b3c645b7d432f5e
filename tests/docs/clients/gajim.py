"""Gajim under Xvfb. It does not run as root, so for root it gets a user namespace of its own."""

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.docs.clients import window
from tests.docs.clients.accounts import add_contact, bookmark
from tests.docs.clients.client import Client
from tests.docs.clients.window import Window
from tests.servers.base import Server

WIDTH, HEIGHT = 1060, 560
"""Pixels of Gajim's window."""
ENTRY = (700, 535)
ASIDE = (250, 400)
"""Points in the window: where one types, and where nothing is."""
_SCRIPT = """
gajim & while [ ! -e "$1/open" ]; do sleep 0.1; done; gajim "xmpp:$2"; wait
"""
_TRUSTING = 'mount --bind "$1" /etc/ssl/certs/ca-certificates.crt; shift; exec "$@"'
_TABLES = """
CREATE TABLE settings (name TEXT UNIQUE, settings TEXT);
CREATE TABLE account_settings (account TEXT UNIQUE, settings TEXT);
PRAGMA user_version = 5;
"""


@contextmanager
def gajim(server: Server, opened: str, directory: Path) -> Iterator[Window]:
    """Gajim with a chat, the path of whose URI is given, for the time of the context."""
    home = directory / "home"
    trusted = home / "data" / "gajim" / "cert_store"
    trusted.mkdir(parents=True)
    shutil.copy(server.certificate, trusted)
    _write_settings(server, home / "config" / "gajim")
    certificates = directory / "certificates"
    certificates.write_text(window.CERTIFICATES.read_text() + server.ca_file.read_text())
    unshare = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--mount", "-r")
    trusting = (*unshare, "sh", "-c", _TRUSTING, "sh", str(certificates))
    mapped = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
    program = ("dbus-run-session", "--", "sh", "-c", _SCRIPT, "sh", str(directory), opened)
    database = home / "data" / "gajim" / "logs.db"
    with window.display(WIDTH) as display:
        given = window.environment(home, display)
        with window.running((*trusting, *mapped, *program), given, directory / "gajim.log"):
            window.await_(database.exists, "Gajim does not start")
            time.sleep(5)  # it has no way to say that it has logged in
            (directory / "open").touch()
            time.sleep(5 * window.SETTLED_S)
            messages = "SELECT 1 FROM logs WHERE message LIKE ?"
            shown = Window(display, database, messages, (WIDTH, HEIGHT), (ASIDE,))
            shown.press("Return")  # the contact is the first one that was found
            time.sleep(3 * window.SETTLED_S)
            yield shown


def _write_settings(server: Server, directory: Path) -> None:
    jid = server.jid("juliet")
    name, _, host = jid.partition("@")
    account = {
        "active": True,
        "name": name,
        "hostname": host,
        "password": server.accounts["juliet"],
        "savepass": True,
        "use_custom_host": True,
        "custom_host": server.address,
        "custom_port": server.c2s_port,
        "custom_type": "START TLS",
        "account_label": "juliet",
        "resource": "gajim",
    }
    size = {"mainwin_width": WIDTH, "mainwin_height": HEIGHT}
    workspace = {"name": "Chats", "color": "rgb(191,15,167)", "avatar_sha": None, "chats": []}
    settings = {
        "app": {"use_keyring": False, "check_for_update": False, "preview_size": 200, **size},
        "workspaces": {"0": workspace},
        **{name: {} for name in ("soundevents", "status_presets", "proxies", "plugins")},
    }
    directory.mkdir(parents=True)
    with closing(sqlite3.connect(directory / "settings.sqlite")) as written, written:
        written.executescript(_TABLES)
        each = [(name, json.dumps(values)) for name, values in settings.items()]
        written.executemany("INSERT INTO settings VALUES (?, ?)", each)
        whole = json.dumps({"account": account, "contact": {}, "group_chat": {}})
        written.execute("INSERT INTO account_settings VALUES ('juliet', ?)", (whole,))


class GajimClient(Client):
    """A room or a chat in Gajim."""

    name = "Gajim"
    can = frozenset({"send", "see"})

    def __init__(self, shown: Window, home: Path) -> None:
        self._window = shown
        self._thumbnails = home / "home" / "cache" / "gajim" / "downloads.thumb"

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

    def send(self, file: Path) -> None:
        """Paste a file, and confirm that it is to be sent."""
        self._window.copies(file, "text/uri-list")
        self._window.press("ctrl+v")
        self._window.confirms("SELECT 1 FROM logs WHERE message LIKE 'https:%'")

    def shows_image(self, name: str) -> None:
        """Wait until it has made a thumbnail."""
        begin = f"{name.rpartition('.')[0]}_*"
        window.await_(lambda: any(self._thumbnails.glob(begin)), f"no thumbnail of {name}")
        time.sleep(window.SETTLED_S)


@contextmanager
def in_room(server: Server, room: str, home: Path) -> Iterator[GajimClient]:
    """Gajim with a room, for the time of the context."""
    home.mkdir()
    bookmark(server, room)
    with gajim(server, f"{room}?join", home) as shown:
        shown.clicks(ENTRY)
        yield GajimClient(shown, home)


@contextmanager
def in_chat(server: Server, contact: str, home: Path) -> Iterator[GajimClient]:
    """Gajim with a chat with a contact, for the time of the context."""
    home.mkdir()
    add_contact(server, contact)
    with gajim(server, f"{contact}?message", home) as shown:
        yield GajimClient(shown, home)

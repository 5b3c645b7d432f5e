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
from tests.docs.clients.window import Window
from tests.servers.base import Server

WIDTH, HEIGHT = 900, 560
"""Pixels of Gajim's window."""
ASIDE = (250, 400)
"""A point in the window where nothing is."""
_SCRIPT = """
gajim & while [ ! -e "$1/open" ]; do sleep 0.1; done; gajim "xmpp:$2?message"; wait
"""
_TABLES = """
CREATE TABLE settings (name TEXT UNIQUE, settings TEXT);
CREATE TABLE account_settings (account TEXT UNIQUE, settings TEXT);
PRAGMA user_version = 5;
"""


@contextmanager
def gajim(server: Server, contact: str, directory: Path) -> Iterator[Window]:
    """Gajim with the chat with a contact, for the time of the context."""
    home = directory / "home"
    trusted = home / "data" / "gajim" / "cert_store"
    trusted.mkdir(parents=True)
    shutil.copy(server.certificate, trusted)
    _write_settings(server, home / "config" / "gajim")
    mapped = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
    command = ("dbus-run-session", "--", "sh", "-c", _SCRIPT, "sh", str(directory), contact)
    database = home / "data" / "gajim" / "logs.db"
    with window.display(WIDTH) as display:
        given = window.environment(home, display)
        whole = (*mapped, *command) if os.geteuid() == 0 else command
        with window.running(whole, given, directory / "gajim.log"):
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
        "app": {"use_keyring": False, "check_for_update": False, **size},
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

"""Converse in Chromium, driven by Node.js."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docs.clients.accounts import add_contact
from tests.docs.clients.client import PERSON, Client
from tests.docs.clients.scene import WebServer, web
from tests.servers.base import Server

HERE = Path(__file__).parent
NODE = HERE.parents[2] / ".pictures"


@contextmanager
def driven(
    script: str, server: WebServer, out: Path, **more: str
) -> Iterator[subprocess.Popen[str]]:
    """A program that drives Converse, for the time of the context.

    Raises SystemExit if it fails; there is a picture then.
    """
    NODE.mkdir(exist_ok=True)
    site = NODE / "site"
    modules = NODE / "node_modules"
    for name in ("package.json", "browser.mjs", script):
        shutil.copy(HERE / name, NODE)
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent"], cwd=NODE, check=True)
    site.mkdir(exist_ok=True)
    shutil.copy(HERE / "converse.html", site)
    _link(site / "converse.js", modules / "converse.js")
    wasm = "curve25519_compiled.wasm"  # asked for at the root
    _link(site / wasm, modules / "converse.js" / "dist" / wasm)
    with web(site) as url:
        given = {
            "url": url,
            "jid": server.jid("juliet"),
            "password": server.accounts["juliet"],
            "websocket": server.websocket,
            "out": str(out),
            "chromium": shutil.which("chromium"),
            **more,
        }
        command = ["node", script, json.dumps(given)]
        with subprocess.Popen(
            command, cwd=NODE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as driver:
            yield driver
            assert driver.stdin is not None
            driver.stdin.close()
        if driver.returncode:
            raise SystemExit(f"Converse: see {out}/converse-failed.png")


class ConverseClient(Client):
    """A room or a chat in Converse."""

    name = "Converse"
    can = frozenset({"reply", "react", "retract", "send", "see", "see in rooms"})

    def __init__(self, driver: subprocess.Popen[str]) -> None:
        self._driver = driver

    def say(self, text: str) -> None:
        """Type a text and send it."""
        self._do("say", text)

    def mention(self, nick: str, text: str) -> None:
        """Have a nickname completed after an at sign."""
        self._do("mention", nick, text)

    def shows(self, words: str) -> None:
        """Wait until a message has these words in it."""
        self._do("shows", words)

    def picture(self, file: Path, first: str = "") -> None:
        """Write the window as a PNG, from the message with the text `first` on if it is given."""
        self._do("picture", str(file), first)

    def reply(self, words: str, text: str) -> None:
        """Reply by the menu of a message."""
        self._do("reply", words, text)

    def react(self, words: str) -> None:
        """React by the menu of a message."""
        self._do("react", words)

    def retract(self, words: str) -> None:
        """Retract by the menu of a message."""
        self._do("retract", words)

    def send(self, file: Path) -> None:
        """Choose a file for the upload."""
        self._do("send", str(file))

    def shows_image(self, name: str) -> None:
        """Wait until the image has been loaded."""
        self._do("image", name)

    def _do(self, *what: str) -> None:
        driver = self._driver
        assert driver.stdin is not None
        assert driver.stdout is not None
        driver.stdin.write(json.dumps(what) + "\n")
        driver.stdin.flush()
        answer = driver.stdout.readline().strip()
        assert answer == what[0], f"Converse does not {what}: {answer}"


@contextmanager
def in_room(server: Server, room: str, home: Path) -> Iterator[ConverseClient]:
    """Converse with a room, for the time of the context."""
    with _showing(server, home, room=room, nick=PERSON) as client:
        yield client


@contextmanager
def in_chat(server: Server, contact: str, home: Path) -> Iterator[ConverseClient]:
    """Converse with a chat with a contact, for the time of the context."""
    add_contact(server, contact)
    with _showing(server, home, contact=contact) as client:
        yield client


@contextmanager
def _showing(server: Server, home: Path, **what: str) -> Iterator[ConverseClient]:
    assert isinstance(server, WebServer)
    with driven("told.mjs", server, home.parent, **what) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline(), f"Converse does not open {what}"
        yield ConverseClient(driver)


def _link(at: Path, to: Path) -> None:
    at.unlink(missing_ok=True)
    at.symlink_to(to)

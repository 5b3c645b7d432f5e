"""Takes the pictures of the documentation: people and an agent in real clients, on a real server.

    make pictures                                     # all
    python -m tests.docs.clients.pictures converse    # those of one client

Converse needs Node.js 20 or later and npm; `make pictures` installs the rest from Debian. A client
that is missing is left out, and named.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.docs.clients import dino as dino_window
from tests.docs.clients import gajim as gajim_window
from tests.docs.clients import scene as scenes
from tests.docs.clients.scene import Scene
from tests.docs.clients.terminal import Terminal
from tests.docs.clients.window import SETTLED_S
from tests.servers.chatting import say
from tests.servers.talk import login

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
OUT = ROOT / "docs" / "pictures"
NODE = ROOT / ".pictures"
QUESTION_IS_READ_S = 3.5
"""Seconds until a plain yes to a question is taken for certain."""
ENCRYPTED = (
    "<encrypted xmlns='eu.siacs.conversations.axolotl'>"
    "<header sid='17'><key rid='23'>QQ==</key><iv>QQ==</iv></header><payload>QQ==</payload>"
    "</encrypted><encryption xmlns='urn:xmpp:eme:0' name='OMEMO'"
    " namespace='eu.siacs.conversations.axolotl'/><store xmlns='urn:xmpp:hints'/>"
)


def converse(scene: Scene, out: Path) -> None:
    """Converse in Chromium, by its websocket."""
    site = NODE / "site"
    modules = NODE / "node_modules"
    for name in ("package.json", "converse.mjs"):
        shutil.copy(HERE / name, NODE)
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent"], cwd=NODE, check=True)
    site.mkdir(exist_ok=True)
    shutil.copy(HERE / "converse.html", site)
    _link(site / "converse.js", modules / "converse.js")
    wasm = "curve25519_compiled.wasm"  # asked for at the root
    _link(site / wasm, modules / "converse.js" / "dist" / wasm)
    server, contact = scene.server, scene.chat.assistant

    def encrypt() -> None:
        with login(server) as phone:
            say(phone, contact, "This text is for clients without OMEMO.", inside=ENCRYPTED)

    elsewhere: dict[str, Callable[[], object]] = {
        "the agent is at work": scene.until_at_work,
        "the weather is known": scene.weather_is_known,
        "another device has encrypted a message": encrypt,
    }
    with scenes.web(site) as url:
        given = {
            "url": url,
            "jid": server.jid("juliet"),
            "password": server.accounts["juliet"],
            "websocket": server.websocket,
            "contact": contact,
            "out": str(out),
            "chromium": shutil.which("chromium"),
        }
        command = ["node", "converse.mjs", json.dumps(given)]
        with subprocess.Popen(
            command, cwd=NODE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as driver:
            assert driver.stdout is not None
            assert driver.stdin is not None
            for line in driver.stdout:
                elsewhere[line.strip()]()
                driver.stdin.write("done\n")
                driver.stdin.flush()
        if driver.returncode:
            raise SystemExit(f"Converse: see {out}/converse-failed.png")


def profanity(scene: Scene, out: Path) -> None:
    """profanity in tmux."""
    server, contact = scene.server, scene.chat.assistant
    home = scene.directory.parent / "home"
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
        screen.types(f"/roster add {contact} Assistant", until="Roster item added")
        screen.types(f"/sub request {contact}", until="Assistant is online|Assistant.* online")
        screen.types(f"/msg {contact} Good evening!", until="What can I do for you")
        screen.types("Please empty my folder Archive.", until=r"folder \*Archive\*\?")
        time.sleep(QUESTION_IS_READ_S)
        screen.types("ok", until="Archive is empty")
        screen.picture(out / "profanity-ok.png")

        screen.types("How is the weather in Verona?")
        scene.until_at_work()
        screen.types("And in Padua?", until="Padua")
        screen.types("/correct And in Milan?", until="Milan")
        screen.types("/correct And in Venice?", until="Venice")
        scene.weather_is_known()
        screen.shows("in Venice, too")
        screen.picture(out / "profanity-correction.png")

        screen.types("/win 1", until="Type /help for help")
        screen.types("/otr gen", until="(?i)private key generated|generation complete")
        screen.types("/win 2", until="in Venice, too")
        screen.types("/otr start", until="I can't read this message")


def dino(scene: Scene, out: Path) -> None:
    """Dino under Xvfb."""
    home = scene.directory.parent / "dino"
    home.mkdir()
    _add_contact(scene)
    with dino_window.dino(scene.server, scene.chat.assistant, home) as window:
        window.clicks(dino_window.ENTRY)
        window.types("Please empty my folder Archive.")
        window.shows("folder *Archive*?")
        time.sleep(QUESTION_IS_READ_S)
        window.types("ok")
        window.shows("Archive is empty")

        window.types("And Drafts.")
        window.shows("folder *Drafts*?")
        window.clicks(dino_window.LAST_QUESTION, dino_window.REPLY)
        time.sleep(QUESTION_IS_READ_S)
        window.types("yes")
        window.shows("Drafts is empty")
        window.picture(out / "dino-reply.png")

        window.types("And Newsletters, too.")
        window.shows("folder *Newsletters*?")
        window.clicks(dino_window.LAST_QUESTION, dino_window.REACT)
        window.types("thumbs up", send=False)
        window.clicks(dino_window.FIRST_FOUND_EMOJI)
        window.shows("Newsletters is empty")
        window.picture(out / "dino-reaction.png")

        window.clicks(dino_window.ENTRY)
        window.types("How is the weather in Verona?")
        scene.until_at_work()
        window.types("And in Padua?")
        window.shows("Padua")
        window.press("Up")
        time.sleep(SETTLED_S)
        window.press("End", *["BackSpace"] * len("Padua?"))
        window.types("Venice?")
        window.shows("Venice?")
        scene.weather_is_known()
        window.shows("in Venice, too")
        window.picture(out / "dino-correction.png")


def gajim(scene: Scene, out: Path) -> None:
    """Gajim under Xvfb."""
    home = scene.directory.parent / "gajim"
    home.mkdir()
    _add_contact(scene)
    with gajim_window.gajim(scene.server, scene.chat.assistant, home) as window:
        window.types("Good evening!")
        window.shows("What can I do for you")
        window.types("Please empty my folder Archive.")
        window.shows("folder *Archive*?")
        time.sleep(QUESTION_IS_READ_S)
        window.types("ok")
        window.shows("Archive is empty")
        window.picture(out / "gajim-ok.png")


def _add_contact(scene: Scene) -> None:
    with login(scene.server) as phone:
        phone.send_raw(
            f"<iq type='set' id='r1'><query xmlns='jabber:iq:roster'>"
            f"<item jid='{scene.chat.assistant}' name='Assistant'/></query></iq>"
        )
        phone.send_raw(f"<presence to='{scene.chat.assistant}' type='subscribe'/>")
        online = f"{scene.chat.assistant}/agent"
        phone.presences.take(lambda presence: presence.get("from") == online)


def _shrink(file: Path) -> None:
    """Reduce a picture to 256 colours, which nobody sees."""
    fewer = ("+dither", "-colors", "256", f"PNG8:{file}")
    subprocess.run(["convert", str(file), "-strip", *fewer], check=True)


def _link(at: Path, to: Path) -> None:
    at.unlink(missing_ok=True)
    at.symlink_to(to)


_IN_A_WINDOW = ("dbus-run-session", "unshare", "Xvfb", "xdotool", "import", "convert")
CLIENTS: dict[str, tuple[Callable[[Scene, Path], None], tuple[str, ...]]] = {
    "converse": (converse, ("chromium", "node", "npm", "convert")),
    "profanity": (profanity, ("profanity", "tmux", "chromium", "convert")),
    "dino": (
        dino,
        ("dino-im", *_IN_A_WINDOW),
    ),
    "gajim": (
        gajim,
        ("gajim", *_IN_A_WINDOW),
    ),
}


def main() -> None:
    """Take the pictures of the clients that are named, of all if none is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clients", nargs="*", choices=[*CLIENTS, []], default=[])
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    NODE.mkdir(exist_ok=True)
    for name in given.clients or CLIENTS:
        take, programs = CLIENTS[name]
        if missing := [each for each in programs if shutil.which(each) is None]:
            sys.stderr.write(f"{name} is left out: {', '.join(missing)} is not installed\n")
            continue
        with tempfile.TemporaryDirectory() as directory, scenes.scene(Path(directory)) as scene:
            take(scene, given.out.absolute())
        for file in given.out.glob(f"{name}-*.png"):
            _shrink(file)


if __name__ == "__main__":
    main()

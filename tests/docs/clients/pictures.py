"""Takes the pictures of the documentation: people and an agent in real clients, on a real server.

    make pictures                                     # all
    python -m tests.docs.clients.pictures converse    # those of one client

Converse needs Node.js 20 or later and npm; `make pictures` installs the rest from Debian. A client
that is missing is left out, and named.
"""

import argparse
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.docs.clients import converse as browser
from tests.docs.clients import dino as dino_window
from tests.docs.clients import gajim as gajim_window
from tests.docs.clients import profanity as terminal
from tests.docs.clients import scenarios
from tests.docs.clients import scene as scenes
from tests.docs.clients.accounts import add_contact
from tests.docs.clients.client import left_out
from tests.docs.clients.scene import Scene
from tests.docs.clients.window import SETTLED_S
from tests.servers.chatting import say
from tests.servers.talk import login

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
OUT = ROOT / "docs" / "pictures"
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
    server, contact = scene.server, scene.chat.assistant

    def encrypt() -> None:
        with login(server) as phone:
            say(phone, contact, "This text is for clients without OMEMO.", inside=ENCRYPTED)

    elsewhere: dict[str, Callable[[], object]] = {
        "the agent is at work": scene.until_at_work,
        "the weather is known": scene.weather_is_known,
        "another device has encrypted a message": encrypt,
    }
    with browser.driven("converse.mjs", server, out, contact=contact) as driver:
        assert driver.stdout is not None
        assert driver.stdin is not None
        for line in driver.stdout:
            elsewhere[line.strip()]()
            driver.stdin.write("done\n")
            driver.stdin.flush()


def profanity(scene: Scene, out: Path) -> None:
    """profanity in tmux."""
    contact = scene.chat.assistant
    with terminal.profanity(scene.server, scene.directory.parent / "home") as screen:
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
    add_contact(scene.server, scene.chat.assistant)
    with dino_window.dino(scene.server, f"{scene.chat.assistant}?message", home) as window:
        window.clicks(dino_window.ENTRY)
        window.types("Please empty my folder Archive.")
        window.shows("folder *Archive*?")
        time.sleep(QUESTION_IS_READ_S)
        window.types("ok")
        window.shows("Archive is empty")

        window.types("And Drafts.")
        window.shows("folder *Drafts*?")
        time.sleep(QUESTION_IS_READ_S)
        window.reply("yes")
        window.shows("Drafts is empty")
        window.picture(out / "dino-reply.png")

        window.types("And Newsletters, too.")
        window.shows("folder *Newsletters*?")
        window.react()
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
    add_contact(scene.server, scene.chat.assistant)
    with gajim_window.gajim(scene.server, f"{scene.chat.assistant}?message", home) as window:
        window.types("Good evening!")
        window.shows("What can I do for you")
        window.types("Please empty my folder Archive.")
        window.shows("folder *Archive*?")
        time.sleep(QUESTION_IS_READ_S)
        window.types("ok")
        window.shows("Archive is empty")
        window.picture(out / "gajim-ok.png")


def _shrink(file: Path) -> None:
    """Reduce a picture to 256 colours, which nobody sees."""
    fewer = ("+dither", "-colors", "256", f"PNG8:{file}")
    subprocess.run(["convert", str(file), "-strip", *fewer], check=True)


CLIENTS: dict[str, Callable[[Scene, Path], None]] = {
    "converse": converse,
    "profanity": profanity,
    "dino": dino,
    "gajim": gajim,
}


def main() -> None:
    """Take the pictures of the clients that are named, of all if none is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clients", nargs="*", choices=[*CLIENTS, []], default=[])
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    for name in given.clients or CLIENTS:
        if left_out(name):
            continue
        out = given.out.absolute()
        with tempfile.TemporaryDirectory() as directory, scenes.scene(Path(directory)) as scene:
            CLIENTS[name](scene, out)
        with tempfile.TemporaryDirectory() as directory:
            assert scenarios.play(name, Path(directory), out)
        for file in given.out.glob(f"{name}-*.png"):
            _shrink(file)


if __name__ == "__main__":
    main()

"""What a person can do in a room or a chat, whichever client it is."""

import shutil
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

PERSON = "Juliet"
"""The nickname of the person in a room."""
_IN_A_WINDOW = ("dbus-run-session", "unshare", "Xvfb", "xdotool", "xclip", "import", "convert")
PROGRAMS: dict[str, tuple[str, ...]] = {
    "converse": ("chromium", "node", "npm", "convert"),
    "profanity": ("profanity", "tmux", "chromium", "convert"),
    "dino": ("dino-im", *_IN_A_WINDOW),
    "gajim": ("gajim", *_IN_A_WINDOW),
}
"""The programs that each client needs, itself and those that drive it."""


def left_out(name: str) -> bool:
    """Whether a client cannot start here; it is named then, with what is missing."""
    missing = [each for each in PROGRAMS[name] if shutil.which(each) is None]
    if missing:
        sys.stderr.write(f"{name} is left out: {', '.join(missing)} is not installed\n")
    return bool(missing)


class Client(ABC):
    """A client that shows a room or a chat.

    Attributes:
        name: as docs/reference/clients.md calls it.
        can: which of `reply`, `react`, `retract` and `send` it has there; `see` if it shows images
            in chats, `see in rooms` if it does so in public rooms.
    """

    name: ClassVar[str]
    can: ClassVar[frozenset[str]]

    @abstractmethod
    def say(self, text: str) -> None:
        """Type a text and send it."""

    @abstractmethod
    def mention(self, nick: str, text: str) -> None:
        """Have the beginning of a nickname completed, type a text behind it, and send both."""

    @abstractmethod
    def shows(self, words: str) -> None:
        """Wait until a message has these words in it."""

    @abstractmethod
    def picture(self, file: Path, first: str = "") -> None:
        """Write what it shows as a PNG: from the message with the text `first` on, if it is given
        and the window can be made smaller.
        """

    def reply(self, words: str, text: str) -> None:
        """Reply to the newest message with these words in it."""
        raise NotImplementedError

    def react(self, words: str) -> None:
        """React with a thumb up to the newest message with these words in it."""
        raise NotImplementedError

    def retract(self, words: str) -> None:
        """Retract the newest own message with these words in it."""
        raise NotImplementedError

    def send(self, file: Path) -> None:
        """Upload a file and send it."""
        raise NotImplementedError

    def shows_image(self, name: str) -> None:
        """Wait until the image of a file of this name is shown between the messages."""
        raise NotImplementedError

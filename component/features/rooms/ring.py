"""What was written in a room lately: the context of a request, which costs nothing until there is
one.
"""

from collections import deque
from typing import Final

import msgspec

from component.agent.requests import Overheard
from component.link.messages.inbound import Attachment

MESSAGES: Final = 50
BYTES: Final = 16_384
_LONGEST: Final = 4_096
"""Bytes of one message: a longer one is cut, so that it does not replace all others."""


class Heard(msgspec.Struct):
    """A message. `author` identifies who has written it; it is empty if that is not known, as in
    the history of a room. `ids` are those by which others refer to it. `is_given` says that an
    agent has got it with a request; `is_asked` that it is a request itself, with the text `words`,
    and `is_pending` that this request is not made yet. `files` are those of which no request was
    made yet.
    """

    author: str
    nick: str
    text: str
    sent: float
    ids: list[str]
    stanza_id: str = ""
    is_given: bool = False
    is_asked: bool = False
    files: tuple[Attachment, ...] = ()
    is_pending: bool = False
    words: str = ""


class Ring:
    """The last messages in a room: at most 50, and at most 16 kB of text."""

    def __init__(self) -> None:
        self._heard: deque[Heard] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self._heard)

    def add(self, heard: Heard) -> None:
        """Add a message; the oldest ones are dropped."""
        heard.text = _cut(heard.text)
        self._heard.append(heard)
        self._bytes += _size(heard)
        while len(self._heard) > MESSAGES or self._bytes > BYTES:
            self._bytes -= _size(self._heard.popleft())

    def has(self, heard: Heard) -> bool:
        """Return whether a message is here, which a room may send again in its history."""
        if heard.stanza_id:
            return any(each.stanza_id == heard.stanza_id for each in self._heard)
        ids = set(heard.ids)
        return any(not ids.isdisjoint(each.ids) and each.nick == heard.nick for each in self._heard)

    def find(self, author: str, nick: str, reference: str) -> Heard | None:
        """Return the message of an author with this id. One of an unknown author is found by the
        nickname.
        """
        for heard in reversed(self._heard):
            same = heard.author == author if heard.author else heard.nick == nick
            if same and (reference in heard.ids or reference == heard.stanza_id):
                return heard
        return None

    def take_files(self, request: Heard, reference: str, within_s: float) -> tuple[Attachment, ...]:
        """Return the files that a request without files is about: those of the message with the id
        `reference`, to which it replies, or those that its author has sent shortly before.
        """
        found: list[Attachment] = []
        for heard in self._heard:
            if heard is request:
                break
            if reference:
                is_meant = reference in heard.ids or reference == heard.stanza_id
            else:
                is_theirs = bool(heard.author) and heard.author == request.author
                is_meant = is_theirs and request.sent - heard.sent <= within_s
            if is_meant:
                found += heard.files
                heard.files = ()
        return tuple(found)

    def revise(self, heard: Heard, text: str) -> None:
        """Replace the text of a message; an empty one removes it."""
        self._bytes -= _size(heard)
        if text:
            heard.text = _cut(text)
            self._bytes += _size(heard)
        else:
            self._heard.remove(heard)
            heard.text = ""

    def moderate(self, stanza_id: str) -> Heard | None:
        """Remove a message by the id that the room gave it; return it if it was there."""
        for heard in self._heard:
            if stanza_id and heard.stanza_id == stanza_id:
                self.revise(heard, "")
                return heard
        return None

    def take(self, request: Heard) -> tuple[Overheard, ...]:
        """Return the messages before a request that no agent has got, the oldest first. From now on
        the agent has them.
        """
        found = []
        for heard in self._heard:
            if heard is request:
                break
            if not heard.is_given:
                found.append(Overheard(heard.nick, heard.text, heard.sent, heard.stanza_id))
                heard.is_given = True
        request.is_given = True
        return tuple(found)

    def given(self) -> None:
        """Note that an agent has got all messages so far."""
        for heard in self._heard:
            heard.is_given = True


def _size(heard: Heard) -> int:
    return len(heard.text.encode())


def _cut(text: str) -> str:
    encoded = text.encode()
    if len(encoded) <= _LONGEST:
        return text
    return encoded[: _LONGEST - 3].decode(errors="ignore") + "\N{HORIZONTAL ELLIPSIS}"

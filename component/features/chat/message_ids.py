"""The ids of messages: recognises a message that arrives twice (XEP-0359), and finds the one that a
correction or a retraction refers to.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import anyio
import msgspec

from component.caches import FIFOCache, LRUCache
from component.link.messages.inbound import Account, InboundMessage

_REMEMBERED_S: Final = 3600.0
_COUNTED_S: Final = 60.0
_UNIQUE: Final = 10
"""Characters of an id that is not a number that a client counts."""
Key: TypeAlias = bytes


class Duplicates:
    """Recognises messages that have arrived before.

    A client that has lost its connection sends again the messages that may not have arrived, and an
    archive or a resumed stream may deliver a message twice. Two messages of the same author to the
    same address are one if they have the same content and one of the same ids: the origin id, the
    id from the room, or the id of the stanza, which many clients use alone.

    Keys are remembered for an hour, at most the newest 20,000. Some clients count from 1 after each
    login, so a short id of a stanza is remembered for a minute.

    Args:
        clock: monotonic seconds; the event loop's by default.
    """

    def __init__(self, clock: Callable[[], float] = anyio.current_time) -> None:
        self._clock = clock
        self._known: FIFOCache[Key, float] = FIFOCache(_MOST_REMEMBERED)
        """The time until which each key is remembered. The library's own caches with a time to live
        cannot use a given clock.
        """

    def add(self, message: InboundMessage) -> bool:
        """Remember a message; return False if it is a repetition."""
        keys, now = list(_keys(message)), self._clock()
        is_new = not any(self._known.get(key, now) > now for key, _ in keys)
        for key, seconds in keys:
            self._known[key] = now + seconds
        return is_new

    def forget(self, message: InboundMessage) -> None:
        """Forget a message that could not be handled, so that a repetition is handled."""
        for key, _ in _keys(message):
            self._known.pop(key, 0.0)


def message_key(message: InboundMessage) -> Key | None:
    """Return the properties that all copies of a message share, in every process; None if it has no
    such id.
    """
    return next((key for key, seconds in _keys(message) if seconds == _REMEMBERED_S), None)


def _keys(message: InboundMessage) -> Iterator[tuple[Key, float]]:
    """Yield the keys of a message, each with the seconds for which it is remembered."""
    ids = [("origin", message.origin_id), ("stanza", message.stanza_id)]
    counted = message.id is not None and len(message.id) < _UNIQUE
    if not counted:
        ids.append(("id", message.id))
    content = _digest_of(message)
    for kind, id_ in ids:
        if id_:
            yield _key(kind, id_, content), _REMEMBERED_S
    if message.id and counted:
        yield _key("counted", f"{message.id} {message.sender}", content), _COUNTED_S


def _key(kind: str, id_: str, content: bytes) -> Key:
    return hashlib.sha256(content + msgspec.json.encode((kind, id_))).digest()


def _digest_of(message: InboundMessage) -> bytes:
    """Return a digest of the author of a message, its recipient and its content."""
    author = message.principal if isinstance(message.actor, Account) else message.sender
    content = (
        message.text,
        message.is_action,
        message.replaces,
        message.retracts,
        message.replies_to and message.replies_to.id,
        message.reacted and (message.reacted.id, sorted(message.reacted.emoji)),
        message.selected,
        [file.url for file in message.attachments],
        message.encryption,
    )
    to = message.conversation.agent
    named = msgspec.json.encode((str(author), str(to), content))
    return hashlib.sha256(named).digest()


_MOST_REMEMBERED: Final = 20_000


class References:
    """Maps all ids of a message, and those of its corrections, to the id that it arrived with.

    A retraction may refer to the origin id, also to that of a correction (Converse), and a second
    correction may refer to the first one (Profanity, Movim) instead of the message that both
    correct, as XEP-0308 §4 requires. The newest 20,000 ids are remembered.
    """

    def __init__(self) -> None:
        self._first: LRUCache[tuple[str, str, str], str] = LRUCache(_MOST_REMEMBERED)

    def add(self, message: InboundMessage) -> None:
        """Remember a message."""
        first = self.first(message)
        if first is None:
            return
        for id_ in (message.id, message.origin_id):
            if id_ and id_ != first:
                self._first[_reference(message, id_)] = first

    def first(self, message: InboundMessage) -> str | None:
        """Return the id of the message of the same author that `message` corrects or retracts; its
        own id if it does neither.
        """
        named = message.retracts or message.replaces
        return message.id if named is None else self._first.get(_reference(message, named), named)


def _reference(message: InboundMessage, id_: str) -> tuple[str, str, str]:
    return (str(message.principal), str(message.conversation.agent), id_)

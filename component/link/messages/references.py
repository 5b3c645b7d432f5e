"""Finds the message that a correction or a retraction refers to: clients identify it in several
ways.
"""

from typing import Final, TypeAlias

from cachebox import LRUCache

from component.link.messages.inbound import InboundMessage

_MOST_REMEMBERED: Final = 20_000

Key: TypeAlias = tuple[str, str, str]


class References:
    """Maps all ids of a message, and those of its corrections, to the id that it arrived with.

    A retraction may refer to the origin id, also to that of a correction (Converse), and a second
    correction may refer to the first one (Profanity, Movim) instead of the message that both
    correct, as XEP-0308 §4 requires. The newest 20,000 ids are remembered.
    """

    def __init__(self) -> None:
        self._first: LRUCache[Key, str] = LRUCache(_MOST_REMEMBERED)

    def add(self, message: InboundMessage, first: str | None = None) -> None:
        """Remember a message; `first` is the id of the message that it corrects, if it does."""
        first = first or message.id
        if first is None:
            return
        for id_ in (message.id, message.origin_id):
            if id_ and id_ != first:
                self._first[_key(message, id_)] = first

    def find(self, message: InboundMessage, named: str) -> str:
        """Return the id of the message of the same author that `message` refers to as `named`."""
        return self._first.get(_key(message, named), named)


def _key(message: InboundMessage, id_: str) -> Key:
    return (str(message.principal), str(message.conversation.agent), id_)

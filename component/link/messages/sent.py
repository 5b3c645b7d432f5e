"""Recently sent messages, by every id that others may use to refer to them."""

from typing import Final, TypeAlias

import msgspec
from cachebox import LRUCache

from component.link.messages.delivery import Delivery, Report
from component.link.messages.inbound import Conversation
from component.link.messages.outbound import OutboundMessage
from xep.jid import JID

_MOST: Final = 20_000

_Key: TypeAlias = tuple[JID, JID, str]


class _Sent(msgspec.Struct, frozen=True):
    """A message by its own id, and its delivery."""

    id: str
    delivery: Delivery


class SentMessages:
    """Finds one of our messages by the id that another message refers to.

    Clients refer to a message by the id of its stanza, by its origin id (ours are equal), and in
    multi-user chats by the stanza id that the room assigned (XEP-0359). A long text is sent as
    several stanzas, and each of them stands for the message. Only the other party of a conversation
    can refer to messages in it.

    The newest 20,000 ids are remembered. An older id is returned unchanged.
    """

    def __init__(self) -> None:
        self._by_id: LRUCache[_Key, _Sent] = LRUCache(_MOST)

    def add(self, message: OutboundMessage, stanza_id: str, delivery: Delivery) -> None:
        """Remember a stanza of a message."""
        self._by_id[_key(message.conversation, stanza_id)] = _Sent(message.id, delivery)

    def reflected(self, conversation: Conversation, id_: str, stanza_id: str) -> None:
        """Remember the stanza id that a multi-user chat assigned to a stanza.

        The caller has verified that the stanza is the agent's own. The first stanza id counts.
        """
        sent = self._by_id.get(_key(conversation, id_))
        if sent is not None:
            self._by_id.setdefault(_key(conversation, stanza_id), sent)

    def has(self, conversation: Conversation, stanza_id: str) -> bool:
        """Return whether an id is that of one of our messages."""
        return _key(conversation, stanza_id) in self._by_id

    def id_of(self, conversation: Conversation, reference: str) -> str:
        """Return the id of the message that is referred to; the reference itself if it is
        unknown.
        """
        sent = self._by_id.get(_key(conversation, reference))
        return reference if sent is None else sent.id

    def report(self, conversation: Conversation, reference: str, report: Report) -> None:
        """Record that the other party has received or displayed a message."""
        sent = self._by_id.get(_key(conversation, reference))
        if sent is not None:
            sent.delivery.report(report)


def _key(conversation: Conversation, id_: str) -> _Key:
    return conversation.agent, conversation.peer, id_

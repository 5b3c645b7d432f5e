"""Sends all messages of the service, and processes the clients' reports about them."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec
import structlog
from anyio.lowlevel import checkpoint

from component import system
from component.caches import LRUCache
from component.link.messages.delivery import Delivery, Report
from component.link.messages.inbound import Conversation, InboundMessage
from component.link.messages.outbound import OutboundMessage, conversation_with, render
from component.link.messages.outbox import Outbox
from xep.jid import JID

_MOST: Final = 20_000

_Key: TypeAlias = tuple[JID, JID, str]


class _Sent(msgspec.Struct, frozen=True):
    """A message by its own id, its delivery, and when it was queued, in seconds since 1970."""

    id: str
    delivery: Delivery
    at: float


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
        self._by_id[_key(message.conversation, stanza_id)] = _Sent(
            message.id, delivery, system.time()
        )

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

    def time_of(self, conversation: Conversation, reference: str) -> float | None:
        """Return when the message that is referred to was queued, in seconds since 1970; None if it
        is unknown.
        """
        sent = self._by_id.get(_key(conversation, reference))
        return None if sent is None else sent.at

    def report(self, conversation: Conversation, reference: str, report: Report) -> None:
        """Record that the other party has received or displayed a message."""
        sent = self._by_id.get(_key(conversation, reference))
        if sent is not None:
            sent.delivery.report(report)


def _key(conversation: Conversation, id_: str) -> _Key:
    return conversation.agent, conversation.peer, id_


_log = structlog.get_logger("component.message")


class TooBigError(Exception):
    """A message has a stanza that is larger than the server accepts."""


async def _handled() -> bool:
    await checkpoint()
    return True


class Messenger:
    """Sends messages.

    Args:
        max_stanza_bytes: the largest stanza to send; a longer text becomes several messages.
        handled: waits until the server has handled everything written so far, which survives the
            end of this process then; returns False if the connection was lost before that.
    """

    def __init__(
        self,
        output: Outbox,
        max_stanza_bytes: int = 262_144,
        handled: Callable[[], Awaitable[bool]] = _handled,
    ) -> None:
        self._output = output
        self.handled = handled
        self._limit = max_stanza_bytes
        self.sent = SentMessages()
        self._listeners: list[Callable[[InboundMessage], None]] = []

    def send(self, message: OutboundMessage, delivery: Delivery | None = None) -> Delivery:
        """Queue a message and return its delivery. Never waits.

        Several messages may share a `delivery`. If it raises, nothing was sent.

        Raises:
            TooBigError: a stanza is too large.
            EncodingError: a value cannot be encoded in XML.
        """
        if delivery is None:
            delivery = Delivery(must_arrive=message.must_arrive)
        stanzas = [(each.id, each.encode()) for each in render(message, self._limit)]
        for _, xml in stanzas:
            if len(xml.encode()) > self._limit:
                raise TooBigError(f"The message is larger than {self._limit} bytes.")
        for id_, xml in stanzas:
            self._output.put(xml, delivery, message.to.to)
            if id_ is not None and message.parts:
                self.sent.add(message, id_, delivery)
        if not stanzas:
            delivery.conclude()
        return delivery

    async def ready(self) -> None:
        """Wait until there is a stream that accepts more."""
        await self._output.ready()

    def is_ours(self, agent: JID, peer: JID, stanza_id: str) -> bool:
        """Return whether we have sent a stanza with that id in a conversation."""
        return self.sent.has(conversation_with(agent, peer), stanza_id)

    def returned(self, agent: JID, peer: JID, stanza_id: str) -> str:
        """Return the id of the message to which a returned stanza belongs (RFC 6120 §8.3)."""
        _log.info(
            "a message was returned as an error",
            agent=str(agent),
            recipient=str(peer),
            id=stanza_id,
        )
        return self.sent.id_of(conversation_with(agent, peer), stanza_id)

    def listen(self, listener: Callable[[InboundMessage], None]) -> None:
        """Call a function with each inbound message, before it is handled."""
        self._listeners.append(listener)

    def receive(self, message: InboundMessage) -> InboundMessage:
        """Process a message's reports about our messages, and replace its references to them with
        our own ids.
        """
        for listener in self._listeners:
            listener(message)
        conversation, sent = message.conversation, self.sent
        if message.received is not None:
            sent.report(conversation, message.received, "received")
        if message.displayed is not None:
            sent.report(conversation, message.displayed, "displayed")
        replace = msgspec.structs.replace
        if message.replies_to is not None and message.replies_to.is_ours:
            id_ = sent.id_of(conversation, message.replies_to.id)
            message = replace(message, replies_to=replace(message.replies_to, id=id_))
        if message.reacted is not None:
            id_ = sent.id_of(conversation, message.reacted.id)
            message = replace(message, reacted=replace(message.reacted, id=id_))
        return message

"""Sends all messages of the service, and processes the clients' reports about them."""

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
import structlog
from anyio.lowlevel import checkpoint

from component.link.messages.delivery import Delivery
from component.link.messages.inbound import InboundMessage
from component.link.messages.outbound import OutboundMessage, conversation_with
from component.link.messages.rendering import render
from component.link.messages.sent import SentMessages
from xep.jid import JID

_log = structlog.get_logger("component.message")


class TooBigError(Exception):
    """A message has a stanza that is larger than the server accepts."""


class Output(Protocol):
    """The outgoing stanzas, in order: `component.link.connection.outbox.Outbox`."""

    def put(self, xml: str, delivery: Delivery | None = None, to: str = "", /) -> None:
        """Queue one stanza for an address. Never waits; the delivery follows its state."""

    async def ready(self) -> None:
        """Wait until there is a stream that accepts more."""


async def _handled() -> bool:
    await checkpoint()
    return True


class Messenger:
    """Sends messages.

    Args:
        output: queues stanzas.
        max_stanza_bytes: the largest stanza to send; a longer text becomes several messages.
        sent: remembers sent messages.
        handled: waits until the server has handled everything written so far, which survives the
            end of this process then; returns False if the connection was lost before that.
    """

    def __init__(
        self,
        output: Output,
        max_stanza_bytes: int = 262_144,
        sent: SentMessages | None = None,
        handled: Callable[[], Awaitable[bool]] = _handled,
    ) -> None:
        self._output = output
        self.handled = handled
        self._limit = max_stanza_bytes
        self.sent = SentMessages() if sent is None else sent
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
        if not stanzas and not delivery.is_waiting:
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

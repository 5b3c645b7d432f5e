"""The messages that a handler sends."""

from component.link.messages.delivery import Delivery, nothing_to_send
from component.link.messages.inbound import InboundMessage
from component.link.messages.outbound import OutboundMessage, render
from xep.jid import JID
from xep.stanza import Message, Presence


class Sent:
    """Adds the stanzas of each message to a list."""

    def __init__(self, stanzas: list[Message | Presence]) -> None:
        self.stanzas = stanzas

    def send(self, message: OutboundMessage, /) -> Delivery:
        self.stanzas += render(message, 262_144)
        return nothing_to_send()

    def presence(self, stanza: Presence, /) -> Delivery:
        """As the service sends presence."""
        self.stanzas.append(stanza)
        return nothing_to_send()

    def receive(self, message: InboundMessage, /) -> InboundMessage:
        return message

    def is_ours(self, agent: JID, peer: JID, stanza_id: str, /) -> bool:
        return False

    def returned(self, agent: JID, peer: JID, stanza_id: str, /) -> str:
        return stanza_id

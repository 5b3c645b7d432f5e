"""Outbound messages: conversation, recipient, text and payloads."""

from typing import Literal, TypeAlias

import msgspec

from component.link.messages.inbound import Conversation, Reference, ReplyAddress
from xep.binding import Payload
from xep.jid import JID

ChatState = Literal["active", "composing", "paused"]


class Text(msgspec.Struct, frozen=True):
    """Plain text for a person; `language` is a BCP 47 tag."""

    text: str
    language: str | None = None


Part: TypeAlias = Text


class OutboundMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message to send.

    Attributes:
        id: other messages refer to it by this id, which is the same when it is sent again: the id
            of the stanza and its origin id (XEP-0359).
        conversation: the conversation that it belongs to.
        to: the recipient.
        parts: the texts for a person.
        payloads: the question or task event that it carries, or its report.
        replies_to: the message that it replies to (XEP-0461).
        replaces: the id of our message that it corrects (XEP-0308).
        chat_state: the chat state of the agent (XEP-0085).
        stored: whether archives should store it (XEP-0334); None leaves that to them.
        must_arrive: it is dropped last if too much waits, and its sender sends it again.
        asks_for_reports: requests a receipt and a displayed marker from the recipient's client
            (XEP-0184, XEP-0333).
    """

    id: str
    conversation: Conversation
    to: ReplyAddress
    parts: tuple[Part, ...] = ()
    payloads: tuple[Payload, ...] = ()
    replies_to: Reference | None = None
    replaces: str | None = None
    chat_state: ChatState | None = None
    stored: bool | None = None
    must_arrive: bool = False
    asks_for_reports: bool = False


def conversation_with(agent: JID, peer: JID, thread: str | None = None) -> Conversation:
    """Return the conversation of an agent with an account."""
    return Conversation(agent.bare, peer.bare, thread=thread)

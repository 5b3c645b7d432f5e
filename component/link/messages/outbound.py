"""Outbound messages, and how they are rendered as stanzas."""

from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

import msgspec

from component.link.messages.code_blocks import without_languages
from component.link.messages.inbound import Conversation, Reference, ReplyAddress
from xep.binding import Payload
from xep.binding.escaping import without_forbidden
from xep.chat_markers import Markable
from xep.chat_states import Active, Composing, Paused
from xep.hints import NoCopy, NoPermanentStore, NoStore, Store
from xep.jid import JID
from xep.message_correction import Replace
from xep.message_replies import Reply
from xep.muc import User
from xep.receipts import ReceiptRequest
from xep.stanza import Message
from xep.stanza_ids import OriginId

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
        parts: the texts for a person.
        payloads: the question or task event that it carries, or its report.
        replies_to: the message that it replies to (XEP-0461).
        replaces: the id of our message that it corrects (XEP-0308).
        chat_state: the chat state of the agent (XEP-0085).
        stored: whether archives should store it (XEP-0334); None leaves that to them.
        is_draft: it is for the recipient's client alone, and for now: neither stored nor copied.
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
    is_draft: bool = False
    must_arrive: bool = False
    asks_for_reports: bool = False


def conversation_with(agent: JID, peer: JID, thread: str | None = None) -> Conversation:
    """Return the conversation of an agent with an account."""
    return Conversation(agent.bare, peer.bare, thread=thread)


_ENVELOPE_BYTES: Final = 4096
"""The maximum size of a message without its body."""
_GROWTH: Final = 6
"""The maximum number of bytes that one byte of a body becomes in XML, as in `&quot;`."""
_SHORTEST_BODY: Final = 512
_STATES: Final[dict[ChatState, type[Active | Composing | Paused]]] = {
    "active": Active,
    "composing": Composing,
    "paused": Paused,
}


def render(message: OutboundMessage, max_stanza_bytes: int) -> Iterator[Message]:
    """Yield the stanzas of a message: several if its text is too long for one.

    The first has the id of the message and all its payloads; the following ones have that id with a
    number. A message without text and payloads has no stanza.
    """
    text = "\n\n".join([without_languages(without_forbidden(part.text)) for part in message.parts])
    most = max((max_stanza_bytes - _ENVELOPE_BYTES) // _GROWTH, _SHORTEST_BODY)
    bodies: list[str | None] = list(split_text(text, most))
    if not bodies and (message.payloads or not message.parts):
        bodies = [None]
    language = next((part.language for part in message.parts if part.language), None)
    for number, body in enumerate(bodies, 1):
        id_ = message.id if number == 1 else f"{message.id}-{number}"
        yield Message(
            type=message.to.type,
            id=id_,
            from_=message.to.from_,
            to=message.to.to,
            lang=language,
            body=body,
            thread=message.to.thread,
            payloads=(
                *(_carried(message) if number == 1 else ()),
                *_noted(message, body is not None),
                OriginId(id=id_),
            ),
        )


def _carried(message: OutboundMessage) -> Iterator[Payload]:
    yield from message.payloads
    answered = message.replies_to
    if answered is not None:
        author = str(message.to.from_.bare) if answered.is_ours else message.to.to
        yield Reply(id=answered.id, to=answered.author or author)
    if message.replaces is not None:
        yield Replace(id=message.replaces)


def _noted(message: OutboundMessage, has_body: bool) -> Iterator[Payload]:
    if message.to.is_occupant:  # a private message in a room (XEP-0045 §7.5)
        yield User()
    if message.chat_state is not None:
        yield _STATES[message.chat_state]()
    if message.asks_for_reports and has_body:
        yield ReceiptRequest()
        yield Markable()
    if message.is_draft:
        yield from (NoStore(), NoPermanentStore(), NoCopy())
    elif message.stored is not None:
        yield Store() if message.stored else NoStore()


def split_text(text: str, most_bytes: int) -> Iterator[str]:
    """Split a text into parts of at most `most_bytes` bytes of UTF-8, between lines or words if
    possible.

    The parts together are the text, without the white space at the splits. An empty text has no
    parts.
    """
    rest = text
    while len(rest.encode()) > most_bytes:
        fits = len(rest.encode()[:most_bytes].decode(errors="ignore"))
        cut = max(rest.rfind("\n", fits // 2, fits), 0) or max(rest.rfind(" ", fits // 2, fits), 0)
        part, rest = rest[: cut or fits], rest[cut or fits :]
        if cut:
            rest = rest.lstrip()
        if part.strip():
            yield part
    if rest:
        yield rest

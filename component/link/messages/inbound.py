"""Inbound messages: speaker, conversation, content and references.

A message that others refer to has three ids: the stanza's own, the origin id of the client that
wrote it, and the stanza id of the room or archive that forwarded it (XEP-0359). Clients differ in
which one they use.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from enum import IntEnum
from typing import Final, Literal, TypeAlias

import msgspec

from xep.file_sharing import FileSharing
from xep.jid import JID

MessageType = Literal["chat", "normal", "groupchat", "headline", "error"]
Copy = Literal["carbon", "archive", "forwarded"]

THUMBS_UP: Final = "\U0001f44d"
THUMBS_DOWN: Final = "\U0001f44e"
"""The reactions that answer a question: approve, and deny."""


class Account(msgspec.Struct, frozen=True):
    """A speaker who is known by a bare JID."""

    jid: JID


class Occupant(msgspec.Struct, frozen=True):
    """A speaker in a multi-user chat (XEP-0045): `occupant_id` is the same under every nickname."""

    room: JID
    nickname: str
    occupant_id: str | None = None


Actor: TypeAlias = Account | Occupant


class Conversation(msgspec.Struct, frozen=True):
    """The conversation of a message: of an agent with an account, an occupant or a multi-user chat.

    `agent` and `peer` are bare JIDs, except for a private conversation with an occupant, whose
    `peer` is their full address.
    """

    agent: JID
    peer: JID
    in_room: bool = False
    thread: str | None = None


class ReplyAddress(msgspec.Struct, frozen=True):
    """The address for an answer. `to` is byte for byte as the server wrote it.

    `shows_states` says that its client shows chat states (XEP-0085). `is_occupant` says that it is
    that of an occupant of a room, for private messages (XEP-0045 §7.5); `occupant` identifies this
    occupant, so that nobody else who has the nickname gets the answer.
    """

    to: str
    from_: JID
    type: Literal["chat", "normal", "groupchat", "headline"] = "chat"
    thread: str | None = None
    shows_states: bool = False
    is_occupant: bool = False
    occupant: str = ""


class Reference(msgspec.Struct, frozen=True):
    """The message that is replied to; `is_ours` says that the agent wrote it, or may have. `author`
    is the address of who wrote it, if that is not the other party of the conversation.
    """

    id: str
    is_ours: bool
    author: str = ""


class Reacted(msgspec.Struct, frozen=True):
    """All reactions of the speaker to one message; an empty set withdraws them."""

    id: str
    emoji: frozenset[str]


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """A file at a URL (XEP-0066, XEP-0385, XEP-0447), which may have any scheme. It is empty for a
    file that only the client of its sender has.

    `size` is in bytes, as the sender states it, and so are `hashes`: names of functions (XEP-0300),
    each with the digest in hex.
    """

    url: str
    name: str | None = None
    media_type: str | None = None
    size: int | None = None
    description: str | None = None
    hashes: tuple[tuple[str, str], ...] = ()


class InboundMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message, parsed once.

    Attributes:
        id: the stanza's id; `origin_id` and `stanza_id` are those of XEP-0359.
        sender: the full address in `from`.
        principal: the same without its resource, whose rights apply.
        actor: the speaker.
        reply_to: the address for an answer.
        text: the author's text: without the quotation of a reply, without fallback text for clients
            that lack a feature, and without the URL of an attachment.
        has_body: it has a body, possibly blank.
        is_action: the text is what the author does, not says (XEP-0245); `/me` is removed.
        language: a BCP 47 tag.
        unclear: why the text may not be what the author says, as a clause; None if it certainly is.
        replaces: the id of the message that this one corrects (XEP-0308).
        retracts: the id of the message that this one retracts (XEP-0424).
        replies_to: the message that this one replies to (XEP-0461).
        quotation: what the reply quotes of that message, as it was removed from the text.
        reacted: the reactions that it sets (XEP-0444).
        selected: the id of the action that was chosen (XEP-0439).
        encryption: the name of the encryption of a message that cannot be read; None for others.
        delayed: it was stored on its way for more than a minute, or nobody knows how long;
            `sent_at` says since when, if that is known.
        copy: it is a copy of a message, or contains one.
        from_agent: it has a payload of urn:fluux:agent:0: an agent wrote it (FAC-015).
        received: the id of the message that has been received (XEP-0184).
        displayed: the id of the message that has been displayed, with all before it (XEP-0333).
        wants_receipt: it requests a receipt (XEP-0184).
        markable: it requests a displayed marker (XEP-0333).
    """

    id: str | None
    origin_id: str | None = None
    stanza_id: str | None = None
    type: MessageType
    sender: JID
    principal: JID
    actor: Actor
    conversation: Conversation
    reply_to: ReplyAddress
    text: str = ""
    has_body: bool = False
    is_action: bool = False
    language: str | None = None
    unclear: str | None = None
    replaces: str | None = None
    retracts: str | None = None
    replies_to: Reference | None = None
    quotation: str | None = None
    reacted: Reacted | None = None
    selected: str | None = None
    attachments: tuple[Attachment, ...] = ()
    encryption: str | None = None
    delayed: bool = False
    sent_at: datetime | None = None
    copy: Copy | None = None
    from_agent: bool = False
    received: str | None = None
    displayed: str | None = None
    wants_receipt: bool = False
    markable: bool = False


class StageOrder(IntEnum):
    """The order of the stages that handle messages. Repetitions were discarded before."""

    LIMITS = 1
    ENCRYPTED = 2
    FILES = 3
    CORRECTIONS = 4
    ANSWERS = 5
    REVISIONS = 6
    COMMANDS = 7
    AGENT = 8


class Handled(msgspec.Struct, frozen=True):
    """A stage has handled a message; `reply` is the reply, if there is one, and `files` are sent
    after it. `is_read` says whether the sender may be told that the message was received; if not,
    it may be sent again. With `goes_on`, the next stages handle the message, too.
    """

    reply: str | None = None
    is_read: bool = True
    goes_on: bool = False
    files: tuple[FileSharing, ...] = ()


class MessageStage(msgspec.Struct, frozen=True):
    """One of the stages that a message passes until one handles it.

    Attributes:
        order: its place among the others.
        handle: handles a message, or passes it on with None.
        returned: called with the recipient of a sent message that was returned as an error, the
            address that had sent it, and its id.
        features: the disco features that it announces.
    """

    order: StageOrder
    handle: Callable[[InboundMessage], Awaitable[Handled | None]]
    returned: Callable[[JID, JID, str], Awaitable[None]] | None = None
    features: tuple[str, ...] = ()

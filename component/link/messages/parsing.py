"""Parses a message stanza into an `InboundMessage`.

The body of a message is not always what its author says: it may be the fallback of a reaction, a
retraction or an encrypted message, replace an earlier message, or repeat somebody else's words.
`InboundMessage.text` leaves out all of that where it is marked, and `unclear` says whether the
message contains anything that can change the meaning of the rest.
"""

import contextlib
import re
import unicodedata
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, TypeAlias, TypeVar, cast

import msgspec

from component.link.messages.inbound import (
    Account,
    Actor,
    Attachment,
    Conversation,
    Copy,
    InboundMessage,
    MessageType,
    Occupant,
    Reacted,
    Reference,
    ReplyAddress,
)
from component.link.messages.signals import HINTS, STATES
from xep import (
    chat_markers,
    delay,
    explicit_encryption,
    fallback,
    file_sharing,
    hints,
    media_sharing,
    message_correction,
    message_replies,
    message_retraction,
    occupant_ids,
    omemo,
    out_of_band,
    quick_responses,
    reactions,
    receipts,
    stanza_ids,
)
from xep.binding import ContentError, Payload
from xep.fluux_agent import NAMESPACE as AGENT
from xep.jid import JID, JIDError
from xep.stanza import NAMESPACE as STANZAS
from xep.stanza import Incoming

P = TypeVar("P", bound=Payload)
_WithId: TypeAlias = (
    chat_markers.Acknowledged
    | chat_markers.Displayed
    | chat_markers.Received
    | message_correction.Replace
    | message_retraction.Retract
    | occupant_ids.OccupantId
    | quick_responses.ActionSelected
    | stanza_ids.OriginId
)

_BODY: Final = f"{{{STANZAS}}}body"
_SUBJECT: Final = f"{{{STANZAS}}}subject"
_XHTML: Final = "{http://jabber.org/protocol/xhtml-im}html"
_OF_AGENTS: Final = f"{{{AGENT}"
_MUC_USER: Final = "{http://jabber.org/protocol/muc#user}x"
_COPIES: Final[tuple[tuple[str, Copy], ...]] = (
    ("{urn:xmpp:carbons:2}received", "carbon"),
    ("{urn:xmpp:carbons:2}sent", "carbon"),
    ("{urn:xmpp:mam:2}result", "archive"),
    ("{urn:xmpp:forward:0}forwarded", "forwarded"),
)

_KNOWN_TO_CHANGE_NOTHING: Final = frozenset(
    (
        _BODY,
        f"{{{STANZAS}}}thread",
        *STATES,
        receipts.ReceiptRequest.xml_tag,
        chat_markers.Markable.xml_tag,
        stanza_ids.OriginId.xml_tag,
        stanza_ids.StanzaId.xml_tag,
        # The mark of an archive, from before XEP-0359.
        "{urn:xmpp:mam:tmp}archived",
        # The nickname of the author, for clients without a roster entry (XEP-0172).
        "{http://jabber.org/protocol/nick}nick",
        # Hints for storage and copying, and for display (XEP-0393 §7).
        *HINTS,
        "{urn:xmpp:styling:0}unstyled",
        # What clients send beside each text: that they tell when somebody writes (XEP-0022), what
        # they can do (XEP-0115), the picture of the author (XEP-0153), a signature (XEP-0027), and
        # that Google shall store nothing.
        "{jabber:x:event}x",
        "{http://jabber.org/protocol/caps}c",
        "{vcard-temp:x:update}x",
        "{jabber:x:signed}x",
        "{google:nosave}x",
        "{http://jabber.org/protocol/archive}record",
        # A request to draw the attention of the reader (XEP-0224).
        "{urn:xmpp:attention:0}attention",
        # Rules for its delivery (XEP-0079, XEP-0023), when it disappears (XEP-0466), and the author
        # as an occupant (XEP-0421).
        "{http://jabber.org/protocol/amp}amp",
        "{jabber:x:expire}x",
        "{urn:xmpp:ephemeral:0}ephemeral",
        occupant_ids.OccupantId.xml_tag,
        # How the text is shown: hidden at first (XEP-0382), in bold (XEP-0394).
        "{urn:xmpp:spoiler:0}spoiler",
        "{urn:xmpp:markup:0}markup",
        # Replies, whose quotation is removed (XEP-0461, XEP-0428).
        message_replies.Reply.xml_tag,
        fallback.Fallback.xml_tag,
    )
)
_CLAUSES: Final = {
    message_correction.Replace.xml_tag: "it corrects an earlier message",
    message_retraction.Retract.xml_tag: "it retracts an earlier message",
    message_retraction.ApplyTo.xml_tag: "it retracts an earlier message",
    explicit_encryption.Encryption.xml_tag: "it is encrypted",
    reactions.Reactions.xml_tag: "it is a reaction",
    _SUBJECT: "it has a subject",
}
_ENCRYPTIONS: Final = {
    "eu.siacs.conversations.axolotl": "OMEMO",
    "urn:xmpp:omemo:1": "OMEMO",
    "urn:xmpp:omemo:2": "OMEMO",
    "urn:xmpp:openpgp:0": "OpenPGP",
    "jabber:x:encrypted": "OpenPGP",
    "urn:xmpp:otr:0": "OTR",
}
_OTR: Final = "?OTR"
_REPLACED_BY: Final = frozenset(
    (
        reactions.NAMESPACE,
        message_retraction.NAMESPACE,
        message_retraction.LEGACY,
        message_correction.NAMESPACE,
        explicit_encryption.NAMESPACE,
        out_of_band.NAMESPACE,
        file_sharing.NAMESPACE,
        *_ENCRYPTIONS,
    )
)
"""Features that this parser supports, so their fallback text is not the author's."""
_ENCRYPTED_FILE: Final = re.compile(r"(?m)^aesgcm://\S{1,2000}$")
"""Matches the link to a file that was encrypted for OMEMO (XEP-0454), which has no element."""
_ME: Final = "/me "
_FOR_OTHERS: Final = "a part of its text is only for other clients"
_LONGEST_NAME: Final = 60
_LATE: Final = timedelta(minutes=1)
_DELAYS: Final = (delay.Delay.xml_tag, delay.LegacyDelay.xml_tag)
_BLANK: Final = frozenset("\u034f\u115f\u1160\u2800\u3164\ufe0e\ufe0f\uffa0")
"""Fillers and variation selectors, which are letters, marks and symbols to Unicode."""
_UNITS: Final = (("utf-32-le", 4), ("utf-16-le", 2), ("utf-8", 1))
"""Encodings whose units clients count, and the bytes of a unit."""


class _Children:
    """The children of a message. Those that it does not have are not looked for."""

    def __init__(self, stanza: Incoming) -> None:
        self.stanza = stanza
        self.names = stanza.child_names
        self.own = set(self.names)

    def first(self, cls: type[P]) -> P | None:
        """Return the first child that is a `cls`; None if it does not match its declaration."""
        if cls.xml_tag not in self.own:
            return None
        try:
            return self.stanza.payload(cls)
        except ContentError:
            return None

    def all(self, cls: type[P]) -> list[P]:
        """Return all children that are a `cls` and match its declaration."""
        return self.stanza.payloads(cls) if cls.xml_tag in self.own else []


def parse_message(stanza: Incoming, sender: JID, to: JID, now: datetime) -> InboundMessage:
    """Parse a message from `sender` to the address `to` of the component, received `now`.

    It never fails: an element that does not match its declaration is treated as unknown.
    """
    children = _Children(stanza)
    names, own = children.names, children.own
    principal = sender.bare
    type_ = cast("MessageType", stanza.type)
    thread = stanza.text_of("thread")
    actor = _actor(children, sender, principal)
    reply = children.first(message_replies.Reply)
    body = stanza.text_of("body", stanza.lang)
    # Some web clients send the formatted text alone.
    body = stanza.inner_text(_XHTML) if body is None else body
    attachments = _attachments(children, body or "")
    sent_at = _sent_at(children)
    delayed = not own.isdisjoint(_DELAYS) and not _is_recent(sent_at, now)
    # A delay that does not count changes nothing.
    said = names if delayed else [name for name in names if name not in _DELAYS]
    text, quotation, unclear = _authored_text(children, said, body, reply)
    encryption = _encryption(children, names, body)
    retracts = _retracts(children)
    text = _without_urls(text, attachments)
    if encryption or retracts:
        text = ""  # the text is for clients that lack the feature
    text = _visible_command(text)
    is_action = text.startswith(_ME)
    room = actor.room if isinstance(actor, Occupant) else None
    return InboundMessage(
        id=stanza.id,
        origin_id=_id_of(children, stanza_ids.OriginId),
        stanza_id=_stanza_id(children, to.bare if room is None else room),
        type=type_,
        sender=sender,
        principal=principal,
        actor=actor,
        conversation=_conversation(actor, sender, to, type_, thread),
        reply_to=ReplyAddress(
            to=str(room) if room is not None and type_ == "groupchat" else stanza.sender or "",
            from_=to,
            type=type_ if type_ in ("chat", "groupchat") else "normal",
            thread=thread,
            shows_states=not own.isdisjoint(STATES),
            is_occupant=room is not None and type_ != "groupchat",
        ),
        text=text.removeprefix(_ME) if is_action else text,
        has_body=_BODY in own or body != "",
        is_action=is_action,
        language=stanza.lang,
        unclear=unclear,
        replaces=_id_of(children, message_correction.Replace),
        retracts=retracts,
        replies_to=None if reply is None else _reference(reply, sender, to),
        quotation=quotation,
        reacted=_reacted(children),
        selected=_id_of(children, quick_responses.ActionSelected),
        attachments=attachments,
        encryption=encryption,
        delayed=delayed,
        sent_at=sent_at,
        copy=next((copy for name, copy in _COPIES if name in own), None),
        from_agent=any(name.startswith(_OF_AGENTS) for name in names),
        received=_received(children),
        displayed=_id_of(children, chat_markers.Displayed)
        or _id_of(children, chat_markers.Acknowledged),
        wants_receipt=receipts.ReceiptRequest.xml_tag in own,
        markable=chat_markers.Markable.xml_tag in own,
    )


def _without_urls(text: str, attachments: Sequence[Attachment]) -> str:
    """Remove the URLs of files at the end of a text, where clients put them for others.

    A URL alone may be a link that the author has written, so it is only removed if it is the text.
    """
    for one in reversed([one for one in attachments if one.url]):
        before = text.removesuffix(one.url)
        if not before or (one.name is not None and before != text and before[-1].isspace()):
            text = before.rstrip()
    return text


def _visible_command(text: str) -> str:
    """Remove invisible characters around a command and in its name, such as a byte order mark."""
    start, end = 0, len(text)
    while start < end and (_is_invisible(text[start]) or text[start] in _BLANK):
        start += 1
    if text[start : start + 1] != "/":
        return text
    while _is_invisible(text[end - 1]):
        end -= 1
    name, *_ = text[start:end].split(maxsplit=1)
    visible = "".join(one for one in name if not _is_invisible(one) and one not in _BLANK)
    return visible + text[start + len(name) : end]


def _is_invisible(character: str) -> bool:
    return character.isspace() or unicodedata.category(character) == "Cf"


def _sent_at(children: _Children) -> datetime | None:
    """Return when a delayed message was first sent; None if it was not, or nobody knows."""
    times = [late.time for late in children.all(delay.ReceivedDelay)]
    times += [late.time for late in children.all(delay.LegacyDelay)]
    return min((time for time in times if time is not None), default=None)


def _is_recent(sent_at: datetime | None, now: datetime) -> bool:
    """Return whether a message was stored for a moment only, such as by a server that resumes."""
    return sent_at is not None and abs(now - sent_at) <= _LATE


def _actor(children: _Children, sender: JID, bare: JID) -> Actor:
    in_room = children.stanza.type == "groupchat" or _MUC_USER in children.own
    if not in_room:
        return Account(bare)
    known = _id_of(children, occupant_ids.OccupantId)
    return Occupant(bare, sender.resource or "", known)


def _conversation(
    actor: Actor, sender: JID, to: JID, type_: MessageType, thread: str | None
) -> Conversation:
    if isinstance(actor, Account):
        return Conversation(to.bare, actor.jid, thread=thread)
    if type_ == "groupchat":
        return Conversation(to.bare, actor.room, in_room=True, thread=thread)
    return Conversation(to.bare, sender, thread=thread)


def _authored_text(
    children: _Children, names: Sequence[str], body: str, reply: message_replies.Reply | None
) -> tuple[str, str | None, str | None]:
    """Return the author's text, what it quotes, and why the text may not be everything that the
    author says.
    """
    unclear = _unclear(children, names, body)
    fallbacks = children.all(fallback.Fallback)
    replies = names.count(message_replies.Reply.xml_tag)
    if replies > (reply is not None) or len(fallbacks) < names.count(fallback.Fallback.xml_tag):
        unclear = unclear or _FOR_OTHERS
    features = {_split(name)[0] for name in names} & _REPLACED_BY
    cut: list[fallback.FallbackBody] = []
    quoted: str | None = None
    for one in fallbacks:
        if one.for_ == message_replies.NAMESPACE and reply is not None:
            quotation = _quotation(body, one)
            if quotation is not None:
                cut += quotation
                quoted = "\n".join([body[part.start : part.end] for part in quotation]).strip()
            else:
                unclear = unclear or "it is unclear which part of its text is quoted"
        elif one.for_ in features:
            cut += one.bodies or (fallback.FallbackBody(),)
        else:
            unclear = unclear or _FOR_OTHERS
    if not cut:
        return body.strip(), None, unclear
    try:
        text = fallback.without_fallback(body, fallback.Fallback(bodies=tuple(cut)))
    except ValueError:
        return body.strip(), None, unclear or _FOR_OTHERS
    return text.strip(), quoted, unclear


def _quotation(body: str, marked: fallback.Fallback) -> Sequence[fallback.FallbackBody] | None:
    """Return the ranges of a quotation in code points, as XEP-0426 counts; None if what is marked
    is not a quotation.

    Some clients count UTF-16 units or bytes. Some keep the range of an earlier version when a reply
    is corrected: it may lie beyond the body, or mark the author's own text.
    """
    for encoding, unit in _UNITS:
        with contextlib.suppress(ValueError):
            data = body.encode(encoding, "surrogatepass")
            ranges = [_in_code_points(data, one, encoding, unit) for one in marked.bodies]
            if ranges and all(_is_quotation(body, one) for one in ranges):
                return ranges
    return None


def _in_code_points(
    data: bytes, one: fallback.FallbackBody, encoding: str, unit: int
) -> fallback.FallbackBody:
    """Convert a range that counts units of so many bytes. Raises ValueError for another one."""
    start, end = (one.start or 0) * unit, len(data) if one.end is None else one.end * unit
    if not 0 <= start <= end <= len(data):
        raise ValueError(f"the body has no range from {start} to {end}")
    before, part = data[:start].decode(encoding), data[start:end].decode(encoding)
    return fallback.FallbackBody(start=len(before), end=len(before) + len(part))


def _is_quotation(body: str, one: fallback.FallbackBody) -> bool:
    """Return whether a range in code points is one of whole lines that are quoted."""
    start, end = one.start or 0, len(body) if one.end is None else one.end
    ends_line = "\n" in body[max(end - 1, 0) : end + 1] or end in (start, len(body))
    return ends_line and _is_quoted(body[start:end])


def _is_quoted(text: str) -> bool:
    return all(line.startswith(">") for line in text.splitlines() if line.strip())


def _without_spaces(text: str) -> str:
    return "".join(text.split())


def _unclear(children: _Children, names: Sequence[str], body: str) -> str | None:
    stanza = children.stanza
    # An element that selects something alone is interpreted, if there is exactly one.
    choices = [
        cls.xml_tag
        for cls in (quick_responses.ActionSelected, reactions.Reactions)
        if children.all(cls)
    ]
    for name in names:
        if name in _KNOWN_TO_CHANGE_NOTHING or name in choices:
            continue
        if name == _SUBJECT and not any(map(str.strip, stanza.texts_of("subject"))):
            continue
        if name == _XHTML and _without_spaces(stanza.inner_text(_XHTML)) == _without_spaces(body):
            continue  # the same text with formatting (XEP-0071)
        return _clause(name)
    if sum(map(names.count, choices)) > 1:
        return "it chooses more than one thing"
    if len(children.own) == len(children.names):
        return None
    if len({each.strip() for each in stanza.texts_of("body")} - {""}) > 1:
        return "it says different things in several languages"
    if len(set(stanza.texts_of("thread"))) > 1:
        return "it has several threads"
    return None


def _clause(name: str) -> str:
    if name in _CLAUSES:
        return _CLAUSES[name]
    namespace, local = _split(name)
    if local == "encrypted" or namespace in _ENCRYPTIONS:
        return "it is encrypted"
    said = "".join(one for one in local[:_LONGEST_NAME] if one.isalnum() or one in "-_.")
    return f"it also contains <{said}/>"


def _reference(reply: message_replies.Reply, sender: JID, to: JID) -> Reference:
    # Movim writes the slash even if there is no resource. Dino 0.5 names its own user as the author
    # of what is replied to.
    author = reply.to and reply.to.removesuffix("/")
    try:
        ours = not author or JID.parse(author).bare in (sender.bare, to.bare)
    except JIDError:
        ours = False
    return Reference(reply.id, ours)


def _reacted(children: _Children) -> Reacted | None:
    found = children.first(reactions.Reactions)
    if found is None:
        return None
    return Reacted(found.id, frozenset(emoji.strip() for emoji in found.emoji))


def _retracts(children: _Children) -> str | None:
    found = _id_of(children, message_retraction.Retract)
    legacy = children.first(message_retraction.ApplyTo)
    return legacy.id if found is None and legacy is not None and legacy.retract else found


def _encryption(children: _Children, names: Sequence[str], body: str) -> str | None:
    if _is_for_programs(children, names):
        return None
    named = children.first(explicit_encryption.Encryption)
    if named is not None:
        name = _ENCRYPTIONS.get(named.namespace) or named.name or "an encryption"
        return "".join(one for one in name[:_LONGEST_NAME] if one.isprintable())
    for name in names:
        namespace, local = _split(name)
        if namespace in _ENCRYPTIONS and local in ("encrypted", "openpgp", "x"):
            return _ENCRYPTIONS[namespace]
    return "OTR" if body.startswith(_OTR) else None


def _is_for_programs(children: _Children, names: Sequence[str]) -> bool:
    """Return whether an encrypted message has no text for a person.

    Clients send keys, and chat states that are also encrypted, when nobody has written anything.
    """
    contents = [one.payload for one in children.all(omemo.Encrypted)]
    contents += [one.payload for one in children.all(omemo.LegacyEncrypted)]
    if not contents or _BODY in names:
        return False
    return hints.NoStore.xml_tag in names or not any(contents)


def _attachments(children: _Children, body: str) -> tuple[Attachment, ...]:
    """Return the files, each once: many clients send a URL in two or three forms."""
    found: dict[str, Attachment] = {}
    for shared in children.all(file_sharing.FileSharing):
        for url in _best([source.target for source in shared.sources.urls]) or ("",):
            found[url] = _described(url, shared.file)
    for reference in children.all(media_sharing.Reference):
        if reference.media is not None:
            for one in _shared_inline(reference.media):
                found.setdefault(one.url, one)
    for link in children.all(out_of_band.OutOfBand):
        found.setdefault(link.url, Attachment(url=link.url, description=link.desc))
    for url in _ENCRYPTED_FILE.findall(body):
        found.setdefault(url, Attachment(url=url))
    about = children.first(file_sharing.File)
    if about is not None and len(found) == 1:
        (only,) = found.values()
        if only.name is None:  # Fluux describes the only link beside it
            described = _described(only.url, about)
            return (msgspec.structs.replace(described, description=only.description),)
    return tuple(found.values())


def _shared_inline(media: media_sharing.MediaSharing) -> list[Attachment]:
    file = media.file or media.file_of_version_4 or media_sharing.File()
    urls = [source.uri for source in media.sources.references]
    return [_described(url, file) for url in _best(urls) or ("",)]


def _best(urls: Sequence[str]) -> Sequence[str]:
    """Return the one URL of a file that is used, if there is one: the others are for peers."""
    web = [url for url in urls if url.lower().startswith(("https:", "http:"))]
    return (web or urls)[:1]


def _described(url: str, file: file_sharing.File | media_sharing.File) -> Attachment:
    return Attachment(
        url=url,
        name=file.name,
        media_type=file.media_type,
        size=file.size,
        hashes=tuple([(each.algo.lower(), each.digest.hex()) for each in file.hashes]),
    )


def _received(children: _Children) -> str | None:
    found = children.first(receipts.Received)
    if found is None:
        return _id_of(children, chat_markers.Received)
    return found.id or children.stanza.id


def _stanza_id(children: _Children, by: JID) -> str | None:
    """Return the id assigned by the one entity that is known to remove forged ones."""
    for one in children.all(stanza_ids.StanzaId):
        if one.by == str(by):
            return one.id
    return None


def _id_of(children: _Children, cls: type[_WithId]) -> str | None:
    found = children.first(cls)
    return None if found is None else found.id


def _split(name: str) -> tuple[str, str]:
    """Return the namespace and the local name of a name in Clark notation."""
    namespace, _, local = name.removeprefix("{").rpartition("}")
    return namespace, local

"""Decides whether a message in a room is for the agent: it mentions the agent, replies to it, or
contains its nickname as a word.

Clients say so in different ways. Some add an element with the address (XEP-0372) or the occupant id
(XEP-0513) of the person who is mentioned; most write only the nickname, at the beginning and
followed by a colon or a comma, or after an at sign.
"""

import re
import unicodedata
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Final, Literal, TypeAlias
from urllib.parse import unquote

import msgspec

from component.link.messages.inbound import InboundMessage
from xep.jid import JID, JIDError
from xep.mentions import Mention
from xep.message_replies import Reply
from xep.references import Reference
from xep.stanza import Incoming

How: TypeAlias = Literal["mention", "reply", "name"]


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody whom an element of a message mentions: by the address or the occupant id. `name` is
    the part of the body that stands for them, if the element says which.
    """

    address: str = ""
    occupant_id: str = ""
    name: str = ""


class Pointers(msgspec.Struct, frozen=True):
    """What the elements of a message point at: those whom it mentions, and the message that it
    replies to with the address of its author (XEP-0461), which may be empty.
    """

    mentions: tuple[Named, ...] = ()
    reply: str = ""
    author: str = ""


class Us(msgspec.Struct, frozen=True, kw_only=True):
    """The agent in a room.

    Attributes:
        room: the bare address of the room.
        nicks: its nickname there, and other names that people may call it by.
        account: its bare address.
        occupant_id: its own occupant id, where the room gives one.
        others: the nicknames of the other occupants, which may contain its own.
    """

    room: JID
    nicks: tuple[str, ...]
    account: JID
    occupant_id: str = ""
    others: Collection[str] = ()


class Address(msgspec.Struct, frozen=True):
    """How a message addresses the agent, and its text without the name at the beginning."""

    how: How
    text: str


_NOTHING: Final = Pointers()
_TAGS: Final = frozenset((Mention.xml_tag, Reference.xml_tag, Reply.xml_tag))


def pointers_of(stanza: Incoming) -> Pointers:
    """Return what the elements of a message point at. It never fails: bad elements are ignored."""
    if _TAGS.isdisjoint(stanza.child_names):
        return _NOTHING
    body = stanza.text_of("body", stanza.lang) or ""
    named = [
        Named(
            address=each.jid or "",
            occupant_id=each.occupant_id or "",
            name=_part(body, each.begin, each.end),
        )
        for each in stanza.payloads(Mention)
        if not each.group
    ]
    named += [
        Named(address=_address_in(each.uri or ""), name=_part(body, each.begin, each.end))
        for each in stanza.payloads(Reference)
        if each.type == "mention"
    ]
    replies = stanza.payloads(Reply)
    reply = replies[0] if len(replies) == 1 else None
    if reply is None:
        return Pointers(tuple(named))
    return Pointers(tuple(named), reply.id, reply.to or "")


def addressed(
    message: InboundMessage, pointers: Pointers, us: Us, is_ours: Callable[[str], bool]
) -> Address | None:
    """Return how a message addresses the agent; None if it does not.

    `is_ours` returns whether an id is that of a message that the agent has sent to the room.
    """
    text = message.text
    found = [each for each in pointers.mentions if _is_us(each, us)]
    if found:
        return Address("mention", _without(text, (*us.nicks, *(each.name for each in found))))
    if pointers.reply and (is_ours(pointers.reply) or _is_our_address(pointers.author, us)):
        return Address("reply", _without(text, us.nicks))
    if names(text, us.nicks, us.others):
        return Address("name", _without(text, us.nicks))
    return None


def _is_us(named: Named, us: Us) -> bool:
    if named.occupant_id:  # a mention by the id of another one is not ours, whatever its address
        return named.occupant_id == us.occupant_id
    return bool(named.address) and _is_our_address(named.address, us)


def _is_our_address(address: str, us: Us) -> bool:
    try:
        jid = JID.parse_delivered(address)
    except JIDError:
        return False
    if jid.bare == us.room:
        return jid.resource in us.nicks
    return jid.bare == us.account


def _address_in(uri: str) -> str:
    """Return the address of an `xmpp:` URI (RFC 5122), without a query."""
    scheme, _, rest = uri.partition(":")
    return unquote(rest.partition("?")[0].removeprefix("//")) if scheme.lower() == "xmpp" else ""


def _part(body: str, begin: str | None, end: str | None) -> str:
    """Return a range of the body in code points; nothing if it is not one."""
    try:
        first, last = int(begin or ""), int(end or "")
    except ValueError:
        return ""
    return body[first:last].strip() if 0 <= first < last <= len(body) else ""


# -- names in texts --------------------------------------------------------------------------------

_LINK: Final = re.compile(r"(?i)\b(?:[a-z][a-z0-9+.-]*://|www\.|xmpp:|mailto:)\S+")
_QUOTED: Final = re.compile(r"(?m)^>.*$")
_SPACELESS: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]"
)
"""Matches letters of scripts that put no spaces between words, or endings after a name."""


def names(text: str, nicks: tuple[str, ...], others: Collection[str] = ()) -> bool:
    """Return whether a text contains one of these nicknames as a word, in any case, outside of
    quotations, links, and the nicknames of others.
    """
    said = _LINK.sub(" ", _QUOTED.sub("", unicodedata.normalize("NFC", text)))
    nicks = tuple(nick for nick in nicks if nick.strip())
    if not any(_word(nick).search(said) for nick in nicks):
        return False
    for other in others:
        if any(nick.casefold() in other.casefold() for nick in nicks) and other not in nicks:
            said = _word(other).sub(" ", said)
    return any(_word(nick).search(said) for nick in nicks)


def _without(text: str, nicks: tuple[str, ...]) -> str:
    """Return a text without the nickname at its beginning, unless nothing else is in it."""
    said = unicodedata.normalize("NFC", text)
    for nick in nicks:
        found = _beginning(nick).match(said) if nick.strip() else None
        if found is not None and (rest := said[found.end() :].strip()):
            return rest
    return text


def _pattern(nick: str) -> str:
    return r"\s+".join(map(re.escape, unicodedata.normalize("NFC", nick).split()))


@lru_cache(maxsize=256)
def _word(nick: str) -> re.Pattern[str]:
    nick = nick.strip()
    before = r"(?<![\w@#/\\=&])(?<!\w[-.])" if _is_letter(nick[0]) else ""
    after = r"(?![\w@=\\])(?![-./]\w)" if _is_letter(nick[-1]) else ""
    return re.compile(rf"{before}@?{_pattern(nick)}{after}", re.IGNORECASE)


@lru_cache(maxsize=256)
def _beginning(nick: str) -> re.Pattern[str]:
    return re.compile(
        rf"\s*@?{_pattern(nick.lstrip('@'))}(?:\s*[:,;.!\u2013\u2014\uff0c\uff1a-]+(?:\s+|$)|\s*[:,\uff0c\uff1a]|\s+)",
        re.IGNORECASE,
    )


def _is_letter(character: str) -> bool:
    """Return whether a word can continue at this end of a nickname."""
    return re.match(r"\w", character) is not None and _SPACELESS.match(character) is None

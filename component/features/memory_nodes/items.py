"""Memories as payloads of PubSub items, and the encryption of their contents.

On servers of others, the contents can be encrypted: Fernet (AES-128-CBC and HMAC-SHA-256) with a
key of the operator. The id of an item, its version and its times stay readable. The text is bound
to the agent, the person and the key of its item, so that an item cannot replace another one.
"""

from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from xml.etree import ElementTree

import msgspec

from component.memory.knowledge_lines import Item
from component.memory.store import StoreUnavailableError
from component.memory_directory.layout import SessionKey
from component.policy.taint import Taint
from xep.binding import ContentError, RawXML, keep, read
from xep.characters import without_forbidden
from xep.fluux_agent.memory import Content, Memory
from xep.jid import JID

MEDIA_TYPE: Final = "application/vnd.fluux.encrypted-memory"


class NodeItem(NamedTuple):
    """An item of a node: its id, and its payload as XML text (empty without one)."""

    id: str
    payload: str


class KeyRefusedError(Exception):
    """An encryption key cannot be used; the message says what to do."""


_ENCRYPTED: Final = ("body", "title", "topic", "tags", "taint")


class _Plain(msgspec.Struct, omit_defaults=True, kw_only=True):
    agent: str
    who: str
    key: str
    body: str
    title: str = ""
    topic: str = ""
    tags: tuple[str, ...] = ()
    taint: Taint | None = None


class Cipher:
    """Encrypts with the first key, decrypts with all of them, so that keys can be replaced.

    Args:
        keys: Fernet keys: 32 bytes, URL-safe base64.

    Raises KeyRefusedError: a key is invalid.
    """

    def __init__(self, keys: tuple[str, ...]) -> None:
        # Imported only where memories are encrypted.
        from cryptography.fernet import Fernet, InvalidToken, MultiFernet  # noqa: PLC0415

        try:
            self._fernet = MultiFernet([Fernet(key) for key in keys])
        except ValueError:
            raise KeyRefusedError(
                "encryption_keys of [memory] must be 32 bytes each, in URL-safe base64. Make one:"
                " head -c 32 /dev/urandom | base64 | tr +/ -_"
            ) from None
        self._invalid = InvalidToken

    def encrypt(self, whose: SessionKey, item: Item) -> str:
        """Return the encrypted contents of an item."""
        plain = _Plain(
            agent=whose.agent, who=str(whose.who), key=item.key, **_encrypted_fields(item)
        )
        return self._fernet.encrypt(msgspec.json.encode(plain)).decode("ascii")

    def decrypt(self, whose: SessionKey, item: Item) -> Item:
        """Return an item with the contents that were encrypted in its body.

        Raises StoreUnavailableError: it was encrypted with another key, or is another item's.
        """
        try:
            data = self._fernet.decrypt(item.body.strip().encode())
            plain = msgspec.json.decode(data, type=_Plain)
        except (self._invalid, msgspec.MsgspecError) as error:
            raise StoreUnavailableError(
                f"The memory {item.key} of {whose.who} cannot be decrypted: put the key with which"
                " it was encrypted into encryption_keys of [memory]."
            ) from error
        if (plain.agent, plain.who, plain.key) != (whose.agent, str(whose.who), item.key):
            raise StoreUnavailableError(
                f"The memory {item.key} of {whose.who} holds what was encrypted for another one."
                " Delete the item."
            )
        return msgspec.structs.replace(item, **_encrypted_fields(plain))


def _encrypted_fields(of: Item | _Plain) -> dict[str, Any]:
    return {name: getattr(of, name) for name in _ENCRYPTED}


def payload_of(item: Item, by: JID, whose: SessionKey, cipher: Cipher | None = None) -> RawXML:
    """Return the payload of a memory that `by` writes."""
    readable = item
    content = Content(text=item.body)
    if cipher is not None:
        readable = Item(key=item.key, body="")
        content = Content(type=MEDIA_TYPE, text=cipher.encrypt(whose, item))
    return keep(
        Memory(
            key=item.key,
            title=readable.title or None,
            topic=readable.topic or None,
            version=item.version,
            created=_time(item.created),
            updated=_time(item.updated),
            expires=_time(item.expires),
            by=by,
            origin="web" if readable.taint == "room" else readable.taint,
            tags=readable.tags,
            contents=(content,),
        )
    )


def item_of(node_item: NodeItem, whose: SessionKey, cipher: Cipher | None = None) -> Item:
    """Return the memory in an item, by any author.

    The id of the item is the key. A payload that is not a memory counts as its text, so that
    nothing that a person has written is ignored. Raises StoreUnavailableError: it cannot be
    decrypted.
    """
    try:
        memory = read(node_item.payload, Memory)
    except ContentError:
        return Item(key=node_item.id, body=_text(node_item.payload), version=0)
    item = Item(
        key=node_item.id,
        body="\n\n".join(content.text for content in memory.contents),
        title=memory.title or "",
        topic=memory.topic or "",
        tags=memory.tags,
        version=memory.version,
        created=_stamp(memory.created),
        updated=_stamp(memory.updated),
        by="" if memory.by is None else str(memory.by),
        taint=memory.origin,
        expires=_stamp(memory.expires),
    )
    is_encrypted = len(memory.contents) == 1 and memory.contents[0].type == MEDIA_TYPE
    if not is_encrypted:
        return item
    if cipher is None:
        raise StoreUnavailableError(
            f"The memory {item.key} of {whose.who} is encrypted: put its key into"
            " encryption_keys of [memory]."
        )
    return cipher.decrypt(whose, item)


def _text(payload: str) -> str:
    try:
        # The stream has parsed it before.
        element = ElementTree.fromstring(payload)  # noqa: S314
    except ElementTree.ParseError:
        return ""
    return without_forbidden("".join(element.itertext())).strip()


def _time(stamp: str) -> datetime | None:
    try:
        when = datetime.fromisoformat(stamp) if stamp else None
    except ValueError:
        return None
    return when if when is None or when.tzinfo else when.replace(tzinfo=UTC)


def _stamp(when: datetime | None) -> str:
    return "" if when is None else when.astimezone(UTC).isoformat().replace("+00:00", "Z")

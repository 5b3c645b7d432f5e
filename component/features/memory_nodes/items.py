"""Memories as the payloads of PubSub items, and back."""

from datetime import UTC, datetime
from xml.etree import ElementTree

from component.features.memory_nodes.encryption import MEDIA_TYPE, Cipher
from component.features.memory_nodes.nodes import NodeItem
from component.memory.knowledge_lines import Item
from component.memory.store import StoreUnavailableError, Whose
from xep.binding import ContentError, RawXML, keep, read
from xep.characters import without_forbidden
from xep.fluux_agent.memory import Content, Memory
from xep.jid import JID


def payload_of(item: Item, by: JID, whose: Whose, cipher: Cipher | None = None) -> RawXML:
    """The payload of a memory that `by` writes."""
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
            origin=readable.taint,
            tags=readable.tags,
            contents=(content,),
        )
    )


def item_of(node_item: NodeItem, whose: Whose, cipher: Cipher | None = None) -> Item:
    """The memory in an item, by any author.

    The id of the item is the key. A payload that is not a memory counts as its text, so that
    nothing that a person has written is passed over. Raises StoreUnavailableError: it cannot be
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
        # It was parsed by the stream before, and written again.
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

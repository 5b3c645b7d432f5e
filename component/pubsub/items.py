"""Items: publishing, deleting and retrieving them (XEP-0060 §6.5, §7, §8.5, XEP-0059).

Functions that take a node are for one transaction.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from component import system
from component.pubsub import access, faults, rows
from component.pubsub.access import NodeAccess
from component.pubsub.changes import NodeChange
from component.pubsub.config import DEFAULT, NodeConfig
from component.pubsub.rows import Node, NodeRows, StoredItem
from xep import pubsub_errors
from xep.binding.escaping import escape_attribute, unescape_attribute
from xep.result_sets import PAGE_ROOM, First, ResultSet
from xep.stanza_error import StanzaError

MOST_ITEMS: Final = 1_000
"""Items in one answer."""
_ITEM_BYTES: Final = 200
"""Bytes of an item beside its payload and its id."""
_XMLNS: Final = r"<[^\s/>]+ xmlns='([^']*)'"


class NewItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item to publish. An id is chosen if `id` is None. `payloads` are its elements as the text
    of a `RawXML`; more than one is refused.
    """

    id: str | None = None
    payloads: tuple[str, ...] = ()


def new_id() -> str:
    """An id for an item or a node that nobody named."""
    return system.token_urlsafe(12)


def publish(at: NodeAccess, items: Sequence[NewItem], required: dict[str, Any]) -> NodeChange:
    """Publish items at a node (§7.1); a node that does not exist is created for the owner of the
    service. `items` have ids: they are drawn before, because an operation may run again. `required`
    are the preconditions of publish options.
    """
    _auto_create(at, required)
    node, found = at.find(lock=True)
    config = node.config
    at.check_publish(node, found)
    for key, value in required.items():
        if getattr(config, key) != value:
            raise faults.precondition_not_met(f"{key} of the node has another value")
    _check_items(node, items)
    if config.persist_items and len(items) > config.max_items:
        raise faults.fault("not-allowed", pubsub_errors.MaxItemsExceeded())
    stored = tuple(
        StoredItem(
            id=each.id or "",
            payload="".join(each.payloads),
            publisher=at.who.principal,
            published=rows.at(at.database.now),
        )
        for each in items
    )
    if config.persist_items:
        _store(at, config, stored)
    number = at.last_change() if config.persist_items else at.count_change()
    return at.changed(
        "published", config, notifies=config.deliver_notifications, number=number, items=stored
    )


def _auto_create(at: NodeAccess, required: dict[str, Any]) -> None:
    """Create the node with the required options, if there is none (§7.1.4)."""
    who = at.who
    if not at.name or not (who.may_create or who.is_service):
        return
    access.check_id("a node", at.name)
    made = at.add(msgspec.structs.replace(DEFAULT, **required), who.principal)
    if made and not who.is_service:
        at.set_affiliation(who.principal, "owner")


def _check_items(node: Node, items: Sequence[NewItem]) -> None:
    """Raise StanzaError unless the items fit the configuration of the node (§7.1.3)."""
    config = node.config
    if not items and (config.persist_items or config.deliver_payloads):
        raise faults.item_required()
    for each in items:
        if not config.persist_items and not config.deliver_payloads:
            raise faults.fault("bad-request", pubsub_errors.ItemForbidden())
        if each.id is not None:
            access.check_id("an item", each.id)
        if len(each.payloads) > 1:
            raise faults.fault(
                "bad-request", pubsub_errors.InvalidPayload(), "an item holds one element"
            )
        if not each.payloads:
            raise faults.fault(
                "bad-request", pubsub_errors.PayloadRequired(), "an item holds one element"
            )
        if config.type and _namespace(each.payloads[0]) != config.type:
            raise faults.fault(
                "bad-request",
                pubsub_errors.InvalidPayload(),
                f"payloads of this node are of the namespace {config.type}",
            )
        if len(each.payloads[0].encode()) > config.max_payload_bytes:
            raise faults.fault(
                "not-acceptable",
                pubsub_errors.PayloadTooBig(),
                f"a payload has at most {config.max_payload_bytes} bytes here",
            )


def _namespace(payload: str) -> str:
    """The namespace of an element, which its text declares before everything else."""
    found = re.match(_XMLNS, payload)
    return "" if found is None else unescape_attribute(found[1])


def _store(at: NodeAccess, config: NodeConfig, items: Sequence[StoredItem]) -> None:
    expires = None
    if config.item_expire_s is not None:
        expires = at.database.steady + 1000 * config.item_expire_s
    for each in items:
        at.count_change()
        at.put_item(each, expires)
    if config.notes_retractions:
        at.forget_retractions([each.id for each in items])
    # What the service publishes has its own limits.
    if config.refuses_when_full and not at.who.is_service:
        _check_room(at, config)
    trim(at, config)


def _check_room(at: NodeRows, config: NodeConfig) -> None:
    """Raise StanzaError if a node holds more than it may (§7.1.3)."""
    count, size = at.held()
    if count > config.max_items or size > config.max_bytes:
        raise StanzaError(
            "resource-constraint",
            f"the node is full: it holds at most {config.max_items} items and"
            f" {config.max_bytes} bytes; delete some items first",
        )


def trim(at: NodeRows, config: NodeConfig) -> None:
    """Delete the items of a node that have expired, and the oldest beyond its configuration."""
    at.delete_expired()
    if not config.refuses_when_full:
        at.trim(config.max_items, config.max_bytes)


def retract(at: NodeAccess, ids: Sequence[str], *, notify: bool | None) -> NodeChange:
    """Delete items (§7.2). `notify` says whether to notify subscribers; None for the node's
    default.
    """
    node, found = at.find(lock=True)
    config = node.config
    if found == "outcast":
        raise faults.forbidden()
    if not config.persist_items:
        raise faults.unsupported("persistent-items")
    for each in ids:
        before = at.item(each)
        if found not in ("owner", "publisher"):
            # Whether there is such an item is not for everybody to know.
            if before is None or before.publisher != at.who.principal:
                raise faults.forbidden()
        elif before is None:
            raise faults.no_such_item()
    at.remove_items(ids)
    note_retractions(at, config, ids)
    tells = config.notify_retract if notify is None else notify
    notifies = tells and config.deliver_notifications
    return at.changed("retracted", config, notifies=notifies, ids=tuple(ids))


def purge(at: NodeAccess) -> NodeChange:
    """Delete all items of a node (§8.5)."""
    config = at.owned().config
    if not config.persist_items:
        raise faults.unsupported("persistent-items")
    note_retractions(at, config)
    at.purge()
    notifies = config.notify_retract and config.deliver_notifications
    return at.changed("purged", config, notifies=notifies)


def note_retractions(at: NodeAccess, config: NodeConfig, ids: Sequence[str] | None = None) -> None:
    """Note that the requester deletes these items, or all, if the node is configured so."""
    if config.notes_retractions and not at.who.is_service:
        at.note_retractions([id_ for id_, _ in at.item_keys()] if ids is None else ids)


def check_named(ids: Sequence[str | None]) -> list[str]:
    """The ids of items to delete. Raises StanzaError: ``bad-request`` with `item-required` if there
    is none, or one is missing.
    """
    named = [each for each in ids if each]
    if not named or len(named) != len(ids):
        raise faults.item_required()
    return named


Key = tuple[str, int]
"""The id of an item, and the size of its payload in bytes."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which items are requested. `subid` is the subscription that the requester refers to."""

    ids: tuple[str, ...] = ()
    most: int | None = None
    page: ResultSet | None = None
    subid: str | None = None


def retrieve(
    at: NodeAccess, wanted: Wanted, room: int = PAGE_ROOM
) -> tuple[list[StoredItem], ResultSet | None]:
    """Items of a node, the oldest first, and which part of all they are (§6.5). Raises StanzaError:
    the requester may not retrieve them.
    """
    node = at.readable()
    at.check_subid(wanted.subid)
    if not node.config.persist_items:
        raise faults.unsupported("persistent-items")
    if wanted.ids:
        return at.items(dict.fromkeys(wanted.ids)), None
    ids, page = choose(at.item_keys(), wanted.page, wanted.most, room)
    return at.items(ids), page


def choose(
    keys: Sequence[Key], request: ResultSet | None, most: int | None, room: int = PAGE_ROOM
) -> tuple[list[str], ResultSet | None]:
    """The ids of the items to return, and the set that says which part of the node they are.

    Without a page requested the newest are returned, and the set only if some are left out. `keys`
    are all items, the oldest first. `room` is the number of bytes that the items may take; a single
    one may be larger. Raises StanzaError: ``item-not-found`` if the item is not there from which
    the page starts, ``bad-request`` if the request contradicts itself.
    """
    if request is None:
        wanted = len(keys) if most is None else max(0, most)
        start = _backwards(keys, 0, len(keys), min(wanted, MOST_ITEMS), room)
        whole = len(keys) - start >= min(wanted, len(keys))
        return [key for key, _ in keys[start:]], None if whole else _set(keys, start, len(keys))
    if most is not None:
        keys = keys[max(0, len(keys) - most) :]
    for number in (request.max, request.index):
        if number is not None and number < 0:
            raise StanzaError("bad-request", "<set/>: expected a number that is not negative")
    size = MOST_ITEMS if request.max is None else min(request.max, MOST_ITEMS)
    start, stop = 0, len(keys)
    if request.index is not None:
        start = min(request.index, len(keys))
    if request.after:
        start = _position(keys, request.after) + 1
    if request.before:
        stop = _position(keys, request.before)
    if request.before is not None:
        start = _backwards(keys, start, max(start, stop), size, room)
        stop = max(start, stop)
    else:
        stop = _forwards(keys, start, max(start, stop), size, room)
    return [key for key, _ in keys[start:stop]], _set(keys, start, stop)


def _position(keys: Sequence[Key], id_: str) -> int:
    for position, (key, _) in enumerate(keys):
        if key == id_:
            return position
    raise faults.no_such_item()


def _forwards(keys: Sequence[Key], start: int, stop: int, size: int, room: int) -> int:
    """Where a page from `start` on ends."""
    for position in range(start, min(stop, start + size)):
        room -= _size(keys[position])
        if room < 0 and position > start:
            return position
    return min(stop, start + size)


def _backwards(keys: Sequence[Key], start: int, stop: int, size: int, room: int) -> int:
    """Where a page that ends at `stop` starts."""
    first = max(start, stop - size)
    for position in range(stop - 1, first - 1, -1):
        room -= _size(keys[position])
        if room < 0 and position < stop - 1:
            return position + 1
    return first


def _size(key: Key) -> int:
    id_, payload = key
    return payload + len(escape_attribute(id_).encode()) + _ITEM_BYTES


def _set(keys: Sequence[Key], start: int, stop: int) -> ResultSet:
    if start >= stop:
        return ResultSet(count=len(keys))
    return ResultSet(
        first=First(key=keys[start][0], index=start), last=keys[stop - 1][0], count=len(keys)
    )

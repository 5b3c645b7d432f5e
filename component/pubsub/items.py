"""Items: publishing, deleting and retrieving them (XEP-0060 §6.5, §7, §8.5, XEP-0059).

Functions of one transaction.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from component import system
from component.pubsub import access, faults, rows
from component.pubsub.access import Requester
from component.pubsub.changes import NodeChange
from component.pubsub.config import DEFAULT, NodeConfig
from component.pubsub.rows import Node, StoredItem
from component.store.database import Database
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


def publish(
    database: Database,
    who: Requester,
    name: str,
    items: Sequence[NewItem],
    required: dict[str, Any],
) -> NodeChange:
    """Publish items at a node (§7.1); a node that does not exist is created for the owner of the
    service. `items` have ids: they are drawn before, because an operation may run again. `required`
    are the preconditions of publish options.
    """
    _auto_create(database, who, name, required)
    node, found = access.find_node(database, who, name, lock=True)
    access.check_publish(database, who, node, found)
    for key, value in required.items():
        if getattr(node.config, key) != value:
            raise faults.precondition_not_met(f"{key} of the node has another value")
    _check_items(node, items)
    if node.config.persist_items and len(items) > node.config.max_items:
        raise faults.fault("not-allowed", pubsub_errors.MaxItemsExceeded())
    stored = tuple(
        StoredItem(
            id=each.id or "",
            payload="".join(each.payloads),
            publisher=who.principal,
            published=rows.at(database.now),
        )
        for each in items
    )
    if node.config.persist_items:
        _store(database, who, node, stored)
    return NodeChange(
        service=who.service,
        node=name,
        kind="published",
        number=rows.last_change(database, who.service, name)
        if node.config.persist_items
        else rows.count_change(database, who.service, name),
        items=stored,
        config=node.config,
        publisher=who.principal,
        notifies=node.config.deliver_notifications,
    )


def _auto_create(database: Database, who: Requester, name: str, required: dict[str, Any]) -> None:
    """Create the node with the required options, if there is none (§7.1.4)."""
    if not name or not (who.may_create or who.is_service):
        return
    access.check_id("a node", name)
    config = msgspec.structs.replace(DEFAULT, **required)
    made = rows.add_node(database, who.service, name, config, who.principal)
    if made and not who.is_service:
        rows.set_affiliation(database, who.service, name, who.principal, "owner")


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


def _store(database: Database, who: Requester, node: Node, items: Sequence[StoredItem]) -> None:
    config = node.config
    expires = None
    if config.item_expire_s is not None:
        expires = database.steady + 1000 * config.item_expire_s
    for each in items:
        rows.count_change(database, who.service, node.name)
        rows.put_item(database, who.service, node.name, each, expires)
    if config.notes_retractions:
        rows.forget_retractions(database, who.service, node.name, [each.id for each in items])
    # What the service publishes has its own limits.
    if config.refuses_when_full and not who.is_service:
        _check_room(database, node)
    trim(database, node, config)


def _check_room(database: Database, node: Node) -> None:
    """Raise StanzaError if a node holds more than it may (§7.1.3)."""
    config = node.config
    count, size = rows.held(database, node.service, node.name)
    if count > config.max_items or size > config.max_bytes:
        raise StanzaError(
            "resource-constraint",
            f"the node is full: it holds at most {config.max_items} items and"
            f" {config.max_bytes} bytes; delete some items first",
        )


def trim(database: Database, node: Node, config: NodeConfig) -> None:
    """Delete the items of a node that have expired, and the oldest beyond its configuration."""
    rows.delete_expired_of(database, node.service, node.name)
    if not config.refuses_when_full:
        rows.trim(database, node.service, node.name, config.max_items, config.max_bytes)


def retract(
    database: Database, who: Requester, name: str, ids: Sequence[str], *, notify: bool | None
) -> NodeChange:
    """Delete items (§7.2). `notify` says whether to notify subscribers; None for the node's
    default.
    """
    node, found = access.find_node(database, who, name, lock=True)
    if found == "outcast":
        raise faults.forbidden()
    if not node.config.persist_items:
        raise faults.unsupported("persistent-items")
    for each in ids:
        before = rows.item(database, who.service, name, each)
        if found not in ("owner", "publisher"):
            # Whether there is such an item is not for everybody to know.
            if before is None or before.publisher != who.principal:
                raise faults.forbidden()
        elif before is None:
            raise faults.no_such_item()
    rows.remove_items(database, who.service, name, ids)
    note_retractions(database, who, node, ids)
    tells = node.config.notify_retract if notify is None else notify
    return NodeChange(
        service=who.service,
        node=name,
        kind="retracted",
        number=rows.count_change(database, who.service, name),
        ids=tuple(ids),
        config=node.config,
        publisher=who.principal,
        notifies=tells and node.config.deliver_notifications,
    )


def purge(database: Database, who: Requester, name: str) -> NodeChange:
    """Delete all items of a node (§8.5)."""
    node = access.owned(database, who, name)
    if not node.config.persist_items:
        raise faults.unsupported("persistent-items")
    note_retractions(database, who, node)
    rows.purge(database, who.service, name)
    return NodeChange(
        service=who.service,
        node=name,
        kind="purged",
        number=rows.count_change(database, who.service, name),
        config=node.config,
        publisher=who.principal,
        notifies=node.config.notify_retract and node.config.deliver_notifications,
    )


def note_retractions(
    database: Database, who: Requester, node: Node, ids: Sequence[str] | None = None
) -> None:
    """Note that the requester deletes these items, or all, if the node is configured so."""
    if not node.config.notes_retractions or who.is_service:
        return
    if ids is None:
        ids = [id_ for id_, _ in rows.item_keys(database, who.service, node.name)]
    rows.note_retractions(database, who.service, node.name, ids)


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
    database: Database, who: Requester, name: str, wanted: Wanted, room: int = PAGE_ROOM
) -> tuple[list[StoredItem], ResultSet | None]:
    """Items of a node, the oldest first, and which part of all they are (§6.5). Raises StanzaError:
    the requester may not retrieve them.
    """
    node, found = access.find_node(database, who, name)
    access.check_read(database, who, node, found, subscribing=False)
    access.check_subid(database, who, name, wanted.subid)
    if not node.config.persist_items:
        raise faults.unsupported("persistent-items")
    if wanted.ids:
        ids, page = list(dict.fromkeys(wanted.ids)), None
    else:
        keys = rows.item_keys(database, who.service, name)
        ids, page = choose(keys, wanted.page, wanted.most, room)
    there = [rows.item(database, who.service, name, each) for each in ids]
    chosen = [each for each in there if each is not None]
    return chosen, page


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

"""Publishing and deleting items (XEP-0060 §7, §8.5); functions of one transaction."""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from component import system
from component.pubsub import access, faults, rows
from component.pubsub.access import Requester
from component.pubsub.changes import Change
from component.pubsub.config import DEFAULT, NodeConfig
from component.pubsub.pages import choose
from component.pubsub.rows import Node, StoredItem
from component.storage.database import Database
from xep import pubsub_errors
from xep.binding.escaping import unescape_attribute
from xep.result_sets import PAGE_ROOM, ResultSet
from xep.stanza_error import StanzaError

_XMLNS: Final = re.compile(r"<[^\s/>]+ xmlns='([^']*)'")


class NewItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item to publish.

    Attributes:
        id: its id; None has one chosen.
        payloads: its elements as the text of a `RawXML`; more than one is refused.
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
    *,
    publisher: str | None = None,
) -> list[Change]:
    """Publish items at a node (§7.1); a node that does not exist is created for the owner of the
    service. `items` have ids: they are drawn before, because an operation may run again.

    Args:
        database: the transaction.
        who: the requester.
        name: the node.
        items: what to publish.
        required: the preconditions of publish options.
        publisher: who published it, if not the requester.
    """
    made = _auto_create(database, who, name, required)
    node, found = access.find(database, who, name, lock=True)
    access.check_publish(database, who, node, found)
    if not made:
        _check_preconditions(node, required)
    _check_items(node, items)
    if node.config.persist_items and len(items) > node.config.max_items:
        raise faults.fault("not-allowed", pubsub_errors.MaxItemsExceeded())
    by = publisher or who.principal
    stored = tuple(
        StoredItem(
            id=each.id or "",
            payload="".join(each.payloads),
            publisher=by,
            published=rows.at(database.now),
        )
        for each in items
    )
    if node.config.persist_items:
        _store(database, who, node, stored)
    change = Change(
        service=who.service,
        node=name,
        kind="published",
        number=rows.last_change(database, who.service, name)
        if node.config.persist_items
        else rows.count_change(database, who.service, name),
        items=stored,
        config=node.config,
        publisher=by,
        notifies=node.config.deliver_notifications,
    )
    return [change]


def _auto_create(database: Database, who: Requester, name: str, required: dict[str, Any]) -> bool:
    """Create the node with the required options, if there is none (§7.1.4)."""
    if not name or not (who.may_create or who.is_service):
        return False
    access.check_id("a node", name)
    config = msgspec.structs.replace(DEFAULT, **required)
    if not rows.add_node(database, who.service, name, config, who.principal):
        return False
    if not who.is_service:
        rows.set_affiliation(database, who.service, name, who.principal, "owner")
    return True


def _check_preconditions(node: Node, required: dict[str, Any]) -> None:
    for key, value in required.items():
        if getattr(node.config, key) != value:
            raise faults.precondition_not_met(f"{key} of the node has another value")


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
    found = _XMLNS.match(payload)
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
    """Delete the items of a node that have expired, and the oldest ones that are too many or too
    large for this configuration.
    """
    rows.delete_expired_of(database, node.service, node.name)
    if not config.refuses_when_full:
        rows.trim(database, node.service, node.name, config.max_items, config.max_bytes)


def retract(
    database: Database, who: Requester, name: str, ids: Sequence[str], *, notify: bool | None
) -> list[Change]:
    """Delete items (§7.2). `notify` says whether to notify subscribers; None for the node's
    default.
    """
    node, found = access.find(database, who, name, lock=True)
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
    change = Change(
        service=who.service,
        node=name,
        kind="retracted",
        number=rows.count_change(database, who.service, name),
        ids=tuple(ids),
        config=node.config,
        publisher=who.principal,
        notifies=tells and node.config.deliver_notifications,
    )
    return [change]


def purge(database: Database, who: Requester, name: str) -> list[Change]:
    """Delete all items of a node (§8.5)."""
    node = access.owned(database, who, name)
    if not node.config.persist_items:
        raise faults.unsupported("persistent-items")
    note_retractions(database, who, node)
    rows.purge(database, who.service, name)
    change = Change(
        service=who.service,
        node=name,
        kind="purged",
        number=rows.count_change(database, who.service, name),
        config=node.config,
        publisher=who.principal,
        notifies=node.config.notify_retract and node.config.deliver_notifications,
    )
    return [change]


def note_retractions(
    database: Database, who: Requester, node: Node, ids: Sequence[str] | None = None
) -> None:
    """Note that the requester deletes these items, or all, if the node is configured so."""
    if not node.config.notes_retractions or who.is_service:
        return
    if ids is None:
        ids = [id_ for id_, _ in rows.item_keys(database, who.service, node.name)]
    rows.note_retractions(database, who.service, node.name, ids)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which items are requested.

    Attributes:
        ids: only those; all if it is empty.
        most: only so many, the newest.
        page: a page of them.
        subid: the subscription that the requester refers to.
    """

    ids: tuple[str, ...] = ()
    most: int | None = None
    page: ResultSet | None = None
    subid: str | None = None


def items(
    database: Database, who: Requester, name: str, wanted: Wanted, room: int = PAGE_ROOM
) -> tuple[list[StoredItem], ResultSet | None]:
    """Items of a node, the oldest first, and which part of all they are (§6.5).

    Raises:
        StanzaError: the requester may not retrieve them.
    """
    node, found = access.find(database, who, name)
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


def check_named(ids: Sequence[str | None]) -> list[str]:
    """The ids of items to delete.

    Raises:
        StanzaError: ``bad-request`` with `item-required` if there is none, or one is missing.
    """
    named = [each for each in ids if each]
    if not named or len(named) != len(ids):
        raise faults.item_required()
    return named

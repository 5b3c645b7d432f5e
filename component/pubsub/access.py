"""Checks the rights of requesters at a node (XEP-0060 §4.1, §4.5).

A node of the access model whitelist is hidden from everybody who has no affiliation with it: its
errors are those of a node that does not exist.
"""

from typing import Final

import msgspec

from component.pubsub import faults, rows
from component.pubsub.rows import Node
from component.store.database import Database
from xep import pubsub_errors
from xep.pubsub import AffiliationName
from xep.stanza_error import StanzaError

_READERS: Final = ("member", "owner", "publisher")
_PUBLISHERS: Final = ("owner", "publish-only", "publisher")
_LONGEST_ID_BYTES: Final = 1_023


class Requester(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks for something, and at which service. `may_create` says whether it may create nodes.
    `has_stopped` says whether it has asked the agent not to write to it.
    """

    service: str
    principal: str
    jid: str
    may_create: bool = False
    has_stopped: bool = False

    @property
    def is_service(self) -> bool:
        """Whether the address itself asks: it owns all of its nodes."""
        return self.principal == self.service


def check_id(what: str, text: str) -> None:
    """Raise StanzaError if the id of a node or an item is longer than the database indexes."""
    if len(text.encode()) > _LONGEST_ID_BYTES:
        raise StanzaError("not-acceptable", f"the id of {what} is longer than 1023 bytes")


def affiliation(database: Database, who: Requester, name: str) -> AffiliationName:
    """The affiliation of the requester with a node."""
    return (
        "owner" if who.is_service else rows.affiliation(database, who.service, name, who.principal)
    )


def is_hidden(node: Node, affiliation: AffiliationName) -> bool:
    """Whether an entity with this affiliation is not to know that the node exists."""
    return node.config.access_model == "whitelist" and affiliation in ("none", "outcast")


def find_node(
    database: Database, who: Requester, name: str, *, lock: bool = False
) -> tuple[Node, AffiliationName]:
    """The node of that name, and the affiliation of the requester with it. Raises StanzaError:
    ``bad-request`` with `nodeid-required` if the name is empty, ``item-not-found`` if there is no
    such node or it is hidden from the requester.
    """
    if not name:
        raise faults.node_id_required()
    node = rows.node(database, who.service, name, lock=lock)
    found = affiliation(database, who, name)
    if node is None or is_hidden(node, found):
        raise faults.no_such_node()
    return node, found


def owned(database: Database, who: Requester, name: str, *, lock: bool = True) -> Node:
    """The node of that name, which the requester owns; locked for a change unless it is only read.
    Raises StanzaError: as `find_node`, and ``forbidden`` if the requester does not own it.
    """
    node, found = find_node(database, who, name, lock=lock)
    if found != "owner":
        raise faults.forbidden("only owners of the node may do this")
    return node


def check_read(
    database: Database, who: Requester, node: Node, found: AffiliationName, *, subscribing: bool
) -> None:
    """Raise StanzaError unless the requester may retrieve items, or subscribe (§6.1.3, §6.5.9)."""
    if found in _READERS:
        return
    if found != "none":
        raise faults.forbidden()
    model = node.config.access_model
    if model == "presence" and not rows.sees_presence(database, who.service, who.principal):
        raise faults.fault("not-authorized", pubsub_errors.PresenceSubscriptionRequired())
    if model == "authorize" and not subscribing and not is_subscribed(database, who, node.name):
        raise faults.fault("not-authorized", pubsub_errors.NotSubscribed())


def may_read(database: Database, node: Node, principal: str) -> bool:
    """Whether a principal may be notified without having subscribed (XEP-0163 §3)."""
    who = Requester(service=node.service, principal=principal, jid=principal)
    found = affiliation(database, who, node.name)
    try:
        if is_hidden(node, found):
            return False
        check_read(database, who, node, found, subscribing=False)
    except StanzaError:
        return False
    return True


def check_publish(database: Database, who: Requester, node: Node, found: AffiliationName) -> None:
    """Raise StanzaError unless the requester may publish at the node (§7.1.3.1)."""
    if found in _PUBLISHERS:
        return
    model = node.config.publish_model
    if found != "outcast":
        if model == "open":
            return
        if model == "subscribers" and is_subscribed(database, who, node.name):
            return
    raise faults.forbidden("your affiliation does not permit to publish at this node")


def is_subscribed(database: Database, who: Requester, name: str) -> bool:
    """Whether any address of the requester has an approved subscription."""
    made = rows.subscriptions_of(database, who.service, who.principal, name)
    return any(each.state == "subscribed" for each in made)


def check_subid(database: Database, who: Requester, name: str, subid: str | None) -> None:
    """Raise StanzaError if none of the subscriptions of the requester has this id (§6.5.9.2)."""
    if subid:
        made = rows.subscriptions_of(database, who.service, who.principal, name)
        if made and all(each.subid != subid for each in made):
            raise faults.invalid_subid()

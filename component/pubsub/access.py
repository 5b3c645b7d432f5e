"""Checks the rights of requesters at a node (XEP-0060 §4.1, §4.5).

A node of the access model whitelist is hidden from everybody who has no affiliation with it: its
errors are those of a node that does not exist.
"""

from typing import Any, Final

import msgspec

from component.pubsub import faults
from component.pubsub.changes import Kind, NodeChange
from component.pubsub.config import NodeConfig
from component.pubsub.rows import Node, NodeRows, sees_presence
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


def is_hidden(node: Node, affiliation: AffiliationName) -> bool:
    """Whether an entity with this affiliation is not to know that the node exists."""
    return node.config.access_model == "whitelist" and affiliation in ("none", "outcast")


class NodeAccess(NodeRows):
    """The access of a requester to a node, in one transaction."""

    def __init__(self, database: Database, who: Requester, name: str) -> None:
        super().__init__(database, who.service, name)
        self.who = who

    def own_affiliation(self) -> AffiliationName:
        """The affiliation of the requester."""
        return "owner" if self.who.is_service else self.affiliation(self.who.principal)

    def find(self, *, lock: bool = False) -> tuple[Node, AffiliationName]:
        """The node, and the affiliation of the requester. Raises StanzaError: ``bad-request`` with
        `nodeid-required` if the name is empty, ``item-not-found`` if there is no such node or it is
        hidden from the requester.
        """
        if not self.name:
            raise faults.node_id_required()
        node = self.load(lock=lock)
        found = self.own_affiliation()
        if node is None or is_hidden(node, found):
            raise faults.no_such_node()
        return node, found

    def owned(self, *, lock: bool = True) -> Node:
        """The node, which the requester owns; locked for a change unless it is only read. Raises
        StanzaError: as `find`, and ``forbidden`` if the requester does not own it.
        """
        node, found = self.find(lock=lock)
        if found != "owner":
            raise faults.forbidden("only owners of the node may do this")
        return node

    def readable(self, *, subscribing: bool = False) -> Node:
        """The node, whose items the requester may retrieve, or to which it may subscribe. Raises
        StanzaError (§6.1.3, §6.5.9).
        """
        node, found = self.find()
        self.check_read(node, found, subscribing=subscribing)
        return node

    def check_read(self, node: Node, found: AffiliationName, *, subscribing: bool) -> None:
        """Raise StanzaError unless the requester may retrieve items, or subscribe."""
        if found in _READERS:
            return
        if found != "none":
            raise faults.forbidden()
        model = node.config.access_model
        if model == "presence" and not sees_presence(
            self.database, self.service, self.who.principal
        ):
            raise faults.fault("not-authorized", pubsub_errors.PresenceSubscriptionRequired())
        if model == "authorize" and not subscribing and not self.is_subscribed():
            raise faults.fault("not-authorized", pubsub_errors.NotSubscribed())

    def check_publish(self, node: Node, found: AffiliationName) -> None:
        """Raise StanzaError unless the requester may publish at the node (§7.1.3.1)."""
        if found in _PUBLISHERS:
            return
        model = node.config.publish_model
        if found != "outcast":
            if model == "open":
                return
            if model == "subscribers" and self.is_subscribed():
                return
        raise faults.forbidden("your affiliation does not permit to publish at this node")

    def is_subscribed(self) -> bool:
        """Whether any address of the requester has an approved subscription."""
        made = self.subscriptions_of(self.who.principal)
        return any(each.state == "subscribed" for each in made)

    def check_subid(self, subid: str | None) -> None:
        """Raise StanzaError if none of the requester's subscriptions has this id (§6.5.9.2)."""
        if subid:
            made = self.subscriptions_of(self.who.principal)
            if made and all(each.subid != subid for each in made):
                raise faults.invalid_subid()

    def changed(
        self,
        kind: Kind,
        config: NodeConfig,
        *,
        notifies: bool,
        number: int | None = None,
        **what: Any,
    ) -> NodeChange:
        """The change of the node by the requester, which is counted unless it has a number."""
        return NodeChange(
            service=self.service,
            node=self.name,
            kind=kind,
            config=config,
            publisher=self.who.principal,
            notifies=notifies,
            number=self.count_change() if number is None else number,
            **what,
        )


def may_read(database: Database, node: Node, principal: str) -> bool:
    """Whether a principal may be notified without having subscribed (XEP-0163 §3)."""
    who = Requester(service=node.service, principal=principal, jid=principal)
    access = NodeAccess(database, who, node.name)
    found = access.own_affiliation()
    try:
        if is_hidden(node, found):
            return False
        access.check_read(node, found, subscribing=False)
    except StanzaError:
        return False
    return True

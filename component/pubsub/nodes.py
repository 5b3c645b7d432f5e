"""Nodes: creation, configuration, affiliations, deletion (XEP-0060 §8); in one transaction."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from component.pubsub import access, faults, items, rows
from component.pubsub.access import Requester
from component.pubsub.changes import NodeChange
from component.pubsub.config import NodeConfig, configured
from component.pubsub.rows import Node, NodeSubscription
from component.store.database import Database
from xep import pubsub_errors, pubsub_owner
from xep.data_forms import Form
from xep.jid import JID
from xep.pubsub import AffiliationName, SubscriptionState
from xep.pubsub_owner import PubsubOwner
from xep.stanza_error import Condition, StanzaError

MOST_NODES: Final = 1_000
"""Nodes that one principal may create."""
MOST_AFFILIATIONS: Final = 1_000
"""Entities that may have an affiliation with a node."""


def create_node(database: Database, who: Requester, name: str, config: NodeConfig) -> None:
    """Create a node, whose owner is the requester (§8.1)."""
    if not (who.may_create or who.is_service):
        raise faults.forbidden("you may not create nodes here")
    access.check_id("a node", name)
    if not who.is_service and rows.count_nodes(database, who.principal) >= MOST_NODES:
        raise faults.fault("resource-constraint", pubsub_errors.MaxNodesExceeded())
    if not rows.add_node(database, who.service, name, config, who.principal):
        raise StanzaError("conflict", "there is a node of this name")
    if not who.is_service:
        rows.set_affiliation(database, who.service, name, who.principal, "owner")


def configure_node(
    database: Database, who: Requester, name: str, form: Form | None
) -> NodeChange | None:
    """Change the configuration of a node (§8.2). A form that was cancelled changes nothing."""
    node = access.owned(database, who, name)
    if form is None:
        raise StanzaError("bad-request", "the request holds no form")
    if form.type == "cancel":
        return None
    config = configured(node.config, form)
    return reconfigure(database, node, config, who.principal)


def reconfigure(database: Database, node: Node, config: NodeConfig, by: str) -> NodeChange:
    """Bring a node to a configuration."""
    rows.set_config(database, node.service, node.name, config)
    if config.persist_items:
        items.trim(database, node, config)
    else:
        rows.purge(database, node.service, node.name)
    if config.access_model == "whitelist" and node.config.access_model != "whitelist":
        _remove_unlisted(database, node)
    return NodeChange(
        service=node.service,
        node=node.name,
        kind="configured",
        number=rows.count_change(database, node.service, node.name),
        config=config,
        publisher=by,
        notifies=config.notify_config and config.deliver_notifications,
    )


def _remove_unlisted(database: Database, node: Node) -> None:
    """End the subscriptions of those who do not belong to the whitelist (§8.2.5.3)."""
    listed = dict(rows.affiliations_with(database, node.service, node.name))
    for each in _all_subscriptions(database, node):
        if listed.get(each.jid.partition("/")[0], "none") in ("none", "outcast"):
            rows.remove_subscription(database, node.service, node.name, each.jid)


def _all_subscriptions(database: Database, node: Node) -> Iterator[NodeSubscription]:
    yield from rows.subscriptions_to(database, node.service, node.name, "pending")
    yield from rows.subscriptions_to(database, node.service, node.name, "subscribed")


def delete_node(database: Database, who: Requester, name: str) -> NodeChange:
    """Delete a node with its items and subscriptions (§8.4)."""
    node = access.owned(database, who, name)
    subscribers: list[str] = []
    if node.config.notify_delete:
        subscribers = [each.jid for each in _all_subscriptions(database, node) if each.deliver]
    items.note_retractions(database, who, node)
    rows.remove_node(database, who.service, name)
    return NodeChange(
        service=who.service,
        node=name,
        kind="deleted",
        config=node.config,
        publisher=who.principal,
        notifies=node.config.notify_delete,
        subscribers=tuple(subscribers),
    )


def affiliations(
    database: Database, who: Requester, name: str
) -> list[tuple[str, AffiliationName]]:
    """Everybody's affiliation with a node, for its owners (§8.9.1)."""
    access.owned(database, who, name, lock=False)
    return rows.affiliations_with(database, who.service, name)


def set_affiliations(
    database: Database, who: Requester, name: str, made: Sequence[tuple[str, AffiliationName]]
) -> list[tuple[str, SubscriptionState]]:
    """Change affiliations (§8.9.2); the addresses whose subscription that has changed, with its
    state. The service remains owner, so a node may have no other. Raises StanzaError:
    ``bad-request`` if an entity is named twice, ``not-acceptable`` if there were too many, or if an
    owner would end its own ownership and nobody else is one. Nothing is changed then, and the error
    repeats the affiliations as they are (§8.9.2.4).
    """
    node = access.owned(database, who, name)
    before = [(jid, rows.affiliation(database, who.service, name, jid)) for jid, _ in made]
    if len(dict(made)) < len(made):
        raise _unchanged("bad-request", "an entity is named more than once", name, before)
    changed_: list[tuple[str, SubscriptionState]] = []
    for jid, affiliation in made:
        rows.set_affiliation(database, who.service, name, jid, affiliation)
        changed_ += _follow_affiliation(database, node, jid, affiliation)
    if rows.count_affiliations(database, who.service, name) > MOST_AFFILIATIONS:
        text = f"a node has affiliations with at most {MOST_AFFILIATIONS} entities"
        raise _unchanged("not-acceptable", text, name, before)
    there = rows.affiliations_with(database, who.service, name)
    if not who.is_service and not any(each == "owner" for _, each in there):
        text = "the node would have no owner any more"
        raise _unchanged("not-acceptable", text, name, before)
    return changed_


def _follow_affiliation(
    database: Database, node: Node, principal: str, affiliation: AffiliationName
) -> list[tuple[str, SubscriptionState]]:
    """Approve or end subscriptions as an affiliation demands (§8.7.4); those that have changed."""
    subscriptions = rows.subscriptions_of(database, node.service, principal, node.name)
    if affiliation == "outcast" or (
        node.config.access_model == "whitelist" and affiliation == "none"
    ):
        rows.remove_subscriptions_of(database, node.service, node.name, principal)
        return [(each.jid, "none") for each in subscriptions]
    if affiliation not in ("member", "owner", "publisher"):
        return []
    pending = [each for each in subscriptions if each.state == "pending"]
    since = rows.last_change(database, node.service, node.name)
    for each in pending:
        approved = msgspec.structs.replace(each, state="subscribed", since=since)
        rows.put_subscription(database, node.service, principal, approved)
    return [(each.jid, "subscribed") for each in pending]


def _unchanged(
    condition: Condition, text: str, name: str, before: Sequence[tuple[str, AffiliationName]]
) -> StanzaError:
    made = tuple(
        pubsub_owner.Affiliation(jid=JID.parse(jid), affiliation=each)
        for jid, each in dict(before).items()
    )
    beside = PubsubOwner(affiliations=pubsub_owner.Affiliations(node=name, affiliations=made))
    return StanzaError(condition, text, beside=beside)

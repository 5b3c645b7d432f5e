"""Nodes (XEP-0060 §8): creation, configuration, affiliations, deletion; and subscriptions to them
with their options (§6, §8.6, §8.8). Functions of one transaction.
"""

import itertools
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Final

import msgspec

from component.pubsub import access, faults, items, rows
from component.pubsub.access import Requester
from component.pubsub.changes import Direct, NodeChange
from component.pubsub.config import NodeConfig, configured
from component.pubsub.rows import Node, NodeSubscription, State
from component.store.database import Database
from xep import pubsub_errors, pubsub_owner
from xep.binding import ContentError, Payload
from xep.binding.conversion import format_datetime
from xep.data_forms import FORM_TYPE, Field, Form, form_type_field
from xep.jid import JID, JIDError
from xep.pubsub import (
    SUBSCRIBE_AUTHORIZATION,
    SUBSCRIBE_OPTIONS,
    AffiliationName,
    SubscriptionState,
)
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
        raise _affiliations_unchanged(
            "bad-request", "an entity is named more than once", name, before
        )
    changed_: list[tuple[str, SubscriptionState]] = []
    for jid, affiliation in made:
        rows.set_affiliation(database, who.service, name, jid, affiliation)
        changed_ += _follow_affiliation(database, node, jid, affiliation)
    if rows.count_affiliations(database, who.service, name) > MOST_AFFILIATIONS:
        text = f"a node has affiliations with at most {MOST_AFFILIATIONS} entities"
        raise _affiliations_unchanged("not-acceptable", text, name, before)
    there = rows.affiliations_with(database, who.service, name)
    if not who.is_service and not any(each == "owner" for _, each in there):
        text = "the node would have no owner any more"
        raise _affiliations_unchanged("not-acceptable", text, name, before)
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


def _affiliations_unchanged(
    condition: Condition, text: str, name: str, before: Sequence[tuple[str, AffiliationName]]
) -> StanzaError:
    made = tuple(
        pubsub_owner.Affiliation(jid=JID.parse(jid), affiliation=each)
        for jid, each in dict(before).items()
    )
    beside = PubsubOwner(affiliations=pubsub_owner.Affiliations(node=name, affiliations=made))
    return StanzaError(condition, text, beside=beside)


MOST_SUBSCRIPTIONS: Final = 1_000
"""Subscriptions that one principal may have at one service."""
MOST_AT_NODE: Final = 20
"""Subscriptions that one principal may have to one node: for each of its clients."""
_MOST_LISTED: Final = 10_000
_SUBID: Final = "pubsub#subid"
_NODE: Final = "pubsub#node"
_SUBSCRIBER: Final = "pubsub#subscriber_jid"
_ALLOW: Final = "pubsub#allow"
_DELIVER: Final = "pubsub#deliver"
_EXPIRE: Final = "pubsub#expire"


def options_form(made: NodeSubscription | None) -> Form:
    """The options of a subscription as a form to fill in (§6.3); without one the defaults."""
    deliver = made is None or made.deliver
    expires = (
        ""
        if made is None or made.expires is None
        else format_datetime(rows.at(made.expires).replace(microsecond=0))
    )
    return Form(
        type="form",
        fields=(
            form_type_field(SUBSCRIBE_OPTIONS),
            Field(
                var=_DELIVER,
                type="boolean",
                label="Send notifications",
                values=("1" if deliver else "0",),
            ),
            Field(
                var=_EXPIRE,
                type="text-single",
                label="When the subscription ends (a date and time, or nothing)",
                values=(expires,) if expires else (),
            ),
        ),
    )


def with_options(made: NodeSubscription, form: Form | None) -> NodeSubscription:
    """A subscription with the options of a form that was submitted. Raises StanzaError:
    ``bad-request`` with `invalid-options`.
    """
    if form is None:
        return made
    if form.type != "submit" or form.form_type not in (None, SUBSCRIBE_OPTIONS):
        raise faults.invalid_options(f"expected a submitted form of type {SUBSCRIBE_OPTIONS}")
    for field in form.fields:
        try:
            if field.var == _DELIVER:
                made = msgspec.structs.replace(made, deliver=field.read(bool) is not False)
            elif field.var == _EXPIRE:
                when = field.read(datetime)
                expires = None if when is None else round(when.timestamp() * 1000)
                made = msgspec.structs.replace(made, expires=expires)
            elif field.var != FORM_TYPE:
                raise faults.invalid_options(f"{field.var}: there is no such option here")
        except ContentError as error:
            raise faults.invalid_options(str(error)) from error
    return made


def check_own(who: Requester, jid: JID, error: StanzaError) -> str:
    """The address of a subscription, which is that of the requester, bare or full. Raises
    StanzaError: `error` if it is somebody else's.
    """
    text = str(jid)
    if str(jid.bare) != who.principal or (not jid.is_bare and text != who.jid):
        raise error
    if len(text.encode()) > 1_023:
        raise StanzaError("not-acceptable", "the address is longer than 1023 bytes")
    return text


def subscribe(
    database: Database, who: Requester, node: Node, wanted: NodeSubscription
) -> tuple[NodeSubscription, bool]:
    """Subscribe an address to a node (§6.1); the subscription, and whether it is new. `node` may be
    a computed one, to which everybody has access; access to others has been checked
    (`check_subscribe`). `wanted` has the address, the options and an id.
    """
    known = rows.subscription(database, who.service, node.name, wanted.jid)
    if known is not None:
        if known.state == "pending":
            raise faults.fault("not-authorized", pubsub_errors.PendingSubscription())
        return known, False
    if who.has_stopped:
        raise StanzaError(
            "not-allowed",
            "you have asked this agent not to write to you; send it /start-contact first",
        )
    mine = rows.subscriptions_of(database, who.service, who.principal)
    here = sum(each.node == node.name for each in mine)
    if len(mine) >= MOST_SUBSCRIPTIONS or here >= MOST_AT_NODE:
        raise faults.fault("policy-violation", pubsub_errors.TooManySubscriptions(), type_="wait")
    found = access.affiliation(database, who, node.name)
    waits = node.config.access_model == "authorize" and found not in (
        "member",
        "owner",
        "publisher",
    )
    made = msgspec.structs.replace(
        wanted,
        state="pending" if waits else "subscribed",
        since=rows.last_change(database, who.service, node.name),
    )
    rows.put_subscription(database, who.service, who.principal, made)
    return made, True


def check_subscribe(database: Database, who: Requester, name: str) -> Node:
    """The node, to which the requester may subscribe. Raises StanzaError (§6.1.3)."""
    node, found = access.find_node(database, who, name)
    access.check_read(database, who, node, found, subscribing=True)
    return node


def known(
    database: Database, who: Requester, name: str, jid: str, subid: str | None
) -> NodeSubscription:
    """The subscription of an address to a node. Raises StanzaError: ``unexpected-request`` with
    `not-subscribed`, or ``not-acceptable`` with `invalid-subid`.
    """
    found = rows.subscription(database, who.service, name, jid)
    if found is None:
        raise faults.not_subscribed()
    if subid and subid != found.subid:
        raise faults.invalid_subid()
    return found


def subscriptions_to(
    database: Database, who: Requester, name: str, state: State
) -> list[NodeSubscription]:
    """The approved or waiting subscriptions to a node, for its owners (§8.7, §8.8.1)."""
    access.owned(database, who, name, lock=False)
    found = rows.subscriptions_to(database, who.service, name, state)
    return list(itertools.islice(found, _MOST_LISTED))


def approvable(database: Database, who: Requester) -> list[str]:
    """The nodes of an owner that ask for approval, or have subscriptions that wait (§8.7.2)."""
    owned = [
        node
        for node, found in rows.affiliations_of(database, who.service, who.principal)
        if found == "owner"
    ]
    chosen = []
    for name in owned:
        node = rows.node(database, who.service, name)
        if node is not None and (
            node.config.access_model == "authorize"
            or any(rows.subscriptions_to(database, who.service, name, "pending"))
        ):
            chosen.append(name)
    return chosen


def set_subscriptions(
    database: Database,
    who: Requester,
    name: str,
    wanted: Sequence[tuple[str, SubscriptionState, str | None]],
    subid: str,
) -> list[tuple[str, SubscriptionState]]:
    """Approve, add and end subscriptions, by an owner (§8.8.2); the addresses whose subscription
    has changed, with its state.

    Only those can be added who want to hear from the address: others would get messages that they
    have not asked for. Raises StanzaError: ``not-acceptable`` for a state that an owner cannot set,
    an entity that it cannot add, or an id that no subscription has. Nothing is changed then, and
    the error repeats the subscriptions as they are (§8.8.2.4).
    """
    access.owned(database, who, name)
    before = [(jid, rows.subscription(database, who.service, name, jid)) for jid, _, _ in wanted]
    made: list[tuple[str, SubscriptionState]] = []
    for number, (jid, state, named) in enumerate(wanted):
        found = rows.subscription(database, who.service, name, jid)
        if named and (found is None or found.subid != named):
            raise _subscriptions_unchanged(pubsub_errors.InvalidSubid(), "", name, before)
        if state == "none":
            if found is not None:
                rows.remove_subscription(database, who.service, name, jid)
                made.append((jid, state))
        elif state == "subscribed":
            if found is None and not _may_add(database, who, _bare(jid)):
                text = f"{jid} has to ask for the subscription itself"
                raise _subscriptions_unchanged(None, text, name, before)
            after = found or NodeSubscription(
                node=name, jid=jid, subid=f"{subid}{number}", state="pending"
            )
            if after.state != "subscribed":
                after = msgspec.structs.replace(
                    after, state="subscribed", since=rows.last_change(database, who.service, name)
                )
                rows.put_subscription(database, who.service, _bare(jid), after)
                made.append((jid, state))
        else:
            text = f"an owner cannot set the state {state}"
            raise _subscriptions_unchanged(None, text, name, before)
    return made


def _subscriptions_unchanged(
    application: Payload | None,
    text: str,
    name: str,
    before: Sequence[tuple[str, NodeSubscription | None]],
) -> StanzaError:
    made = tuple(
        pubsub_owner.Subscription(
            jid=JID.parse(jid),
            subscription="none" if each is None else each.state,
            subid=None if each is None else each.subid,
        )
        for jid, each in before
    )
    return StanzaError(
        "not-acceptable",
        text,
        application=() if application is None else (application,),
        beside=PubsubOwner(subscriptions=pubsub_owner.Subscriptions(node=name, subscriptions=made)),
    )


def _bare(jid: str) -> str:
    try:
        return str(JID.parse(jid).bare)
    except JIDError as error:  # it was an address when it came
        raise StanzaError("jid-malformed", str(error)) from error


def _may_add(database: Database, who: Requester, principal: str) -> bool:
    """Whether an owner may subscribe a principal who has not asked for it: admins may, others only
    themselves and those who have subscribed to the presence of the address.
    """
    return (
        who.may_create
        or who.is_service
        or principal == who.principal
        or rows.sees_presence(database, who.service, principal)
    )


def owners(database: Database, service: str, name: str) -> list[str]:
    """The addresses of the owners of a node."""
    return [
        jid
        for jid, affiliation in rows.affiliations_with(database, service, name)
        if affiliation == "owner"
    ]


def approval_messages(
    database: Database, who: Requester, made: NodeSubscription, creators: Collection[JID]
) -> Sequence[Direct]:
    """The messages that ask the owners to approve a subscription (§8.6): those who have created the
    node, those who may create nodes, and those who have subscribed to the presence of the address.
    Others were made owners by somebody else, and have asked for nothing.
    """
    node = rows.node(database, who.service, made.node)
    return tuple(
        approval_message(who.service, made, owner)
        for owner in owners(database, who.service, made.node)
        if (node is not None and node.creator == owner)
        or JID.parse(owner) in creators
        or rows.sees_presence(database, who.service, owner)
    )


def approval_message(service: str, made: NodeSubscription, owner: str) -> Direct:
    """The message that asks an owner to approve a subscription (§8.6)."""
    form = _authorization_form(made)
    return Direct(service=service, node=made.node, to=owner, payloads=(form,), type="normal")


def _authorization_form(made: NodeSubscription) -> Form:
    """The form by which an owner approves a subscription, or refuses it (§8.6)."""
    return Form(
        type="form",
        title="PubSub subscriber request",
        instructions=("To approve this subscription, choose Allow and submit the form.",),
        fields=(
            form_type_field(SUBSCRIBE_AUTHORIZATION),
            Field(var=_SUBID, type="hidden", values=(made.subid,)),
            Field(var=_NODE, type="text-single", label="Node", values=(made.node,)),
            Field(var=_SUBSCRIBER, type="jid-single", label="Subscriber", values=(made.jid,)),
            Field(var=_ALLOW, type="boolean", label="Allow", values=("0",)),
        ),
    )


class Authorization(msgspec.Struct, frozen=True, kw_only=True):
    """What an owner says to a pending subscription."""

    node: str
    jid: JID
    subid: str | None
    allows: bool


def read_authorization(form: Form) -> Authorization | None:
    """The answer of an owner; None if the form was cancelled, which decides nothing. Raises
    StanzaError: ``bad-request`` if it does not say to which subscription it belongs.
    """
    if form.type == "cancel":
        return None
    try:
        node, jid = form.read(_NODE, str), form.read(_SUBSCRIBER, JID)
        subid, allows = form.read(_SUBID, str), form.read(_ALLOW, bool)
    except ContentError as error:
        raise StanzaError("bad-request", str(error)) from error
    if form.type != "submit" or not node or jid is None or allows is None:
        raise StanzaError("bad-request", f"expected {_NODE}, {_SUBSCRIBER} and {_ALLOW}")
    return Authorization(node=node, jid=jid, subid=subid or None, allows=allows)

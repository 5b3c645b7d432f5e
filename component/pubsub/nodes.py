"""Nodes (XEP-0060 §8): creation, configuration, affiliations, deletion; and subscriptions to them
with their options (§6, §8.6, §8.8). Functions that take a node are for one transaction.
"""

import itertools
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

import msgspec

from component.pubsub import access, faults, items, rows
from component.pubsub.access import NodeAccess, Requester
from component.pubsub.changes import Direct, NodeChange
from component.pubsub.config import NodeConfig, configured
from component.pubsub.rows import Node, NodeRows, NodeSubscription, State
from component.store.database import Database
from xep import pubsub, pubsub_errors, pubsub_owner
from xep.binding import ContentError, Payload
from xep.binding.conversion import format_datetime
from xep.data_forms import FORM_TYPE, Field, Form, form_type_field
from xep.jid import JID, JIDError
from xep.pubsub_owner import PubsubOwner
from xep.stanza_error import Condition, StanzaError

MOST_NODES: Final = 1_000
"""Nodes that one principal may create."""
MOST_AFFILIATIONS: Final = 1_000
"""Entities that may have an affiliation with a node."""


def create_node(at: NodeAccess, config: NodeConfig) -> None:
    """Create a node, whose owner is the requester (§8.1)."""
    who = at.who
    if not (who.may_create or who.is_service):
        raise faults.forbidden("you may not create nodes here")
    access.check_id("a node", at.name)
    if not who.is_service and rows.count_nodes(at.database, who.principal) >= MOST_NODES:
        raise faults.fault("resource-constraint", pubsub_errors.MaxNodesExceeded())
    if not at.add(config, who.principal):
        raise StanzaError("conflict", "there is a node of this name")
    if not who.is_service:
        at.set_affiliation(who.principal, "owner")


def configure_node(at: NodeAccess, form: Form | None) -> NodeChange | None:
    """Change the configuration of a node (§8.2). A form that was cancelled changes nothing."""
    node = at.owned()
    if form is None:
        raise StanzaError("bad-request", "the request holds no form")
    if form.type == "cancel":
        return None
    return reconfigure(at, node, configured(node.config, form))


def reconfigure(at: NodeAccess, node: Node, config: NodeConfig) -> NodeChange:
    """Bring a node to a configuration."""
    at.configure(config)
    if config.persist_items:
        items.trim(at, config)
    else:
        at.purge()
    if config.access_model == "whitelist" and node.config.access_model != "whitelist":
        _remove_unlisted(at)
    notifies = config.notify_config and config.deliver_notifications
    return at.changed("configured", config, notifies=notifies)


def _remove_unlisted(at: NodeAccess) -> None:
    """End the subscriptions of those who do not belong to the whitelist (§8.2.5.3)."""
    listed = dict(at.affiliations())
    for each in at.subscriptions("pending", "subscribed"):
        if listed.get(each.jid.partition("/")[0], "none") in ("none", "outcast"):
            at.remove_subscription(each.jid)


def delete_node(at: NodeAccess) -> NodeChange:
    """Delete a node with its items and subscriptions (§8.4)."""
    config = at.owned().config
    subscribers: list[str] = []
    if config.notify_delete:
        made = at.subscriptions("pending", "subscribed")
        subscribers = [each.jid for each in made if each.deliver]
    items.note_retractions(at, config)
    at.remove()
    told = tuple(subscribers)
    return at.changed("deleted", config, notifies=config.notify_delete, number=0, subscribers=told)


def affiliations(at: NodeAccess) -> list[tuple[str, pubsub.AffiliationName]]:
    """Everybody's affiliation with a node, for its owners (§8.9.1)."""
    at.owned(lock=False)
    return at.affiliations()


def set_affiliations(
    at: NodeAccess, made: Sequence[tuple[str, pubsub.AffiliationName]]
) -> list[tuple[str, pubsub.SubscriptionState]]:
    """Change affiliations (§8.9.2); the addresses whose subscription that has changed, with its
    state. The service remains owner, so a node may have no other. Raises StanzaError:
    ``bad-request`` if an entity is named twice, ``not-acceptable`` if there were too many, or if an
    owner would end its own ownership and nobody else is one. Nothing is changed then, and the error
    repeats the affiliations as they are (§8.9.2.4).
    """
    node = at.owned()
    before = [(jid, at.affiliation(jid)) for jid, _ in made]
    if len(dict(made)) < len(made):
        text = "an entity is named more than once"
        raise _affiliations_unchanged("bad-request", text, at.name, before)
    changed_: list[tuple[str, pubsub.SubscriptionState]] = []
    for jid, affiliation in made:
        at.set_affiliation(jid, affiliation)
        changed_ += _follow_affiliation(at, node, jid, affiliation)
    there = at.affiliations()
    if len(there) > MOST_AFFILIATIONS:
        text = f"a node has affiliations with at most {MOST_AFFILIATIONS} entities"
        raise _affiliations_unchanged("not-acceptable", text, at.name, before)
    if not at.who.is_service and not any(each == "owner" for _, each in there):
        text = "the node would have no owner any more"
        raise _affiliations_unchanged("not-acceptable", text, at.name, before)
    return changed_


def _follow_affiliation(
    at: NodeRows, node: Node, principal: str, affiliation: pubsub.AffiliationName
) -> list[tuple[str, pubsub.SubscriptionState]]:
    """Approve or end subscriptions as an affiliation demands (§8.7.4); those that have changed."""
    subscriptions = at.subscriptions_of(principal)
    if affiliation == "outcast" or (
        node.config.access_model == "whitelist" and affiliation == "none"
    ):
        at.remove_subscriptions_of(principal)
        return [(each.jid, "none") for each in subscriptions]
    if affiliation not in ("member", "owner", "publisher"):
        return []
    pending = [each for each in subscriptions if each.state == "pending"]
    since = at.last_change()
    for each in pending:
        approved = msgspec.structs.replace(each, state="subscribed", since=since)
        at.put_subscription(principal, approved)
    return [(each.jid, "subscribed") for each in pending]


def _affiliations_unchanged(
    condition: Condition, text: str, name: str, before: Sequence[tuple[str, pubsub.AffiliationName]]
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
            form_type_field(pubsub.SUBSCRIBE_OPTIONS),
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
    if form.type != "submit" or form.form_type not in (None, pubsub.SUBSCRIBE_OPTIONS):
        raise faults.invalid_options(
            f"expected a submitted form of type {pubsub.SUBSCRIBE_OPTIONS}"
        )
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
    at: NodeAccess, node: Node, wanted: NodeSubscription
) -> tuple[NodeSubscription, bool]:
    """Subscribe an address to a node (§6.1); the subscription, and whether it is new. `node` may be
    a computed one, to which everybody has access; access to others has been checked
    (`NodeAccess.readable`). `wanted` has the address, the options and an id.
    """
    who = at.who
    known = at.subscription(wanted.jid)
    if known is not None:
        if known.state == "pending":
            raise faults.fault("not-authorized", pubsub_errors.PendingSubscription())
        return known, False
    if who.has_stopped:
        raise StanzaError(
            "not-allowed",
            "you have asked this agent not to write to you; send it /start-contact first",
        )
    mine = rows.subscriptions_of(at.database, who.service, who.principal)
    here = sum(each.node == node.name for each in mine)
    if len(mine) >= MOST_SUBSCRIPTIONS or here >= MOST_AT_NODE:
        raise faults.fault("policy-violation", pubsub_errors.TooManySubscriptions(), type_="wait")
    waits = node.config.access_model == "authorize" and at.own_affiliation() not in (
        "member",
        "owner",
        "publisher",
    )
    state: State = "pending" if waits else "subscribed"
    made = msgspec.structs.replace(wanted, state=state, since=at.last_change())
    at.put_subscription(who.principal, made)
    return made, True


def known(at: NodeRows, jid: str, subid: str | None) -> NodeSubscription:
    """The subscription of an address to a node. Raises StanzaError: ``unexpected-request`` with
    `not-subscribed`, or ``not-acceptable`` with `invalid-subid`.
    """
    found = at.subscription(jid)
    if found is None:
        raise faults.not_subscribed()
    if subid and subid != found.subid:
        raise faults.invalid_subid()
    return found


def subscriptions_to(at: NodeAccess, state: State) -> list[NodeSubscription]:
    """The approved or waiting subscriptions to a node, for its owners (§8.7, §8.8.1)."""
    at.owned(lock=False)
    return list(itertools.islice(at.subscriptions(state), _MOST_LISTED))


def approvable(database: Database, who: Requester) -> list[str]:
    """The nodes of an owner that ask for approval, or have subscriptions that wait (§8.7.2)."""
    chosen = []
    for name, found in rows.affiliations_of(database, who.service, who.principal):
        at = NodeRows(database, who.service, name)
        node = at.load() if found == "owner" else None
        if node is not None and (
            node.config.access_model == "authorize" or any(at.subscriptions("pending"))
        ):
            chosen.append(name)
    return chosen


def set_subscriptions(
    at: NodeAccess, wanted: Sequence[tuple[str, pubsub.SubscriptionState, str | None]], subid: str
) -> list[tuple[str, pubsub.SubscriptionState]]:
    """Approve, add and end subscriptions, by an owner (§8.8.2); the addresses whose subscription
    has changed, with its state.

    Only those can be added who want to hear from the address: others would get messages that they
    have not asked for. Raises StanzaError: ``not-acceptable`` for a state that an owner cannot set,
    an entity that it cannot add, or an id that no subscription has. Nothing is changed then, and
    the error repeats the subscriptions as they are (§8.8.2.4).
    """
    at.owned()
    before = [(jid, at.subscription(jid)) for jid, _, _ in wanted]
    made: list[tuple[str, pubsub.SubscriptionState]] = []
    for number, (jid, state, named) in enumerate(wanted):
        found = at.subscription(jid)
        if named and (found is None or found.subid != named):
            raise _subscriptions_unchanged(pubsub_errors.InvalidSubid(), "", at.name, before)
        if state == "none":
            if found is not None:
                at.remove_subscription(jid)
                made.append((jid, state))
        elif state == "subscribed":
            if found is None and not _may_add(at, _bare(jid)):
                text = f"{jid} has to ask for the subscription itself"
                raise _subscriptions_unchanged(None, text, at.name, before)
            after = found or NodeSubscription(
                node=at.name, jid=jid, subid=f"{subid}{number}", state="pending"
            )
            if after.state != "subscribed":
                after = msgspec.structs.replace(after, state="subscribed", since=at.last_change())
                at.put_subscription(_bare(jid), after)
                made.append((jid, state))
        else:
            text = f"an owner cannot set the state {state}"
            raise _subscriptions_unchanged(None, text, at.name, before)
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


def _may_add(at: NodeAccess, principal: str) -> bool:
    """Whether an owner may subscribe a principal who has not asked for it: admins may, others only
    themselves and those who have subscribed to the presence of the address.
    """
    who = at.who
    return (
        who.may_create
        or who.is_service
        or principal == who.principal
        or rows.sees_presence(at.database, who.service, principal)
    )


def owners(at: NodeRows) -> list[str]:
    """The addresses of the owners of a node."""
    return [jid for jid, affiliation in at.affiliations() if affiliation == "owner"]


def approval_messages(
    at: NodeRows, made: NodeSubscription, creators: Collection[JID]
) -> Sequence[Direct]:
    """The messages that ask the owners to approve a subscription (§8.6): those who have created the
    node, those who may create nodes, and those who have subscribed to the presence of the address.
    Others were made owners by somebody else, and have asked for nothing.
    """
    node = at.load()
    return tuple(
        approval_message(at.service, made, owner)
        for owner in owners(at)
        if (node is not None and node.creator == owner)
        or JID.parse(owner) in creators
        or rows.sees_presence(at.database, at.service, owner)
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
            form_type_field(pubsub.SUBSCRIBE_AUTHORIZATION),
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

"""Requests of the owners of nodes (XEP-0060 §8), and how they approve subscriptions: by a form in a
message, and by an ad-hoc command that sends them the forms of those that wait (§8.6, §8.7).
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from component.features.pubsub.handlers import Allowances, at_node, unknown_request
from component.kernel.adhoc import AdHocRequest, Completed, Offer, Offers
from component.link.router.table import IQRoute, Request
from component.pubsub import items, nodes
from component.pubsub.access import NodeAccess, Requester
from component.pubsub.changes import Direct, NodeChange
from component.pubsub.config import DEFAULT, config_form
from component.pubsub.items import new_id
from component.pubsub.service import PubSubService, last_messages
from component.skills.form_fields import Schema
from xep import pubsub_event, pubsub_owner
from xep.commands import Note
from xep.data_forms import Form
from xep.jid import JID
from xep.pubsub import GET_PENDING, SUBSCRIBE_AUTHORIZATION, SubscriptionState
from xep.pubsub_owner import PubsubOwner
from xep.stanza_error import StanzaError

_FIELD: Final = "pubsub#node"


class OwnerHandler(Offers):
    """Answers requests of owners, takes their forms, and offers the command, a
    `component.kernel.adhoc.Offers`. The command is listed for those who may create nodes; every
    owner of a node can use it.
    """

    def __init__(self, service: PubSubService, allowances: Allowances) -> None:
        self._service = service
        self._allowances = allowances

    def routes(self) -> tuple[IQRoute, ...]:
        """Return the routes of this handler."""
        return (
            IQRoute("get", PubsubOwner, at_node(self._service, self.get_owned)),
            IQRoute("set", PubsubOwner, at_node(self._service, self.set_owned)),
        )

    async def get_owned(self, who: Requester, asked: PubsubOwner) -> PubsubOwner:
        """Answer a request of type get (§8.2.1, §8.3, §8.8.1, §8.9.1). Raises StorageError, too."""
        if asked.default is not None:
            return PubsubOwner(default=pubsub_owner.Default(form=config_form(DEFAULT)))
        part = asked.configure or asked.affiliations or asked.subscriptions
        if part is None:
            raise unknown_request()
        name = part.node
        self._service.refuse_computed(who, name)
        if asked.configure is not None:
            node = await self._service.read(who, name, lambda at: at.owned(lock=False))
            form = config_form(node.config)
            return PubsubOwner(configure=pubsub_owner.Configure(node=name, form=form))
        if asked.affiliations is not None:
            found = await self._service.read(who, name, nodes.affiliations)
            affiliations = tuple(
                pubsub_owner.Affiliation(jid=JID.parse(jid), affiliation=each)
                for jid, each in found
            )
            return PubsubOwner(
                affiliations=pubsub_owner.Affiliations(node=name, affiliations=affiliations)
            )
        made = await self._service.read(
            who, name, lambda at: nodes.subscriptions_to(at, "subscribed")
        )
        subscriptions = tuple(
            pubsub_owner.Subscription(
                jid=JID.parse(each.jid), subscription=each.state, subid=each.subid
            )
            for each in made
        )
        return PubsubOwner(
            subscriptions=pubsub_owner.Subscriptions(node=name, subscriptions=subscriptions)
        )

    async def set_owned(self, who: Requester, asked: PubsubOwner) -> None:
        """Answer a request of type set (§8.2.4, §8.4, §8.5, §8.8.2). Raises StorageError, too."""
        if asked.delete is not None and asked.delete.redirect is not None:
            raise StanzaError(
                "feature-not-implemented", "a deleted node cannot refer to another one here"
            )
        changed = asked.configure or asked.delete or asked.purge
        part = changed or asked.affiliations or asked.subscriptions
        if part is None:
            raise unknown_request()
        name = part.node
        self._service.refuse_computed(who, name)
        if changed is not None:
            await self._allowances.charge_change(self._service, who, name)
            await self._service.change(who, name, lambda at: _change(at, asked))
        elif asked.affiliations is not None:
            wanted = [
                (str(each.jid.bare), each.affiliation) for each in asked.affiliations.affiliations
            ]
            await self._service.send(
                who, name, lambda at: _state_messages(at, nodes.set_affiliations(at, wanted))
            )
        elif asked.subscriptions is not None:
            named = asked.subscriptions.subscriptions
            states = [(str(each.jid), each.subscription, each.subid) for each in named]
            await self._set_subscriptions(who, name, states)

    async def _set_subscriptions(
        self, who: Requester, name: str, wanted: Sequence[tuple[str, SubscriptionState, str | None]]
    ) -> None:
        """Approve, add or end subscriptions to a node (§8.8.2), and notify the subscribers."""
        self._service.refuse_computed(who, name)
        subid = new_id()
        await self._service.send(
            who, name, lambda at: _state_messages(at, nodes.set_subscriptions(at, wanted, subid))
        )

    # -- approval ----------------------------------------------------------------------------------

    async def decide(self, request: Request[None], form: Form) -> None:
        """Approve a subscription or refuse it, as the form of an owner says (§8.6)."""
        said = nodes.read_authorization(form)
        if said is not None:
            who = self._service.requester(request.to, request.sender)
            state: SubscriptionState = "subscribed" if said.allows else "none"
            await self._set_subscriptions(who, said.node, [(str(said.jid), state, said.subid)])

    def nodes(self, principal: JID) -> Sequence[str]:
        """Return the command, for those who may create nodes."""
        return (GET_PENDING,) if principal in self._service.creators else ()

    def get(self, node: str, principal: JID) -> Offer | None:
        """Return the command."""
        return self._offer({"type": "string", "title": "Node"}) if node == GET_PENDING else None

    def _offer(self, choice: Schema) -> Offer:
        return Offer(
            node=GET_PENDING,
            title="Pending subscriptions",
            about="Choose a node. You are sent the form of each subscription that waits for you.",
            schema={"type": "object", "properties": {_FIELD: choice}, "required": [_FIELD]},
            form_type=SUBSCRIBE_AUTHORIZATION,
            rank=3,
            run=self._send_pending,
            prepare=self._prepare,
        )

    async def _prepare(self, asked: AdHocRequest) -> Offer:
        """Return the command with the nodes of its requester (§8.7.2)."""
        who = self._service.requester(asked.target, asked.requester)
        found = await self._service.storage.read(lambda db: nodes.approvable(db, who))
        if not found:
            raise StanzaError("forbidden", "you own no node whose subscriptions need approval")
        return self._offer({"type": "string", "title": "Node", "enum": found})

    async def _send_pending(self, asked: AdHocRequest, json: msgspec.Raw) -> Completed:
        """Send the requester the form of each subscription that waits for approval (§8.7.4)."""
        name = str(msgspec.json.decode(json)[_FIELD])
        who = self._service.requester(asked.target, asked.requester)
        self._service.refuse_computed(who, name)
        found = await self._service.read(
            who, name, lambda at: nodes.subscriptions_to(at, "pending")
        )
        for each in found:
            message = nodes.approval_message(who.service, each, who.jid)
            self._service.notifier.put(message)
        text = f"Forms sent: {len(found)}." if found else "No subscription waits for approval."
        return Completed((Note(type="info", text=text),))


def _change(at: NodeAccess, asked: PubsubOwner) -> NodeChange | None:
    if asked.configure is not None:
        return nodes.configure_node(at, asked.configure.form)
    return nodes.delete_node(at) if asked.delete is not None else items.purge(at)


def _state_messages(
    at: NodeAccess, made: Sequence[tuple[str, SubscriptionState]]
) -> Sequence[Direct]:
    """Return the messages with the new states of subscriptions (§8.8.4)."""
    node = at.owned() if made else None
    messages: list[Direct] = []
    for jid, state in made:
        changed = pubsub_event.Subscription(node=at.name, jid=JID.parse(jid), subscription=state)
        event = pubsub_event.Event(subscription=changed)
        messages.append(Direct(service=at.service, node=at.name, to=jid, payloads=(event,)))
        if state == "subscribed" and node is not None:
            messages += last_messages(at.database, node, jid)
    return messages

"""PubSub (XEP-0060): requests to our addresses, each a PEP service (XEP-0163)."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar, get_args

from component.features.pubsub.verbs import Verbs
from component.kernel.errors import stored
from component.pubsub import faults
from component.pubsub.access import Requester
from component.pubsub.config import DEFAULT, form_of, preconditions
from component.pubsub.items import NewItem, Wanted
from component.pubsub.subscriptions import Options, options_form
from component.router.table import IQRoute, Request
from xep import pubsub, pubsub_owner
from xep.binding import RawXML
from xep.jid import JID
from xep.pubsub import Pubsub
from xep.pubsub_errors import Feature
from xep.pubsub_owner import PubsubOwner
from xep.stanza_error import StanzaError

_LACKING: Final = (
    "access-roster",
    "collections",
    "multi-collection",
    "multi-subscribe",
    "presence-notifications",
)
"""What XEP-0060 has and this service does not. Collections are XEP-0248, which is deferred."""
FEATURES: Final = (
    pubsub.NAMESPACE,
    f"{pubsub.NAMESPACE}#config-node-max",
    f"{pubsub.NAMESPACE}#pubsub-on-a-jid",
    f"{pubsub.NAMESPACE}#rsm",
    *(f"{pubsub.NAMESPACE}#{each}" for each in get_args(Feature) if each not in _LACKING),
)
"""What disco#info says of the service (XEP-0060 §10)."""

P = TypeVar("P", Pubsub, PubsubOwner)
T = TypeVar("T")


class PubSubHandler:
    """Translates requests of the namespaces of XEP-0060 to the verbs of the service.

    Args:
        verbs: the verbs of the service.
        retry_after_s: seconds after which to ask again when the database refuses.
    """

    def __init__(self, verbs: Verbs, retry_after_s: int = 5) -> None:
        self._verbs = verbs
        self._retry_after_s = retry_after_s

    def routes(self) -> tuple[IQRoute, ...]:
        """Return the routes of this handler."""
        return (
            IQRoute("get", Pubsub, self.get, FEATURES),
            IQRoute("set", Pubsub, self.set),
            IQRoute("get", PubsubOwner, self.get_owned),
            IQRoute("set", PubsubOwner, self.set_owned),
        )

    def get(self, request: Request[Pubsub]) -> Awaitable[Pubsub]:
        """Answer a request of type get (§5.6, §5.7, §6.3 to §6.5)."""
        return stored(self._answer(request, self._get), self._retry_after_s)

    def set(self, request: Request[Pubsub]) -> Awaitable[Pubsub | None]:
        """Answer a request of type set (§6.1 to §6.3, §7, §8.1)."""
        return stored(self._answer(request, self._set), self._retry_after_s)

    def get_owned(self, request: Request[PubsubOwner]) -> Awaitable[PubsubOwner]:
        """Answer a request of type get by an owner (§8)."""
        return stored(self._answer(request, self._get_owned), self._retry_after_s)

    def set_owned(self, request: Request[PubsubOwner]) -> Awaitable[None]:
        """Answer a request of type set by an owner (§8)."""
        return stored(self._answer(request, self._set_owned), self._retry_after_s)

    async def _answer(self, request: Request[P], verb: Callable[[Requester, P], Awaitable[T]]) -> T:
        node = _node_of(request.payload)
        service = self._verbs.service
        address = await service.locate(request.to, node, request.sender)
        return await verb(service.requester(address, request.sender), request.payload)

    # -- pubsub, get -------------------------------------------------------------------------------

    async def _get(self, who: Requester, asked: Pubsub) -> Pubsub:
        if asked.items is not None:
            return await self._items(who, asked)
        if asked.subscriptions is not None:
            node = asked.subscriptions.node
            made = await self._verbs.subscriptions(who, node)
            return Pubsub(
                subscriptions=pubsub.Subscriptions(
                    node=node,
                    subscriptions=tuple(
                        pubsub.Subscription(
                            node="" if node else each.node,
                            jid=JID.parse(each.jid),
                            subid=each.subid,
                            subscription=each.state,
                        )
                        for each in made
                    ),
                )
            )
        if asked.affiliations is not None:
            node = asked.affiliations.node
            found = await self._verbs.affiliations(who, node)
            return Pubsub(
                affiliations=pubsub.Affiliations(
                    node=node,
                    affiliations=tuple(
                        pubsub.Affiliation(node=name, affiliation=each) for name, each in found
                    ),
                )
            )
        if asked.options is not None:
            return await self._options(who, asked.options)
        if asked.default is not None:
            form = options_form(Options())
            return Pubsub(default=pubsub.Default(node=asked.default.node, form=form))
        raise StanzaError("bad-request", "the request asks for nothing that is known here")

    async def _options(self, who: Requester, wanted: pubsub.Options) -> Pubsub:
        if wanted.jid is None:
            raise faults.jid_required()
        made = await self._verbs.options(who, wanted.node, wanted.jid, wanted.subid)
        form = options_form(Options(deliver=made.deliver, expires=made.expires))
        return Pubsub(
            options=pubsub.Options(node=wanted.node, jid=wanted.jid, subid=made.subid, form=form)
        )

    async def _items(self, who: Requester, asked: Pubsub) -> Pubsub:
        assert asked.items is not None
        wanted = asked.items
        if wanted.max_items is not None and wanted.max_items < 1:
            raise StanzaError("bad-request", "max_items: expected a positive number")
        ids = tuple(each.id for each in wanted.items if each.id)
        if len(ids) != len(wanted.items):
            raise faults.item_required()
        items, page = await self._verbs.retrieve(
            who,
            wanted.node,
            Wanted(ids=ids, most=wanted.max_items, page=asked.page, subid=wanted.subid),
        )
        return Pubsub(
            items=pubsub.Items(
                node=wanted.node,
                items=tuple(
                    pubsub.Item(
                        id=each.id, payloads=(RawXML(each.payload),) if each.payload else ()
                    )
                    for each in items
                ),
            ),
            page=page,
        )

    # -- pubsub, set -------------------------------------------------------------------------------

    async def _set(self, who: Requester, asked: Pubsub) -> Pubsub | None:
        if asked.publish is not None:
            return await self._publish(who, asked)
        if asked.retract is not None:
            wanted = asked.retract
            ids = [each.id for each in wanted.items]
            await self._verbs.retract_items(who, wanted.node, ids, notify=wanted.notify)
            return None
        if asked.create is not None:
            if asked.configure is not None and asked.configure.node:
                raise StanzaError("bad-request", "<configure/> beside <create/> names no node")
            form = None if asked.configure is None else asked.configure.form
            name = await self._verbs.create(who, asked.create.node, form)
            named = asked.create.node == name
            return None if named else Pubsub(create=pubsub.Create(node=name))
        if asked.subscribe is not None:
            return await self._subscribe(who, asked)
        if asked.unsubscribe is not None:
            gone = asked.unsubscribe
            await self._verbs.unsubscribe(who, gone.node, gone.jid, gone.subid)
            return None
        if asked.options is not None:
            options = asked.options
            if options.jid is None:
                raise faults.jid_required()
            if options.form is None:
                raise faults.invalid_options("the request holds no form")
            await self._verbs.set_options(
                who, options.node, options.jid, options.subid, options.form
            )
            return None
        raise StanzaError("bad-request", "the request asks for nothing that is known here")

    async def _publish(self, who: Requester, asked: Pubsub) -> Pubsub:
        assert asked.publish is not None
        wanted, options = asked.publish, asked.publish_options
        if not wanted.node:
            raise faults.node_id_required()
        items = [
            NewItem(id=each.id, payloads=tuple(one.text for one in each.payloads))
            for each in wanted.items
        ]
        required = preconditions(None if options is None else options.form)
        ids = await self._verbs.publish_items(who, wanted.node, items, required)
        return Pubsub(
            publish=pubsub.Publish(
                node=wanted.node, items=tuple(pubsub.Item(id=each) for each in ids)
            )
        )

    async def _subscribe(self, who: Requester, asked: Pubsub) -> Pubsub:
        assert asked.subscribe is not None
        wanted, options = asked.subscribe, asked.options
        if options is not None and (options.node or options.jid is not None):
            raise StanzaError("bad-request", "<options/> beside <subscribe/> has no node or jid")
        form = None if options is None else options.form
        made = await self._verbs.subscribe(who, wanted.node, wanted.jid, form)
        return Pubsub(
            subscription=pubsub.Subscription(
                node=wanted.node, jid=wanted.jid, subid=made.subid, subscription=made.state
            )
        )

    # -- pubsub#owner ------------------------------------------------------------------------------

    async def _get_owned(self, who: Requester, asked: PubsubOwner) -> PubsubOwner:
        if asked.configure is not None:
            node = asked.configure.node
            config = await self._verbs.configuration(who, node)
            return PubsubOwner(configure=pubsub_owner.Configure(node=node, form=form_of(config)))
        if asked.default is not None:
            return PubsubOwner(default=pubsub_owner.Default(form=form_of(DEFAULT)))
        if asked.affiliations is not None:
            node = asked.affiliations.node
            found = await self._verbs.affiliations_with(who, node)
            return PubsubOwner(
                affiliations=pubsub_owner.Affiliations(
                    node=node,
                    affiliations=tuple(
                        pubsub_owner.Affiliation(jid=JID.parse(jid), affiliation=each)
                        for jid, each in found
                    ),
                )
            )
        if asked.subscriptions is not None:
            node = asked.subscriptions.node
            made = await self._verbs.subscriptions_to(who, node)
            return PubsubOwner(
                subscriptions=pubsub_owner.Subscriptions(
                    node=node,
                    subscriptions=tuple(
                        pubsub_owner.Subscription(
                            jid=JID.parse(each.jid), subscription=each.state, subid=each.subid
                        )
                        for each in made
                    ),
                )
            )
        raise StanzaError("bad-request", "the request asks for nothing that is known here")

    async def _set_owned(self, who: Requester, asked: PubsubOwner) -> None:
        if asked.configure is not None:
            await self._verbs.configure(who, asked.configure.node, asked.configure.form)
        elif asked.delete is not None:
            if asked.delete.redirect is not None:
                raise StanzaError(
                    "feature-not-implemented", "a deleted node cannot refer to another one here"
                )
            await self._verbs.delete_node(who, asked.delete.node)
        elif asked.purge is not None:
            await self._verbs.purge(who, asked.purge.node)
        elif asked.affiliations is not None:
            made = [(each.jid, each.affiliation) for each in asked.affiliations.affiliations]
            await self._verbs.set_affiliations(who, asked.affiliations.node, made)
        elif asked.subscriptions is not None:
            wanted: Sequence[pubsub_owner.Subscription] = asked.subscriptions.subscriptions
            await self._verbs.set_subscriptions(
                who,
                asked.subscriptions.node,
                [(each.jid, each.subscription, each.subid) for each in wanted],
            )
        else:
            raise StanzaError("bad-request", "the request asks for nothing that is known here")


def _node_of(payload: Pubsub | PubsubOwner) -> str:
    """Return the name of the node that a request is about; empty if it names none."""
    children = (getattr(payload, field) for field in payload.__struct_fields__)
    return next((node for child in children if (node := getattr(child, "node", ""))), "")

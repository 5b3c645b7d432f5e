"""PubSub (XEP-0060): requests to our addresses, each a PEP service (XEP-0163).

Each request is one transaction, so what it answers is on disk; subscribers are notified after its
commit. Errors have the conditions of XEP-0060. `owners.py` has the requests of owners.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar, get_args

import anyio
import msgspec

from component.caches import LRUCache
from component.kernel.paging import check_page, items_page, sized
from component.link.router.table import IQRoute, Request
from component.pubsub import faults, items, nodes, rows
from component.pubsub.access import NodeAccess, Requester
from component.pubsub.changes import Direct
from component.pubsub.config import DEFAULT, configured, meta_data_of, preconditions
from component.pubsub.items import NewItem, Wanted, choose, new_id
from component.pubsub.nodes import options_form, with_options
from component.pubsub.notifier import ENVELOPE_BYTES
from component.pubsub.rows import Node, NodeSubscription, StoredItem
from component.pubsub.service import PubSubService, as_node, last_messages, last_of, stored_digests
from xep import disco, pubsub, pubsub_errors
from xep.binding import RawXML
from xep.binding.conversion import format_datetime
from xep.data_forms import Field, Form
from xep.jid import JID
from xep.pubsub import Pubsub
from xep.pubsub_errors import Feature
from xep.pubsub_owner import PubsubOwner
from xep.result_sets import PAGE_ROOM, ResultSet
from xep.stanza_error import StanzaError

BURST_BYTES: Final = 32 * 1024 * 1024
"""How many bytes a principal may cause at once."""
BYTES_PER_S: Final = 256 * 1024
"""How many bytes it may cause per second in the long run."""
_MOST_PRINCIPALS: Final = 10_000


class Allowances:
    """An account for each principal: what it causes is taken from it, and it fills up again. Only
    the most recent principals are stored; an account that is not stored is full.
    """

    def __init__(self) -> None:
        self._accounts: LRUCache[str, tuple[float, float]] = LRUCache(_MOST_PRINCIPALS)

    async def charge_change(
        self, service: PubSubService, who: Requester, node: str, bytes_: int = 0
    ) -> None:
        """Charge a requester for a change of a node: it is stored, and sent to all subscribers.
        Raises StanzaError: there is no such node, or the requester has caused too much.
        """
        if who.is_service or who.may_create:
            return

        def op(at: NodeAccess) -> int:
            at.find()
            return at.count_subscribers()

        told = await service.read(who, node, op)
        told += service.notifier.interested_in(who.service, node)
        self.charge(who.principal, (1 + told) * (bytes_ + ENVELOPE_BYTES))

    def charge(self, principal: str, bytes_: int) -> None:
        """Take bytes from the account of a principal. Raises StanzaError: ``not-acceptable`` with
        `payload-too-big` if no account holds that many, ``resource-constraint`` if this one does
        not now. Nothing is taken then.
        """
        now = anyio.current_time()
        left, at = self._accounts.get(principal, (float(BURST_BYTES), now))
        left = min(BURST_BYTES, left + (now - at) * BYTES_PER_S)
        if bytes_ > BURST_BYTES:
            raise faults.fault(
                "not-acceptable",
                pubsub_errors.PayloadTooBig(),
                f"this would cause {bytes_} bytes, because it is sent to each subscriber, and"
                f" {BURST_BYTES} are the most; publish a smaller item",
            )
        if bytes_ > left:
            seconds = round((bytes_ - left) / BYTES_PER_S) + 1
            raise faults.fault(
                "resource-constraint",
                text="you have published as much as one address may; try again in"
                f" {seconds} seconds",
            )
        self._accounts[principal] = (left - bytes_, now)


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
    """Answers requests of the namespace of XEP-0060, for requesters whose rights are checked.
    `room` is the maximum size of the items of an answer, in bytes.
    """

    def __init__(
        self, service: PubSubService, allowances: Allowances, room: int = PAGE_ROOM
    ) -> None:
        self._service = service
        self._allowances = allowances
        self._room = room

    def routes(self) -> tuple[IQRoute, ...]:
        """Return the routes of this handler."""
        return (
            IQRoute(
                *("get", Pubsub, at_node(self._service, self.get), FEATURES),
                for_all=self._is_public,
            ),
            IQRoute("set", Pubsub, at_node(self._service, self.set)),
        )

    def _is_public(self, asked: Pubsub) -> bool:
        return asked.items is not None and self._service.is_public(asked.items.node)

    async def get(self, who: Requester, asked: Pubsub) -> Pubsub:
        """Answer a request of type get (§5.6, §5.7, §6.3 to §6.5). Raises StorageError, too."""
        if asked.items is not None:
            return await self._items(who, asked.items, asked.page)
        if asked.subscriptions is not None:
            return await self._subscriptions(who, asked.subscriptions.node)
        if asked.affiliations is not None:
            return await self._affiliations(who, asked.affiliations.node)
        if asked.options is not None:
            return await self._options(who, asked.options)
        if asked.default is not None:
            form = options_form(None)
            return Pubsub(default=pubsub.Default(node=asked.default.node, form=form))
        raise unknown_request()

    async def set(self, who: Requester, asked: Pubsub) -> Pubsub | None:
        """Answer a request of type set (§6.1 to §6.3, §7, §8.1). Raises StorageError, too."""
        if asked.publish is not None:
            options = asked.publish_options
            return await self._publish(
                who, asked.publish, None if options is None else options.form
            )
        if asked.retract is not None:
            await self._retract(who, asked.retract)
        elif asked.create is not None:
            return await self._create(who, asked.create, asked.configure)
        elif asked.subscribe is not None:
            return await self._subscribe(who, asked.subscribe, asked.options)
        elif asked.unsubscribe is not None:
            await self._unsubscribe(who, asked.unsubscribe)
        elif asked.options is not None:
            await self._set_options(who, asked.options)
        else:
            raise unknown_request()
        return None

    # -- nodes and items ---------------------------------------------------------------------------

    async def _create(
        self, who: Requester, wanted: pubsub.Create, configure: pubsub.Configure | None
    ) -> Pubsub | None:
        """Create a node (§8.1). The answer has its name if that was chosen here."""
        if configure is not None and configure.node:
            raise StanzaError("bad-request", "<configure/> beside <create/> names no node")
        name = wanted.node or new_id()
        config = configured(DEFAULT, None if configure is None else configure.form)
        if who.may_create and self._service.is_computed(who, name):
            raise StanzaError("conflict", "there is a node of this name")
        await self._service.write(who, name, lambda at: nodes.create_node(at, config))
        return None if wanted.node else Pubsub(create=pubsub.Create(node=name))

    async def _publish(
        self, who: Requester, wanted: pubsub.Publish, options: Form | None
    ) -> Pubsub:
        """Publish items (§7.1)."""
        if not wanted.node:
            raise faults.node_id_required()
        new = [
            NewItem(id=each.id or new_id(), payloads=tuple(one.text for one in each.payloads))
            for each in wanted.items
        ]
        required = preconditions(options)
        self._service.refuse_computed(who, wanted.node)
        size = sum(len(one) for each in new for one in each.payloads)
        await self._allowances.charge_change(self._service, who, wanted.node, size)
        await self._service.change(who, wanted.node, lambda at: items.publish(at, new, required))
        published = tuple(pubsub.Item(id=each.id) for each in new)
        return Pubsub(publish=pubsub.Publish(node=wanted.node, items=published))

    async def _retract(self, who: Requester, wanted: pubsub.Retract) -> None:
        """Delete items (§7.2)."""
        name = wanted.node
        if not name:
            raise faults.node_id_required()
        named = items.check_named([each.id for each in wanted.items])
        self._service.refuse_computed(who, name)
        # The request can only extend the configuration.
        notify = True if wanted.notify else None
        await self._allowances.charge_change(self._service, who, name, sum(map(len, named)))
        await self._service.change(who, name, lambda at: items.retract(at, named, notify=notify))

    async def _items(self, who: Requester, asked: pubsub.Items, page: ResultSet | None) -> Pubsub:
        """Return items of a node, the newest last, and which part of all they are (§6.5)."""
        if asked.max_items is not None and asked.max_items < 1:
            raise StanzaError("bad-request", "max_items: expected a positive number")
        ids = tuple(each.id for each in asked.items if each.id)
        if len(ids) != len(asked.items):
            raise faults.item_required()
        wanted = Wanted(ids=ids, most=asked.max_items, page=page, subid=asked.subid)
        found, part = await self._retrieve(who, asked.node, wanted)
        return Pubsub(
            items=pubsub.Items(
                node=asked.node,
                items=tuple(
                    pubsub.Item(
                        id=each.id, payloads=(RawXML(each.payload),) if each.payload else ()
                    )
                    for each in found
                ),
            ),
            page=part,
        )

    async def _retrieve(
        self, who: Requester, name: str, wanted: Wanted
    ) -> tuple[list[StoredItem], ResultSet | None]:
        computed = self._service.computed(who, name)
        if computed is None:
            return await self._service.read(
                who, name, lambda at: items.retrieve(at, wanted, self._room)
            )
        asked = JID.parse(who.service), JID.parse(who.principal)
        if wanted.ids:
            return list(await computed.chosen(*asked, frozenset(wanted.ids))), None
        ids = await computed.digests(*asked)
        # Items are made for their sizes: at most those that would be returned if they had none.
        most, _ = choose([(id_, 0) for id_ in ids], wanted.page, wanted.most, self._room)
        found = {each.id: each for each in await computed.chosen(*asked, frozenset(most))}
        sizes = {id_: len(each.payload.encode()) for id_, each in found.items()}
        keys = [(id_, sizes.get(id_, 0)) for id_ in ids]
        chosen, part = choose(keys, wanted.page, wanted.most, self._room)
        return [found[id_] for id_ in chosen if id_ in found], part

    # -- subscriptions and affiliations ------------------------------------------------------------

    async def _subscribe(
        self, who: Requester, asked: pubsub.Subscribe, options: pubsub.Options | None
    ) -> Pubsub:
        """Subscribe to a node (§6.1). The last item, or the request to its owners, follows."""
        if options is not None and (options.node or options.jid is not None):
            raise StanzaError("bad-request", "<options/> beside <subscribe/> has no node or jid")
        name = asked.node
        if not name:
            raise faults.node_id_required()
        address = nodes.check_own(who, asked.jid, faults.invalid_jid())
        plain = NodeSubscription(node=name, jid=address, subid=new_id(), state="subscribed")
        wanted = with_options(plain, None if options is None else options.form)
        computed = self._service.computed(who, name)
        seen = None
        if computed is not None and computed.is_compared:
            asked_by = JID.parse(who.service), JID.parse(who.principal)
            seen = stored_digests(await computed.digests(*asked_by))

        def op(at: NodeAccess) -> tuple[NodeSubscription, Sequence[Direct]]:
            if computed is None:
                node = at.readable(subscribing=True)
            else:
                node = as_node(who.service, computed)
            made, is_new = nodes.subscribe(at, node, wanted)
            if is_new and seen is not None:
                at.set_view(address, seen)
            if made.state == "pending":
                return made, nodes.approval_messages(at, made, self._service.creators)
            return made, last_messages(at.database, node, address) if is_new else ()

        made, messages = await self._service.write(who, name, op)
        if computed is not None and made.subid == wanted.subid:
            messages = [*messages, *await last_of(computed, who.service, who.principal, address)]
        for message in messages:
            self._service.notifier.put(message)
        return Pubsub(
            subscription=pubsub.Subscription(
                node=name, jid=asked.jid, subid=made.subid, subscription=made.state
            )
        )

    async def _unsubscribe(self, who: Requester, asked: pubsub.Unsubscribe) -> None:
        """End a subscription (§6.2)."""
        address = _own_address(who, asked.node, asked.jid)

        def op(at: NodeAccess) -> None:
            self._known(at, address, asked.subid)
            at.remove_subscription(address)

        await self._service.write(who, asked.node, op)

    async def _options(self, who: Requester, asked: pubsub.Options) -> Pubsub:
        """Return the options of a subscription (§6.3.2)."""
        if asked.jid is None:
            raise faults.jid_required()
        address = _own_address(who, asked.node, asked.jid)
        made = await self._service.read(
            who, asked.node, lambda at: self._known(at, address, asked.subid)
        )
        form = options_form(made)
        return Pubsub(
            options=pubsub.Options(node=asked.node, jid=asked.jid, subid=made.subid, form=form)
        )

    async def _set_options(self, who: Requester, asked: pubsub.Options) -> None:
        """Change the options of a subscription (§6.3.5)."""
        if asked.jid is None:
            raise faults.jid_required()
        if asked.form is None:
            raise faults.invalid_options("the request holds no form")
        address, form = _own_address(who, asked.node, asked.jid), asked.form

        def op(at: NodeAccess) -> None:
            found = with_options(self._known(at, address, asked.subid), form)
            after = msgspec.structs.replace(found, since=at.last_change())
            at.put_subscription(who.principal, after)

        await self._service.write(who, asked.node, op)

    def _known(self, at: NodeAccess, address: str, subid: str | None) -> NodeSubscription:
        """Return the requester's subscription to a node, which is not hidden from it."""
        if self._service.computed(at.who, at.name) is None:
            at.find()
        return nodes.known(at, address, subid)

    async def _subscriptions(self, who: Requester, node: str) -> Pubsub:
        """Return the requester's own subscriptions, at one node or at all (§5.6)."""
        made = await self._service.storage.read(
            lambda database: rows.subscriptions_of(
                database, who.service, who.principal, node or None
            )
        )
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

    async def _affiliations(self, who: Requester, node: str) -> Pubsub:
        """Return the requester's own affiliations, with one node or with all (§5.7)."""
        found = await self._service.storage.read(
            lambda database: rows.affiliations_of(database, who.service, who.principal)
        )
        return Pubsub(
            affiliations=pubsub.Affiliations(
                node=node,
                affiliations=tuple(
                    pubsub.Affiliation(node=name, affiliation=each)
                    for name, each in found
                    if not node or name == node
                ),
            )
        )


def at_node(
    service: PubSubService, verb: Callable[[Requester, P], Awaitable[T]]
) -> Callable[[Request[P]], Awaitable[T]]:
    """Return a handler that answers a request at the address that has its node."""

    async def answer(request: Request[P]) -> T:
        children = (getattr(request.payload, field) for field in request.payload.__struct_fields__)
        node = next((found for child in children if (found := getattr(child, "node", ""))), "")
        address = await service.locate(request.to, node, request.sender)
        return await verb(service.requester(address, request.sender), request.payload)

    return answer


def unknown_request() -> StanzaError:
    """Return the error of a request that has no known element."""
    return StanzaError("bad-request", "the request asks for nothing that is known here")


def _own_address(who: Requester, name: str, jid: JID) -> str:
    """Return the address of a subscription of the requester's own (§6.2.3.3, §6.3.4.1)."""
    if not name:
        raise faults.node_id_required()
    return nodes.check_own(who, jid, faults.forbidden("that is not your address"))


_IDENTITY: Final = disco.Identity(category="pubsub", type="leaf")
_FEATURES: Final = (disco.Feature(var=pubsub.NAMESPACE),)


class NodeDiscovery:
    """Answers disco#info and disco#items about nodes; a `component.kernel.disco.Nodes`. It answers
    for each name, with an error if there is no such node, so it is the last one asked.
    """

    def __init__(self, service: PubSubService, room: int = PAGE_ROOM) -> None:
        self._service = service
        self._room = room

    async def info(self, request: Request[disco.InfoQuery]) -> disco.InfoQuery:
        """Return what a node is, with its metadata (XEP-0060 §5.3, §5.4). Raises StanzaError."""
        name = _named(request.payload.node)
        who = self._service.requester(request.to, request.sender)
        node, owners, subscribers = await self._described(who, name)
        created = format_datetime(node.created.replace(microsecond=0))
        extra = (
            Field(var="pubsub#creation_date", type="text-single", values=(created,)),
            Field(var="pubsub#creator", type="jid-single", values=(node.creator,)),
            Field(var="pubsub#owner", type="jid-multi", values=tuple(owners)),
            Field(var="pubsub#num_subscribers", type="text-single", values=(str(subscribers),)),
        )
        return disco.InfoQuery(
            node=name,
            identities=(_IDENTITY,),
            features=_FEATURES,
            forms=(meta_data_of(node.config, extra),),
        )

    def items(self, request: Request[disco.ItemsQuery]) -> Awaitable[disco.ItemsQuery]:
        """Return the items of a node by their ids (XEP-0060 §5.5). Raises StanzaError."""
        check_page(request.payload.page)  # a handler can raise it only before it suspends
        return self._items(request)

    async def _items(self, request: Request[disco.ItemsQuery]) -> disco.ItemsQuery:
        name = _named(request.payload.node)
        who = self._service.requester(request.to, request.sender)
        ids = await self._item_ids(who, name)
        address = request.to.bare
        return items_page(
            request.payload,
            sorted(ids),
            lambda id_: sized(disco.Item(jid=address, name=id_)),
            self._room,
        )

    async def _described(self, who: Requester, name: str) -> tuple[Node, list[str], int]:
        computed = self._service.computed(who, name)
        if computed is not None:
            return as_node(who.service, computed), [], 0

        return await self._service.read(
            who, name, lambda at: (at.find()[0], nodes.owners(at), at.count_subscribers())
        )

    async def _item_ids(self, who: Requester, name: str) -> list[str]:
        computed = self._service.computed(who, name)
        if computed is not None:
            return list(await computed.digests(JID.parse(who.service), JID.parse(who.principal)))

        def op(at: NodeAccess) -> list[str]:
            at.readable()
            return [id_ for id_, _ in at.item_keys()]

        return await self._service.read(who, name, op)


def _named(node: str | None) -> str:
    if not node:
        raise faults.no_such_node()
    return node

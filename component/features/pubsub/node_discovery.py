"""Discovery of PubSub nodes: what each is, and which items it has (XEP-0060 §5.3 to §5.5)."""

from collections.abc import Awaitable
from typing import Final

from component.kernel.errors import stored
from component.kernel.paging import check_page, page, sized
from component.link.router.table import Request
from component.pubsub import access, faults, rows, subscriptions
from component.pubsub.access import Requester
from component.pubsub.computed import as_node
from component.pubsub.config import meta_data_of
from component.pubsub.rows import Node
from component.pubsub.service import PubSubService
from component.store.database import Database
from xep import disco, pubsub
from xep.binding.conversion import format_datetime
from xep.data_forms import Field
from xep.jid import JID
from xep.result_sets import PAGE_ROOM

_IDENTITY: Final = disco.Identity(category="pubsub", type="leaf")
_FEATURES: Final = (disco.Feature(var=pubsub.NAMESPACE),)


class NodeDiscovery:
    """Answers disco#info and disco#items about nodes; a `component.kernel.disco.Nodes`. It answers
    for each name, with an error if there is no such node, so it is the last one asked.
    """

    def __init__(
        self, service: PubSubService, retry_after_s: int = 5, room: int = PAGE_ROOM
    ) -> None:
        self._service = service
        self._retry_after_s = retry_after_s
        self._room = room

    async def info(self, request: Request[disco.InfoQuery]) -> disco.InfoQuery:
        """Return what a node is, with its metadata (XEP-0060 §5.3, §5.4). Raises StanzaError."""
        name = _named(request.payload.node)
        who = self._service.requester(request.to, request.sender)
        node, owners, subscribers = await stored(self._described(who, name), self._retry_after_s)
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
        ids = await stored(self._item_ids(who, name), self._retry_after_s)
        address = request.to.bare
        items, which = page(
            sorted(ids),
            request.payload.page,
            lambda id_: sized(disco.Item(jid=address, name=id_)),
            self._room,
        )
        return disco.ItemsQuery(node=name, items=items, page=which)

    async def _described(self, who: Requester, name: str) -> tuple[Node, list[str], int]:
        """Return a node, its owners, and how many subscribers it has."""
        computed = self._service.computed(who, name)
        if computed is not None:
            return as_node(who.service, computed), [], 0

        def op(database: Database) -> tuple[Node, list[str], int]:
            node, _ = access.find_node(database, who, name)
            owners = subscriptions.owners(database, who.service, name)
            return node, owners, rows.count_subscribers(database, who.service, name)

        return await self._service.storage.read(op)

    async def _item_ids(self, who: Requester, name: str) -> list[str]:
        computed = self._service.computed(who, name)
        if computed is not None:
            found = await computed.items(JID.parse(who.service), JID.parse(who.principal))
            return [each.id for each in found]

        def op(database: Database) -> list[str]:
            node, found = access.find_node(database, who, name)
            access.check_read(database, who, node, found, subscribing=False)
            return [id_ for id_, _ in rows.item_keys(database, who.service, name)]

        return await self._service.storage.read(op)


def _named(node: str | None) -> str:
    if not node:
        raise faults.no_such_node()
    return node

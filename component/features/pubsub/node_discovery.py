"""Discovery of PubSub nodes: which there are, and what each is (XEP-0060 §5.2 to §5.5)."""

from collections.abc import Sequence
from typing import Final

from component.kernel.paging import page
from component.kernel.storing import stored
from component.pubsub import faults
from component.pubsub.config import meta_data_of
from component.pubsub.service import PubSubService
from component.router.table import Request
from xep import disco, pubsub
from xep.binding import encode
from xep.binding.conversion import format_datetime
from xep.data_forms import Field
from xep.result_sets import PAGE_ROOM

_IDENTITY: Final = disco.Identity(category="pubsub", type="leaf")
_FEATURES: Final = (disco.Feature(var=pubsub.NAMESPACE),)


class NodeOverview:
    """Answers disco#info and disco#items about nodes.

    Implements `component.features.discovery.handlers.PubSubNodes`.

    Args:
        service: the PubSub service.
        retry_after_s: seconds after which to ask again when the database refuses.
        room: the bytes that the entries of a page may take.
    """

    def __init__(
        self, service: PubSubService, retry_after_s: int = 5, room: int = PAGE_ROOM
    ) -> None:
        self._room = room
        self._service = service
        self._retry_after_s = retry_after_s

    async def names(self, request: Request[disco.ItemsQuery]) -> Sequence[tuple[str, str]]:
        """Return the nodes that the sender may know of, sorted, each with its title."""
        who = self._service.requester(request.to, request.sender)
        return await stored(self._service.overview.visible(who), self._retry_after_s)

    async def info(self, request: Request[disco.InfoQuery]) -> disco.InfoQuery:
        """Return what a node is, with its metadata (XEP-0060 §5.3, §5.4). Raises StanzaError."""
        name = _named(request.payload.node)
        who = self._service.requester(request.to, request.sender)
        node, owners, subscribers = await stored(
            self._service.overview.described(who, name), self._retry_after_s
        )
        created = format_datetime(node.created.replace(microsecond=0))
        extra = (
            Field(
                var="pubsub#creation_date",
                type="text-single",
                values=(created,),
            ),
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

    async def items(self, request: Request[disco.ItemsQuery]) -> disco.ItemsQuery:
        """Return the items of a node by their ids (XEP-0060 §5.5). Raises StanzaError."""
        name = _named(request.payload.node)
        who = self._service.requester(request.to, request.sender)
        ids = await stored(self._service.overview.item_ids(who, name), self._retry_after_s)
        address = request.to.bare
        entries = {each: disco.Item(jid=address, name=each) for each in ids}
        items, which = page(
            sorted(entries),
            request.payload.page,
            lambda id_: (entries[id_], len(encode(entries[id_], disco.ITEMS).encode())),
            self._room,
        )
        return disco.ItemsQuery(node=name, items=items, page=which)


def _named(node: str | None) -> str:
    if not node:
        raise faults.no_such_node()
    return node

"""Ad-hoc commands in service discovery: the list, and each command as a node (XEP-0050 §2)."""

from collections.abc import Sequence

from component.kernel.adhoc import Offer, Offers
from component.kernel.paging import address_asked, page, sized
from component.router.table import Request
from xep import data_forms, disco
from xep.commands import NAMESPACE
from xep.jid import JID
from xep.result_sets import PAGE_ROOM


class CommandNodes:
    """Answers disco#info and disco#items at the nodes of commands.

    Args:
        offers: where commands come from.
        room: the bytes that the entries of a page may take.
    """

    def __init__(self, offers: Sequence[Offers], room: int = PAGE_ROOM) -> None:
        self._room = room
        self._offers = offers

    def info(self, request: Request[disco.InfoQuery]) -> disco.InfoQuery | None:
        """Return the list of commands, or one of them (XEP-0050 §2.2, §2.3)."""
        node = request.payload.node
        if node is None:
            return None
        if node == NAMESPACE:
            return _info(node, "command-list", "Commands", (disco.INFO, disco.ITEMS))
        offer = self._get(node, request.principal)
        if offer is None:
            return None
        return _info(node, "command-node", offer.title, (NAMESPACE, data_forms.NAMESPACE))

    def items(self, request: Request[disco.ItemsQuery]) -> disco.ItemsQuery | None:
        """Return a page of the commands for this principal; a command has no items."""
        query = request.payload
        if query.node is None:
            return None
        if query.node != NAMESPACE:
            found = self._get(query.node, request.principal)
            return None if found is None else disco.ItemsQuery(node=query.node)
        to, principal = address_asked(request), request.principal

        def item(node: str) -> tuple[disco.Item, int]:
            offer = self._get(node, principal)
            return sized(disco.Item(jid=to, node=node, name=None if offer is None else offer.title))

        nodes = sorted(node for offers in self._offers for node in offers.nodes(principal))
        items, which = page(nodes, query.page, item, self._room)
        return disco.ItemsQuery(node=query.node, items=items, page=which)

    def _get(self, node: str, principal: JID) -> Offer | None:
        for offers in self._offers:
            offer = offers.get(node, principal)
            if offer is not None:
                return offer
        return None


def _info(node: str, type_: str, name: str, features: tuple[str, ...]) -> disco.InfoQuery:
    return disco.InfoQuery(
        node=node,
        identities=(disco.Identity(category="automation", type=type_, name=name),),
        features=tuple([disco.Feature(var=feature) for feature in features]),
    )

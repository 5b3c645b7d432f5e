"""Finds the handler of an IQ request, by its addresses, its type and the name of its payload.

Callers send many requests that differ only in their content. The result for a head is cached.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from cachebox import LRUCache

from component.link.router.addresses import Addresses
from component.link.router.replies import head_of
from component.link.router.senders import Sender, Senders
from component.link.router.table import Host, IQRoute, Table
from xep.binding.decoder import decoder_for
from xep.jid import JID
from xep.stanza import Incoming

_REMEMBERED: Final = 4096
_LONGEST_REMEMBERED: Final = 512

_Head: TypeAlias = tuple[str, str | None, str, str | None]
"""The addresses `from` and `to`, the type, and the name of the only child."""


class RequestHead:
    """The meaning of a request's head and of the name of its only child.

    Attributes:
        sender: the sender.
        to: the address of this service that received it.
        host: what that address is; None if nothing has it.
        child: the name of the only child; None if the request does not have exactly one.
        route: the route; None if nothing of that name is served there.
    """

    __slots__ = ("child", "host", "route", "sender", "to")

    def __init__(
        self, sender: Sender, to: JID, host: Host | None, child: str | None, route: IQRoute | None
    ) -> None:
        self.sender = sender
        self.to = to
        self.host = host
        self.child = child
        self.route = route


class ResolvedRoute(RequestHead):
    """The route of a request, as far as its head determines it.

    Attributes:
        requester: the address that sent it.
        principal: its bare address.
        home: what `to` is.
        decode: decodes the only child.
        handler: serves it.
        place_first: whether admission is needed before it is handled.
        reply: the beginning of its result up to the value of the id, as `Replies.result` takes it.
    """

    __slots__ = ("decode", "handler", "home", "place_first", "principal", "reply", "requester")

    def __init__(
        self,
        sender: Sender,
        requester: JID,
        to: JID,
        home: Host,
        child: str | None,
        route: IQRoute,
        reply: str,
    ) -> None:
        super().__init__(sender, to, home, child, route)
        self.requester = requester
        self.principal = requester.bare
        self.home = home
        self.decode = decoder_for(route.payload)
        self.handler = route.handler
        self.place_first = route.place_first
        self.reply = reply


class RouteResolver:
    """Finds the route of each request.

    The most recent results are cached, except for long heads.

    Args:
        senders: resolves the sender.
        addresses: the addresses of this service.
        table: the routes.
    """

    def __init__(self, senders: Senders, addresses: Addresses, table: Table) -> None:
        self._senders = senders
        self._addresses = addresses
        self._table = table
        self._remembered: LRUCache[_Head, RequestHead] = LRUCache(_REMEMBERED)
        # The library's types do not say that `get` returns None for a missing key.
        self._find: Callable[[_Head], RequestHead | None] = self._remembered.get

    def of(self, stanza: Incoming) -> RequestHead:
        """Return what an IQ get or set resolves to. Never raises."""
        head = (stanza.sender or "", stanza.to, stanza.type, stanza.sole_child)
        return self._find(head) or self._look_up_and_remember(head)

    def _look_up_and_remember(self, head: _Head) -> RequestHead:
        found = self._look_up(*head)
        sender, to, _, child = head
        if len(sender) + len(to or "") + len(child or "") <= _LONGEST_REMEMBERED:
            self._remembered[head] = found
        return found

    def _look_up(self, sender: str, to: str | None, type_: str, child: str | None) -> RequestHead:
        address, host = self._addresses.find(to, iq=True)
        route = None
        if host is not None and child is not None:
            route = self._table.iq(host, type_, child)
        who = self._senders.of(sender)
        if host is None or route is None or who.jid is None or not who.admitted:
            return RequestHead(who, address, host, child, route)
        reply = head_of("iq", "result", sender or None, to or str(self._addresses.default))
        reply += " id='"
        return ResolvedRoute(who, who.jid, address, host, child, route, reply)

"""Finds what serves an IQ request, from its addresses, its type and the name of its payload.

Callers send many requests that differ only in their content. What their heads mean is worked out
once.
"""

from collections.abc import Set as AbstractSet
from typing import Final, TypeAlias

from component.router.replies import head_of
from component.router.senders import Sender, Senders
from component.router.table import Host, IQRoute, Table
from xep.binding.decoder import decoder_for
from xep.jid import JID, JIDError
from xep.stanza import Incoming

_REMEMBERED: Final = 4096
_LONGEST_REMEMBERED: Final = 512

_Head: TypeAlias = tuple[str, str | None, str, str | None]
"""The addresses `from` and `to`, the type, and the name of the only child."""


class RequestHead:
    """What the head of a request and the name of its only child say.

    Attributes:
        sender: who sent it.
        to: the address of this component that it was sent to.
        host: what that address is; None if nothing has it.
        child: the name of the only child; None if the request does not hold exactly one.
        route: what serves it; None if nothing of that name is served there.
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
    """What serves a request, as far as its head says.

    Attributes:
        requester: the address that sent it.
        principal: its bare address.
        home: what `to` is.
        decode: decodes the only child.
        handler: serves it.
        place_first: whether there has to be a place for the request before it is handled.
        reply: the beginning of its result up to the value of the id, as `Replies.result` wants it.
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

    Results are remembered in two halves. When the younger one is full, the older one is dropped and
    they change places; a result that is used again is taken into the younger one.

    Args:
        senders: knows who sent it.
        domain: the component's own domain.
        agents: localparts of the agents it hosts.
        table: what is served.
    """

    def __init__(
        self, senders: Senders, domain: JID, agents: AbstractSet[str], table: Table
    ) -> None:
        self._senders = senders
        self._domain = domain
        self._agents = agents
        self._table = table
        self._young: dict[_Head, RequestHead] = {}
        self._old: dict[_Head, RequestHead] = {}

    def of(self, stanza: Incoming) -> RequestHead:
        """What an IQ get or set resolves to. Never raises."""
        head = (stanza.sender or "", stanza.to, stanza.type, stanza.sole_child)
        return self._young.get(head) or self._find(head)

    def _find(self, head: _Head) -> RequestHead:
        found = self._old.get(head) or self._look_up(*head)
        sender, to, _, child = head
        if len(sender) + len(to or "") + len(child or "") <= _LONGEST_REMEMBERED:
            if len(self._young) >= _REMEMBERED // 2:
                self._old, self._young = self._young, {}
            self._young[head] = found
        return found

    def address(self, text: str | None) -> tuple[JID, Host | None]:
        """The address of ours that `text` is, and what lives there; None if nobody does.

        The address keeps a resource, though nobody here has one: a message for it is taken as one
        for the bare address (RFC 6121 §8.5.3.2.1), and answered from where it went.
        """
        if text is None:
            return self._domain, "component"
        try:
            to = JID.parse(text)
        except JIDError:
            return self._domain, None
        if to.domain != self._domain.domain:
            return to, None
        if to.local is None:
            return to, "component"
        return to, "agent" if to.local in self._agents else None

    def _look_up(self, sender: str, to: str | None, type_: str, child: str | None) -> RequestHead:
        address, host = self.address(to)
        if address.resource is not None:
            host = None  # nobody here has a resource (RFC 6121 §8.5.3.2.3)
        route = None
        if host is not None and child is not None:
            route = self._table.iq(host, type_, child)
        who = self._senders.of(sender)
        if host is None or route is None or who.jid is None or not who.admitted:
            return RequestHead(who, address, host, child, route)
        reply = head_of("iq", "result", sender or None, to or self._domain.domain) + " id='"
        return ResolvedRoute(who, who.jid, address, host, child, route, reply)

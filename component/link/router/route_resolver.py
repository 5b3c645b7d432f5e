"""Finds the sender and the handler of an IQ request, by its addresses, its type and the name of its
payload.

Callers send many requests that differ only in their content. The result for a head is cached.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeAlias
from xml.etree.ElementTree import Element

from component.link.router.addresses import Addresses
from component.link.router.replies import head_of
from component.link.router.table import Host, IQRoute, Request, Table
from xep.binding import ContentError, Payload
from xep.binding.decoder import decoder_for
from xep.jid import JID, JIDError
from xep.stanza import Incoming
from xep.stanza_error import StanzaError

_REMEMBERED: Final = 4096
_LONGEST_SENDER: Final = 256
_LONGEST_HEAD: Final = 512
"""The longest address, and the longest head, whose result is cached."""


class Sender:
    """A sender: its JID and principal, or None and the reason if RFC 7622 does not allow the
    address.
    """

    __slots__ = ("admitted", "jid", "principal", "principal_text", "refusal")

    def __init__(self, jid: JID | None, admitted: bool, refusal: str = "") -> None:
        self.jid = jid
        self.principal = None if jid is None else jid.bare
        self.principal_text = "" if jid is None else str(self.principal)
        self.admitted = admitted
        self.refusal = refusal


class Senders:
    """Resolves senders by the text of their address.

    Args:
        admits: whether the policy admits a principal; called once per cached sender.
        addresses: the addresses of this service; a stanza from one of them was looped back by the
            server.
        refused: called with the principal of each stanza that the policy does not admit.
        is_room: whether an agent is in the room of an occupant.

    Attributes:
        addresses: as given.
        refused: as given.
        is_room: as given.
    """

    def __init__(
        self,
        admits: Callable[[JID], bool],
        addresses: Addresses,
        refused: Callable[[str], None] = lambda _: None,
        is_room: Callable[[JID], bool] = lambda _: False,
    ) -> None:
        self._admits = admits
        self.addresses = addresses
        self.refused = refused
        self.is_room = is_room
        self._remembered = lru_cache(maxsize=_REMEMBERED)(self._look_up)

    def of(self, text: str) -> Sender:
        """Return the sender whose address is ``text``. Never raises."""
        if len(text) > _LONGEST_SENDER:
            return self._look_up(text)
        return self._remembered(text)

    def forget(self) -> None:
        """Find everybody anew, because others are admitted."""
        self._remembered.cache_clear()

    def _look_up(self, text: str) -> Sender:
        try:
            jid = JID.parse_delivered(text)
        except JIDError as error:
            return Sender(None, admitted=False, refusal=str(error))
        return Sender(jid, admitted=self.addresses.is_own(jid) or self._admits(jid.bare))


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

    def __init__(self, head: RequestHead, route: IQRoute, home: Host, reply: str) -> None:
        super().__init__(head.sender, head.to, home, head.child, route)
        assert head.sender.jid is not None, "an admitted sender has an address"
        self.requester = head.sender.jid
        self.principal = self.requester.bare
        self.home = home
        self.decode = decoder_for(route.payload)
        self.handler = route.handler
        self.place_first = route.place_first
        self.reply = reply


def _limited(
    found: ResolvedRoute, is_served: Callable[[Any], bool], senders: Senders
) -> ResolvedRoute:
    """Return the route for a sender who is not admitted: it serves some payloads only."""
    decode, handle = found.decode, found.handler

    def refusal() -> StanzaError:
        senders.refused(found.sender.principal_text)
        return StanzaError("service-unavailable")

    def decode_or_refuse(element: Element) -> Payload:
        try:
            decoded: Payload = decode(element)
        except ContentError:
            raise refusal() from None
        return decoded

    def handle_or_refuse(request: Request[Any]) -> Any:
        if not is_served(request.payload):
            raise refusal()
        return handle(request)

    found.decode, found.handler = decode_or_refuse, handle_or_refuse
    return found


class RouteResolver:
    """Finds the route of each request.

    Results are cached, except for long heads.

    Args:
        senders: resolves the sender.
        table: the routes.
    """

    def __init__(self, senders: Senders, table: Table) -> None:
        self._senders = senders
        self._table = table
        self._remembered: dict[_Head, RequestHead] = {}

    def of(self, stanza: Incoming) -> RequestHead:
        """Return what an IQ get or set resolves to. Never raises."""
        head = (stanza.sender or "", stanza.to, stanza.type, stanza.sole_child)
        return self._remembered.get(head) or self._look_up_and_remember(head)

    def _look_up_and_remember(self, head: _Head) -> RequestHead:
        found = self._look_up(*head)
        sender, to, _, child = head
        if len(sender) + len(to or "") + len(child or "") <= _LONGEST_HEAD:
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            self._remembered[head] = found
        return found

    def _look_up(self, sender: str, to: str | None, type_: str, child: str | None) -> RequestHead:
        addresses = self._senders.addresses
        address, host = addresses.find(to, iq=True)
        route = None
        if host is not None and child is not None:
            route = self._table.iq(host, type_, child)
        found = RequestHead(self._senders.of(sender), address, host, child, route)
        if host is None or route is None or found.sender.jid is None:
            return found
        is_served = route.for_all
        if not found.sender.admitted and is_served is None:
            if route.for_occupants is None or not self._senders.is_room(found.sender.jid):
                return found
            is_served = route.for_occupants
        reply = head_of("iq", "result", sender or None, to or str(addresses.default))
        resolved = ResolvedRoute(found, route, host, f"{reply} id='")
        if found.sender.admitted or is_served is None:
            return resolved
        return _limited(resolved, is_served, self._senders)

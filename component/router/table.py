"""The table of handlers: what is served, by which function, announced as which features."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec

from xep.binding import Encoded, Payload
from xep.jid import JID
from xep.stanza import Incoming

P_co = TypeVar("P_co", bound=Payload | None, covariant=True)
P = TypeVar("P", bound=Payload)

Host = Literal["component", "agent"]
"""What an address of ours is: the component's own domain, or an agent that it hosts."""


class Request(msgspec.Struct, Generic[P_co], gc=False):
    """A stanza on its way to a handler: who sent it, to which of our addresses, and its payload.

    Attributes:
        stanza: the stanza as it arrived.
        sender: the authenticated address in ``from``.
        principal: the bare JID of the sender, which policy and shares are about.
        to: the address of ours it was sent to.
        host: what that address is.
        payload: the payload, decoded; None for a route that takes no payload.
    """

    stanza: Incoming
    sender: JID
    principal: JID
    to: JID
    host: Host
    payload: P_co


PayloadClass: TypeAlias = type[Payload]
Answer: TypeAlias = Payload | Encoded | None
"""A payload, one that is XML text already, or nothing."""

IQHandler: TypeAlias = Callable[[Request[P]], Answer | Awaitable[Answer]]
"""Answers a request at once, or returns an awaitable of the answer when the work suspends.

The router gives the awaitable a task of its own; an answer given at once costs none. None is a
result without a payload; a StanzaError is raised, not returned.
"""

SilentHandler: TypeAlias = Callable[[Request[None]], Awaitable[None] | None]
"""Handles a message or a presence; an awaitable is run in a task of its own."""

BOTH: frozenset[Host] = frozenset(("component", "agent"))


class IQRoute(msgspec.Struct, frozen=True):
    """One kind of IQ that is served: by its type and the class of its payload.

    ``features`` are the disco features that serving it announces at its hosts (XEP-0030 §3.1).
    A request needs a place among those under way only if its handler suspends. ``place_first`` says
    that it needs one before it is handled, because the handler changes something before that.
    """

    type: Literal["get", "set"]
    payload: PayloadClass
    handler: IQHandler[Any]
    features: tuple[str, ...] = ()
    hosts: frozenset[Host] = BOTH
    place_first: bool = False


class StanzaRoute(msgspec.Struct, frozen=True):
    """The handler of messages or presences of some types."""

    kind: Literal["message", "presence"]
    types: frozenset[str]
    handler: SilentHandler
    features: tuple[str, ...] = ()
    hosts: frozenset[Host] = BOTH


Route: TypeAlias = IQRoute | StanzaRoute


class Table:
    """Every route, looked up by what a stanza is.

    Raises:
        ValueError: two routes claim the same stanzas.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._iq: dict[tuple[Host, str, str], IQRoute] = {}
        self._stanzas: dict[tuple[Host, str, str], StanzaRoute] = {}
        for route in self.routes:
            for host in route.hosts:
                if isinstance(route, IQRoute):
                    self._claim(self._iq, (host, route.type, route.payload.xml.tag), route)
                else:
                    for type_ in route.types:
                        self._claim(self._stanzas, (host, route.kind, type_), route)

    @staticmethod
    def _claim(
        table: dict[tuple[Host, str, str], Any], key: tuple[Host, str, str], route: Route
    ) -> None:
        if key in table:
            raise ValueError(f"two handlers claim {' '.join(key)}")
        table[key] = route

    def iq(self, host: Host, type_: str, payload: str) -> IQRoute | None:
        """The route of an IQ whose only child has the name ``payload`` (Clark notation)."""
        return self._iq.get((host, type_, payload))

    def stanza(self, host: Host, kind: str, type_: str) -> StanzaRoute | None:
        """The route of a message or a presence."""
        return self._stanzas.get((host, kind, type_))

    def features(self, host: Host) -> tuple[str, ...]:
        """The disco features served at ``host``, sorted, each once."""
        found = {
            feature for route in self.routes if host in route.hosts for feature in route.features
        }
        return tuple(sorted(found))

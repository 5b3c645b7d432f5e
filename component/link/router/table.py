"""The table of handlers: which function serves which stanzas, and the features that it
announces.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec

from xep.binding import Payload, RawXML
from xep.jid import JID
from xep.stanza import Incoming

P_co = TypeVar("P_co", bound=Payload | None, covariant=True)
P = TypeVar("P", bound=Payload)

Host = Literal["component", "agent"]
"""What an address of the component is: the component's own domain, or an agent that it hosts."""


class Request(msgspec.Struct, Generic[P_co], gc=False):
    """A stanza for a handler, with its addresses and its payload.

    Attributes:
        stanza: the stanza as it arrived.
        sender: the authenticated address in ``from``.
        principal: the bare JID of the sender, to which policy and shares apply.
        to: the component's address that received it.
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
ReplyPayload: TypeAlias = Payload | RawXML | None
"""A payload, a payload that is already XML text, or nothing."""

IQHandler: TypeAlias = Callable[[Request[P]], ReplyPayload | Awaitable[ReplyPayload]]
"""Answers a request at once, or returns an awaitable of the answer when the work suspends.

The router runs an awaitable in its own task; an answer given at once needs none. None is a result
without a payload; a StanzaError is raised, not returned. A `PayloadError` that is raised
synchronously says that the payload is not valid.
"""

SilentHandler: TypeAlias = Callable[[Request[None]], Awaitable[None] | None]
"""Handles a message or a presence; an awaitable is run in its own task."""

BOTH: frozenset[Host] = frozenset(("component", "agent"))


class IQRoute(msgspec.Struct, frozen=True):
    """One kind of IQ that is served: by its type and the class of its payload.

    ``features`` are the disco features that serving it announces at its hosts (XEP-0030 §3.1). A
    request is counted by the admission gate only if its handler suspends. ``place_first`` says that
    it is counted before it is handled, because the handler changes something before it suspends.
    ``for_all`` says of a payload whether it is served for senders whom the policy does not admit,
    too; without it, nothing is. ``for_occupants`` says it for the occupants of rooms that agents
    are in: all of them have the address of their room, so the policy admits none.
    """

    type: Literal["get", "set"]
    payload: PayloadClass
    handler: IQHandler[Any]
    features: tuple[str, ...] = ()
    hosts: frozenset[Host] = BOTH
    place_first: bool = False
    for_all: Callable[[Any], bool] | None = None
    for_occupants: Callable[[Any], bool] | None = None


class StanzaRoute(msgspec.Struct, frozen=True):
    """The handler of messages or presences of some types.

    With ``payload``, the class of a child element, it handles those that have such a child, before
    a route without one does. What such a route handles is never refused as too much, so its handler
    only takes note of it. ``admits`` can say who may send them, in place of the policy: a service
    that we have asked for notifications need not be one that may ask us for something. With
    ``falls_back``, stanzas of other senders are handled as if a route with a payload did not exist.
    """

    kind: Literal["message", "presence"]
    types: frozenset[str]
    handler: SilentHandler
    features: tuple[str, ...] = ()
    hosts: frozenset[Host] = BOTH
    payload: PayloadClass | None = None
    admits: Callable[[JID], bool] | None = None
    falls_back: bool = False


Route: TypeAlias = IQRoute | StanzaRoute


class Table:
    """All routes, looked up by the properties of a stanza.

    Raises:
        ValueError: two routes claim the same stanzas.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._iq: dict[tuple[Host, str, str], IQRoute] = {}
        self._stanzas: dict[tuple[Host, str, str], StanzaRoute] = {}
        self._by_payload: dict[tuple[str, str], StanzaRoute] = {}
        for route in self.routes:
            for host in route.hosts:
                if isinstance(route, IQRoute):
                    self._claim(self._iq, (host, route.type, route.payload.xml.tag), route)
                elif route.payload is not None:
                    for type_ in route.types:
                        key = (host, f"{route.kind} {route.payload.xml.tag}", type_)
                        self._claim(self._stanzas, key, route)
                        self._by_payload[route.kind, route.payload.xml.tag] = route
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
        """Return the route of an IQ whose only child has the name ``payload`` (Clark notation)."""
        return self._iq.get((host, type_, payload))

    def stanza(self, host: Host, kind: str, type_: str) -> StanzaRoute | None:
        """Return the route of a message or a presence."""
        return self._stanzas.get((host, kind, type_))

    def by_payload(self, stanza: Incoming) -> StanzaRoute | None:
        """Return the route of a message or a presence that is determined by one of its children, if
        there is one.

        It may still not serve the stanza's type or the address.
        """
        if self._by_payload and stanza.kind is not None:
            for name in stanza.child_names:
                found = self._by_payload.get((stanza.kind, name))
                if found is not None:
                    return found
        return None

    def features(self, host: Host) -> tuple[str, ...]:
        """Return the disco features served at ``host``, sorted, each once."""
        found = {
            feature for route in self.routes if host in route.hosts for feature in route.features
        }
        return tuple(sorted(found))

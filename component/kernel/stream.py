"""The stream to the XMPP server, on which all stanzas are received and sent.

The subsystem owns the outbox, the messenger, the router and the connection. Other subsystems
register their handlers with it, and send stanzas and make calls (IQs of type get) through it.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from itertools import chain
from typing import Final, Literal, Protocol, TypeAlias, TypeVar

from anyio.lowlevel import checkpoint

from component import system
from component.config.server import Server
from component.kernel.environment import Catalog
from component.kernel.errors import AgentErrors
from component.kernel.monitoring import Monitoring
from component.kernel.options import addresses, router_options
from component.link.connection.connection import Connect, Connection
from component.link.connection.live import Receiver
from component.link.connection.transport import Transport
from component.link.messages.delivery import Delivery
from component.link.messages.messenger import Messenger
from component.link.messages.outbox import Outbox
from component.link.router.route_resolver import Senders
from component.link.router.router import Router, StanzaEvent
from component.link.router.table import Host, Request, Route
from xep.binding import Payload
from xep.binding.escaping import unescape_attribute
from xep.data_forms import Form
from xep.jid import JID
from xep.stanza import Incoming, Presence
from xep.stanza_stream import StanzaReceived

P = TypeVar("P", bound=Payload)

_MESSAGE = b"<message "
_TO: Final = re.compile(r" to='([^']*)'")


class Handler(Protocol):
    """Serves some kinds of stanzas."""

    def routes(self) -> Sequence[Route]:
        """Return the routes of this handler."""


FormHandler: TypeAlias = Callable[[Request[None], Form], Awaitable[None]]
"""Handles a message that carries a form."""


class StreamSubsystem(Receiver):
    """Receives and sends stanzas.

    `dispatch` is called when all handlers exist; then `connect`.

    Attributes:
        addresses: the addresses at which the agents are reached.
        router: dispatches stanzas to handlers; there is one after `dispatch`.
        connected_since: when the current session began; None while there is none.
        flush: sends the stanzas in the outbox; does nothing without a stream.
        on_connected: called at each new session. Neither these nor the following ever wait.
        on_disconnected: called when a session is over.
        on_missed: called when stanzas may have been lost, because a connection of another instance
            was taken over.
        on_not_admitted: called with the bare address of each sender that is not admitted.
        on_features_changed: called when the features that are announced have changed.
        more_features: return features that are announced besides those of the handlers.
        is_room: whether an agent is in the room with an address.
        tag: identifies this instance at the beginning of the ids of IQs; empty if it is the only
            one.
        may_connect: waits until this instance may open its first connection.
        screen: removes from the stanzas of a read those that another instance waits for.
        has_others: returns whether another instance serves the same addresses.
    """

    router: Router

    def __init__(self, catalog: Catalog, monitoring: Monitoring) -> None:
        settings = catalog.settings
        self._catalog = catalog
        self._monitoring = monitoring
        self._connection: Connection | None = None
        self.addresses = addresses(settings)
        self.outbox = Outbox(settings.limits.output_bytes)
        self.messenger = Messenger(
            self.outbox, settings.server.max_stanza_bytes, handled=self.handled
        )
        self.connected_since: datetime | None = None
        self.flush = self.outbox.send_now
        self.on_connected: list[Callable[[], None]] = []
        self.on_disconnected: list[Callable[[], None]] = []
        self.on_missed: list[Callable[[], None]] = []
        self.on_features_changed: list[Callable[[], None]] = []
        self.on_not_admitted: list[Callable[[str], None]] = []
        self.more_features: list[Callable[[], Sequence[str]]] = []
        self.is_room: Callable[[JID], bool] = lambda _: False
        self.tag = ""
        self.may_connect: Callable[[], Awaitable[None]] = checkpoint
        self.screen: Callable[[Sequence[StanzaEvent]], Sequence[StanzaEvent]] | None = None
        self.has_others: Callable[[], bool] = lambda: False

    def dispatch(self, handlers: Iterable[Handler]) -> None:
        """Have these handlers served, in place of those before. Senders are admitted anew.

        Raises ValueError: two handlers claim the same stanzas.
        """
        routes = [route for handler in handlers for route in handler.routes()]
        options = router_options(self._catalog.settings, self._catalog.admins, self.tag)
        if hasattr(self, "router"):
            self.router.serve(routes, options)
            return
        self.router = Router(
            options,
            Senders(self._admits, self.addresses, self._not_admitted, self.is_room),
            AgentErrors(self._catalog.settings.limits.retry_after_s),
            routes,
            self.outbox,
        )

    def forget_senders(self) -> None:
        """Admit senders anew, because others are rooms."""
        if hasattr(self, "router"):
            self.router.forget_senders()

    def _admits(self, principal: JID) -> bool:
        """Whether a principal may ask for something; the occupants of a room are none together."""
        return self._catalog.admits(principal) and not self.is_room(principal)

    def _not_admitted(self, principal: str) -> None:
        is_room = principal != "" and self.is_room(JID.parse_delivered(principal))
        self._monitoring.not_admitted(principal, can_be_admitted=not is_room)
        for call in self.on_not_admitted:
            call(principal)

    def connect(self, connect: Connect) -> Connection:
        """Return the connection, for the caller to run; `connect` opens it."""
        server = self._catalog.settings.server

        async def connect_in_turn(server: Server) -> Transport:
            await self.may_connect()
            return await connect(server)

        self._connection = Connection(server, self.outbox, self, connect=connect_in_turn)
        return self._connection

    def receiving_connection(self) -> Connection:
        """Return one more connection, for the caller to run. What it receives is handled like
        what the first one receives. Everything is sent on the first one, in its order.
        """
        assert self._connection is not None, "the first connection exists"
        return self._connection.one_more(_MoreStanzas(self))

    def is_probe(self, event: StanzaEvent) -> bool:
        """Note a probe of the first connection that has returned on another one."""
        return self._connection is not None and self._connection.is_probe(event)

    async def hand_over(self, stanza: Incoming) -> None:
        """Handle a stanza that another instance has received for this one."""
        if self._connection is not None:
            await self._connection.hand_over([StanzaReceived(stanza)])

    def is_connected(self) -> bool:
        """Return whether there is a session."""
        return self.connected_since is not None

    async def handled(self) -> bool:
        """Wait until the server has handled everything that was sent; return False if the
        connection was lost before that.
        """
        if self._connection is None:
            await checkpoint()
            return False
        return await self._connection.handled()

    def send(self, presence: Presence) -> Delivery:
        """Send a presence, and return its delivery."""
        delivery = Delivery()
        self.outbox.put(presence.encode(), delivery, str(presence.to or ""))
        return delivery

    async def get(self, to: JID, query: Payload, expected: type[P], from_: JID | None = None) -> P:
        """Send an IQ of type get, from the default address unless given, and return its result.

        Raises StanzaError: the answer is an error, or none came in time.
        """
        return await self.router.call("get", to, query, expected, from_=from_)

    async def call_optional(
        self,
        type_: Literal["get", "set"],
        to: JID,
        payload: Payload,
        expected: type[P],
        *,
        from_: JID | None = None,
    ) -> P | None:
        """Call `Router.call_optional`. Subsystems use this because they are made before the
        router.
        """
        return await self.router.call_optional(type_, to, payload, expected, from_=from_)

    def features_changed(self) -> None:
        """Announce the features again, because those that are not of handlers have changed."""
        for call in self.on_features_changed:
            call()

    def features(self, host: Host) -> tuple[str, ...]:
        """Return the disco features that the handlers announce at a host."""
        more = chain.from_iterable(features() for features in self.more_features)
        return tuple(sorted({*self.router.table.features(host), *more}))

    # -- what the connection reports -------------------------------------------------------------

    def connected(self) -> None:
        """Note that a session has begun."""
        self.connected_since = system.now()
        for call in self.on_connected:
            call()

    def received(self, events: Sequence[StanzaEvent]) -> int:
        """Handle the events of one read."""
        self._monitoring.counters.stanzas_in += len(events)
        if self.screen is not None:
            events = self.screen(events)
        return self.router.received(events)

    def undelivered(self, stanzas: Sequence[bytes], *, certain: bool) -> None:
        """Send messages again that the server says it did not receive (XEP-0198 §5)."""
        for stanza in stanzas if certain else ():
            if stanza.startswith(_MESSAGE):
                text = stanza.decode()
                found = _TO.search(text)
                to = "" if found is None else unescape_attribute(found[1])
                self.outbox.put(text, None, to)

    def disconnected(self, reason: str) -> None:
        """Note that the session is over."""
        self._monitoring.counters.reconnects += 1
        self.connected_since = None
        self.router.disconnected(reason)
        for call in self.on_disconnected:
            call()


class _MoreStanzas(Receiver):
    """Receives what arrives on a further connection. Nothing is announced on it."""

    def __init__(self, stream: StreamSubsystem) -> None:
        self.tag = stream.tag
        self._stream = stream

    def connected(self) -> None:
        """Note that nobody has received these stanzas so far."""
        for call in self._stream.on_missed:
            call()

    def received(self, events: Sequence[StanzaEvent]) -> int:
        """Handle the events of one read."""
        return self._stream.received([each for each in events if not self._stream.is_probe(each)])

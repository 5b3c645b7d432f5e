"""Receives what arrives on its own: the presence of contacts, and notifications of PubSub services.

A component receives the presence (RFC 6121 §4) of those contacts to whose presence an agent is
subscribed, and of those who send it directly. Notifications (XEP-0060 §7.1.2) come from services
that somebody here observes.
"""

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

import structlog

from component.link.messages.signals import Show, shown_by
from component.link.router.table import Request, StanzaRoute
from xep.binding import ContentError
from xep.caps import Caps
from xep.jid import JID
from xep.pubsub_event import Event

_log = structlog.get_logger("component.kernel")

_MESSAGE_TYPES: Final = frozenset(("chat", "headline", "normal"))

OnAvailability: TypeAlias = Callable[[JID, JID, Show, str], None]
"""Receives the availability that a client (second argument) shows to an address of the service
(first), and the text of its status. Never waits.
"""
OnGranted: TypeAlias = Callable[[JID, JID], None]
"""Receives an agent and a contact that has permitted it to see its presence. Never waits."""


OnOnline: TypeAlias = Callable[[JID, JID], None]
"""Receives an agent and a contact that has come online. Never waits."""


class Listener(Protocol):
    """Follows which clients are online, such as `component.pubsub.notifier.NodeInterests`."""

    def available(self, service: JID, client: JID, caps: Caps | None) -> None:
        """Note that a client is online, with these capabilities. Never waits."""

    def unavailable(self, service: JID, client: JID) -> None:
        """Note that a client is offline. Never waits."""


class PresenceEvents:
    """Passes the presence of contacts on.

    Attributes:
        listeners: follow which clients are online.
        on_available: called with the availability of each client.
        on_granted: called for each contact that permits an agent to see its presence.
        on_online: called for each contact that comes online.
    """

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self.on_available: list[OnAvailability] = []
        self.on_granted: list[OnGranted] = []
        self.on_online: list[OnOnline] = []

    def online(self, agent: JID, contact: JID) -> None:
        """Handle a contact that has come online."""
        for call in self.on_online:
            call(agent, contact)

    def routes(self) -> tuple[StanzaRoute, ...]:
        """Return the routes of this handler."""
        return (
            StanzaRoute("presence", frozenset(("available",)), self.available),
            StanzaRoute("presence", frozenset(("unavailable",)), self.unavailable),
        )

    def available(self, request: Request[None]) -> None:
        """Handle a client that is online (RFC 6121 §4.2). Invalid capabilities are ignored."""
        try:
            caps = request.stanza.payload(Caps)
        except ContentError:
            caps = None
        for listener in self.listeners:
            listener.available(request.to.bare, request.sender, caps)
        status = request.stanza.text_of("status") or ""
        self._tell(request, shown_by(request.stanza), status)

    def unavailable(self, request: Request[None]) -> None:
        """Handle a client that is offline (RFC 6121 §4.5)."""
        for listener in self.listeners:
            listener.unavailable(request.to.bare, request.sender)
        self._tell(request, "offline", "")

    def _tell(self, request: Request[None], show: Show, status: str) -> None:
        for shown in self.on_available:
            shown(request.to.bare, request.sender, show, status)

    def granted(self, agent: JID, contact: JID) -> None:
        """Handle a contact that permits an agent to see its presence."""
        for granted in self.on_granted:
            granted(agent, contact)


class EventListener(Protocol):
    """Observes sources of notifications: `component.features.watches.watcher.Watcher` and
    `component.features.memory_nodes.account_nodes.AccountNodes`. No method waits.
    """

    def is_service(self, address: JID) -> bool:
        """Whether a source at this address is observed, so that it may send notifications."""

    def notified(self, subscriber: JID, service: JID, event: Event) -> None:
        """Handle a notification. Its source may be one that only another listener observes."""


class PubSubEvents:
    """Passes notifications to its `listeners` that observe their sources."""

    def __init__(self) -> None:
        self.listeners: list[EventListener] = []

    def routes(self) -> tuple[StanzaRoute, ...]:
        """Return the route of notifications."""
        return (
            StanzaRoute(
                "message", _MESSAGE_TYPES, self.notification, payload=Event, admits=self._is_service
            ),
        )

    def notification(self, request: Request[None]) -> None:
        """Handle a notification."""
        try:
            event = request.stanza.require(Event)
        except ContentError as error:
            _log.warning(
                "ignored a bad notification", sender=str(request.sender), reason=str(error)
            )
            return
        for listener in self.listeners:
            if listener.is_service(request.principal):
                listener.notified(request.to.bare, request.principal, event)

    def _is_service(self, address: JID) -> bool:
        return any(listener.is_service(address) for listener in self.listeners)

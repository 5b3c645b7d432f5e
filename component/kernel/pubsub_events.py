"""Receives the notifications of PubSub services that somebody here observes (XEP-0060 §7.1.2)."""

from typing import Final, Protocol

import structlog

from component.link.router.table import Request, StanzaRoute
from xep.binding import ContentError
from xep.jid import JID
from xep.pubsub_event import Event

_log = structlog.get_logger("component.kernel")

_MESSAGE_TYPES: Final = frozenset(("chat", "headline", "normal"))


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
                "message",
                _MESSAGE_TYPES,
                self.notification,
                payload=Event,
                admits=self._is_service,
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

"""Presence of contacts (RFC 6121 §4): which of their clients are online.

A component receives it from those contacts to whose presence an agent is subscribed, and from those
who send it directly.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from component.messages.availability import Show, shown_by
from component.router.table import Request, StanzaRoute
from xep.binding import ContentError
from xep.caps import Caps
from xep.jid import JID

OnAvailability: TypeAlias = Callable[[JID, JID, Show, str], None]
"""Receives the availability that a client (second argument) shows to an address of the service
(first), and the text of its status. Never waits.
"""


class Listener(Protocol):
    """Follows which clients are online, such as `component.pubsub.interests.Interests`."""

    def available(self, service: JID, client: JID, caps: Caps | None) -> None:
        """Note that a client is online, with these capabilities. Never waits."""

    def unavailable(self, service: JID, client: JID) -> None:
        """Note that a client is offline. Never waits."""


class ContactPresence:
    """Passes the presence of contacts on.

    Args:
        listeners: called for each change.
        shown: called with the availability that a client shows.
    """

    def __init__(self, *listeners: Listener, shown: OnAvailability = lambda *_: None) -> None:
        self._listeners = listeners
        self._shown = shown

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
        for listener in self._listeners:
            listener.available(request.to.bare, request.sender, caps)
        status = request.stanza.text_of("status") or ""
        self._shown(request.to.bare, request.sender, shown_by(request.stanza), status)

    def unavailable(self, request: Request[None]) -> None:
        """Handle a client that is offline (RFC 6121 §4.5)."""
        for listener in self._listeners:
            listener.unavailable(request.to.bare, request.sender)
        self._shown(request.to.bare, request.sender, "offline", "")

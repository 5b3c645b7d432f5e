"""Receives the notifications of PubSub services, and the presence of rooms, that are watched."""

from typing import Final, Protocol, cast

import structlog

from component.proactive.room import RoomPresence, Show
from component.router.table import Request, StanzaRoute
from xep.binding import ContentError, Name, Payload
from xep.jid import JID
from xep.muc import User
from xep.pubsub_event import Event
from xep.stanza import NAMESPACE as STANZAS
from xep.stanza import Incoming

_log = structlog.get_logger("component.watches")

_SHOWN: Final = frozenset(("chat", "away", "xa", "dnd"))
_MESSAGE_TYPES: Final = frozenset(("chat", "headline", "normal"))


class _Error(Payload, frozen=True, kw_only=True):
    """The error of a stanza (RFC 6120 §8.3). Some rooms send nothing else."""

    xml = Name(STANZAS, "error")


class Listener(Protocol):
    """Receives notifications: `component.proactive.watcher.Watcher` and
    `component.pep_memory.account_nodes.AccountNodes`. No method waits.
    """

    def is_service(self, address: JID) -> bool:
        """Whether a source at this address is observed, so that it may send notifications."""

    def notified(self, subscriber: JID, service: JID, event: Event) -> None:
        """Handle a notification. Its source may be one that only another listener observes."""


class RoomListener(Protocol):
    """Receives the presence of occupants: `component.proactive.watcher.Watcher`. No method
    waits.
    """

    def is_room(self, address: JID) -> bool:
        """Whether this room is watched, so that it may send presence."""

    def occupant(self, subscriber: JID, room: JID, presence: RoomPresence) -> None:
        """Handle a presence that a room has sent."""


class EventHandler:
    """Passes notifications, and the presence of rooms, to the listeners that observe their sources.

    Args:
        rooms: receives the presence of occupants.
        listeners: receive notifications.
    """

    def __init__(self, rooms: RoomListener, *listeners: Listener) -> None:
        self._rooms = rooms
        self._listeners = listeners

    def routes(self) -> tuple[StanzaRoute, ...]:
        """The routes of this handler."""
        return (
            StanzaRoute(
                "message",
                _MESSAGE_TYPES,
                self.notification,
                payload=Event,
                admits=self._is_service,
            ),
            StanzaRoute(
                "presence",
                frozenset(("available", "unavailable")),
                self.occupant,
                payload=User,
                admits=self._rooms.is_room,
            ),
            StanzaRoute(
                "presence",
                frozenset(("error",)),
                self.refusal,
                payload=_Error,
                admits=self._rooms.is_room,
                falls_back=True,
            ),
        )

    def notification(self, request: Request[None]) -> None:
        """Handle a notification (XEP-0060 §7.1.2)."""
        try:
            event = request.stanza.require(Event)
        except ContentError as error:
            _log.warning(
                "ignored a bad notification", sender=str(request.sender), reason=str(error)
            )
            return
        for listener in self._listeners:
            if listener.is_service(request.principal):
                listener.notified(request.to.bare, request.principal, event)

    def occupant(self, request: Request[None]) -> None:
        """Handle the presence of an occupant of a room (XEP-0045 §7.2.2)."""
        stanza, room = request.stanza, request.principal
        try:
            user = stanza.require(User)
        except ContentError as error:
            _log.warning("ignored a bad presence of a room", room=str(room), reason=str(error))
            return
        presence = RoomPresence(
            nick=request.sender.resource or "",
            user=user,
            show=shown_by(stanza),
            status=stanza.text_of("status") or "",
        )
        self._rooms.occupant(request.to.bare, room, presence)

    def refusal(self, request: Request[None]) -> None:
        """Handle the refusal of a room to let the agent enter (XEP-0045 §7.2)."""
        presence = RoomPresence(
            nick=request.sender.resource or "", error=request.stanza.error(), show="offline"
        )
        self._rooms.occupant(request.to.bare, request.principal, presence)

    def _is_service(self, address: JID) -> bool:
        return any(listener.is_service(address) for listener in self._listeners)


def shown_by(stanza: Incoming) -> Show:
    """Return the availability that a presence shows (RFC 6121 §4.7.2.1)."""
    if stanza.type == "unavailable":
        return "offline"
    show = (stanza.text_of("show") or "").strip()
    return cast("Show", show) if show in _SHOWN else "online"

"""Receives the presence of the occupants of rooms that are watched (XEP-0045 §7.2)."""

import structlog

from component.features.watches.room_watcher import RoomPresence
from component.features.watches.watcher import Watcher
from component.link.messages.signals import shown_by
from component.link.router.table import Request, StanzaRoute
from xep.binding import ContentError, Name, Payload
from xep.muc import User
from xep.stanza import NAMESPACE as STANZAS

_log = structlog.get_logger("component.watches")


class _Error(Payload, frozen=True, kw_only=True):
    """The error of a stanza (RFC 6120 §8.3). Some rooms send nothing else."""

    xml = Name(STANZAS, "error")


class RoomPresenceHandler:
    """Passes the presence of rooms to the watcher."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def routes(self) -> tuple[StanzaRoute, ...]:
        """Return the routes of this handler."""
        return (
            StanzaRoute(
                "presence",
                frozenset(("available", "unavailable")),
                self.occupant,
                payload=User,
                admits=self._watcher.is_room,
            ),
            StanzaRoute(
                "presence",
                frozenset(("error",)),
                self.refusal,
                payload=_Error,
                admits=self._watcher.is_room,
                falls_back=True,
            ),
        )

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
        self._watcher.occupant(request.to.bare, room, presence)

    def refusal(self, request: Request[None]) -> None:
        """Handle the refusal of a room to let the agent enter (XEP-0045 §7.2)."""
        presence = RoomPresence(
            nick=request.sender.resource or "", error=request.stanza.error(), show="offline"
        )
        self._watcher.occupant(request.to.bare, request.principal, presence)

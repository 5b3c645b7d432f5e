"""The stanzas about rooms besides messages to all: private messages, invitations, and refusals."""

from collections.abc import Awaitable
from typing import Final

import structlog

from component.features.rooms.invitations import Inviting
from component.features.rooms.service import RoomService
from component.kernel.kernel import Kernel
from component.link.router.table import Request, StanzaRoute
from xep.binding import ContentError, Name, Payload
from xep.direct_invitation import NAMESPACE as INVITATIONS
from xep.direct_invitation import DirectInvitation
from xep.mentions import NAMESPACE as MENTIONS
from xep.muc import User
from xep.stanza import NAMESPACE as STANZAS

_log = structlog.get_logger("component.rooms")

_PRIVATE: Final = frozenset(("chat", "normal"))


class _Error(Payload, frozen=True, kw_only=True):
    """The error of a stanza (RFC 6120 §8.3)."""

    xml = Name(STANZAS, "error")


class RoomHandlers:
    """Handles private messages, invitations, and errors of rooms."""

    def __init__(self, kernel: Kernel, service: RoomService, inviting: Inviting) -> None:
        self._is_room = kernel.rooms.is_room
        self._service = service
        self._inviting = inviting

    def routes(self) -> tuple[StanzaRoute, ...]:
        """Return the routes of this handler."""
        return (
            StanzaRoute(
                "message",
                frozenset(("error",)),
                self.refused,
                payload=_Error,
                admits=self._is_room,
                falls_back=True,
            ),
            StanzaRoute("message", _PRIVATE, self.of_occupant, payload=User, admits=lambda _: True),
            StanzaRoute(
                "message",
                _PRIVATE,
                self.invited,
                (INVITATIONS, MENTIONS),
                payload=DirectInvitation,
                admits=lambda _: True,
            ),
        )

    def refused(self, request: Request[None]) -> None:
        """Handle a message that the room has not passed on."""
        found = self._service.get(request.to, request.principal)
        if found is not None and request.sender.resource is None:
            found.refused(request.stanza.error())

    def of_occupant(self, request: Request[None]) -> Awaitable[None] | None:
        """Handle a private message of an occupant, or an invitation that a room passes on."""
        try:
            user = request.stanza.require(User)
        except ContentError as error:
            _log.warning("ignored a bad message of a room", reason=str(error))
            return None
        if user.invites:
            self._inviting.mediated(request, user.invites[0].from_)
        elif user.decline is None and request.sender.resource:
            return self._service.private.receive(request)
        return None

    def invited(self, request: Request[None]) -> Awaitable[None] | None:
        """Handle the invitation of a person to a room (XEP-0249)."""
        if User.xml.tag in request.stanza.child_names:  # a room adds this for old clients
            return self.of_occupant(request)
        return self._inviting.direct(request)

"""Messages of rooms (XEP-0045), in which agents do not talk yet.

All occupants of a room have the bare address of the room: what one of them said would be known to
the others, and one would pay for all. So an occupant gets one sentence and nothing else, and each
invitation is declined. Neither asks a model.
"""

from collections.abc import Callable
from typing import Any, Final, Literal

import anyio
import structlog

from component import system
from component.features.chat.notices import Hints
from component.link.messages.inbound import ReplyAddress
from component.link.messages.messenger import Messenger
from component.link.messages.outbound import OutboundMessage, Text, conversation_with
from component.link.router.table import Request, StanzaRoute
from xep.binding import ContentError
from xep.direct_invitation import DirectInvitation
from xep.jid import JID
from xep.muc import Decline, User

_log = structlog.get_logger("component.message")

_TYPES: Final = frozenset(("chat", "normal"))
_ID_BYTES: Final = 16
_NOT_HERE: Final = "I can't talk in rooms yet. Please write to me directly: {address}"
_NO_ROOMS: Final = "I can't take part in rooms yet. Please write to me directly: {address}"


class OccupantHandler:
    """Answers occupants and invitations.

    Args:
        admits: whether the policy admits a bare address.
        is_room: whether an agent is in a room, whose occupants can write to it.
        clock: seconds that only go forward; the event loop's by default.
    """

    def __init__(
        self,
        messages: Messenger,
        admits: Callable[[JID], bool],
        is_room: Callable[[JID], bool],
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._messages = messages
        self._admits = admits
        self._is_room = is_room
        self._hints = Hints(clock)

    def routes(self) -> tuple[StanzaRoute, ...]:
        """Return the routes of this handler."""
        return (
            StanzaRoute("message", _TYPES, self.of_room, payload=User, admits=self._may_write),
            StanzaRoute(
                "message", _TYPES, self.invited, payload=DirectInvitation, admits=self._may_write
            ),
        )

    def of_room(self, request: Request[None]) -> None:
        """Answer a private message of an occupant, or an invitation that a room passes on."""
        try:
            user = request.stanza.require(User)
        except ContentError as error:
            _log.warning("ignored a bad message of a room", reason=str(error))
            return
        if user.invites:
            reason = _NO_ROOMS.format(address=request.to.bare)
            declined = User(decline=Decline(to=user.invites[0].from_, reason=reason))
            self._send(request, str(request.principal), "normal", payloads=(declined,))
        elif (
            user.decline is None and request.sender.resource and self._hints.is_due(request.sender)
        ):
            text = Text(_NOT_HERE.format(address=request.to.bare))
            to = request.stanza.sender or str(request.sender)
            # The room passes on what comes from the address that it has sent this to.
            self._send(request, to, "chat", request.to, parts=(text,), payloads=(User(),))

    def invited(self, request: Request[None]) -> None:
        """Answer a person who invites the agent to a room (XEP-0249)."""
        to = request.stanza.sender or str(request.sender)
        text = Text(_NO_ROOMS.format(address=request.to.bare))
        self._send(request, to, "chat", parts=(text,))

    def _may_write(self, address: JID) -> bool:
        return self._admits(address.bare) or self._is_room(address)

    def _send(
        self,
        request: Request[None],
        to: str,
        type_: Literal["chat", "normal"],
        from_: JID | None = None,
        **content: Any,
    ) -> None:
        self._messages.send(
            OutboundMessage(
                id=system.token_hex(_ID_BYTES),
                conversation=conversation_with(request.to, request.principal),
                to=ReplyAddress(to, from_ or request.to.bare, type_),
                **content,
            )
        )

"""Invitations of agents to rooms: which are accepted, and the sentence for the others.

Only a direct invitation (XEP-0249) comes from the address of the person who invites. In one that a
room passes on (XEP-0045 §7.8.2), the room says who has invited.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import structlog

from component import system
from component.caches import LRUCache
from component.features.rooms.conversation import AT_FAULT
from component.features.rooms.service import RoomError, RoomService
from component.kernel.kernel import Kernel
from component.link.messages.inbound import ReplyAddress
from component.link.messages.outbound import OutboundMessage, Text, conversation_with
from component.link.router.table import Request
from component.store import StorageError
from component.store.outages import log_failure
from xep.binding import ContentError
from xep.direct_invitation import DirectInvitation
from xep.jid import JID
from xep.muc import Decline, User

_log = structlog.get_logger("component.rooms")

_ID_BYTES: Final = 16
_EVERY_S: Final = 60.0
_REMEMBERED: Final = 4096
_NOT_PROVEN: Final = (
    "A room cannot show me who invites me to it. Invite me directly with your client, or send"
    " /room join {room} to {address}."
)


class Inviting:
    """Decides about invitations. Each one is answered; the same reason is given once a minute.

    Args:
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        kernel: Kernel,
        service: RoomService,
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._kernel = kernel
        self._service = service
        self._clock = clock
        self._told: LRUCache[tuple[JID, str], float] = LRUCache(_REMEMBERED)

    def direct(self, request: Request[None]) -> Awaitable[None] | None:
        """Handle the invitation of a person (XEP-0249)."""
        if not self._service.admits(request.principal):
            return None
        try:
            invitation = request.stanza.require(DirectInvitation)
        except ContentError as error:
            _log.warning("ignored a bad invitation", reason=str(error))
            return None
        if invitation.jid is None:
            return None
        return self._join(request, invitation.jid.bare, invitation.password or "")

    async def _join(self, request: Request[None], room: JID, password: str) -> None:
        agent = self._kernel.stream.addresses.agent_at(request.to)
        try:
            await self._service.join(agent, room, request.principal, password=password)
        except RoomError as error:
            self._tell(request, str(error))
        except StorageError as error:
            log_failure(_log, "could not accept an invitation", error)
            self._tell(request, AT_FAULT)

    def _tell(self, request: Request[None], text: str) -> None:
        if self._is_due(request.principal, text):
            to = request.stanza.sender or str(request.sender)
            self._send(request, ReplyAddress(to, request.to.bare, "chat"), parts=(Text(text),))

    def mediated(self, request: Request[None], inviter: JID | None) -> None:
        """Handle an invitation that a room passes on: it proves nothing, and is declined, unless
        the agent is to be in the room anyway.
        """
        room = request.principal
        found = self._service.get(request.to, room)
        if found is not None:
            if not found.membership.is_in:
                found.membership.connected()  # it may let the agent in now
            return
        server = room.domain.partition(".")[2]
        person = inviter.bare if inviter is not None and inviter.domain == server else None
        admits = self._service.admits
        is_admitted = person is not None and admits(person)
        is_known = self._kernel.rooms.is_room(room) or admits(room)
        if not (is_admitted or is_known or admits(JID(room.local, server))):
            return
        text = _NOT_PROVEN.format(room=room, address=request.to.bare)
        is_due = self._is_due(room if inviter is None else inviter.bare, text)
        # The server of the room says who it is: that is enough for a message.
        reason = text if is_due and not is_admitted else None
        declined = User(decline=Decline(to=inviter, reason=reason))
        to = ReplyAddress(str(room), request.to.bare, "normal")
        self._send(request, to, payloads=(declined,))
        if is_due and is_admitted:
            to = ReplyAddress(str(inviter), request.to.bare, "chat")
            self._send(request, to, parts=(Text(text),))

    def _is_due(self, address: JID, text: str) -> bool:
        now, last = self._clock(), self._told.get((address, text))
        if last is not None and now - last < _EVERY_S:
            return False
        self._told[address, text] = now
        return True

    def _send(self, request: Request[None], to: ReplyAddress, **content: Any) -> None:
        self._kernel.stream.messenger.send(
            OutboundMessage(
                id=system.token_hex(_ID_BYTES),
                conversation=conversation_with(request.to, request.principal),
                to=to,
                **content,
            )
        )

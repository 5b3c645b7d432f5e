"""Messages from people (RFC 6121 §5): each passes a list of stages until one of them handles it.

    duplicates · too many · encrypted · files · answers · corrections and retractions · commands
    · the agent

Features contribute the stages (`component.link.messages.inbound.MessageStage`). Each person gets
one notice, before the first answer, that the agent is a machine (`notices.py`).
"""

import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, Literal

import anyio
import msgspec
import structlog

from component import system
from component.features.chat.message_ids import Duplicates
from component.features.chat.notices import Hints, Notices
from component.kernel.stream import FormHandler
from component.link.messages.delivery import Delivery
from component.link.messages.inbound import InboundMessage, MessageStage, ReplyAddress
from component.link.messages.messenger import Messenger
from component.link.messages.outbound import OutboundMessage, Text, conversation_with
from component.link.messages.parsing import parse_message
from component.link.router.table import Request, StanzaRoute
from xep.binding import ContentError, Payload
from xep.chat_markers import NAMESPACE as MARKERS
from xep.chat_markers import Displayed
from xep.data_forms import Form
from xep.direct_invitation import DirectInvitation
from xep.file_sharing import FileSharing
from xep.jid import JID
from xep.muc import Decline, User
from xep.receipts import NAMESPACE as RECEIPTS
from xep.receipts import Received
from xep.stanza import Incoming

_LONGEST_WAIT_S: Final = 30.0
"""Seconds that a message waits for the previous one to be accepted."""
_ID_BYTES: Final = 16
_HELP: Final = r"(?i)help\s*[.!?]?"
"""Matches a message that means `/help` without the slash, because some clients intercept slash
commands. In a reply to a question it is an answer instead.
"""


class MessageHandler:
    """Answers chat messages from the address they were sent to.

    Messages of one principal are handled one after another, in the order in which they arrived.

    Args:
        stages: handle messages, in this order; that of duplicates is here.
        notices: the notice that each person gets once; None where it is turned off.
        forms: handle messages that carry a form, by its FORM_TYPE.
        is_own: whether only this service can have sent a message from an address.
        now: returns the time, for delayed messages.
    """

    def __init__(
        self,
        messages: Messenger,
        stages: Sequence[MessageStage],
        notices: Notices | None = None,
        forms: Mapping[str, FormHandler] = MappingProxyType({}),
        is_own: Callable[[JID], bool] = lambda _: False,
        now: Callable[[], datetime] = system.now,
    ) -> None:
        self._messages = messages
        self._stages = stages
        self._notices = notices
        self._forms = forms
        self._now = now
        self._is_own = is_own
        self._latest: dict[JID, anyio.Event] = {}
        self._duplicates = Duplicates()

    def routes(self) -> tuple[StanzaRoute, ...]:
        """Return the routes of this handler."""
        features = [feature for stage in self._stages for feature in stage.features]
        return (
            StanzaRoute(
                "message",
                frozenset(("chat", "normal")),
                self.message,
                (RECEIPTS, MARKERS, *features),
            ),
            StanzaRoute("message", frozenset(("error",)), self.returned),
        )

    def returned(self, request: Request[None]) -> Awaitable[None] | None:
        """Record that a message from an agent was returned as an error (RFC 6120 §8.3)."""
        id_ = request.stanza.id
        calls = [stage.returned for stage in self._stages if stage.returned is not None]
        if id_ is None or not calls:
            return None
        ours = self._messages.returned(request.to.bare, request.principal, id_)

        async def record() -> None:
            for call in calls:
                await call(request.principal, request.to.bare, ours)

        return record()

    def message(self, request: Request[None]) -> Awaitable[None] | None:
        """Pass a message through the stages, after those that came before from the same sender."""
        if self._is_own(request.principal):
            return None  # another agent of this service, or another client of the agent's account
        message = parse_message(request.stanza, request.sender, request.to, self._now())
        if self._is_returned(request, message):
            return None
        form = _form_of(request.stanza)
        take = None if form is None else self._forms.get(form.form_type or "")
        if form is not None and take is not None:
            return take(request, form)
        message = self._messages.receive(message)
        if not _says_something(message):
            return None
        before, mine = self._latest.get(request.principal), anyio.Event()
        self._latest[request.principal] = mine
        return self._in_order(message, before, mine)

    def _is_returned(self, request: Request[None], message: InboundMessage) -> bool:
        """Return whether a server or a program has sent our own message back.

        Some clients give a receipt the id of the message that has arrived.
        """
        if message.id is None or (message.received and not _says_something(message)):
            return False
        return self._messages.is_ours(request.to.bare, request.principal, message.id)

    async def _in_order(
        self, message: InboundMessage, before: anyio.Event | None, mine: anyio.Event
    ) -> None:
        notice: Delivery | None = None
        try:
            if before is not None:
                with anyio.move_on_after(_LONGEST_WAIT_S):
                    await before.wait()
            notice = await self._send_notice(message)
            await self._handle(message)
        except BaseException:
            self._duplicates.forget(message)  # its client may send it again
            raise
        finally:
            mine.set()
            if self._latest.get(message.principal) is mine:
                del self._latest[message.principal]
        if notice is not None and self._notices is not None:
            # The message has been handled: a stop of the service must not return it to its sender.
            with contextlib.suppress(anyio.get_cancelled_exc_class()):
                await self._notices.sent(message, notice)

    async def _send_notice(self, message: InboundMessage) -> Delivery | None:
        """Say that the agent is a machine, if the sender has not been told."""
        notice = None if self._notices is None else await self._notices.due(message)
        if notice is None:
            return None
        # the notice is not part of a thread
        to = msgspec.structs.replace(message.reply_to, thread=None)
        return self._reply(msgspec.structs.replace(message, reply_to=to), notice)

    async def _handle(self, message: InboundMessage) -> None:
        if (
            re.fullmatch(_HELP, message.text)
            and not message.is_action
            and message.replies_to is None
        ):
            message = msgspec.structs.replace(message, text="/help")
        if not self._duplicates.add(message):
            self._acknowledge(message)
            return
        for stage in self._stages:
            handled = await stage.handle(message)
            if handled is None:
                continue
            if not handled.goes_on:
                if handled.is_read:
                    self._acknowledge(message)
                else:
                    self._duplicates.forget(message)
            if handled.reply is not None:
                self._reply(message, handled.reply, handled.files)
            if not handled.goes_on:
                return

    def _acknowledge(self, message: InboundMessage) -> None:
        """Send a receipt and a displayed marker if requested: the message is stored by now."""
        if message.id is None:
            return
        payloads: tuple[Payload, ...] = ()
        if message.wants_receipt:
            payloads += (Received(id=message.id),)
        if message.markable:
            payloads += (Displayed(id=message.id),)
        if payloads:
            self._send(message, payloads=payloads, stored=True)

    def _reply(
        self, message: InboundMessage, text: str, files: tuple[FileSharing, ...] = ()
    ) -> Delivery:
        parts = (Text(text), *files) if text else files
        return self._send(message, parts=parts, must_arrive=True)

    def _send(self, message: InboundMessage, **content: Any) -> Delivery:
        return self._messages.send(
            OutboundMessage(
                id=system.token_hex(_ID_BYTES),
                conversation=message.conversation,
                to=message.reply_to,
                **content,
            )
        )


def _form_of(stanza: Incoming) -> Form | None:
    try:
        return stanza.payload(Form)
    except ContentError:
        return None


def _says_something(message: InboundMessage) -> bool:
    """Return whether there is anything to handle; a message in which an agent reports a task to
    another is not conversation.
    """
    if message.from_agent:
        return False
    return bool(
        message.has_body
        or message.attachments
        or message.encryption
        or message.selected
        or message.reacted
        or message.retracts
    )


_log = structlog.get_logger("component.message")

_TYPES: Final = frozenset(("chat", "normal"))
_EVERY_S: Final = 60.0
_NOT_HERE: Final = "I can't talk in rooms yet. Please write to me directly: {address}"
_NO_ROOMS: Final = "I can't take part in rooms yet. Please write to me directly: {address}"


class OccupantHandler:
    """Answers occupants and invitations.

    A room passes an invitation on (XEP-0045 §7.8.2), and may not say whose it is, so one of a room
    on the server of people who are admitted is declined. Each invitation is declined; the inviter
    gets the reason once a minute, as a message where the room's own server says who it is.

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
        self._invitations = Hints(clock, _EVERY_S)

    def routes(self) -> tuple[StanzaRoute, ...]:
        """Return the routes of this handler."""
        return tuple(
            [
                StanzaRoute("message", _TYPES, handler, payload=payload, admits=lambda _: True)
                for payload, handler in ((User, self.of_room), (DirectInvitation, self.invited))
            ]
        )

    def of_room(self, request: Request[None]) -> None:
        """Answer a private message of an occupant, or an invitation that a room passes on."""
        try:
            user = request.stanza.require(User)
        except ContentError as error:
            _log.warning("ignored a bad message of a room", reason=str(error))
            return
        if user.invites:
            self._decline(request, user.invites[0].from_)
        elif (
            user.decline is None
            and request.sender.resource
            and self._may_write(request.sender)
            and self._hints.is_due(request.sender)
        ):
            text = Text(_NOT_HERE.format(address=request.to.bare))
            to = request.stanza.sender or str(request.sender)
            # The room passes on what comes from the address that it has sent this to.
            self._send(request, to, "chat", request.to, parts=(text,), payloads=(User(),))

    def _decline(self, request: Request[None], inviter: JID | None) -> None:
        room = request.principal
        server = room.domain.partition(".")[2]
        person = inviter.bare if inviter is not None and inviter.domain == server else None
        is_admitted = person is not None and self._admits(person)
        if not (is_admitted or self._may_write(room) or self._admits(JID(room.local, server))):
            return
        text = _NO_ROOMS.format(address=request.to.bare)
        is_due = self._invitations.is_due(room if inviter is None else inviter.bare)
        reason = text if is_due and not is_admitted else None
        declined = User(decline=Decline(to=inviter, reason=reason))
        self._send(request, str(room), "normal", payloads=(declined,))
        if is_due and is_admitted:
            self._send(request, str(inviter), "chat", parts=(Text(text),))

    def invited(self, request: Request[None]) -> None:
        """Answer a person who invites the agent to a room (XEP-0249)."""
        if User.xml.tag in request.stanza.child_names:  # a room adds this for old clients
            self.of_room(request)
        elif self._may_write(request.principal) and self._invitations.is_due(request.principal):
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

"""Messages from people (RFC 6121 §5): each passes a list of stages until one of them handles it.

    duplicates · too many · encrypted · files · corrections · answers · corrections and
    retractions · commands · the agent

Features contribute the stages (`component.link.messages.inbound.MessageStage`). Each person gets
one notice, before the first answer, that the agent is a machine (`notices.py`).
"""

import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

import anyio
import msgspec

from component import system
from component.features.chat.message_ids import Duplicates
from component.features.chat.notices import Notices
from component.kernel.stream import FormHandler
from component.link.messages.delivery import Delivery
from component.link.messages.inbound import InboundMessage, MessageStage
from component.link.messages.messenger import Messenger
from component.link.messages.outbound import OutboundMessage, Text
from component.link.messages.parsing import parse_message
from component.link.router.table import Request, StanzaRoute
from xep.binding import ContentError, Payload
from xep.chat_markers import NAMESPACE as MARKERS
from xep.chat_markers import Displayed
from xep.data_forms import Form
from xep.file_sharing import FileSharing
from xep.jid import JID
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

"""Messages from people (RFC 6121 §5): each passes a list of stages until one of them handles it.

    duplicates · too many · encrypted · answers · corrections and retractions · commands · the agent

Each person gets one notice, before the first answer, that the agent is a machine (`notices.py`).
A line that begins with a slash is a command (`component.commands`), answered without a model, and
so is the word "help" alone.
Everything else goes to the agent at that address. Where no model is configured, the sender gets a
hint now and then instead of an answer each time, so that two programs cannot answer each other
forever.
"""

import contextlib
import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
import msgspec
import structlog

from component import system
from component.agent.requests import MessageStarter, TurnRequest
from component.commands.definition import CommandError, Commands
from component.commands.words import read_words
from component.features.chat.hints import Hints
from component.features.chat.notices import Notices
from component.handlers.exchange_limit import Admitted, ExchangeLimit
from component.messages.answers import Answers
from component.messages.delivery import Delivery
from component.messages.duplicates import Duplicates, key_of
from component.messages.inbound import Attachment, InboundMessage
from component.messages.messenger import Messenger
from component.messages.outbound import OutboundMessage, Text
from component.messages.parsing import parse_message
from component.messages.references import References
from component.router.table import Request, StanzaRoute
from component.skills.errors import printable
from component.storage import StorageError
from xep.binding import Payload
from xep.chat_markers import NAMESPACE as MARKERS
from xep.chat_markers import Displayed
from xep.chat_states import NAMESPACE as CHAT_STATES
from xep.explicit_encryption import NAMESPACE as ENCRYPTION
from xep.jid import JID
from xep.message_correction import NAMESPACE as CORRECTION
from xep.message_replies import NAMESPACE as REPLIES
from xep.message_retraction import NAMESPACE as RETRACTION
from xep.reactions import NAMESPACE as REACTIONS
from xep.receipts import NAMESPACE as RECEIPTS
from xep.receipts import Received
from xep.stanza_error import StanzaError

if TYPE_CHECKING:
    from component.agent.conversations import Conversations

_log = structlog.get_logger("component.message")

_LONGEST_WAIT_S: Final = 30.0
"""Seconds that a message waits for the previous one to be accepted."""
_ID_BYTES: Final = 16
_LONGEST_NAME: Final = 200
_LONGEST_URL: Final = 2_000
_HELP: Final = re.compile(r"help\s*[.!?]?", re.IGNORECASE)
"""Matches a message that means `/help` without the slash, because some clients intercept slash
commands. In a reply to a question it is an answer instead.
"""
_STALE: Final = timedelta(minutes=10)
"""What a message asks for may not be wanted any more after this time."""
_LATE_MESSAGE: Final = (
    "Your message of {sent:%Y-%m-%d %H:%M %Z} reached me only now. Send it again if you still want"
    " an answer."
)
_AT_FAULT: Final = "I can't do that now because of an error on my side. Please try again later."
_ENCRYPTED: Final = (
    "I can't read this message, because it is encrypted with {name}. Please turn encryption off for"
    " this chat and send it again."
)
_LATE_COMMAND: Final = (
    "I haven't done that, because your message was delayed on its way. Send it again if you still"
    " want it."
)
_LATE_CORRECTION: Final = (
    "Your correction came too late: I have already acted on what you wrote before. Send it as a new"
    " message if it still matters."
)
_TOO_MANY: Final = (
    "You are sending messages faster than a person would, so I have stopped answering: we might be"
    " two programs that answer each other. I have not read your last message. If you are a person,"
    " wait for a minute without writing to me, and then send it again."
)
_LATE_RETRACTION: Final = "You retracted your message too late: I have already acted on it."


class Handled(msgspec.Struct, frozen=True):
    """A stage has handled a message; `reply` is the reply, if there is one. `is_read` says whether
    the sender may be told that the message was received.
    """

    reply: str | None = None
    is_read: bool = True


Stage: TypeAlias = Callable[[InboundMessage], Awaitable[Handled | None]]
"""Handles a message, or passes it on with None."""


class MessageHandler:
    """Answers chat messages from the address they were sent to.

    Messages of one principal are handled one after another, in the order in which they arrived.

    Args:
        name: the name of the agent.
        messages: sends messages.
        commands: the slash commands.
        clock: seconds that only go forward; the event loop's by default.
        answers: handle answers to questions, before commands and the agent.
        agents: the agents that people talk with; None without a model.
        agent_at: gives the name of the agent at an address of this service.
        let_in: raises StanzaError if new requests of this principal are rejected now.
        notices: the notice that each person gets once; None where it is turned off.
        forms: handles messages that are forms, such as `PubSubHandler.authorized`; None for others.
        now: returns the time, for delayed messages.
        is_own: whether only this service can have sent a message from an address.
        limit: ends exchanges with programs that answer every message; None: they do not end.
    """

    def __init__(
        self,
        name: str,
        messages: Messenger,
        commands: Commands,
        clock: Callable[[], float] = anyio.current_time,
        answers: Sequence[Answers] = (),
        agents: "Conversations | None" = None,
        agent_at: Callable[[JID], str] = lambda at: at.local or "assistant",
        let_in: Callable[[JID], None] = lambda _: None,
        notices: Notices | None = None,
        forms: Callable[[Request[None]], Awaitable[None] | None] = lambda _: None,
        now: Callable[[], datetime] = system.now,
        is_own: Callable[[JID], bool] = lambda _: False,
        limit: ExchangeLimit | None = None,
    ) -> None:
        self._name = name
        self._messages = messages
        self._commands = commands
        self._answers = answers
        self._clock = clock
        self._agents = agents
        self._agent_at = agent_at
        self._let_in = let_in
        self._notices = notices
        self._forms = forms
        self._now = now
        self._is_own = is_own
        self._limit = limit
        self._hints = Hints(clock)
        self._latest: dict[JID, anyio.Event] = {}
        self._references = References()
        self._duplicates = Duplicates(clock)
        self._stages: tuple[Stage, ...] = (
            self._drop_repeated,
            self._end_exchange,
            self._refuse_encrypted,
            self._take_answer,
            self._take_revision,
            self._run_command,
            self._say_to_agent,
        )

    def routes(self) -> tuple[StanzaRoute, ...]:
        """Return the routes of this handler."""
        features: tuple[str, ...] = (REPLIES, ENCRYPTION, REACTIONS, RECEIPTS, MARKERS)
        if self._agents is not None:
            features += (CHAT_STATES, CORRECTION, RETRACTION)
        return (
            StanzaRoute("message", frozenset(("chat", "normal")), self.message, features),
            StanzaRoute("message", frozenset(("error",)), self.returned),
        )

    def returned(self, request: Request[None]) -> Awaitable[None] | None:
        """Record that a message from an agent was returned as an error (RFC 6120 §8.3)."""
        id_ = request.stanza.id
        if id_ is None or not self._answers:
            return None
        ours = self._messages.returned(request.to.bare, request.principal, id_)
        return self._returned(request.principal, request.to.bare, ours)

    async def _returned(self, who: JID, at: JID, message_id: str) -> None:
        for answers in self._answers:
            await answers.returned(who, at, message_id)

    def message(self, request: Request[None]) -> Awaitable[None] | None:
        """Pass a message through the stages, after those that came before from the same sender."""
        if self._is_own(request.principal):
            return None  # another agent of this service, or another client of the agent's account
        message = parse_message(request.stanza, request.sender, request.to, self._now())
        if self._is_returned(request, message):
            return None
        handled = self._forms(request)
        if handled is not None:
            return handled
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
        if _HELP.fullmatch(message.text) and not message.is_action and message.replies_to is None:
            message = msgspec.structs.replace(message, text="/help")
        for stage in self._stages:
            handled = await stage(message)
            if handled is not None:
                if handled.is_read:
                    self._acknowledge(message)
                if handled.reply is not None:
                    self._reply(message, handled.reply)
                return

    # The stages.

    async def _drop_repeated(self, message: InboundMessage) -> Handled | None:
        return None if self._duplicates.add(message) else Handled()

    async def _end_exchange(self, message: InboundMessage) -> Handled | None:
        """Let a message wait for the pause that its sender gets; or drop it, and say so once."""
        if self._limit is None:
            return None
        thread = message.conversation.thread
        verdict = self._limit.next(message.principal, thread, delayed=message.delayed)
        if isinstance(verdict, Admitted):
            await anyio.sleep(verdict.pause_s)
            return None
        self._duplicates.forget(message)
        if not verdict.first:
            return Handled(is_read=False)
        _log.warning(
            "stopped answering somebody who sends messages faster than a person; the limit is"
            " limits.messages_per_sender",
            sender=str(message.sender),
        )
        return Handled(_TOO_MANY, is_read=False)

    async def _refuse_encrypted(self, message: InboundMessage) -> Handled | None:
        if message.encryption is None:
            return None
        return Handled(_ENCRYPTED.format(name=message.encryption))

    async def _take_answer(self, message: InboundMessage) -> Handled | None:
        for answers in self._answers:
            said = await answers.answered(message)
            if said is not None:
                return Handled(said)
        return None

    async def _take_revision(self, message: InboundMessage) -> Handled | None:
        """Correct or remove a message that waits for its turn."""
        revised = message.retracts or message.replaces
        if revised is None:
            return None
        # Cheogram retracts a message by an empty correction.
        body = None if message.retracts is not None else said_to_agent(message) or None
        if self._agents is not None:
            agent, first = self._agent_of(message), self._references.find(message, revised)
            try:
                if await self._agents.revised(agent, message.principal, first, body):
                    self._references.add(message, first)
                    return Handled()
            except StorageError as error:
                _log.error("could not revise a message", reason=str(error))
                return Handled(_AT_FAULT)
        return Handled(_LATE_RETRACTION if body is None else _LATE_CORRECTION)

    async def _run_command(self, message: InboundMessage) -> Handled | None:
        if message.is_action or not message.text.startswith("/"):
            return None
        if message.delayed:  # the person may no longer want it
            return Handled(_LATE_COMMAND)
        name, *rest = message.text[1:].split(maxsplit=1) or [""]
        agent = message.conversation.agent
        asking = self._commands.asking(message.principal, agent, message.language, message.sender)
        command = self._commands.get(name.casefold(), asking)
        if command is None:
            return Handled(f"There is no command /{name[:40]}. Send /help for a list.")
        try:
            return Handled((await command.run(asking, read_words(command, "".join(rest)))).text)
        except CommandError as error:
            return Handled(str(error))
        except StorageError as error:
            _log.error("a command failed", command=command.name, reason=str(error))
            return Handled(_AT_FAULT)

    async def _say_to_agent(self, message: InboundMessage) -> Handled | None:
        body = said_to_agent(message)
        if not body:
            return None
        if message.delayed and message.sent_at and self._now() - message.sent_at > _STALE:
            return Handled(_LATE_MESSAGE.format(sent=message.sent_at))
        if self._agents is None:
            return Handled(None if message.delayed else self._hint(message.principal))
        if message.principal.local is None:
            return None  # announcements of servers and services are not conversations
        agent = JID(self._agent_of(message), message.conversation.agent.domain)
        request = TurnRequest(
            id=_turn_id(message),
            starter=MessageStarter(message.sender, message.id),
            conversation=msgspec.structs.replace(message.conversation, agent=agent),
            principal=message.principal,
            reply_to=message.reply_to,
            text=body,
            language=message.language,
        )
        try:
            self._let_in(message.principal)
            await self._agents.received(request)
            self._references.add(message)
        except StanzaError as error:
            return Handled(error.text)
        except StorageError as error:
            _log.error("could not accept a message", reason=str(error))
            return Handled(_AT_FAULT)
        return Handled()

    def _agent_of(self, message: InboundMessage) -> str:
        return self._agent_at(message.conversation.agent)

    # Replies.

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

    def _reply(self, message: InboundMessage, text: str) -> Delivery:
        return self._send(message, parts=(Text(text),), must_arrive=True)

    def _send(self, message: InboundMessage, **content: Any) -> Delivery:
        """Send something to the reply address of the message."""
        return self._messages.send(
            OutboundMessage(
                id=system.token_hex(_ID_BYTES),
                conversation=message.conversation,
                to=message.reply_to,
                **content,
            )
        )

    def _hint(self, principal: JID) -> str | None:
        if not self._hints.is_due(principal):
            return None
        return (
            f"I am {self._name}. No model is set up, so I answer commands only: send /help or help."
        )


def _turn_id(message: InboundMessage) -> str:
    """Return the id of the turn that a message starts: the same for all its copies, so that another
    instance does not accept a copy while the first waits for its answer.
    """
    key = key_of(message)
    return system.token_hex(_ID_BYTES) if key is None else key[:_ID_BYTES].hex()


def said_to_agent(message: InboundMessage) -> str:
    """Return the text of a message for a model, with a line for each attachment."""
    text = f"/me {message.text}" if message.is_action else message.text
    return "\n".join(filter(None, (text, *map(_attached, message.attachments))))


def _attached(file: Attachment) -> str:
    name = printable(file.name or file.description or "a file", _LONGEST_NAME)
    what = [] if file.media_type is None else [printable(file.media_type, _LONGEST_NAME)]
    what += [] if file.size is None else [f"{file.size} bytes"]
    about = f" ({', '.join(what)})" if what else ""
    return f"[Attached: {name}{about}, at {printable(file.url, _LONGEST_URL)}]"


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

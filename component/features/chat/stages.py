"""The stages that a message from a person passes, besides answers to questions.

A line that begins with a slash is a command (`component.commands`), answered without a model, and
so is the word "help" alone. Everything else goes to the agent at that address. Where no model is
configured, each message is answered by a sentence that says what works without one.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio
import msgspec
import structlog

from component import system
from component.agent.requests import MessageStarter, SentFile, TurnRequest, with_files
from component.caches import LRUCache
from component.commands import AnyCommand, Asking, CommandError, Commands, read_words
from component.features.chat.message_ids import References, message_key
from component.features.chat.notices import Hints
from component.kernel.exchange_limit import Admitted, ExchangeLimit
from component.link.messages.inbound import (
    Account,
    Handled,
    InboundMessage,
    MessageStage,
    StageOrder,
)
from component.memory_directory.layout import SessionKey
from component.store import StorageError
from component.store.outages import log_failure
from component.task_messages.spoken_answers import refusal_in, said_in, says_always
from xep.chat_states import NAMESPACE as CHAT_STATES
from xep.explicit_encryption import NAMESPACE as ENCRYPTION
from xep.jid import JID
from xep.message_correction import NAMESPACE as CORRECTION
from xep.message_retraction import NAMESPACE as RETRACTION
from xep.stanza_error import StanzaError

if TYPE_CHECKING:
    from component.agent.conversations import Conversations

_log = structlog.get_logger("component.message")

_ID_BYTES: Final = 16
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
    "Your correction came too late: I have already {done}. Send it as a new message if it still"
    " matters."
)
_TOO_MANY: Final = (
    "You are sending messages faster than a person would, so I have stopped answering: we might be"
    " two programs that answer each other. I have not read your last message. If you are a person,"
    " wait for a minute without writing to me, and then send it again."
)
_WITHOUT_MODEL: Final = (
    "What works without one: /skills lists what I can do for you, /run and a name does it, and"
    " /help lists everything else."
)
_NO_MODEL: Final = (
    "I can't talk yet, because my operator has not set up a language model for me."
    f" {_WITHOUT_MODEL}"
)
_NO_MODEL_FOR_ADMINS: Final = (
    "I can't talk yet, because no language model is set up. Add a section [llm] with a provider and"
    " a model to agent.toml, check it with xmpp-agent doctor, and restart the service."
    f" {_WITHOUT_MODEL}"
)
_LATE_RETRACTION: Final = "You retracted your message too late: I have already {done}."
_ACTED: Final = "acted on what you wrote before"
_MOST_CALLED: Final = 1_000


def exchange_stage(limit: ExchangeLimit) -> MessageStage:
    """Return the stage that ends exchanges with programs that answer every message."""

    async def handle(message: InboundMessage) -> Handled | None:
        """Let a message wait for the pause that its sender gets; or drop it, and say so once."""
        thread = message.conversation.thread
        verdict = limit.next(message.principal, thread, delayed=message.delayed)
        if isinstance(verdict, Admitted):
            await anyio.sleep(verdict.pause_s)
            return None
        if not verdict.first:
            return Handled(is_read=False)
        _log.warning(
            "stopped answering somebody who sends messages faster than a person; the limit is"
            " limits.messages_per_sender",
            sender=str(message.sender),
        )
        return Handled(_TOO_MANY, is_read=False)

    return MessageStage(StageOrder.LIMITS, handle)


def address_stage(used: Callable[[JID, JID], Awaitable[None]]) -> MessageStage:
    """Return the stage that notes at which address of an agent a person writes."""

    async def handle(message: InboundMessage) -> Handled | None:
        if isinstance(message.actor, Account) and not message.delayed:
            try:
                await used(message.conversation.agent, message.principal)
            except StorageError as error:
                log_failure(_log, "could not note the address that a person uses", error)
        return None

    return MessageStage(StageOrder.LIMITS, handle)


async def _refuse_encrypted(message: InboundMessage) -> Handled | None:
    if message.encryption is None:
        return None
    return Handled(_ENCRYPTED.format(name=message.encryption))


ENCRYPTED_STAGE: Final = MessageStage(
    StageOrder.ENCRYPTED, _refuse_encrypted, features=(ENCRYPTION,)
)
"""Says that a message cannot be read."""


class _Called(msgspec.Struct, frozen=True):
    """A command that was called: its name, and the task as which it continues, if it does."""

    name: str
    task: str = ""


Retract: TypeAlias = Callable[[JID, JID, Sequence[str]], Awaitable[bool]]
"""Cancels tasks that have done nothing yet; see `TaskService.retract`."""


class CommandStages:
    """The stages that run commands, and their corrections.

    A command can be corrected or retracted until it has done something: not if it was refused, if
    it only reads, or if it continues as a task that has done nothing, such as one that waits for an
    answer. The newest 1,000 calls are remembered, until a restart.

    Args:
        commands: all commands.
        references: the ids of messages.
        retract: cancels tasks that have done nothing.
    """

    def __init__(self, commands: Commands, references: References, retract: Retract) -> None:
        self._commands = commands
        self._references = references
        self._retract = retract
        self._called: LRUCache[tuple[str, str, str], _Called | None] = LRUCache(_MOST_CALLED)
        """The call that a message was, while it has, or may have, an effect."""

    def stages(self) -> tuple[MessageStage, ...]:
        """Return the stages."""
        return (
            MessageStage(StageOrder.REVISIONS, self._revise),
            MessageStage(StageOrder.COMMANDS, self._handle),
        )

    def is_replacement(self, message: InboundMessage) -> bool:
        """Whether a correction replaces a command that has done nothing, so that it is like a new
        message. True only once.
        """
        key = self._key(message)
        if key not in self._called or self._called[key] is not None:
            return False
        del self._called[key]
        return True

    async def _revise(self, message: InboundMessage) -> Handled | None:
        key = self._key(message)
        if not (message.replaces or message.retracts) or key not in self._called:
            return None
        called = self._called[key]
        if called is not None:
            try:
                at = message.conversation.agent
                if not (called.task and await self._retract(message.principal, at, (called.task,))):
                    late = _LATE_RETRACTION if _is_retraction(message) else _LATE_CORRECTION
                    return Handled(late.format(done=f"carried out /{called.name}"))
            except StorageError as error:
                log_failure(_log, "could not revise a command", error)
                return Handled(_AT_FAULT)
            self._called[key] = None
        self._references.add(message)
        if _is_retraction(message):
            return Handled()
        return None

    async def _handle(self, message: InboundMessage) -> Handled | None:
        if not is_command(message):
            return None
        self._called[self._key(message)] = None
        self._references.add(message)
        if message.delayed:  # the person may no longer want it
            return Handled(_LATE_COMMAND)
        name, *rest = message.text[1:].split(maxsplit=1) or [""]
        agent = message.conversation.agent
        asking = self._commands.asking(message.principal, agent, message.language, message.sender)
        key = message_key(message)
        session = None if key is None else key.hex()
        asking = msgspec.structs.replace(asking, session=session, unclear=_unclear(message))
        command = self._commands.get(name.casefold(), asking)
        if command is None:
            return Handled(f"There is no command /{name[:40]}. Send /help for a list.")
        return await self._run(message, command, asking, "".join(rest))

    async def _run(
        self, message: InboundMessage, command: AnyCommand, asking: Asking, words: str
    ) -> Handled:
        key, result = self._key(message), None
        try:
            params = read_words(command, words)
            self._called[key] = _Called(command.name)
            result = await command.run(asking, params)
        except CommandError as error:
            return Handled(str(error))
        except StorageError as error:
            log_failure(_log, "a command failed", error, command=command.name)
            return Handled(_AT_FAULT)
        finally:
            if result is None or result.only_read or command.only_reads:
                self._called[key] = None
            else:
                self._called[key] = _Called(command.name, result.task)
        return Handled(result.text, files=result.files)

    def _key(self, message: InboundMessage) -> tuple[str, str, str]:
        first = self._references.first(message) or ""
        return (str(message.principal), str(message.conversation.agent), first)


def is_command(message: InboundMessage) -> bool:
    """Whether a message is a command."""
    return message.text.startswith("/") and not message.is_action


def _unclear(message: InboundMessage) -> str:
    """Return why a message may not be what its author says, as a clause."""
    if message.copy is not None:
        return "it is, or contains, a copy of a message"
    return "an agent has written it" if message.from_agent else message.unclear or ""


def _is_retraction(message: InboundMessage) -> bool:
    # Cheogram retracts a message by an empty correction.
    return message.retracts is not None or not said_to_agent(message)


def stages_without_model(
    is_admin: Callable[[JID], bool],
    is_person: Callable[[JID, JID], bool | None],
    now: Callable[[], datetime] = system.now,
    clock: Callable[[], float] = anyio.current_time,
) -> Sequence[MessageStage]:
    """Return the stages that say what works without a model.

    Args:
        is_admin: whether a principal may set up a model.
        is_person: whether a principal and the sender of its message are a person; None if that is
            not known. A program gets the answer once an hour, because it may answer each message.
        now: returns the time, for delayed messages.
        clock: seconds that only go forward; the event loop's by default.
    """
    hints = Hints(clock)

    async def answer(message: InboundMessage) -> Handled | None:
        principal = message.principal
        if principal.local is None or not (message.text or message.attachments):
            return None  # announcements of servers and services are not conversations
        if (late := _late(message, now())) is not None:
            return late
        if is_person(principal, message.sender) is False and not hints.is_due(principal):
            return Handled()
        return Handled(_NO_MODEL_FOR_ADMINS if is_admin(principal) else _NO_MODEL)

    async def revise(message: InboundMessage) -> Handled | None:
        if message.retracts is not None:
            return Handled(_LATE_RETRACTION.format(done=_ACTED))
        if message.replaces is None or is_command(message):
            return None
        return await answer(message)

    return (MessageStage(StageOrder.REVISIONS, revise), MessageStage(StageOrder.AGENT, answer))


class AgentStages:
    """The stages that pass messages to the agents.

    Args:
        agents: the agents that people talk with.
        agent_at: gives the name of the agent at an address of this service.
        let_in: raises StanzaError if new requests of this principal are rejected now.
        references: the ids of messages.
        is_replacement: whether a correction is like a new message; see `CommandStages`.
        now: returns the time, for delayed messages.
    """

    def __init__(
        self,
        agents: "Conversations",
        agent_at: Callable[[JID], str],
        let_in: Callable[[JID], None],
        references: References,
        is_replacement: Callable[[InboundMessage], bool] = lambda _message: False,
        now: Callable[[], datetime] = system.now,
    ) -> None:
        self._agents = agents
        self._agent_at = agent_at
        self._let_in = let_in
        self._now = now
        self._references = references
        self._is_replacement = is_replacement

    def stages(self) -> tuple[MessageStage, ...]:
        """Return the stages."""
        return (
            MessageStage(StageOrder.CORRECTIONS, self._correct),
            MessageStage(
                StageOrder.REVISIONS, self._take_revision, features=(CORRECTION, RETRACTION)
            ),
            MessageStage(StageOrder.AGENT, self._say_to_agent, features=(CHAT_STATES,)),
        )

    async def _correct(self, message: InboundMessage) -> Handled | None:
        """Correct a message that waits for its turn, although a question that takes any text is
        open. What may be a yes or a no is left to the questions, which take none from a correction.
        """
        if message.replaces is None or not message.text or is_command(message):
            return None
        decides = said_in(message.text) or refusal_in(message.text) or says_always(message.text)
        return None if decides or message.selected else await self._revise(message)

    async def _take_revision(self, message: InboundMessage) -> Handled | None:
        """Correct or remove a message that waits for its turn, or say that it is too late."""
        if not (message.retracts or message.replaces) or self._is_replacement(message):
            return None
        revised = await self._revise(message)
        if revised is not None:
            goes_on = is_command(message) and revised.reply is None
            return None if goes_on else revised
        late = _LATE_RETRACTION if _is_retraction(message) else _LATE_CORRECTION
        return Handled(late.format(done=_ACTED))

    async def _revise(self, message: InboundMessage) -> Handled | None:
        """Correct or remove a message; return None if it does not wait for its turn any more."""
        body = None if _is_retraction(message) or is_command(message) else said_to_agent(message)
        agent, first = self._agent_of(message), self._references.first(message)
        assert first is not None, "it refers to a message"
        try:
            if await self._agents.revised(SessionKey(agent, message.principal), first, body):
                self._references.add(message)
                return Handled()
        except StorageError as error:
            log_failure(_log, "could not revise a message", error)
            return Handled(_AT_FAULT)
        return None

    async def _say_to_agent(self, message: InboundMessage) -> Handled | None:
        body = said_to_agent(message)
        if not body:
            return None
        if (late := _late(message, self._now())) is not None:
            return late
        if message.principal.local is None:
            return None  # announcements of servers and services are not conversations
        agent = JID(self._agent_of(message), message.conversation.agent.domain)
        request = TurnRequest(
            id=_turn_id(message),
            starter=MessageStarter(message.sender, self._references.first(message)),
            conversation=msgspec.structs.replace(message.conversation, agent=agent),
            principal=message.principal,
            reply_to=message.reply_to,
            text=body,
            files=tuple([SentFile(sent=file) for file in message.attachments]),
            language=message.language,
        )
        try:
            self._let_in(message.principal)
            await self._agents.received(request)
            self._references.add(message)
        except StanzaError as error:
            return Handled(error.text)
        except StorageError as error:
            log_failure(_log, "could not accept a message", error)
            return Handled(_AT_FAULT)
        return Handled()

    def _agent_of(self, message: InboundMessage) -> str:
        return self._agent_at(message.conversation.agent)


def _late(message: InboundMessage, now: datetime) -> Handled | None:
    """Return the answer to a message that is too old to be acted on."""
    if message.delayed and message.sent_at and now - message.sent_at > _STALE:
        return Handled(_LATE_MESSAGE.format(sent=message.sent_at))
    return None


def _turn_id(message: InboundMessage) -> str:
    """Return the id of the turn that a message starts: the same for all its copies, so that another
    instance does not accept a copy while the first waits for its answer.
    """
    key = message_key(message)
    return system.token_hex(_ID_BYTES) if key is None else key[:_ID_BYTES].hex()


def said_to_agent(message: InboundMessage) -> str:
    """Return the text of a message for a model, with a line for each attachment."""
    text = f"/me {message.text}" if message.is_action else message.text
    return with_files(text, message.attachments)

"""Messages from people (RFC 6121 §5): answers to questions, commands, and talk.

A line that begins with a slash is a command (`component.commands`), answered without a model.
Anything else is for the agent that was written to. Where no model is set up it gets one hint now
and then, never an answer each time, so that two programs cannot keep each other talking.
"""

import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Protocol

import anyio
import structlog

from component.agent.protocol import Incoming
from component.commands.definition import CommandError, Commands
from component.commands.words import read_words
from component.router.table import Request, StanzaRoute
from component.storage import StorageError
from xep.binding import ContentError
from xep.chat_states import NAMESPACE as CHAT_STATES
from xep.delay import LEGACY_TAG, Delay
from xep.fluux_agent import NAMESPACE as AGENT
from xep.jid import JID
from xep.stanza import Message, Presence
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.message")

_HINT_EVERY_S = 600.0
_HINTS_REMEMBERED = 4096
_OF_AGENTS = f"{{{AGENT}"
_STATE = f"{{{CHAT_STATES}}}"
_LONGEST_WAIT_S = 30.0
"""Seconds that a message waits for the one before it to be taken in."""
_ID_BYTES = 16
_AT_FAULT = "I cannot do that now, because of a fault on my side. Try again later."


class Answers(Protocol):
    """Takes answers to questions out of messages."""

    def concerns(self, request: Request[None]) -> bool:
        """Whether `answered` has anything to look at. Never waits."""

    async def answered(self, request: Request[None]) -> str | None:
        """What came of an answer, as a text; None if the message is none."""


class Listener(Protocol):
    """Takes in what is said to agents: `component.agent.conversations.Conversations`."""

    async def received(self, incoming: Incoming) -> None:
        """Take a message in: when this returns it is on disk. Raises StorageError."""


class MessageHandler:
    """Answers chat from the address written to.

    Messages of one principal are looked at one after another, in the order in which they came.

    Args:
        name: what the agent is called.
        send: sends a stanza.
        commands: what can be asked with a slash.
        clock: seconds that only go forward; the event loop's by default.
        answers: takes answers to questions, which come before all else.
        agents: who is talked with; None where no model is set up.
        default_agent: the localpart of the agent that answers for the domain.
        let_in: raises StanzaError if nothing new of this principal is taken on now.
    """

    def __init__(
        self,
        name: str,
        send: Callable[[Message | Presence], None],
        commands: Commands,
        clock: Callable[[], float] = anyio.current_time,
        answers: Answers | None = None,
        agents: Listener | None = None,
        default_agent: str = "assistant",
        let_in: Callable[[JID], None] = lambda _: None,
    ) -> None:
        self._name = name
        self._send = send
        self._commands = commands
        self._answers = answers
        self._clock = clock
        self._agents = agents
        self._default_agent = default_agent
        self._let_in = let_in
        self._hinted: OrderedDict[JID, float] = OrderedDict()
        self._latest: dict[JID, anyio.Event] = {}

    def routes(self) -> tuple[StanzaRoute, ...]:
        """The routes of this handler."""
        features = (CHAT_STATES,) if self._agents is not None else ()
        return (StanzaRoute("message", frozenset(("chat", "normal")), self.message, features),)

    def message(self, request: Request[None]) -> Awaitable[None] | None:
        """Take an answer to a question, answer a command, or pass it on to the agent."""
        asked = self._answers is not None and self._answers.concerns(request)
        work = None if asked else self._talk(request)
        if not asked and work is None:
            return None
        before, mine = self._latest.get(request.principal), anyio.Event()
        self._latest[request.principal] = mine
        return self._in_order(request, work, before, mine)

    async def _in_order(
        self,
        request: Request[None],
        work: Callable[[], Awaitable[None]] | None,
        before: anyio.Event | None,
        mine: anyio.Event,
    ) -> None:
        try:
            if before is not None:
                with anyio.move_on_after(_LONGEST_WAIT_S):
                    await before.wait()
            if work is not None:
                await work()
            else:
                await self._take_answer(request)
        finally:
            mine.set()
            if self._latest.get(request.principal) is mine:
                del self._latest[request.principal]

    async def _take_answer(self, request: Request[None]) -> None:
        assert self._answers is not None, "it concerns them"
        said = await self._answers.answered(request)
        if said is not None:
            self._answer(request, said)
        elif (work := self._talk(request)) is not None:
            await work()

    def _talk(self, request: Request[None]) -> Callable[[], Awaitable[None]] | None:
        """What is to be done about a message that answers no question; None if that is done."""
        stanza = request.stanza
        body = stanza.text_of("body", stanza.lang)
        text = body.strip() if body else ""
        if not text:
            return None
        if any(name.startswith(_OF_AGENTS) for name in stanza.payload_names):
            return None  # an agent told us something; it wants no conversation (FAC-015)
        if text.startswith("/"):
            # What was meant to happen at once may not be meant any more.
            return None if _is_delayed(request) else (lambda: self._command(request, text[1:]))
        if self._agents is not None:
            # A server's own announcements, and other services, are nobody to talk with.
            is_account = request.principal.local is not None
            return (lambda: self._say_to_agent(request, text)) if is_account else None
        hint = None if _is_delayed(request) else self._hint(request.principal)
        if hint is not None:
            self._answer(request, hint)
        return None

    async def _say_to_agent(self, request: Request[None], text: str) -> None:
        assert self._agents is not None, "somebody listens"
        stanza = request.stanza
        incoming = Incoming(
            id=secrets.token_hex(_ID_BYTES),
            agent=request.to.local or self._default_agent,
            principal=request.principal,
            requester=request.sender,
            target=request.to,
            body=text,
            msg_id=stanza.id,
            type="chat" if stanza.type == "chat" else "normal",
            thread=stanza.text_of("thread"),
            lang=stanza.lang,
            chat_states=any(name.startswith(_STATE) for name in stanza.payload_names),
        )
        try:
            self._let_in(request.principal)
            await self._agents.received(incoming)
        except StanzaError as error:
            self._answer(request, error.text)
        except StorageError as error:
            _log.error("a message could not be taken in", reason=str(error))
            self._answer(request, _AT_FAULT)

    async def _command(self, request: Request[None], line: str) -> None:
        name, *rest = line.split(maxsplit=1) or [""]
        asking = self._commands.asking(request.principal, request.to.bare, request.stanza.lang)
        command = self._commands.get(name.casefold(), asking)
        if command is None:
            answer = f"I do not know /{name[:40]}. Send /help to see what I understand."
        else:
            try:
                answer = (await command.run(asking, read_words(command, "".join(rest)))).text
            except CommandError as error:
                answer = str(error)
            except StorageError as error:
                _log.error("a command failed", command=command.name, reason=str(error))
                answer = _AT_FAULT
        self._answer(request, answer)

    def _answer(self, request: Request[None], text: str) -> None:
        stanza = request.stanza
        self._send(
            Message(
                type="chat" if stanza.type == "chat" else "normal",
                from_=request.to,
                to=stanza.sender or request.sender,  # as the server knows it
                body=text,
                thread=stanza.text_of("thread"),
            )
        )

    def _hint(self, principal: JID) -> str | None:
        now = self._clock()
        last = self._hinted.get(principal)
        if last is not None and now - last < _HINT_EVERY_S:
            return None
        self._hinted[principal] = now
        self._hinted.move_to_end(principal)
        if len(self._hinted) > _HINTS_REMEMBERED:
            self._hinted.popitem(last=False)
        return f"I am {self._name}. No model is set up, so I answer commands only: send /help."


def _is_delayed(request: Request[None]) -> bool:
    """Whether the message was stored on its way; what was said then may not hold now."""
    if LEGACY_TAG in request.stanza.payload_names:
        return True
    try:
        return request.stanza.payload(Delay) is not None
    except ContentError:
        return True

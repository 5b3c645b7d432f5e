"""Messages from people (RFC 6121 §5): commands that are answered without a model.

A line that begins with a slash is a command (`component.commands`). Anything else gets one hint now
and then, never an answer each time, so that two programs cannot keep each other talking.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Protocol

import anyio
import structlog

from component.commands.definition import CommandError, Commands
from component.commands.words import read_words
from component.router.table import Request, StanzaRoute
from component.storage import StorageError
from xep.binding import ContentError
from xep.delay import Delay
from xep.fluux_agent import NAMESPACE as AGENT
from xep.jid import JID
from xep.stanza import Message, Presence

_log = structlog.get_logger("component.message")

_HINT_EVERY_S = 600.0
_HINTS_REMEMBERED = 4096
_OF_AGENTS = f"{{{AGENT}"


class Answers(Protocol):
    """Takes answers to questions out of messages."""

    def concerns(self, request: Request[None]) -> bool:
        """Whether `answered` has anything to look at. Never waits."""

    async def answered(self, request: Request[None]) -> str | None:
        """What came of an answer, as a text; None if the message is none."""


class MessageHandler:
    """Answers chat from the address written to.

    Args:
        name: what the agent is called.
        send: sends a stanza.
        commands: what can be asked with a slash.
        clock: seconds that only go forward; the event loop's by default.
        answers: takes answers to questions, which come before all else.
    """

    def __init__(
        self,
        name: str,
        send: Callable[[Message | Presence], None],
        commands: Commands,
        clock: Callable[[], float] = anyio.current_time,
        answers: Answers | None = None,
    ) -> None:
        self._name = name
        self._send = send
        self._commands = commands
        self._answers = answers
        self._clock = clock
        self._hinted: OrderedDict[JID, float] = OrderedDict()

    def routes(self) -> tuple[StanzaRoute, ...]:
        """The routes of this handler."""
        return (StanzaRoute("message", frozenset(("chat", "normal")), self.message),)

    def message(self, request: Request[None]) -> Awaitable[None] | None:
        """Take an answer to a question, answer a command, or give a hint."""
        if self._answers is not None and self._answers.concerns(request):
            return self._take_answer(request, self._answers)
        return self._talk(request)

    async def _take_answer(self, request: Request[None], answers: Answers) -> None:
        said = await answers.answered(request)
        if said is not None:
            self._answer(request, said)
        elif (work := self._talk(request)) is not None:
            await work

    def _talk(self, request: Request[None]) -> Awaitable[None] | None:
        stanza = request.stanza
        body = stanza.text_of("body", stanza.lang)
        text = body.strip() if body else ""
        if not text or _is_delayed(request):
            return None
        if text.startswith("/"):
            return self._command(request, text[1:])
        if any(name.startswith(_OF_AGENTS) for name in stanza.payload_names):
            return None  # an agent told us something; it wants no conversation (FAC-015)
        hint = self._hint(request.principal)
        if hint is not None:
            self._answer(request, hint)
        return None

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
                answer = "I cannot do that now, because of a fault on my side. Try again later."
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
    try:
        return request.stanza.payload(Delay) is not None
    except ContentError:
        return True

"""Messages from people (RFC 6121 §5): commands that are answered without a model.

A line that begins with a slash is a command. Anything else gets one hint now and then, never an
answer each time, so that two programs cannot keep each other talking.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Protocol

import anyio
import msgspec

from component.router.table import Request, StanzaRoute
from component.skills.errors import SearchError
from component.skills.registry import View
from xep.binding import ContentError
from xep.delay import Delay
from xep.jid import JID
from xep.stanza import Message, Presence

_HINT_EVERY_S = 600.0
_HINTS_REMEMBERED = 4096
_SKILLS_SHOWN = 50
_LONGEST_LINE = 200


class Answering(Protocol):
    """What a command does: an answer for the principal, from the words after its name."""

    def __call__(self, principal: JID, words: str, /) -> str:
        """The answer, as text."""


class Command(msgspec.Struct, frozen=True):
    """A command that people send in chat: its name without the slash, and one line about it."""

    name: str
    about: str
    answer: Answering


class MessageHandler:
    """Answers chat from the address written to.

    Args:
        name: what the agent is called.
        send: sends a stanza.
        view: the skills that a principal sees.
        clock: seconds that only go forward; the event loop's by default.
    """

    def __init__(
        self,
        name: str,
        send: Callable[[Message | Presence], None],
        view: Callable[[JID], View],
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._name = name
        self._send = send
        self._view = view
        self._clock = clock
        self._hinted: OrderedDict[JID, float] = OrderedDict()
        commands = (
            Command("help", "what I understand", self._help),
            Command("skills", "what I can do for you; add words to search", self._skills),
            Command("ping", "whether I am here", lambda _principal, _words: "pong"),
        )
        self.commands: Mapping[str, Command] = {command.name: command for command in commands}

    def routes(self) -> tuple[StanzaRoute, ...]:
        """The routes of this handler."""
        return (StanzaRoute("message", frozenset(("chat", "normal")), self.message),)

    def message(self, request: Request[None]) -> None:
        """Answer a command, or give a hint."""
        stanza = request.stanza
        body = stanza.text_of("body", stanza.lang)
        if not body or not body.strip() or _is_delayed(request):
            return
        answer = self.reply_to(request.principal, body.strip())
        if answer is None:
            return
        self._send(
            Message(
                type="chat" if stanza.type == "chat" else "normal",
                from_=request.to,
                to=stanza.sender or request.sender,  # as the server knows it
                body=answer,
                thread=stanza.text_of("thread"),
            )
        )

    def reply_to(self, principal: JID, text: str) -> str | None:
        """The answer to a line of text; None when silence is better."""
        if not text.startswith("/"):
            return self._hint(principal)
        name, *rest = text[1:].split(maxsplit=1) or [""]
        command = self.commands.get(name.casefold())
        if command is None:
            return f"I do not know /{name[:40]}. Send /help to see what I understand."
        return command.answer(principal, "".join(rest))

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

    def _help(self, _principal: JID, _words: str) -> str:
        lines = [f"/{command.name} - {command.about}" for command in self.commands.values()]
        return "\n".join((f"I am {self._name}. I understand:", *lines))

    def _skills(self, principal: JID, words: str) -> str:
        view = self._view(principal)
        try:
            names = view.names(words)
        except SearchError as error:
            return str(error)
        if not names:
            return "No skill of yours matches that." if words else "There is no skill for you."
        shown = [skill for name in names[:_SKILLS_SHOWN] if (skill := view.get(name)) is not None]
        lines = [f"{skill.name} - {_first_line(skill.description)}" for skill in shown]
        if len(names) > len(lines):
            lines.append(f"… and {len(names) - len(lines)} more: add words to search.")
        return "\n".join(lines)


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 1] + "…"


def _is_delayed(request: Request[None]) -> bool:
    """Whether the message was stored on its way; what was said then may not hold now."""
    try:
        return request.stanza.payload(Delay) is not None
    except ContentError:
        return True

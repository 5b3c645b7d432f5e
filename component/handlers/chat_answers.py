"""Answers to questions that come as chat: a selected action, a yes or no, a text for an input.

The rules are those of "By a Selected Action", "In Words" and CNF-029 to CNF-031. Words name a
question by a reply to its message or by its thread. One that they cannot name, because several are
open or were a moment ago, is named by a command: `/approve`, `/deny`, `/answer` and the first
characters of its identifier. `/answer` and the words alone answer the only one. Only a plain
message counts as an answer (`component.handlers.plain_text`).
"""

import re
from collections.abc import Sequence
from typing import Final, Literal, Protocol

import structlog

from component.handlers.plain_text import PlainText, plain_text
from component.handlers.questions import title_of
from component.handlers.which import SHORTEST, uncertain, which
from component.router.table import Request
from component.skills.errors import printable
from component.storage import StorageError
from component.tasks.protocol import Naming, Question, UncertainError
from component.tasks.spoken import answer_in_order, answer_in_words, takes_words
from component.tasks.words import Said, said_in
from xep.binding import ContentError
from xep.delay import LEGACY_TAG
from xep.delay import NAMESPACE as DELAY
from xep.fluux_agent import NAMESPACE as AGENT
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Confirm, Decision
from xep.fluux_agent.task import Input, InputAnswer, Task
from xep.jid import JID
from xep.quick_responses import ActionSelected
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.questions")

_DECIDES_NOTHING: Final = frozenset(
    (
        f"{{{DELAY}}}delay",
        LEGACY_TAG,
        "{http://jabber.org/protocol/muc#user}x",
        "{urn:xmpp:forward:0}forwarded",
        "{urn:xmpp:carbons:2}received",
        "{urn:xmpp:carbons:2}sent",
        "{urn:xmpp:mam:2}result",
    )
)
"""What marks a message as late, from the occupant of a room, or a copy of another one."""
_OF_AGENTS: Final = f"{{{AGENT}"
"""What an agent says to an agent: its body repeats that, and answers nothing (FAC-015)."""
_COMMANDS: Final = ("/approve", "/deny", "/answer")
_IDENTIFIER: Final = re.compile(rf"(?=.*\d)[0-9a-f]{{{SHORTEST},}}", re.IGNORECASE)
"""What may be the beginning of an identifier, perhaps of a question that is closed."""
_TOO_LATE: Final = "That question is closed: it was answered or withdrawn, or its time is over."
_ALONE: Final = "I haven't done it. Reply just *yes*, or *no* and why."

Value = Literal["approve", "deny"]


class Judges(Protocol):
    """Who judges what is answered: `component.tasks.protocol.Tasks`."""

    async def answer(
        self, who: JID, at: JID, answer: InputAnswer, naming: Naming | None = None
    ) -> Task:
        """Answer a question of a task. Raises StanzaError, UncertainError, StorageError."""

    async def decide(
        self,
        who: JID,
        at: JID,
        decision: Decision,
        lang: str | None = None,
        naming: Naming | None = None,
    ) -> None:
        """Decide a confirmation. Raises StanzaError, UncertainError, StorageError."""

    async def open_questions(self, who: JID, at: JID) -> Sequence[Question]:
        """The questions that are open with `who`. Raises StorageError."""

    async def was_asked(self, who: JID, at: JID, name: str) -> bool:
        """Whether a question to `who`, by its id or thread, is closed. Raises StorageError."""


class ChatAnswers:
    """Takes answers out of chat messages.

    Args:
        tasks: who judges them.
    """

    def __init__(self, tasks: Judges) -> None:
        self._tasks = tasks

    def concerns(self, request: Request[None]) -> bool:
        """Whether `answered` has anything to look at. Never waits."""
        if not in_person(request):
            return False
        stanza = request.stanza
        body = (stanza.text_of("body", stanza.lang) or "").strip()
        if ActionSelected.xml.tag in stanza.payload_names:
            return True
        return bool(body) and (not body.startswith("/") or _command(body) is not None)

    async def answered(self, request: Request[None]) -> str | None:
        """What came of an answer, for the one who gave it (CNF-028).

        None if the message is no answer to any question.
        """
        if not self.concerns(request):
            return None
        try:
            return await self._answered(request)
        except StanzaError as error:
            return _said_no(error)
        except UncertainError:
            return await self._uncertain(request)
        except StorageError as error:
            _log.error("an answer could not be taken", reason=str(error))
            return "I cannot take that now, because of a fault on my side. Try again later."

    async def _answered(self, request: Request[None]) -> str | None:
        stanza, agent = request.stanza, request.to.bare
        if ActionSelected.xml.tag in stanza.payload_names:
            return await self._selected(request)
        message = plain_text(stanza, agent)
        if not message.text:
            return None
        questions = await self._tasks.open_questions(request.principal, agent)
        command = _command(message.text)
        if command is not None:
            if message.besides is not None:
                return _not_plain(message.besides)
            return await self._by_name(request, *command, questions)
        said = said_in(message.text)
        meant, naming = _meant(questions, message, stanza.text_of("thread"))
        candidates = meant or ([] if message.replies_to is not None else list(questions))
        if not any(_may_answer(each, said) for each in candidates):
            name = message.replies_to or stanza.text_of("thread")
            if said is None or not name or meant:
                return None
            return (
                _TOO_LATE if await self._tasks.was_asked(request.principal, agent, name) else None
            )
        if message.besides is not None:
            return _not_plain(message.besides)
        if len(meant) != 1 and len(questions) != 1:
            return which(questions)
        (question,) = meant if len(meant) == 1 else questions
        return await self._take(request, question, said, message.text, naming)

    async def _selected(self, request: Request[None]) -> str | None:
        """What came of a selected action (CNF-022); None for an action that is not ours."""
        selected = _selected(request)
        if selected is None:
            return None
        value, identifier = selected
        message = plain_text(request.stanza, request.to.bare, also=ActionSelected.xml.tag)
        besides = message.besides
        if besides is None and message.text:
            said = said_in(message.text)
            if said is None or said.value != value:
                besides = "it says something else as well"
        if besides is not None:
            return _not_plain(besides)
        return await self._decide(request, Decision(id=identifier, value=value))

    async def _uncertain(self, request: Request[None]) -> str:
        """Ask back: the answer may be meant for another question (CNF-046)."""
        questions = await self._tasks.open_questions(request.principal, request.to.bare)
        return uncertain(questions)

    async def _take(
        self,
        request: Request[None],
        question: Question,
        said: Said | None,
        body: str,
        naming: Naming | None,
    ) -> str | None:
        if isinstance(question.content, Input):
            given = answer_in_words(question.content, question.task, body)
            return await self._answer(request, question, given, naming)
        if said is None:
            return None
        if said.value == "unclear":
            return _ALONE
        decision = Decision(
            id=question.id,
            value=said.value,
            reason=said.reason,
            hash=question.content.hash,
        )
        return await self._decide(request, decision, question, naming)

    async def _by_name(
        self,
        request: Request[None],
        name: str,
        identifier: str,
        words: str,
        questions: Sequence[Question],
    ) -> str:
        """A command that names the question by the beginning of its identifier."""
        naming: Naming | None = Naming(beginning=identifier)
        found = [
            each
            for each in questions
            if each.id == identifier
            or (len(identifier) >= SHORTEST and each.id.startswith(identifier))
        ]
        if name == "/answer" and not found and identifier and not _IDENTIFIER.fullmatch(identifier):
            thread = request.stanza.text_of("thread")
            meant = _in_thread(questions, thread)
            naming = Naming(thread=thread) if meant else Naming()
            found = [each for each in meant or questions if isinstance(each.content, Input)]
            words = f"{identifier} {words}"
        if len(found) != 1:
            return which(questions)
        (question,) = found
        if question.id == identifier:
            naming = None
        if isinstance(question.content, Input):
            if name == "/answer" and words:
                given = answer_in_order(question.content, question.task, words)
                said = await self._answer(request, question, given, naming)
                return said or "That question takes its form only."
            return f"Write /answer {identifier} and the answer."
        if name == "/answer":
            return f"Write /approve {identifier}, or /deny {identifier} and why."
        value: Value = "approve" if name == "/approve" else "deny"
        if value == "approve" and words:
            return f"I haven't done it. Write just /approve {identifier}, with nothing after it."
        decision = Decision(
            id=question.id, value=value, reason=words or None, hash=question.content.hash
        )
        return await self._decide(request, decision, question, naming)

    async def _decide(
        self,
        request: Request[None],
        decision: Decision,
        question: Question | None = None,
        naming: Naming | None = None,
    ) -> str:
        await self._tasks.decide(
            request.principal, request.to.bare, decision, request.stanza.lang, naming
        )
        what = "" if question is None else f" {title_of(question)}"
        return f"Approved.{what}" if decision.value == "approve" else f"Denied.{what}"

    async def _answer(
        self,
        request: Request[None],
        question: Question,
        given: InputAnswer | None,
        naming: Naming | None,
    ) -> str | None:
        if given is None:
            return None
        await self._tasks.answer(request.principal, question.agent, given, naming)
        return "Thank you, I go on."


def in_person(request: Request[None]) -> bool:
    """Whether a message was sent just now, by its sender, to us, and by no agent to an agent."""
    stanza = request.stanza
    names = stanza.payload_names
    if stanza.type not in ("chat", "normal") or not _DECIDES_NOTHING.isdisjoint(names):
        return False
    return not any(name.startswith(_OF_AGENTS) for name in names)


def _selected(request: Request[None]) -> tuple[Value, str] | None:
    """The decision that a selected action is (CNF-022)."""
    try:
        found = request.stanza.payload(ActionSelected)
    except ContentError:
        return None
    name, _, identifier = (found.id if found is not None else "").partition(":")
    if not identifier or name not in ("approve", "deny"):
        return None
    return ("approve" if name == "approve" else "deny"), identifier


def _command(body: str) -> tuple[str, str, str] | None:
    """The name of a command of ours, the identifier after it, and what follows."""
    name, _, rest = body.partition(" ")
    if name.casefold() not in _COMMANDS:
        return None
    identifier, _, words = rest.strip().partition(" ")
    return name.casefold(), identifier, words.strip()


def _meant(
    questions: Sequence[Question], message: PlainText, thread: str | None
) -> tuple[list[Question], Naming | None]:
    """The open questions that a message names, and by what; no name is None, a full one."""
    if message.replies_to is not None:
        return [each for each in questions if each.id == message.replies_to], None
    meant = _in_thread(questions, thread)
    return meant, Naming(thread=thread) if len(meant) == 1 else Naming()


def _in_thread(questions: Sequence[Question], thread: str | None) -> list[Question]:
    return [each for each in questions if thread is not None and each.thread == thread]


def _not_plain(besides: str) -> str:
    return (
        "I haven't taken that as an answer, because it is more than a plain message:"
        f" {besides}. Send your answer as a message of its own."
    )


def _may_answer(question: Question, said: Said | None) -> bool:
    """Whether a body can be an answer to a question."""
    if isinstance(question.content, Confirm):
        return said is not None
    return takes_words(question.content)


def _said_no(error: StanzaError) -> str:
    """What a refusal says in chat."""
    if any(isinstance(one, errors.InvalidParam) for one in error.application):
        return f"I cannot take that answer: {printable(error.text, 500)}"
    return error.text

"""Answers to questions that come as chat: a selected action, a yes or no, a text for an input.

The rules are those of "By a Selected Action", "In Words" and CNF-029 to CNF-031. A question that
words cannot name, because several are open, is named by a command: `/approve`, `/deny`, `/answer`
and the first characters of its identifier. `/answer` and the words alone answer the only one.
"""

import re
from collections.abc import Sequence
from typing import Final, Literal, Protocol

import structlog

from component.handlers.questions import title_of
from component.router.table import Request
from component.skills.errors import printable
from component.storage import StorageError
from component.tasks.protocol import Question
from component.tasks.spoken import answer_in_order, answer_in_words, names_in_order, takes_words
from component.tasks.words import Said, said_in
from xep.binding import ContentError
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
_SHORTEST: Final = 4
"""Characters of an identifier that name it, if nothing else begins with them."""
_IDENTIFIER: Final = re.compile(rf"(?=.*\d)[0-9a-f]{{{_SHORTEST},}}", re.IGNORECASE)
"""What may be the beginning of an identifier, perhaps of a question that is open no more."""
_LISTED: Final = 10
_LONGEST_NAMES: Final = 200
_TOO_LATE: Final = "That question is open no more: it has been answered, or its time is over."

Value = Literal["approve", "deny"]


class Judges(Protocol):
    """Who judges what is answered: `component.tasks.protocol.Tasks`."""

    async def answer(self, who: JID, at: JID, answer: InputAnswer) -> Task:
        """Answer a question of a task. Raises StanzaError, StorageError."""

    async def decide(self, who: JID, at: JID, decision: Decision, lang: str | None = None) -> None:
        """Decide a confirmation. Raises StanzaError, StorageError."""

    async def open_questions(self, who: JID, at: JID) -> Sequence[Question]:
        """The questions that are open with `who`. Raises StorageError."""

    async def was_asked(self, who: JID, at: JID, thread: str) -> bool:
        """Whether the latest question to `who` in a thread is open no more. Raises StorageError."""


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
        except StorageError as error:
            _log.error("an answer could not be taken", reason=str(error))
            return "I cannot take that now, because of a fault on my side. Try again later."

    async def _answered(self, request: Request[None]) -> str | None:
        stanza = request.stanza
        selected = _selected(request)
        if selected is not None:
            value, identifier = selected
            return await self._decide(request, Decision(id=identifier, value=value))
        body = (stanza.text_of("body", stanza.lang) or "").strip()
        if not body:
            return None
        questions = await self._tasks.open_questions(request.principal, request.to.bare)
        command = _command(body)
        if command is not None:
            return await self._by_name(request, *command, questions)
        thread = stanza.text_of("thread")
        meant = _in_thread(questions, thread)
        candidates = meant or list(questions)
        said = said_in(body)
        if not any(_may_answer(each, said) for each in candidates):
            if said is None or thread is None or meant:
                return None
            late = await self._tasks.was_asked(request.principal, request.to.bare, thread)
            return _TOO_LATE if late else None
        if len(meant) != 1 and len(questions) != 1:
            return _which(questions)
        (question,) = meant if len(meant) == 1 else questions
        return await self._take(request, question, said, body)

    async def _take(
        self, request: Request[None], question: Question, said: Said | None, body: str
    ) -> str | None:
        if isinstance(question.content, Input):
            given = answer_in_words(question.content, question.task, body)
            return await self._answer(request, question, given)
        if said is None:
            return None
        if said.value == "unclear":
            return (
                "I did not take that as leave. Answer with yes alone, or with no and what you want"
                " instead."
            )
        decision = Decision(
            id=question.id,
            value=said.value,
            reason=said.reason,
            hash=question.content.hash,
        )
        return await self._decide(request, decision, question)

    async def _by_name(
        self,
        request: Request[None],
        name: str,
        identifier: str,
        words: str,
        questions: Sequence[Question],
    ) -> str:
        """A command that names the question by the beginning of its identifier."""
        found = [
            each
            for each in questions
            if each.id == identifier
            or (len(identifier) >= _SHORTEST and each.id.startswith(identifier))
        ]
        if name == "/answer" and not found and identifier and not _IDENTIFIER.fullmatch(identifier):
            meant = _in_thread(questions, request.stanza.text_of("thread")) or questions
            found = [each for each in meant if isinstance(each.content, Input)]
            words = f"{identifier} {words}"
        if len(found) != 1:
            return _which(questions)
        (question,) = found
        if isinstance(question.content, Input):
            if name == "/answer" and words:
                given = answer_in_order(question.content, question.task, words)
                said = await self._answer(request, question, given)
                return said or "That question takes its form only."
            return f"Write /answer {identifier} and the answer."
        if name == "/answer":
            return f"Write /approve {identifier}, or /deny {identifier} and why."
        value: Value = "approve" if name == "/approve" else "deny"
        if value == "approve" and words:
            return f"I did not take that as leave. Write /approve {identifier} alone."
        decision = Decision(
            id=question.id, value=value, reason=words or None, hash=question.content.hash
        )
        return await self._decide(request, decision, question)

    async def _decide(
        self, request: Request[None], decision: Decision, question: Question | None = None
    ) -> str:
        await self._tasks.decide(request.principal, request.to.bare, decision, request.stanza.lang)
        what = "" if question is None else f" {title_of(question)}"
        return f"Approved.{what}" if decision.value == "approve" else f"Denied.{what}"

    async def _answer(
        self, request: Request[None], question: Question, given: InputAnswer | None
    ) -> str | None:
        if given is None:
            return None
        await self._tasks.answer(request.principal, question.agent, given)
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


def _in_thread(questions: Sequence[Question], thread: str | None) -> list[Question]:
    return [each for each in questions if thread is not None and each.thread == thread]


def _may_answer(question: Question, said: Said | None) -> bool:
    """Whether a body can be an answer to a question."""
    if isinstance(question.content, Confirm):
        return said is not None
    return takes_words(question.content)


def _which(questions: Sequence[Question]) -> str:
    """Ask which question is meant (CNF-027)."""
    if not questions:
        return "I have no question open with you."
    lines = ["I have several questions open with you. Which one do you mean?"]
    if len(questions) == 1:
        lines = ["I have another question open with you:"]
    for each in questions[:_LISTED]:
        short = _short(each, questions)
        if isinstance(each.content, Confirm):
            how = f"/approve {short} or /deny {short}"
        elif takes_words(each.content):
            how = f"/answer {short} …"
        elif names := names_in_order(each.content):
            how = f"/answer {short} {printable(', '.join(names), _LONGEST_NAMES)}"
        else:
            how = "with its form"
        lines.append(f"- {title_of(each)} ({how})")
    if len(questions) > _LISTED:
        lines.append(f"… and {len(questions) - _LISTED} more.")
    return "\n".join(lines)


def _short(question: Question, questions: Sequence[Question]) -> str:
    """The shortest beginning of an identifier that nothing else begins with."""
    others = [each.id for each in questions if each is not question]
    for length in range(_SHORTEST, len(question.id)):
        if not any(other.startswith(question.id[:length]) for other in others):
            return question.id[:length]
    return question.id


def _said_no(error: StanzaError) -> str:
    """What a refusal says in chat."""
    if any(isinstance(one, errors.InvalidParam) for one in error.application):
        return f"I cannot take that answer: {printable(error.text, 500)}"
    return error.text

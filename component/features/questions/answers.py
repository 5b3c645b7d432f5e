"""Answers to questions in chat: a selected action, a yes or no, a text for an input.

The rules are in "By a Selected Action", "In Words" and CNF-029 to CNF-031. Words identify a
question by a reply to its message or by its thread. If several questions are open, or were a moment
ago, a command identifies one: `/approve`, `/deny`, `/answer`, `/show` and the first characters of
its identifier. Without an identifier, `/deny`, `/show` and `/answer` are about the only question.
Only a plain message counts as an answer (`InboundMessage.unclear`).

A question never keeps a person from talking to the agent: a text that does not answer it is a
message to the agent, and the question stays open.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec
import structlog

from component.link.messages.inbound import (
    THUMBS_DOWN,
    THUMBS_UP,
    Account,
    Handled,
    InboundMessage,
    MessageStage,
    Reacted,
    StageOrder,
)
from component.memory_directory.layout import SessionKey
from component.skills.errors import printable
from component.store import StorageError
from component.store.outages import log_failure
from component.task_messages import approvals
from component.task_messages.questions import SHORT_ID, Questions, is_quoted, split_quotation
from component.task_messages.spoken_answers import (
    ALWAYS,
    SpokenYesNo,
    answer_in_chat,
    answer_in_order,
    answer_yes_or_no,
    declining,
    how_to_decline,
    is_declined,
    names_in_order,
    refusal_in,
    said_in,
    says_always,
    takes_words,
    yes_or_no,
)
from component.tasks.protocol import Doubt, Naming, Question, UncertainError
from component.tasks.question_rows import Answerer
from component.tasks.service import TaskService
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Confirm, Decision
from xep.fluux_agent.task import Input, InputAnswer
from xep.jid import JID
from xep.message_replies import NAMESPACE as REPLIES
from xep.reactions import NAMESPACE as REACTIONS
from xep.stanza_error import StanzaError

if TYPE_CHECKING:
    from component.kernel.persona_dialogue import PersonaDialogue

_log = structlog.get_logger("component.questions")

_LISTED: Final = 10
_LONGEST_NAMES: Final = 200


def which(words: Questions, questions: Sequence[Question]) -> str:
    """Return the text that asks which of the open questions is meant."""
    if not questions:
        return "I have no question open with you."
    first = "I have several questions open with you. Which one do you mean?"
    if len(questions) == 1:
        first = "I have another question open with you:"
    return "\n".join((first, *_lines(words, questions)))


def uncertain(words: Questions, questions: Sequence[Question], doubt: Doubt, said: str) -> str:
    """Return the text that says why an answer does not count, and how to give it.

    `said` is the word to say again: yes or no.
    """
    if not questions:
        return "I haven't done it, because the question was closed while you were answering."
    last = "You can also reply to the question's message, or answer again in a minute."
    if doubt == "just asked" and len(questions) == 1:
        first, last = f"I asked only a moment ago: please say *{said}* again.", ""
    elif doubt == "just asked":
        first = "I haven't done it, because I asked only a moment ago. Which question do you mean?"
        last = f"You can also reply to the question's message, or say *{said}* again."
    elif doubt == "not shown" and len(questions) == 1:
        first, last = "I haven't done it, because my question may not have reached you:", ""
    else:
        first = "I haven't done it, because I am not sure which question you mean"
        first += ": another one was closed a moment ago." if len(questions) == 1 else "."
    return "\n".join((first, *_lines(words, questions), *([last] if last else ())))


def _lines(words: Questions, questions: Sequence[Question]) -> list[str]:
    lines: list[str] = []
    for each in questions[:_LISTED]:
        short = _short(each, questions)
        if isinstance(each.content, Confirm):
            how = f"/approve {short}"
        elif takes_words(each.content):
            how = f"/answer {short} …"
        elif names := names_in_order(each.content):
            how = f"/answer {short} {printable(', '.join(names), _LONGEST_NAMES)}"
        else:
            how = "its form"
        lines.append(f"- {words.listed(each)} ({how} or /deny {short})")
    if len(questions) > _LISTED:
        lines.append(f"… and {len(questions) - _LISTED} more.")
    return lines


def _short(question: Question, questions: Sequence[Question]) -> str:
    others = [each.id for each in questions if each is not question]
    for length in range(SHORT_ID, len(question.id)):
        if not any(other.startswith(question.id[:length]) for other in others):
            return question.id[:length]
    return question.id


_MODIFIERS: Final = dict.fromkeys((0xFE0E, 0xFE0F, *range(0x1F3FB, 0x1F400)))
"""Characters that select a presentation or a skin colour."""
_COMMANDS: Final = ("/approve", "/deny", "/answer", "/show")
_SHOW_ALL: Final = r"show (?:me )?(?:all|everything)[.!]?"
_IDENTIFIER: Final = rf"(?i)(?=.*\d)[0-9a-f]{{{SHORT_ID},}}"
"""Matches the possible beginning of an identifier, perhaps of a closed question."""
_TOO_LATE: Final = "That question is closed: it was answered or withdrawn, or it has expired."
_GRANTED: Final = "I will not ask again for the same; /approvals lists what you have allowed."
_ENDED: Final = "What you had allowed for the same is revoked: I will ask each time."
_ALONE: Final = "I haven't done it. Reply just *yes*, or *no* and why."

Value = Literal["approve", "deny"]
Reading: TypeAlias = SpokenYesNo | InputAnswer | StanzaError
"""What a text says to a question: a decision, an answer, or why an answer is not valid."""


class ChatAnswers:
    """Recognises and judges answers in chat messages.

    Args:
        tasks: judges the answers.
        words: renders questions as messages.
    """

    def __init__(self, tasks: TaskService, words: Questions) -> None:
        self._tasks = tasks
        self._words = words

    def stage(self) -> MessageStage:
        """Return the stage that takes answers."""
        return answer_stage(self.answered, self.returned)

    async def answered(self, message: InboundMessage) -> str | None:
        """Return the outcome of an answer, for the person who gave it (CNF-028).

        None if the message is not an answer to a question.
        """
        if not in_person(message):
            return None
        try:
            return await self._answered(message)
        except StanzaError as error:
            return _refusal_text(error)
        except UncertainError as error:
            return await self._uncertain(message, error.doubt)
        except StorageError as error:
            return _failed(error)

    async def returned(self, who: JID, at: JID, message_id: str) -> None:
        """Record that a message from `at` to `who` was returned as an error.

        If the message asks a question, a bare yes or no from `who` no longer answers it.
        """
        try:
            await self._tasks.returned(who, at, message_id)
        except StorageError as error:
            log_failure(_log, "could not record that a message was returned", error)

    async def _answered(self, message: InboundMessage) -> str | None:
        if message.reacted is not None:
            return await self._reacted(message, message.reacted)
        if message.selected is not None:
            return await self._selected(message, message.selected)
        command = _command(message.text)
        if not message.text or (message.text.startswith("/") and command is None):
            return None
        agent, thread = message.conversation.agent, message.conversation.thread
        questions = await self._open_questions(message)
        if command is not None:
            if message.unclear is not None and command[0] in ("/approve", "/answer"):
                return _not_plain(message.unclear)
            return await self._by_name(message, *command, questions)
        questions = [each for each in questions if _is_present(each)]
        quoted, text = await self._quotation(message, questions)
        if quoted and text:
            who = message.principal
            questions = [
                each for each in questions if is_quoted(self._words.body(each, who), quoted)
            ]
            message = msgspec.structs.replace(message, text=text, replies_to=None)
        meant, naming = _meant(questions, message)
        if not meant:
            questions = [each for each in questions if _is_in_chat(each)]
        candidates = meant or ([] if message.replies_to is not None else list(questions))
        if re.fullmatch(_SHOW_ALL, message.text.strip(), re.IGNORECASE) and candidates:
            return self._words.whole(candidates[0], message.principal)
        said = said_in(message.text)
        named = message.replies_to is not None or bool(quoted and text)
        readings = {each.id: _reading(each, message.text, named=named) for each in candidates}
        if not any(reading is not None for reading in readings.values()):
            name = _replied_to(message) or thread
            if said is None or not name or meant:
                return None
            return (
                _TOO_LATE if await self._tasks.was_asked(message.principal, agent, name) else None
            )
        question = meant[0] if len(meant) == 1 else _newest(questions, message.principal, meant)
        reading = None if question is None else readings.get(question.id)
        if message.unclear is not None and not _refuses(reading, said):
            return _not_plain(message.unclear)
        if question is None or not (
            len(candidates) == 1 or _means(question, questions, reading, said)
        ):
            return which(self._words, questions)
        return await self._take(message, question, reading, naming)

    async def _open_questions(self, message: InboundMessage) -> Sequence[Question]:
        """Return the questions that the sender can answer in chat: an agent that asks for somebody
        else answers those about its work by IQ only (DLG-019).
        """
        agent = message.conversation.agent
        found = await self._tasks.open_questions(message.principal, agent)
        return [
            each
            for each in found
            if each.request.delegation is None or each.request.principal != message.principal
        ]

    async def _quotation(
        self, message: InboundMessage, questions: Sequence[Question]
    ) -> tuple[str, str]:
        """Return what a message quotes and its own text, if only the quotation says which question
        it is about.
        """
        if message.replies_to is None:
            return split_quotation(message.text)
        # Some clients reply to an id that only they and their archive know.
        name = _replied_to(message)
        if name is None or not message.quotation or any(each.id == name for each in questions):
            return "", message.text
        if await self._tasks.was_asked(message.principal, message.conversation.agent, name):
            return "", message.text
        quoted, _ = split_quotation(message.quotation)
        return quoted, message.text

    async def _selected(self, message: InboundMessage, selected: str) -> str | None:
        """Return the outcome of a selected action (CNF-022); None for an action that decides
        nothing.
        """
        name, _, identifier = selected.partition(":")
        if not identifier or name not in ("approve", "deny", ALWAYS):
            return None
        value: Value = "deny" if name == "deny" else "approve"
        standing = name == ALWAYS
        unclear = message.unclear
        if unclear is None and message.text:
            said = _always_or(message.text)
            if said is None or (said.value, said.standing) != (value, standing):
                unclear = "it also says something else"
        if unclear is not None and value == "approve":
            return _not_plain(unclear)
        decision = Decision(id=identifier, value=value, standing=standing)
        found = await self._open_questions(message) if standing else ()
        question = next((each for each in found if each.id == identifier), None)
        return await self._decide(message, decision, question)

    async def _reacted(self, message: InboundMessage, reacted: Reacted) -> str | None:
        """Return the outcome of a reaction to a question (CNF-053); None for one that decides
        nothing.
        """
        value = thumbs_of(reacted)
        agent = message.conversation.agent
        questions = await self._open_questions(message)
        question = next((each for each in questions if each.id == reacted.id), None)
        if value is None:
            return None if question is None else await self._withdraw(message, question)
        if question is None:
            asked = await self._tasks.was_asked(message.principal, agent, reacted.id)
            return _TOO_LATE if asked else None
        unclear = "it also contains text" if message.text else message.unclear
        if unclear is not None and (value == "approve" or isinstance(question.content, Input)):
            return _not_plain(unclear)
        if isinstance(question.content, Input):
            given = answer_yes_or_no(question.content, question.task, value == "approve")
            if given is None and value == "deny":
                given = declining(question.content, question.task)
            return await self._answer(message, question, given, None)
        decision = Decision(id=question.id, value=value, hash=question.content.hash)
        return await self._decide(message, decision, question)

    async def _withdraw(self, message: InboundMessage, question: Question) -> str | None:
        """Withdraw an approval with the reaction that gave it."""
        by = Answerer(message.principal, message.conversation.agent)
        missing = await self._tasks.withdraw_vote(by, question.id)
        return f"Your approval is withdrawn. {approvals.more(missing)}" if missing else None

    async def _uncertain(self, message: InboundMessage, doubt: Doubt) -> str:
        """Ask back: the answer may be meant for something else (CNF-046)."""
        questions = await self._open_questions(message)
        said = "no" if yes_or_no(message.text) is False else "yes"
        if says_always(message.text):
            said = ALWAYS
        return uncertain(self._words, questions, doubt, said)

    async def _take(
        self,
        message: InboundMessage,
        question: Question,
        reading: Reading | None,
        naming: Naming | None,
    ) -> str | None:
        if isinstance(reading, StanzaError):
            assert isinstance(question.content, Input), "a confirmation needs no valid value"
            return f"{_refusal_text(reading)}. {how_to_decline(question.content)}"
        if isinstance(question.content, Input):
            assert isinstance(reading, InputAnswer), "a text is read by the kind of its question"
            refusal = refusal_in(message.text) if is_declined(reading) else None
            reason = (refusal and refusal.reason) or ""
            return await self._answer(message, question, reading, naming, reason)
        assert isinstance(reading, SpokenYesNo), "a text is read by the kind of its question"
        if reading.value == "unclear":
            return _ALONE
        decision = _about(question, reading.value, reading.reason, standing=reading.standing)
        return await self._decide(message, decision, question, naming)

    async def _by_name(
        self,
        message: InboundMessage,
        name: str,
        identifier: str,
        words: str,
        questions: Sequence[Question],
    ) -> str:
        id_ = _plain(identifier)
        answers = name == "/answer"
        naming: Naming | None = Naming(beginning=id_, may_decide=not answers)
        found = [
            each
            for each in questions
            if each.id == id_ or (len(id_) >= SHORT_ID and each.id.startswith(id_))
        ]
        if name != "/approve" and not found and not re.fullmatch(_IDENTIFIER, identifier):
            thread = message.conversation.thread
            meant = _in_thread(questions, thread)
            naming = Naming(thread=thread if meant else None, may_decide=not answers)
            found = [
                each
                for each in meant or questions
                if isinstance(each.content, Input) or not answers
            ]
            words = f"{identifier} {words}".strip()
        if len(found) != 1:
            return which(self._words, questions)
        (question,) = found
        if question.id == id_:
            naming = None
        if name == "/show":
            return self._words.whole(question, message.principal)
        if isinstance(question.content, Input):
            if name == "/deny":
                declined = declining(question.content, question.task)
                return await self._answer(message, question, declined, naming, words) or ""
            if name == "/answer" and words:
                given = answer_in_order(question.content, question.task, words)
                said = await self._answer(message, question, given, naming)
                return said or "That question can only be answered with its form."
            short = _short(question, questions)
            return f"Write /answer {short} and the answer, or /deny {short}."
        if name == "/answer":
            return f"Write /approve {identifier}, or /deny {identifier} and why."
        value: Value = "approve" if name == "/approve" else "deny"
        offer = question.content.standing
        standing = value == "approve" and offer is not None and words.casefold() == ALWAYS
        if value == "approve" and words and not standing:
            return f"I haven't done it. Write just /approve {identifier}, with nothing after it."
        decision = _about(question, value, words or None, standing=standing)
        return await self._decide(message, decision, question, naming)

    async def _decide(
        self,
        message: InboundMessage,
        decision: Decision,
        question: Question | None = None,
        naming: Naming | None = None,
    ) -> str:
        by = Answerer(
            *(message.principal, message.conversation.agent, message.language, naming),
            by_reaction=message.reacted is not None,
        )
        judged = await self._tasks.vote(by, decision)
        decided = "Approved" if decision.value == "approve" else "Denied"
        if question is not None:
            decided = f"{decided}: {self._words.title_of(question)}"
        said = [f"{decided}.", approvals.more(judged.missing)]
        if decision.standing:
            said.append(_GRANTED)
        if judged.ended:
            said.append(_ENDED)
        return " ".join(filter(None, said))

    async def _answer(
        self,
        message: InboundMessage,
        question: Question,
        given: InputAnswer | None,
        naming: Naming | None,
        reason: str = "",
    ) -> str | None:
        if given is None:
            return None
        at = question.request.target
        await self._tasks.answer(message.principal, at, given, naming, reason)
        if is_declined(given):
            return f"Declined. {self._words.title_of(question)}"
        return "Thank you, I'll continue."


def thumbs_of(reacted: Reacted) -> Value | None:
    """Return what reactions decide (CNF-053); None if they decide nothing."""
    emoji = {one.translate(_MODIFIERS) for one in reacted.emoji}
    if THUMBS_DOWN in emoji:
        return "deny"
    return "approve" if THUMBS_UP in emoji else None


def in_person(message: InboundMessage) -> bool:
    """Return whether an account itself has just said something to the agent, and not as an agent.

    A delayed message, one from an occupant of a room, and a copy of another message answer nothing;
    nor does a message from an agent to an agent (FAC-015).
    """
    return (
        message.type in ("chat", "normal")
        and isinstance(message.actor, Account)
        and not (message.delayed or message.copy or message.from_agent or message.is_action)
    )


def _command(body: str) -> tuple[str, str, str] | None:
    """Return the name of an answering command, the identifier after it, and the rest."""
    name, *rest = body.split(maxsplit=1) or [""]
    if name.casefold() not in _COMMANDS:
        return None
    identifier, *words = "".join(rest).split(maxsplit=1) or [""]
    return name.casefold(), identifier, "".join(words).strip()


def _plain(identifier: str) -> str:
    """Return an identifier without what phones add: capitals, quotation marks, a full stop."""
    ends = [at for at, character in enumerate(identifier) if character.isalnum()]
    return identifier[ends[0] : ends[-1] + 1].casefold() if ends else ""


def _meant(
    questions: Sequence[Question], message: InboundMessage
) -> tuple[list[Question], Naming | None]:
    """Return the open questions that a message identifies, and how; the naming is None for a full
    identifier.
    """
    thread = message.conversation.thread
    if message.replies_to is not None:
        return [each for each in questions if each.id == _replied_to(message)], None
    meant = _in_thread(questions, thread)
    may_decide = _always_or(message.text) is not None or refusal_in(message.text) is not None
    return meant, Naming(thread=thread if len(meant) == 1 else None, may_decide=may_decide)


def _reading(question: Question, text: str, *, named: bool) -> Reading | None:
    """Return what a text says to a question; None if it is a message to the agent. `named` says
    that the message names the question.
    """
    if isinstance(question.content, Input):
        return answer_in_chat(question.content, question.task, text, named=named)
    said, refusal = said_in(text), refusal_in(text)
    if question.content.standing is not None:
        said = _always_or(text)
    return SpokenYesNo("deny", refusal.reason) if said is None and refusal is not None else said


def _always_or(text: str) -> SpokenYesNo | None:
    """Return the answer in a text to a question that offers a standing approval."""
    return SpokenYesNo("approve", standing=True) if says_always(text) else said_in(text)


def _about(
    question: Question, value: Value, reason: str | None = None, *, standing: bool = False
) -> Decision:
    """Return a decision about a confirmation, with the digest of what the person was shown."""
    confirm = question.content
    assert isinstance(confirm, Confirm), "it is decided"
    about = confirm if confirm.standing is None or not standing else confirm.standing
    return Decision(id=question.id, value=value, standing=standing, reason=reason, hash=about.hash)


def _refuses(reading: Reading | None, said: SpokenYesNo | None) -> bool:
    """Return whether words deny or decline: that counts, whatever else the message has."""
    if isinstance(reading, InputAnswer):
        return is_declined(reading)
    said = reading if isinstance(reading, SpokenYesNo) else said
    return said is not None and said.value == "deny"


def _is_present(question: Question) -> bool:
    """Return whether words may be meant for a question.

    The person does not know one that was withheld from them. One that was returned may have reached
    another client: then a yes or no is doubtful and is asked about, while any other text is rather
    for the agent.
    """
    if question.shown == "returned":
        return isinstance(question.content, Confirm)
    return question.shown != "withheld"


def _is_in_chat(question: Question) -> bool:
    """Return whether a question was asked in chat: a program may have got an input by its event
    alone, and words that name nothing are not meant for that.
    """
    return isinstance(question.content, Confirm) or question.request.conversational


def _means(
    question: Question,
    questions: Sequence[Question],
    reading: Reading | None,
    said: SpokenYesNo | None,
) -> bool:
    """Return whether words are likely meant for that question rather than another open one: a yes
    or no is rather for a confirmation than for an input.
    """
    if reading is None:
        return False
    decides = said is not None and any(isinstance(each.content, Confirm) for each in questions)
    return isinstance(question.content, Confirm) or not decides


def _newest(questions: Sequence[Question], who: JID, named: Sequence[Question]) -> Question | None:
    """Return the open question that bare words of `who` are meant for; `questions` has the newest
    first.

    It is the only one, or the newest if all come from requests of `who` (CNF-026). If the words
    identify some of them, it must be among those.
    """
    if len(questions) > 1 and any(each.request.principal.bare != who for each in questions):
        return None
    newest = questions[0]
    return newest if not named or newest in named else None


def _replied_to(message: InboundMessage) -> str | None:
    reply = message.replies_to
    return reply.id if reply is not None and reply.is_ours else None


def _in_thread(questions: Sequence[Question], thread: str | None) -> list[Question]:
    return [each for each in questions if thread is not None and each.thread == thread]


def _not_plain(unclear: str) -> str:
    return (
        "I haven't taken that as an answer, because it is more than a plain message:"
        f" {unclear}. Send your answer as a separate message."
    )


def _refusal_text(error: StanzaError) -> str:
    if any(isinstance(one, errors.InvalidParam) for one in error.application):
        return f"I can't accept that answer: {printable(error.text, 500)}"
    return error.text


def _failed(error: StorageError) -> str:
    _log.error("could not process an answer", reason=str(error))
    return "I can't accept your answer now because of an error on my side. Please try again later."


def answer_stage(
    answered: Callable[[InboundMessage], Awaitable[str | None]],
    returned: Callable[[JID, JID, str], Awaitable[None]],
) -> MessageStage:
    """Return the stage of a function that returns the outcome of an answer, and None for other
    messages.
    """

    async def handle(message: InboundMessage) -> Handled | None:
        said = await answered(message)
        return None if said is None else Handled(said)

    return MessageStage(StageOrder.ANSWERS, handle, returned, (REPLIES, REACTIONS))


class Dialogues:
    """Decides which dialogue an answer in chat belongs to.

    A dialogue that a person has started with a command comes before the questions of tasks, because
    the person is in the middle of it. Only a plain yes or no goes to a task that waits for one, and
    so does an answer that identifies its question.

    Args:
        questions: processes answers to the questions of tasks.
        dialogue: processes answers to its own questions.
        agent_at: returns the name of the agent at an address of this service.
    """

    def __init__(
        self, questions: ChatAnswers, dialogue: "PersonaDialogue", agent_at: Callable[[JID], str]
    ) -> None:
        self._questions = questions
        self._dialogue = dialogue
        self._agent_at = agent_at

    def stage(self) -> MessageStage:
        """Return the stage that takes answers."""
        return answer_stage(self.answered, self._questions.returned)

    async def answered(self, message: InboundMessage) -> str | None:
        """Return the outcome of an answer, for the person who gave it; None if the message is not
        one.
        """
        text = _live_text(message)
        if text is None:
            return await self._questions.answered(message)
        said = said_in(text)
        alone = said is not None and said.value != "unclear" and not said.reason
        if alone or message.replies_to is not None:
            decided = await self._questions.answered(message)
            return decided or await self._take(message, text)
        return await self._take(message, text) or await self._questions.answered(message)

    async def _take(self, message: InboundMessage, text: str) -> str | None:
        key = SessionKey(self._agent_at(message.conversation.agent), message.principal)
        try:
            return await self._dialogue.answered(key, text)
        except StorageError as error:
            return _failed(error)


def _live_text(message: InboundMessage) -> str | None:
    """Return the text of a live message that may be an answer, possibly blank; None for other
    messages.
    """
    if not in_person(message) or message.selected is not None or not message.has_body:
        return None
    return None if message.text.startswith("/") else message.text

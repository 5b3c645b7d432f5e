"""Answers questions from the inbox: in words, judged as every other answer.

An entry names its question by its id, so the answer counts for no other one. Who may answer, how
many have to approve, and whether the digest is still that of the question is decided where all
answers are (`component.tasks.questions`).
"""

from typing import Final

from component.commands import Asking, CommandError
from component.task_messages import approvals
from component.task_messages.questions import Questions
from component.task_messages.spoken_answers import (
    SpokenYesNo,
    answer_in_chat,
    answer_in_order,
    how_to_decline,
    is_declined,
    refusal_in,
    said_in,
    takes_words,
)
from component.tasks.protocol import Question
from component.tasks.question_rows import Answerer
from component.tasks.service import TaskService
from xep.fluux_agent.confirm import Confirm, Decision
from xep.fluux_agent.task import Input, InputAnswer
from xep.jid import JID
from xep.stanza_error import StanzaError

_NOT_PLAIN: Final = (
    "I haven't taken that as an answer, because it is more than a plain message: {unclear}. Send"
    " your answer as a separate message."
)
_YES_OR_NO: Final = "I haven't done it. Write just yes, or no and why."


class Answers:
    """Gives the answers of people to the questions in their inboxes."""

    def __init__(self, tasks: TaskService, words: Questions) -> None:
        self._tasks = tasks
        self._words = words

    async def give(self, asking: Asking, person: JID, question: Question, text: str) -> str:
        """Answer a question with a text, and return the outcome for the person. Raises
        CommandError, StorageError.
        """
        try:
            if isinstance(question.content, Confirm):
                return await self._decide(asking, person, question, question.content, text)
            return await self._answer(asking, person, question, question.content, text)
        except StanzaError as error:
            raise CommandError(error.text or f"I cannot do that: {error.condition}.") from None

    async def _decide(
        self, asking: Asking, person: JID, question: Question, confirm: Confirm, text: str
    ) -> str:
        said, refusal = said_in(text), refusal_in(text)
        if said is None and refusal is not None:
            said = SpokenYesNo("deny", refusal.reason)
        if said is None or said.value == "unclear":
            raise CommandError(_YES_OR_NO, "answer")
        if said.value == "approve":
            self._check_plain(asking)
        decision = Decision(id=question.id, value=said.value, reason=said.reason, hash=confirm.hash)
        judged = await self._tasks.vote(
            Answerer(person, question.request.target, asking.lang), decision
        )
        decided = "Approved" if said.value == "approve" else "Denied"
        more = approvals.more(judged.missing)
        return f"{decided}: {self._words.title_of(question)}. {more}".rstrip()

    async def _answer(
        self, asking: Asking, person: JID, question: Question, content: Input, text: str
    ) -> str:
        given: InputAnswer | StanzaError | None
        if takes_words(content):
            given = answer_in_chat(content, question.task, text, named=True)
        else:
            given = answer_in_order(content, question.task, text)
        if given is None:
            raise CommandError("That question can only be answered with its form.", "answer")
        if isinstance(given, StanzaError):
            why = f"I can't accept that answer: {given.text}. {how_to_decline(content)}"
            raise CommandError(why, "answer")
        declined = is_declined(given)
        if not declined:
            self._check_plain(asking)
        refusal = refusal_in(text) if declined else None
        reason = (refusal and refusal.reason) or ""
        await self._tasks.answer(person, question.request.target, given, reason=reason)
        if declined:
            return f"Declined: {self._words.title_of(question)}"
        return "Thank you, I'll continue."

    @staticmethod
    def _check_plain(asking: Asking) -> None:
        if asking.unclear:
            raise CommandError(_NOT_PLAIN.format(unclear=asking.unclear))

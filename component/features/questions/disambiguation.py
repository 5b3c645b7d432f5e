"""Asks which question an answer is meant for (CNF-027, CNF-046)."""

from collections.abc import Sequence
from typing import Final

from component.skills.errors import printable
from component.task_messages.questions import Questions
from component.task_messages.spoken_answers import names_in_order, takes_words
from component.tasks.protocol import Question
from xep.fluux_agent.confirm import Confirm

SHORTEST: Final = 4
"""The minimum number of characters of an identifier that identify it, if they are unique."""
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


def uncertain(words: Questions, questions: Sequence[Question]) -> str:
    """Return the text that says that an answer may be meant for another question than the
    open one.
    """
    if not questions:
        return "I haven't done it, because the question was closed while you were answering."
    first = (
        "I haven't done it, because I am not sure which question you mean: this one has only just"
        " been asked, or another one was closed a moment ago."
    )
    if len(questions) > 1:
        first = "I haven't done it, because I am not sure which question you mean."
    last = "You can also reply to the question's message, or answer again in a minute."
    return "\n".join((first, *_lines(words, questions), last))


def _lines(words: Questions, questions: Sequence[Question]) -> list[str]:
    """Return one line per question: its action, its principal, and how to answer it."""
    lines: list[str] = []
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
        lines.append(f"- {words.listed(each)} ({how})")
    if len(questions) > _LISTED:
        lines.append(f"… and {len(questions) - _LISTED} more.")
    return lines


def _short(question: Question, questions: Sequence[Question]) -> str:
    """Return the shortest unique beginning of an identifier."""
    others = [each.id for each in questions if each is not question]
    for length in range(SHORTEST, len(question.id)):
        if not any(other.startswith(question.id[:length]) for other in others):
            return question.id[:length]
    return question.id

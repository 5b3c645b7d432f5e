"""Asking back which question an answer is meant for (CNF-027, CNF-046)."""

from collections.abc import Sequence
from typing import Final

from component.handlers.questions import title_of
from component.skills.errors import printable
from component.tasks.protocol import Question
from component.tasks.spoken import names_in_order, takes_words
from xep.fluux_agent.confirm import Confirm

SHORTEST: Final = 4
"""Characters of an identifier that name it, if nothing else begins with them."""
_LISTED: Final = 10
_LONGEST_NAMES: Final = 200


def which(questions: Sequence[Question]) -> str:
    """Ask which of the open questions is meant."""
    if not questions:
        return "I have no question open with you."
    first = "I have several questions open with you. Which one do you mean?"
    if len(questions) == 1:
        first = "I have another question open with you:"
    return "\n".join((first, *_lines(questions)))


def uncertain(questions: Sequence[Question]) -> str:
    """Say that an answer may be meant for another question than the one that is open."""
    if not questions:
        return "I haven't done it: the question was closed while you answered."
    first = (
        "I haven't done it, because I am not sure which question you mean: this one has only just"
        " been asked, or another one was closed a moment ago."
    )
    if len(questions) > 1:
        first = "I haven't done it, because I am not sure which question you mean."
    last = "You can also reply to the message of the question, or answer again in a minute."
    return "\n".join((first, *_lines(questions), last))


def _lines(questions: Sequence[Question]) -> list[str]:
    """Each question by what it would do and for whom, and how it is answered."""
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
        lines.append(f"- {title_of(each)} ({how})")
    if len(questions) > _LISTED:
        lines.append(f"… and {len(questions) - _LISTED} more.")
    return lines


def _short(question: Question, questions: Sequence[Question]) -> str:
    """The shortest beginning of an identifier that nothing else begins with."""
    others = [each.id for each in questions if each is not question]
    for length in range(SHORTEST, len(question.id)):
        if not any(other.startswith(question.id[:length]) for other in others):
            return question.id[:length]
    return question.id

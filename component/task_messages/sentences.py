"""Texts about a task for a person: how it ended, or what it is waiting for."""

from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec

from component.link.messages.outbound import Part, Text
from component.task_messages import approvals
from component.tasks.outputs import files_of, texts_of
from component.tasks.refusals import with_help
from xep.binding.escaping import without_forbidden
from xep.file_sharing import FileSharing
from xep.fluux_agent.errors import Denied
from xep.fluux_agent.execute import Result
from xep.fluux_agent.task import Failure, FailureText, Question, Task

T = TypeVar("T", FailureText, Question)

_LONGEST: Final = 4_000
"""Characters of a result that are shown; the task has the whole."""


class Sentence(msgspec.Struct, frozen=True):
    """A text, its language if that is known, and the files that are sent with it."""

    text: str
    lang: str | None = None
    files: tuple[FileSharing, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of a message that says it."""
        return (Text(self.text, self.lang), *self.files) if self.text else self.files


def ending(task: Task, lang: str | None = None) -> Sentence:
    """Return how a task ended; `lang` is the preferred language if there are several."""
    skill = task.skill or "The task"
    if task.result is not None:
        return of_result(skill, task.result)
    if task.state == "cancelled":
        return Sentence(f"{skill} was cancelled.", "en")
    how = "was rejected" if task.state == "rejected" else "failed"
    if task.failure is not None and any(isinstance(c, Denied) for c in task.failure.conditions):
        how = "was not allowed"
    return _failure(f"{skill} {how}", task.failure, lang)


def waiting(task: Task, lang: str | None = None) -> Sentence:
    """Return what a task waits for."""
    if task.input is not None:
        question = preferred(task.input.questions, lang)
        if question is not None:
            return Sentence(_shown(question.text), question.lang)
    wants = None if task.confirm is None else task.confirm.approvals
    needed = "a confirmation" if wants is None or wants.need == 1 else f"{wants.need} approvals"
    missing = 0 if wants is None or not wants.given else wants.need - wants.given
    said = f"{task.skill or 'The task'} is waiting for {needed}. {approvals.more(missing)}"
    return Sentence(said.rstrip(), "en")


def of_result(skill: str, result: Result) -> Sentence:
    """Return what a skill returned: its texts, the addresses of pages, and its files."""
    texts, files = texts_of(result.outputs), files_of(result.outputs)
    if texts or files:
        return Sentence(_shown("\n\n".join(texts)), files=files)
    how = "could not do what was asked" if result.is_error else "is done"
    return Sentence(f"{skill} {how}.", "en")


def _failure(what: str, failure: Failure | None, lang: str | None) -> Sentence:
    why = None if failure is None else preferred(failure.texts, lang)
    if why is None:
        return Sentence(f"{what}.", "en")
    assert failure is not None, "it has a text"
    said = with_help(why.text, failure.conditions)
    return Sentence(_shown(f"{what}: {said}"), why.lang or "en")


def preferred(texts: Iterable[T], lang: str | None) -> T | None:
    """Return the text in a language, or else the first one; None if there is none (I18-002)."""
    known = list(texts)
    return next((text for text in known if text.lang == lang), known[0] if known else None)


def _shown(text: str) -> str:
    text = without_forbidden(text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"

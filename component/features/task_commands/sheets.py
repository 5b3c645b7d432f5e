"""Task results of commands: rows and sheets for programs, and the same in words."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from component.commands import short_ids, shorten
from component.tasks.outputs import text_of
from component.tasks.protocol import Bounds
from component.tasks.rows import TERMINAL
from component.zones import spoken_time
from xep.fluux_agent.task import Task

_LONGEST_TEXT = 2000
"""Characters of one output that are shown to a person; programs get all."""


class TaskLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task in a list. `fraction` is from 0 to 1; times are UTC."""

    id: str
    skill: str
    state: str
    principal: str | None = None
    fraction: float | None = None
    doing: str | None = None
    created: datetime | None = None
    updated: datetime | None = None


class ArtifactText(msgspec.Struct, frozen=True):
    """An artifact of a task; the text of a file given by reference is its address."""

    name: str
    type: str
    text: str


class TaskSheet(TaskLine, frozen=True, kw_only=True, omit_defaults=True):
    """A whole task."""

    revision: int
    requester: str | None = None
    at: str | None = None
    context: str | None = None
    deadline: datetime | None = None
    retain_until: datetime | None = None
    question: str | None = None
    outputs: tuple[ArtifactText, ...] = ()
    is_error: bool = False
    failure: str | None = None
    conditions: tuple[str, ...] = ()
    repeatable: bool = False


def task_line(task: Task, principal: str | None = None) -> TaskLine:
    """Return a task in a list. `principal` is its principal, if that should be shown."""
    progress = task.progress
    return TaskLine(
        id=task.id,
        skill=task.skill or "",
        state=task.state or "",
        principal=principal,
        fraction=None
        if progress is None or progress.fraction is None
        else float(progress.fraction),
        doing=progress.text or None if progress else None,
        created=task.created,
        updated=task.updated,
    )


def sheet_of(
    task: Task, principal: str | None = None, requester: str | None = None, at: str | None = None
) -> TaskSheet:
    """Return a whole task; `requester` requested it `at` an address of the component."""
    outputs = task.result.outputs if task.result else task.outputs
    failure = task.failure
    question = None
    if task.input is not None:
        question = " ".join(one.text for one in task.input.questions[:1])
    elif task.confirm is not None:
        question = "A person has to confirm it."
    return TaskSheet(
        **msgspec.structs.asdict(task_line(task, principal)),
        revision=task.revision or 0,
        requester=requester,
        at=at,
        context=task.context,
        deadline=task.deadline,
        retain_until=task.retain_until,
        question=question,
        outputs=tuple(ArtifactText(one.name, one.type, text_of(one)) for one in outputs),
        is_error=task.result is not None and task.result.is_error,
        failure=None if failure is None else " ".join(one.text for one in failure.texts[:1]),
        conditions=() if failure is None else tuple(one.xml.local for one in failure.conditions),
        repeatable=failure is not None and failure.repeatable,
    )


class Wording(msgspec.Struct, frozen=True, kw_only=True):
    """How tasks are put into words for one reader.

    Attributes:
        title: returns the title of a skill by its name.
        now: the time.
        zone: the name of the reader's time zone.
    """

    title: Callable[[str], str]
    now: datetime
    zone: str = "UTC"

    def time(self, moment: datetime) -> str:
        """Return a time in words."""
        return spoken_time(moment, self.now, self.zone)


_STATES: Final[Mapping[str, str]] = {
    "accepted": "waits to begin",
    "running": "is running",
    "input-required": "waits for an answer",
    "cancelling": "is being cancelled",
    "completed": "is done",
    "failed": "failed",
    "rejected": "was rejected",
    "cancelled": "was cancelled",
}


def state_words(state: str) -> str:
    """Return the state of a task in words."""
    return _STATES.get(state, state)


def list_text(lines: Sequence[TaskLine], wording: Wording) -> str:
    """Return a list of tasks in words, each with an id that commands take."""
    ids = short_ids([line.id for line in lines])
    return "\n".join(f"- {line_text(line, wording)} (id {ids[line.id]})" for line in lines)


def line_text(line: TaskLine, wording: Wording) -> str:
    """Return a task in words, without its id."""
    text = f"{wording.title(line.skill)} {state_words(line.state)}"
    if line.principal:
        text += f" for {line.principal}"
    text += "".join(f", {one}" for one in _progress(line))
    if line.created is None:
        return text
    if line.state in TERMINAL:
        return f"{text}, {wording.time(line.updated or line.created)}"
    return f"{text}, since {wording.time(line.created)}"


def _progress(line: TaskLine) -> Iterator[str]:
    if line.state == "completed":  # its last progress would look like an unfinished one
        return
    if line.fraction is not None:
        yield f"{line.fraction:.0%}"
    if line.doing:
        yield line.doing


def task_text(sheet: TaskSheet, wording: Wording) -> str:
    """Return a whole task in words."""
    return "\n".join(_task_lines(sheet, wording))


def _task_lines(sheet: TaskSheet, wording: Wording) -> Iterator[str]:
    whose = f" for {sheet.principal}" if sheet.principal else ""
    yield f"{wording.title(sheet.skill)}{whose} {state_words(sheet.state)}."
    if sheet.principal:
        yield f"Its id is {sheet.id}."
    if sheet.created:
        started = f"It was started {wording.time(sheet.created)}"
        ended = sheet.updated if sheet.state in TERMINAL else None
        yield f"{started} and ended {wording.time(ended)}." if ended else f"{started}."
    if sheet.deadline:
        yield f"Its result is wanted until {wording.time(sheet.deadline)}."
    if progress := ", ".join(_progress(sheet)):
        yield f"Progress: {progress}"
    if sheet.question:
        yield f"It is waiting for an answer: {sheet.question}"
    if sheet.failure is not None or sheet.conditions:
        why = sheet.failure or ", ".join(sheet.conditions)
        yield f"Reason: {why}"
    for piece in sheet.outputs:
        yield f"{piece.name}: {shorten(piece.text, _LONGEST_TEXT)}"


def retention_text(tasks: int, size: int, bounds: Bounds) -> str:
    """Return the retention of a principal's ended tasks, and the limits."""
    return (
        f"I store {tasks} of your ended tasks ({_size_text(size)}). When there are more than"
        f" {bounds.tasks}, or more than {_size_text(bounds.bytes)} of them, I remove the oldest."
    )


def _size_text(size: int) -> str:
    return f"{size / 1_000_000:.3g} MB" if size >= 1_000_000 else f"{-(-size // 1000)} kB"

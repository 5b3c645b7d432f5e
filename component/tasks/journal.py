"""The journal of a task: which steps have begun, how they ended, and how a step is identified.

A step of a skill and a question to a person are both steps here. Each is recorded under an identity
that is the same in every execution of the task, so that an execution which resumes the task gets
the recorded result of exactly that step:

- in the task of the event loop that runs the skill, steps follow one another, so the name and the
  number of its uses identify a step;
- in branches that run side by side their order means nothing. There a `key` identifies the step,
  or a digest of its `input`. Without either the step is refused.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from component.skills.errors import Denied, InvalidParam, SkillError, StepFailed, UsageError
from component.skills.operations import (
    AskConfirmation,
    AskModel,
    AskPrincipal,
    ChildResult,
    RelayQuestion,
    RunStep,
    Sleep,
    StartTask,
    Until,
    WaitForTasks,
    Work,
)
from component.skills.outputs import is_json
from component.store.database import Database
from component.store.schema import Table
from component.tasks.outputs import text_of
from component.tasks.refusals import with_help
from component.tasks.rows import TERMINAL, Row, exists, load
from xep.binding import read
from xep.fluux_agent.execute import Result
from xep.fluux_agent.task import Failure

TABLES: Final = (
    Table(
        name="journal",
        columns="""
            task TEXT NOT NULL REFERENCES tasks ON DELETE CASCADE,
            step TEXT {C} NOT NULL,
            fence INTEGER NOT NULL,
            done INTEGER NOT NULL,
            result TEXT,
            input TEXT,
            PRIMARY KEY (task, step)
        """,
        kept="part of a task",
    ),
)


T = TypeVar("T")

StepOperation: TypeAlias = (
    RunStep | AskPrincipal | AskConfirmation | RelayQuestion | Sleep | StartTask | WaitForTasks
)
"""The operations that are steps."""

ATOMIC: Final = ""
"""The only step of a skill that has no steps of its own and must not run twice."""
MOST_QUESTIONS: Final = 100
"""The maximum number of questions that one task asks."""
_QUESTION: Final = "?"
_START: Final = "~start "
_WAIT: Final = "~wait"
_RECORD: Final = "~record "
_ACTS: Final = " acts"
"""Ends the names of entries of the record after which the task cannot be withdrawn."""


class Recorded(msgspec.Struct, frozen=True):
    """How a step ended: the JSON of its result, and a digest of its input, if it had one."""

    result: str
    input: str | None = None


class Journal(msgspec.Struct):
    """The steps of a task: those that ended, and the identities of those that have only begun."""

    done: dict[str, Recorded] = {}
    begun: set[str] = set()


class StepId(msgspec.Struct, frozen=True):
    """What identifies a step in the journal, and a digest of its input, if it has one."""

    name: str
    input: str | None = None


class Steps:
    """Identifies the steps of one execution, and looks up their records.

    Args:
        origin: the id of the task that the idempotency keys are derived from: the task's own, or
            that of the task that it retries.

    Attributes:
        done: how steps ended, by identity.
        under_way: identities of steps with effects that have begun in this execution.
        unbegun: identities of steps whose beginning is committed, and that were stopped before
            they began.
    """

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._uses: Counter[str] = Counter()
        self._explicit: set[str] = set()
        self.done: dict[str, Recorded] = {}
        self.under_way: set[str] = set()
        self.unbegun: list[str] = []

    def find(self, operation: StepOperation, *, branch: bool) -> tuple[StepId, Recorded | None]:
        """Identify the step that an operation is, and return its record, if it has ended; `branch`
        says that it runs in a parallel branch. Raises UsageError: the identity is ambiguous, or the
        input differs from the recorded one.
        """
        name, what, value = _described(operation)
        digest = hashlib.sha256(value).hexdigest() if value else None
        if operation.key is not None:
            identity = self._claim(name, f"={operation.key!r}", what)
        elif not branch:
            self._uses[name] += 1
            count = self._uses[name]
            identity = name if count == 1 else f"{name}#{count}"
        elif digest is not None:
            identity = self._claim(name, f"@{digest[:16]}", what)
        else:
            raise UsageError(
                f"The {what} runs in a branch beside others, where its order does not identify it:"
                " pass key=…, the same whenever the skill runs again and another in each branch"
                " (or, for a step, input=… if its input tells the branches apart)."
            )
        recorded = self.done.get(identity)
        if recorded is not None and recorded.input and digest and recorded.input != digest:
            raise UsageError(
                f"The {what} was recorded with a different input. Code between the"
                " steps must lead to the same steps whenever the skill runs again; what can change"
                " from run to run belongs into a step of its own."
            )
        return StepId(identity, digest), recorded

    def _claim(self, name: str, suffix: str, what: str) -> str:
        identity = name + suffix
        if identity in self._explicit:
            raise UsageError(
                f"The {what} was used twice with the same key or input, so the two could not be "
                "distinguished when the skill runs again: pass a different key=… for each."
            )
        self._explicit.add(identity)
        return identity

    def entries(self) -> list[bytes]:
        """Return the entries of the record, in order."""
        found = [
            (int(name.removeprefix(_RECORD).partition(" ")[0]), recorded)
            for name, recorded in self.done.items()
            if name.startswith(_RECORD)
        ]
        return [json_of(recorded) for _, recorded in sorted(found, key=itemgetter(0))]

    def next_entry(self, *, acts: bool) -> StepId:
        """Return what identifies the next entry of the record."""
        number = sum(name.startswith(_RECORD) for name in self.done) + 1
        return StepId(f"{_RECORD}{number}{_ACTS if acts else ''}")

    def check_questions(self) -> None:
        """Raise UsageError if the task has asked as many questions as a task may."""
        if sum(name.startswith(_QUESTION) for name in self.done) >= MOST_QUESTIONS:
            raise UsageError(f"A task may ask {MOST_QUESTIONS} questions, and this one has.")

    def key_of(self, identity: str) -> str:
        """Return the idempotency key of a step: the same in every execution, and in a retry."""
        return hashlib.sha256(f"{self._origin}/{identity}".encode()).hexdigest()[:32]


def _described(operation: StepOperation) -> tuple[str, str, bytes]:
    """Return the name of a step, what errors call it, and the JSON of its input, empty for none."""
    match operation:
        case RunStep(name=name):
            return f".{name}", f"step {name!r}", operation.input
        case AskPrincipal(question=text):
            name = f"{_QUESTION}{hashlib.sha256(text.encode()).hexdigest()[:16]}"
            return name, f"question {text[:80]!r}", b""
        case AskConfirmation(skill=skill):
            return f"{_QUESTION}{skill}", f"confirmation of {skill}", b""
        case RelayQuestion():
            return f"{_QUESTION}relay", "question of another agent", operation.question.encode()
        case Sleep():
            return "~sleep", "sleep", b""
        case StartTask(skill=skill):
            return f"{_START}{skill}", f"start {skill}", operation.params
        case WaitForTasks(tasks=tasks):
            return _WAIT, "wait", msgspec.json.encode(tasks)


def model_step(asked: AskModel) -> RunStep:
    """Return the step in which a skill asks a model."""
    value = msgspec.json.encode([asked.prompt, msgspec.Raw(asked.schema)])
    return RunStep("llm", True, value, asked.key)


# How a step ended, as JSON. That of a question is from `component.tasks.questions.encoded_reply`.


def succeeded(value: object) -> str:
    """Return the record of a step that returned a value."""
    return msgspec.json.encode({"value": value}).decode()


def decided(decision: str, reason: str) -> str:
    """Return the record of a confirmation: the decision, and the reason that was given for it."""
    return msgspec.json.encode({"value": decision, "reason": reason}).decode()


def reason_of(recorded: Recorded) -> str:
    """Return the reason that was given for a decision; empty without one."""
    return msgspec.json.decode(recorded.result, type=_Record).reason


def refused(error: SkillError) -> str:
    """Return the record of a step that was refused."""
    return msgspec.json.encode({"refused": str(error)}).decode()


def waited(results: Sequence[ChildResult], until: Until) -> str:
    """Return the record of a wait for child tasks; if it was in vain, a retry waits again."""
    failed = until == "failure" and any(map(_unsuccessful, results))
    if failed or (until == "success" and not any(one.success for one in results)):
        return msgspec.json.encode({"value": results, "children_failed": True}).decode()
    return succeeded(results)


async def run_step(
    name: str, work: Work[bytes], key: str, *, effects: bool
) -> tuple[str, Exception | None]:
    """Run the work of a step, and return its record, and the error to raise once that is stored.

    `key` is its idempotency key, and `effects` says that it may have effects if it fails. Raises
    Denied, InvalidParam and UsageError, which are not recorded.
    """
    try:
        return succeeded(msgspec.Raw(await work(key))), None
    except (Denied, InvalidParam, UsageError):
        raise
    except SkillError as error:
        return refused(error), error
    except Exception as error:  # noqa: BLE001 - the work of a step may raise anything
        described = f"{type(error).__name__}: {error}"
        failed = StepFailed(f"The step {name!r} failed: {described}")
        failed.__cause__ = error
        return msgspec.json.encode({"failed": described, "effects": effects}).decode(), failed


class _Record(msgspec.Struct, frozen=True):
    value: msgspec.Raw = msgspec.Raw()
    reason: str = ""
    declined: str | None = None
    refused: str | None = None
    failed: str = "for an unknown reason"


def json_of(recorded: Recorded) -> bytes:
    """Return the JSON of the value that a step returned. Raises the error that it raised."""
    record = msgspec.json.decode(recorded.result, type=_Record)
    if record.value:
        return bytes(record.value)
    if record.declined is not None:
        raise Denied(record.declined)
    if record.refused is not None:
        raise SkillError(record.refused)
    raise StepFailed(f"The step failed: {record.failed}")


def result_of(recorded: Recorded, wanted: type[T]) -> T:
    """Return the value that a step returned, as `wanted`. Raises as `json_of`."""
    return msgspec.json.decode(json_of(recorded), type=wanted)


# Rows.


def has_begun(database: Database, task: str) -> bool:
    """Return whether a step of a task has begun, other than a question, or an entry of its record
    by which nothing was done.
    """
    steps = database.execute("SELECT step FROM journal WHERE task = ?", (task,)).fetchall()
    return any(
        not (step.startswith(_QUESTION) or (step.startswith(_RECORD) and not step.endswith(_ACTS)))
        for (step,) in steps
    )


def has_record(database: Database, task: str) -> bool:
    """Return whether a task keeps a record."""
    found = "SELECT 1 FROM journal WHERE task = ? AND step LIKE ? LIMIT 1"
    return exists(database, found, task, f"{_RECORD}%")


def read_journal(database: Database, task: str) -> Journal:
    """Return the journal of a task."""
    journal = Journal()
    for step, done, result, value in database.execute(
        "SELECT step, done, result, input FROM journal WHERE task = ?", (task,)
    ).fetchall():
        if done:
            journal.done[step] = Recorded(result, value)
        else:
            journal.begun.add(step)
    return journal


def begin_step(database: Database, row: Row, step: StepId) -> None:
    """Record that a step with effects begins; a step that had begun before begins again."""
    database.execute(
        "INSERT INTO journal (task, step, fence, done, input) VALUES (?, ?, ?, 0, ?)"
        " ON CONFLICT (task, step) DO UPDATE SET fence = excluded.fence",
        (row.id, step.name, row.fence, step.input),
    )


def end_step(database: Database, row: Row, step: str, recorded: Recorded) -> None:
    """Record how a step ended; the record is final (RPL-018)."""
    database.execute(
        "INSERT INTO journal (task, step, fence, done, result, input) VALUES (?, ?, ?, 1, ?, ?)"
        " ON CONFLICT (task, step) DO UPDATE SET done = 1, fence = excluded.fence,"
        " result = excluded.result, input = excluded.input",
        (row.id, step, row.fence, recorded.result, recorded.input),
    )


def forget_begun(database: Database, task: str, step: str) -> None:
    """Remove a step that was recorded as begun and did not begin."""
    database.execute("DELETE FROM journal WHERE task = ? AND step = ? AND done = 0", (task, step))


def forget_failed(database: Database, task: str) -> None:
    """Remove the steps that failed or only began, so that they run again."""
    database.execute("DELETE FROM journal WHERE task = ? AND done = 0", (task,))
    for step, recorded in read_journal(database, task).done.items():
        if "failed" in msgspec.json.decode(recorded.result):
            database.execute("DELETE FROM journal WHERE task = ? AND step = ?", (task, step))


def has_unfinished_steps(journal: Journal) -> bool:
    """Return whether a step with effects has begun and neither returned a value nor was refused."""
    return bool(journal.begun) or any(
        msgspec.json.decode(recorded.result).get("effects") for recorded in journal.done.values()
    )


def nothing_ran(database: Database, task: str) -> bool:
    """Return whether no step of the task has begun, so that a new request repeats nothing."""
    return not exists(database, "SELECT 1 FROM journal WHERE task = ? LIMIT 1", task)


def children_in(journal: Journal) -> tuple[set[str], set[str]]:
    """Return the child tasks that a task has started, and those whose results it has used."""
    started: set[str] = set()
    settled: set[str] = set()
    for step, recorded in journal.done.items():
        if step.startswith(_START) and _is_kept(recorded):
            started.add(result_of(recorded, str))
        elif step.startswith(_WAIT) and _is_kept(recorded):
            settled.update(one.task for one in result_of(recorded, list[ChildResult]))
    return started, settled


def copy_results(
    database: Database, journal: Journal, target: Row, retried: Mapping[str, str | None]
) -> None:
    """Give a task the steps of a journal that returned a value, for a retry: the others run again.

    `retried` has the ids of new child tasks by those they replace; None says that the task is to be
    started again.
    """
    for step, recorded in journal.done.items():
        if not _is_kept(recorded):
            continue
        kept: Recorded | None = recorded
        if step.startswith(_START) and (child := result_of(recorded, str)) in retried:
            made = retried[child]
            kept = None if made is None else Recorded(succeeded(made), recorded.input)
        if kept is not None:
            end_step(database, target, step, kept)


def _is_kept(recorded: Recorded) -> bool:
    """Return whether a retry reuses the result of a step instead of running it again."""
    record: dict[str, Any] = msgspec.json.decode(recorded.result)
    return "value" in record and "children_failed" not in record


def results_of(
    database: Database, parent: str, tasks: Sequence[str], until: Until
) -> list[ChildResult] | None:
    """Return the results of child tasks, in their order; None while they have to be waited for.
    Tasks of another parent are unknown.
    """
    results = present_results(database, parent, tasks)
    enough = {"ended": False, "failure": any(map(_unsuccessful, results))}
    enough["success"] = any(one.success for one in results)
    return results if enough[until] or all(map(has_ended, results)) else None


def present_results(database: Database, parent: str, tasks: Sequence[str]) -> list[ChildResult]:
    """Return the results of child tasks as they are now, in their order. Tasks of another parent
    are unknown.
    """
    results = []
    for task in tasks:
        # not locked: rows are locked in a fixed order, and these come in any order
        row = load(database, task, lock=False)
        results.append(_result(task, None if row is None or row.parent != parent else row))
    return results


def has_ended(result: ChildResult) -> bool:
    """Whether a child task has ended, or is unknown."""
    return result.state in TERMINAL or result.state == "unknown"


def _unsuccessful(result: ChildResult) -> bool:
    return has_ended(result) and not result.success


def _result(task: str, row: Row | None) -> ChildResult:
    if row is None:
        return ChildResult(task=task, state="unknown", reason="This child task does not exist.")
    if row.result is not None:
        result = read(row.result, Result)
        text = "\n\n".join(map(text_of, result.outputs))
        values = [one.text for one in result.outputs if one.file is None and is_json(one.type)]
        return ChildResult(
            task,
            row.state,
            text,
            is_error=result.is_error,
            skill=row.skill,
            json=values[0] if len(values) == 1 else "",
            taints=row.authors,
        )
    reason = condition = ""
    if row.failure is not None:
        failure = read(row.failure, Failure)
        conditions = ", ".join(one.xml.local for one in failure.conditions)
        reason = failure.texts[0].text if failure.texts else conditions
        reason = with_help(reason, failure.conditions)
        condition = failure.conditions[0].xml.local if failure.conditions else ""
    return ChildResult(
        task,
        row.state,
        reason=reason,
        skill=row.skill,
        condition=condition,
        taints=row.authors,
    )

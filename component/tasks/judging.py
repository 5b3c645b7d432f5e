"""What a decision or an answer comes to, in the order of the specification (CNF-032, INP-010).

Both functions run inside an operation of the storage, with the task's row locked: of several
answers, whoever and wherever they come from, the first one that is committed counts.
"""

from typing import Final

import msgspec

from component.storage.database import Database, Value
from component.tasks import recent
from component.tasks.answers import check, read_answer, schema_of
from component.tasks.protocol import Naming
from component.tasks.questions import AT, InputRow, at_values, input_row, lapse, nothing_ran
from component.tasks.reading import find, whole
from component.tasks.recent import Certainty
from component.tasks.rows import KEEP, Change, Row, change, load
from component.tasks.spoken import is_yes_or_no
from component.tasks.states import TERMINAL
from xep.binding.escaping import without_forbidden
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Confirm, Decision
from xep.fluux_agent.execute import State
from xep.fluux_agent.task import Failure, FailureText, Input, InputAnswer, Task
from xep.jid import JID
from xep.stanza_error import StanzaError

_SOME: Final = "und"
"""The language of a text of which nobody has said it (RFC 5646 §4.1): a text always has one."""


class Judged(msgspec.Struct, frozen=True):
    """What came of a decision or an answer.

    `error` is what it is refused with; `change` what is committed with it, which is to be told
    even beside an error: that of a question which was found to have lapsed. `task` is the task
    after it, for an answer that is not refused. A `change` to running with an owner is to be run.
    `uncertain` says that nothing was judged, because it may be meant for another question.
    """

    error: StanzaError | None = None
    change: Change | None = None
    task: Task | None = None
    uncertain: bool = False


class InWords(msgspec.Struct, frozen=True):
    """An answer in words: by what it names its question, and what that is held against.

    `steady_ms` is for how long the storage's time has certainly passed (see `SteadyClock`).
    """

    naming: Naming
    steady_ms: int
    certainty: Certainty = Certainty()


_OPEN: Final = " AND ".join(f"t.state <> '{state}'" for state in sorted(TERMINAL))
"""No list, as in `component.tasks.reading`."""


def decide(
    database: Database,
    who: JID,
    at: JID,
    decision: Decision,
    *,
    owner: str | None,
    retention_ms: int,
    lang: str | None = None,
    words: InWords | None = None,
) -> Judged:
    """Judge a decision by the bare JID `who`, sent to the address `at` of ours (CNF-032).

    `owner` is the instance that has room to run the task at once, or None: then it waits for its
    turn. `retention_ms` is for how long a task that ends is kept, `lang` the language of a reason.
    `words` is given for a decision that does not hold the identifier: an approval then has to be
    certain to be meant for this question (CNF-044, CNF-045).
    Raises what the storage raises, and nothing is committed then.
    """
    found = _confirmation(database, who, at, decision.id)
    if found is None:
        return Judged(errors.unknown_confirmation())
    row, put = found
    if decision.hash is not None and not _is_of(decision, put):
        return Judged(errors.conflict("The digest is not that of the question."))
    if put.state == "answered":
        if put.answer == decision.value:
            return Judged()
        return Judged(errors.conflict("The question has been decided otherwise."))
    refused = _closed(database, row, put, retention_ms)
    if refused is not None:
        return refused
    if decision.value == "approve" and not _is_certain(database, who, at, put, words, stands=True):
        return Judged(uncertain=True)
    _record(database, put, decision.value, who)
    if decision.value == "approve":
        return Judged(change=_go_on(database, row, owner, retention_ms))
    failure = Failure.of(errors.denied(), repeatable=nothing_ran(database, row.id))
    if decision.reason is not None and decision.reason.strip():
        reason = FailureText(text=without_forbidden(decision.reason.strip()), lang=lang or _SOME)
        failure = msgspec.structs.replace(failure, texts=(reason,))
    return Judged(change=change(database, row, "failed", failure, retention_ms=retention_ms))


def answer(
    database: Database,
    who: JID,
    at: JID,
    given: InputAnswer,
    *,
    owner: str | None,
    retention_ms: int,
    words: InWords | None = None,
) -> Judged:
    """Judge an answer by the bare JID `who`, sent to the address `at` of ours (INP-010).

    One that counts becomes the result of the step that asked, as the JSON of a `Reply`. The rest
    is as for `decide`.
    """
    row = find(database, who, at, given.task, lock=True)
    if row is None:
        return Judged(errors.unknown_task())
    put = input_row(database, given.input)
    if put is None or put.task != row.id or put.kind != "input":
        return Judged(errors.unknown_input())
    question = put.content
    assert isinstance(question, Input)
    if put.state == "answered":
        if _is_same(put, question, given):
            return Judged(task=whole(database, row))
        return Judged(errors.conflict("The question has been answered otherwise."))
    if given.revision != put.revision:
        return Judged(errors.conflict("The revision is not that of the question."))
    refused = _closed(database, row, put, retention_ms)
    if refused is not None:
        return refused
    try:
        schema = schema_of(question)
        reply = read_answer(schema, given)
        if reply.values is not None:
            check(schema, reply.values)
    except StanzaError as error:
        return Judged(error)
    if not _is_certain(database, who, at, put, words, stands=is_yes_or_no(question)):
        return Judged(uncertain=True)
    made = _go_on(database, row, owner, retention_ms)
    if made.row.state not in TERMINAL:
        _record(database, put, reply.encoded(), who)
        database.execute(
            "INSERT INTO journal (task, step, token, done, result) VALUES (?, ?, ?, 1, ?)",
            (row.id, put.step, row.token, reply.encoded()),
        )
    return Judged(change=made, task=whole(database, made.row))


def _confirmation(database: Database, who: JID, at: JID, id_: str) -> tuple[Row, InputRow] | None:
    """A confirmation that was put to `who` from `at`, and its task, locked.

    Never put, put to somebody else and no longer retained are one query that finds nothing, so
    neither the answer nor its time tells them apart (CNF-035, CNF-036).
    """
    values: tuple[Value, ...] = (str(who.bare), id_, *at_values(at), database.now)
    found = database.execute(
        "SELECT i.task FROM asked a JOIN inputs i ON i.id = a.input JOIN tasks t ON t.id = i.task"  # noqa: S608
        " WHERE a.jid = ? AND a.input = ? AND i.kind = 'confirm'"
        f" AND {AT}"
        f" AND (({_OPEN}) OR t.retain_until >= ?)",
        values,
    ).fetchone()
    if found is None:
        return None
    row = load(database, found[0])
    put = input_row(database, id_)  # read once the task is locked: it may just have been decided
    return None if row is None or put is None else (row, put)


def _is_of(decision: Decision, put: InputRow) -> bool:
    """Whether the digest of a decision is that of the question."""
    question = put.content
    assert isinstance(question, Confirm)
    return decision.hash is not None and decision.hash == question.hash


def _is_same(put: InputRow, question: Input, given: InputAnswer) -> bool:
    """Whether an answer is the one that counted: question, revision, and values as content."""
    if given.revision != put.revision or put.answer is None:
        return False
    try:
        reply = read_answer(schema_of(question), given)
    except StanzaError:
        return False
    return reply.encoded() == put.answer


def _closed(database: Database, row: Row, put: InputRow, retention_ms: int) -> Judged | None:
    """Why a question takes no answer any more; None if it does."""
    if put.lapsed(database.now):
        # Whoever comes first finds it out: the timer, or the late answer.
        made = lapse(database, row, retention_ms=retention_ms) if put.state == "open" else None
        return Judged(errors.expired(), made)
    if put.state != "open" or row.state != "input-required":
        return Judged(errors.conflict("The task does not wait for this question any more."))
    return None


def _is_certain(
    database: Database, who: JID, at: JID, put: InputRow, words: InWords | None, *, stands: bool
) -> bool:
    return words is None or recent.is_certain(
        *(database, who, at, put.id, words.naming, words.steady_ms, words.certainty), stands=stands
    )


def _record(database: Database, put: InputRow, text: str, who: JID) -> None:
    recent.answered(database, put.id, who)
    database.execute(
        "UPDATE inputs SET state = 'answered', answer = ?, answered_by = ?, answered_at = ?"
        " WHERE id = ?",
        (text, str(who.bare), database.now, put.id),
    )


def _go_on(database: Database, row: Row, owner: str | None, retention_ms: int) -> Change:
    """The task has what it waited for: it is run at once, or waits for its turn."""
    to: State = "accepted" if owner is None else "running"
    return change(
        database,
        row,
        to,
        owner=KEEP if owner is None else owner,
        due=row.deadline,
        retention_ms=retention_ms,
    )

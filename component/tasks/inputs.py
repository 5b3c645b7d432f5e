"""Judges decisions and answers, in the order of the specification (CNF-032, INP-010).

Both functions run inside a storage operation, with the task's row locked: of several answers, from
any person and any client, the first one that is committed counts.
"""

from typing import Final

import msgspec

from component.storage.database import Database, Value
from component.tasks import recent
from component.tasks.answers import check, is_yes_or_no, read_answer, schema_of
from component.tasks.journal import nothing_ran
from component.tasks.protocol import Naming
from component.tasks.queries import find, whole_task
from component.tasks.questions import AT, InputRow, at_values, input_row, lapse
from component.tasks.recent import Certainty
from component.tasks.rows import KEEP, Change, Row, change, load, next_due
from component.tasks.states import TERMINAL
from xep.binding.escaping import without_forbidden
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Confirm, Decision
from xep.fluux_agent.execute import State
from xep.fluux_agent.task import Failure, FailureText, Input, InputAnswer, Task
from xep.jid import JID
from xep.stanza_error import StanzaError

_SOME: Final = "und"
"""The language tag of a text in an unknown language (RFC 5646 §4.1); a text always has a tag."""


class Judgement(msgspec.Struct, frozen=True):
    """The outcome of a decision or an answer.

    `error` is the reason for a refusal; `change` is committed with it and must be published even if
    there is an error, such as the expiry of the question. `task` is the task after an answer that
    is not refused. A `change` to running with an owner must be executed. `uncertain` says that
    nothing was judged, because the answer may be meant for another question.
    """

    error: StanzaError | None = None
    change: Change | None = None
    task: Task | None = None
    uncertain: bool = False


class InWords(msgspec.Struct, frozen=True):
    """An answer in words: how it names its question, and the rules that it must meet.

    `sent` are the questions whose messages were just written to the person.
    """

    naming: Naming
    certainty: Certainty = Certainty()
    sent: frozenset[str] = frozenset()


_OPEN: Final = " AND ".join(f"t.state <> '{state}'" for state in sorted(TERMINAL))
"""Written without a list, as in `component.tasks.queries`."""


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
) -> Judgement:
    """Judge a decision by the bare JID `who`, sent to the component's address `at` (CNF-032).

    `owner` is the instance that has a slot to run the task at once; with None the task is queued. A
    task that ends is retained for `retention_ms`; `lang` is the language of a reason. `words` is
    given for a decision that does not contain the identifier: an approval then must certainly be
    meant for this question (CNF-044, CNF-045).

    Raises the errors of the storage; nothing is committed then.
    """
    found = _confirmation(database, who, at, decision.id)
    if found is None:
        return Judgement(errors.unknown_confirmation())
    row, put = found
    if decision.hash is not None and not _is_of(decision, put):
        return Judgement(errors.conflict("The digest does not match the question."))
    if put.state == "answered":
        if put.answer == decision.value:
            return Judgement()
        return Judgement(errors.conflict("The question has already been decided differently."))
    refused = _closed(database, row, put, retention_ms)
    if refused is not None:
        return refused
    if decision.value == "approve" and not _is_certain(database, who, at, put, words, stands=True):
        return Judgement(uncertain=True)
    _record(database, put, decision.value, who)
    if decision.value == "approve":
        return Judgement(change=_go_on(database, row, owner, retention_ms))
    failure = Failure.of(errors.denied(), repeatable=nothing_ran(database, row.id))
    if decision.reason is not None and decision.reason.strip():
        reason = FailureText(text=without_forbidden(decision.reason.strip()), lang=lang or _SOME)
        failure = msgspec.structs.replace(failure, texts=(reason,))
    return Judgement(change=change(database, row, "failed", failure, retention_ms=retention_ms))


def answer(
    database: Database,
    who: JID,
    at: JID,
    given: InputAnswer,
    *,
    owner: str | None,
    retention_ms: int,
    words: InWords | None = None,
) -> Judgement:
    """Judge an answer by the bare JID `who`, sent to the component's address `at` (INP-010).

    An answer that counts becomes the result of the step that asked, as the JSON of a `Reply`. The
    other parameters are as for `decide`.
    """
    row = find(database, who, at, given.task, lock=True)
    if row is None:
        return Judgement(errors.unknown_task())
    put = input_row(database, given.input)
    if put is None or put.task != row.id or put.kind != "input":
        return Judgement(errors.unknown_input())
    question = put.content
    assert isinstance(question, Input)
    if put.state == "answered":
        if _is_same(put, question, given):
            return Judgement(task=whole_task(database, row))
        return Judgement(errors.conflict("The question has already been answered differently."))
    if given.revision != put.revision:
        return Judgement(errors.conflict("The revision does not match the question."))
    refused = _closed(database, row, put, retention_ms)
    if refused is not None:
        return refused
    try:
        schema = schema_of(question)
        reply = read_answer(schema, given)
        if reply.values is not None:
            check(schema, reply.values)
    except StanzaError as error:
        return Judgement(error)
    if not _is_certain(database, who, at, put, words, stands=is_yes_or_no(question)):
        return Judgement(uncertain=True)
    made = _go_on(database, row, owner, retention_ms)
    if made.row.state not in TERMINAL:
        _record(database, put, reply.encoded(), who)
        database.execute(
            "INSERT INTO journal (task, step, token, done, result) VALUES (?, ?, ?, 1, ?)",
            (row.id, put.step, row.token, reply.encoded()),
        )
    return Judgement(change=made, task=whole_task(database, made.row))


def _confirmation(database: Database, who: JID, at: JID, id_: str) -> tuple[Row, InputRow] | None:
    """Return a confirmation that was sent to `who` from `at`, and its task, locked.

    An id that never existed, one sent to somebody else and one no longer retained are one query
    without a row, so neither the answer nor its timing distinguishes them (CNF-035, CNF-036).
    """
    values: tuple[Value, ...] = (str(who.bare), id_, *at_values(at), database.steady)
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
    put = input_row(database, id_)  # read after the task is locked: it may just have been decided
    return None if row is None or put is None else (row, put)


def _is_of(decision: Decision, put: InputRow) -> bool:
    """Return whether the digest of a decision matches the question."""
    question = put.content
    assert isinstance(question, Confirm)
    return decision.hash is not None and decision.hash == question.hash


def _is_same(put: InputRow, question: Input, given: InputAnswer) -> bool:
    """Return whether an answer equals the one that counted: question, revision, and values."""
    if given.revision != put.revision or put.answer is None:
        return False
    try:
        reply = read_answer(schema_of(question), given)
    except StanzaError:
        return False
    return reply.encoded() == put.answer


def _closed(database: Database, row: Row, put: InputRow, retention_ms: int) -> Judgement | None:
    """Return why a question no longer accepts an answer; None if it does."""
    if put.lapsed(database.steady):
        # Whichever runs first notices the expiry: the timer, or the late answer.
        made = lapse(database, row, retention_ms=retention_ms) if put.state == "open" else None
        return Judgement(errors.expired(), made)
    if put.state != "open" or row.state != "input-required":
        return Judgement(errors.conflict("The task no longer waits for this question."))
    return None


def _is_certain(
    database: Database, who: JID, at: JID, put: InputRow, words: InWords | None, *, stands: bool
) -> bool:
    return words is None or recent.is_certain(
        *(database, who, at, put.id, words.naming, words.certainty), stands=stands, sent=words.sent
    )


def _record(database: Database, put: InputRow, text: str, who: JID) -> None:
    recent.answered(database, put.id, who)
    database.execute(
        "UPDATE inputs SET state = 'answered', answer = ?, answered_by = ?, answered_at = ?"
        " WHERE id = ?",
        (text, str(who.bare), database.now, put.id),
    )


def _go_on(database: Database, row: Row, owner: str | None, retention_ms: int) -> Change:
    """Continue a task that has its answer: run it at once, or queue it."""
    if row.queue is not None:  # its queue may be full; claiming checks that
        owner = None
    to: State = "accepted" if owner is None else "running"
    return change(
        database,
        row,
        to,
        owner=KEEP if owner is None else owner,
        due=next_due(database, row),
        retention_ms=retention_ms,
    )

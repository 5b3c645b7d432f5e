"""Replay records on disk: the answers to requests, so that none is executed twice (specification,
"Admission and Replay").

`component.tasks.replay_cache` has the answers in memory.
"""

from typing import Final, TypeAlias

import msgspec

from component.storage.database import Database
from component.tasks.request_keys import RequestKey
from component.tasks.rows import Change, Row, change
from component.tasks.states import TERMINAL
from xep.binding import encode, read
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Accepted, Result, State
from xep.fluux_agent.task import Failure
from xep.stanza_error import StanzaError

RecordedAnswer: TypeAlias = Result | Accepted | StanzaError


def encode_answer(answer: RecordedAnswer) -> str:
    """Return the XML to store of an answer."""
    return answer.encode() if isinstance(answer, StanzaError) else encode(answer)


def decode_answer(text: str) -> RecordedAnswer:
    """Decode an answer that `encode_answer` encoded."""
    if text.startswith("<error "):
        return StanzaError.read(text, errors.CONDITIONS)
    answer = read(text, Result, Accepted)
    assert isinstance(answer, Result | Accepted)
    return answer


def return_or_raise(answer: RecordedAnswer) -> Result | Accepted:
    """Return an answer, or raise it."""
    if isinstance(answer, StanzaError):
        raise copy_error(answer)
    return answer


def copy_error(error: StanzaError) -> StanzaError:
    """Return the same error as a new exception: a raised exception accumulates a traceback."""
    return StanzaError(
        error.condition,
        error.text,
        type=error.type,
        application=error.application,
        lang=error.lang,
    )


def check_same_content(recorded: str, digest: str) -> None:
    """Raise StanzaError, `conflict`, if the content differs (RPL-012)."""
    if recorded != digest:
        raise errors.conflict("An earlier request used this identifier with different content.")


def size_of(answer: RecordedAnswer) -> int:
    """Return the approximate size of an answer in bytes."""
    if not isinstance(answer, Result):
        return len(answer.text) if isinstance(answer, StanzaError) else 0
    size = 0
    for output in answer.outputs:
        size += len(output.text) * 2 + len(output.name)
    return size


_SHORT_ANSWER: Final = 1024


class ReplayRecord(msgspec.Struct, frozen=True):
    """A record that exists. Without `task` and `answer` the work has started within its IQ."""

    digest: str
    task: str | None
    answer: str | None
    owner: str | None
    alive: bool
    """Whether the instance `owner` still sends heartbeats."""
    left_ms: int
    """Milliseconds until the record expires; negative for an open task whose record outlives its
    expiry.
    """


_HOLDS: Final = (
    "(replay.expires > ? OR (replay.named = 1 AND EXISTS (SELECT 1 FROM tasks t WHERE"
    " t.id = replay.task AND t.state IN ('accepted', 'running', 'input-required', 'cancelling'))))"
)
"""A record recognises a repetition until it expires, and, if the request had a name, for as long as
its task is open (RPL-016).
"""

_RECORD: Final = (
    "INSERT INTO replay (key, digest, task, answer, owner, expires, named, principal)"  # noqa: S608
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (key) DO UPDATE SET digest = excluded.digest, task = excluded.task,"
    " answer = excluded.answer, owner = excluded.owner, expires = excluded.expires,"
    " named = excluded.named, principal = excluded.principal, bytes = 0"
    f" WHERE NOT {_HOLDS}"
)
"""Replaces a record that no longer recognises a repetition."""


def find(database: Database, key: str) -> ReplayRecord | None:
    """Return the record of a key, if it still recognises a repetition."""
    found = database.execute(
        "SELECT digest, task, answer, owner,"  # noqa: S608 - constant texts
        " EXISTS (SELECT 1 FROM instances i WHERE i.id = replay.owner), expires"
        f" FROM replay WHERE key = ? AND {_HOLDS}",
        (key, database.steady),
    ).fetchone()
    if found is None:
        return None
    digest, task, answer, owner, alive, expires = found
    return ReplayRecord(digest, task, answer, owner, bool(alive), expires - database.steady)


def record(
    database: Database,
    key: RequestKey,
    *,
    principal: str,
    expires: int,
    owner: str,
    task: str | None = None,
    answer: RecordedAnswer | None = None,
) -> ReplayRecord | None:
    """Insert the record of a request; if one is still valid, return that and change nothing.

    Args:
        database: in a transaction that writes.
        key: the key of the request.
        principal: the bare JID of its requester.
        expires: in milliseconds of the steady clock; later than that of the record it replaces.
        owner: the instance that serves the request.
        task: the id of its task, if it has one.
        answer: its answer, if it has one.
    """
    made = database.execute(
        _RECORD,
        (
            *(key.text, key.digest, task, None if answer is None else encode_answer(answer), owner),
            *(expires, int(key.named), principal, database.steady),
        ),
    )
    return find(database, key.text) if made.rowcount == 0 else None


def answer_record(
    database: Database,
    key: RequestKey,
    expires: int | None,
    answer: RecordedAnswer | None,
    *,
    task: str | None = None,
) -> None:
    """Store the outcome of a request in its record, unless a later request has replaced the record.

    `expires` distinguishes the two; see `record`. A long answer counts against the principal's
    retention limits (`component.tasks.retention`).
    """
    text = None if answer is None else encode_answer(answer)
    database.execute(
        "UPDATE replay SET task = coalesce(?, task), answer = coalesce(?, answer), bytes = ?"
        " WHERE key = ? AND expires = ?",
        (task, text, counted(text), key.text, expires),
    )


def counted(text: str | None) -> int:
    """Return the number of bytes of an answer that count; a short answer costs no more than its
    record.
    """
    size = 0 if text is None else len(text.encode())
    return size if size > _SHORT_ANSWER else 0


def answer_of(database: Database, task: str) -> str | None:
    """Return the recorded answer to the request of a task, if there is one."""
    found = database.execute(
        "SELECT answer FROM replay WHERE task = ? AND answer IS NOT NULL", (task,)
    ).fetchone()
    return None if found is None else found[0]


def accept_record(database: Database, task: str, accepted: Accepted) -> None:
    """Store in a task's record that the request was answered with the task, unless it has an
    answer.
    """
    database.execute(
        "UPDATE replay SET answer = ? WHERE task = ? AND answer IS NULL",
        (encode_answer(accepted), task),
    )


def end(
    database: Database,
    row: Row,
    to: State,
    outcome: Result | StanzaError | None,
    *,
    repeatable: bool = False,
    retention_ms: int,
) -> Change:
    """End a task, and answer its request with the outcome unless it was answered with the task
    (RPL-013).

    `repeatable` says of a failure that a retry has no effect twice (TSK-009). After the deadline
    the task fails with `deadline-expired` instead.
    """
    assert to in TERMINAL
    detail = (
        Failure.of(outcome, repeatable=repeatable) if isinstance(outcome, StanzaError) else outcome
    )
    made = change(database, row, to, detail, retention_ms=retention_ms)
    if not row.visible:
        answer = outcome if made.row.state == to else errors.deadline_expired()
        text = encode_answer(answer or errors.outcome_unknown())
        database.execute(
            "UPDATE replay SET answer = ?, principal = ?, bytes = ?"
            " WHERE task = ? AND answer IS NULL",
            (text, row.principal, counted(text), row.id),
        )
    return made


def ended_with(made: Change, wanted: RecordedAnswer | None = None) -> RecordedAnswer:
    """Return the answer to a request whose task has ended like this; `wanted` was the intended
    answer.

    They differ if the deadline passed, or if others ended the task.
    """
    if isinstance(made.detail, Result):
        return made.detail
    if made.row.state == "failed" and isinstance(made.detail, Failure):
        for condition in made.detail.conditions:
            if isinstance(condition, errors.DeadlineExpired):
                return errors.deadline_expired()
    return wanted or errors.outcome_unknown()

"""The row of a task, and the one function that changes it.

Every change is one transaction: the row, its event, and related rows. All functions here run inside
a storage operation (`Storage.write`), take its `Database`, and never wait.

Payloads are stored as the XML that is sent, so their format is declared once.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, get_args

import msgspec

from component.storage import waiters
from component.storage.database import Database, Dialect, Value
from component.tasks import recent
from component.tasks.protocol import Question
from component.tasks.states import TERMINAL, TRANSITIONS, LostError, TransitionError
from xep.binding import encode, read
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Confirm
from xep.fluux_agent.execute import Output, Result, State
from xep.fluux_agent.task import Failure, Input, Progress, Task

Detail = Progress | Output | Input | Confirm | Result | Failure
"""The payload of a change, which its event contains."""


class Row(msgspec.Struct):
    """The row of a task as one transaction sees it. Times are milliseconds since 1970, UTC.

    The times `due`, `not_before` and `retain_until` are by the steady clock
    (`component.storage.database.Database`).

    `request` is the JSON of a `Request`; `progress`, `result` and `failure` are XML. `owner` is the
    instance that runs the task; `token` changes whenever the owner does. A row that is not
    `visible` belongs to a call that may still be answered inline: no event is sent for it. `untold`
    is the revision of an event that must be sent and was not yet. The timer checks the task at
    `due`. `origin` is the task that this one retries, whose idempotency keys it uses. `attempts`
    counts the executions that have started since the last recorded progress; `set_aside` says why
    none starts until an operator decides. `parent` is the task whose execution started this one,
    `queue` its named queue. It is not claimed before `not_before`, nor while it waits for `waits`
    other tasks. `children` counts the tasks that it started, `tries` its failed executions that the
    skill has retried. `promised` is `retain_until` as callers were told it, by the wall clock of
    that time; None in rows of earlier releases, where it was the same.
    """

    id: str
    principal: str
    requester: str
    target: str
    skill: str
    version: str
    request: str
    context: str | None
    state: State
    revision: int
    priority: int
    owner: str | None
    token: int
    progress: str | None
    result: str | None
    failure: str | None
    visible: int
    untold: int | None
    due: int | None
    deadline: int | None
    created: int
    updated: int
    retain_until: int
    origin: str | None = None
    attempts: int = 0
    set_aside: str | None = None
    parent: str | None = None
    queue: str | None = None
    not_before: int | None = None
    waits: int = 0
    children: int = 0
    tries: int = 0
    promised: int | None = None

    @property
    def shown_until(self) -> int:
        """Until when callers are told that the task is retained, in milliseconds since 1970."""
        return self.retain_until if self.promised is None else self.promised


COLUMNS: Final = ", ".join(Row.__struct_fields__)


QUEUED: Final = (
    "owner IS NULL AND state IN ('accepted', 'running') AND set_aside IS NULL"
    " AND not_before IS NULL AND waits = 0"
)
"""Matches tasks that can be claimed now; see `is_queued`. The timer clears `not_before` when it is
due.
"""


def is_queued(row: Row) -> bool:
    """Return whether a task can be claimed now."""
    return (
        row.owner is None
        and row.state in ("accepted", "running")
        and row.set_aside is None
        and row.not_before is None
        and not row.waits
    )


class Change(msgspec.Struct, frozen=True):
    """One committed revision of a task: the row after it, and its payload.

    `ready` are the principals of other tasks that waited for this one and can be claimed now.
    `question` is the question that the change asked, or that expired with it.
    """

    row: Row
    detail: Detail | None = None
    ready: tuple[str, ...] = ()
    question: Question | None = None

    @property
    def event(self) -> Task:
        """Return the `<task/>` element of its event (EVT-002)."""
        return event_of(
            self.row,
            state=self.row.state,
            revision=self.row.revision,
            at=self.row.updated,
            retain=self.row.shown_until,
            detail=self.detail,
        )


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def moment(milliseconds: int) -> datetime:
    """Return the datetime for milliseconds since 1970."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def milliseconds(time: datetime) -> int:
    """Return the milliseconds since 1970 of an aware time, rounded up: an instant is
    never early.
    """
    return -((_EPOCH - time) // timedelta(milliseconds=1))


def steady(database: Database, time: int) -> int:
    """Convert a wall-clock time to the steady clock; correct unless the wall clock is set before
    then.
    """
    return time - database.now + database.steady


def next_due(database: Database, row: Row, *times: int | None) -> int | None:
    """Return when the timer has to check a task: at its deadline, its `not_before`, or one of
    `times` of the steady clock; None: never.
    """
    deadline = None if row.deadline is None else steady(database, row.deadline)
    return min(
        (time for time in (deadline, row.not_before, *times) if time is not None), default=None
    )


def is_late(database: Database, row: Row) -> bool:
    """Return whether the deadline of a task has passed."""
    return row.deadline is not None and database.settled >= row.deadline


def load(database: Database, task: str, *, lock: bool = True) -> Row | None:
    """Return the row, by default locked until the end of the transaction; None if there is none."""
    locked = " FOR NO KEY UPDATE" if lock and database.dialect == "postgresql" else ""
    found = database.execute(
        f"SELECT {COLUMNS} FROM tasks WHERE id = ?{locked}",  # noqa: S608 - constant columns
        (task,),
    ).fetchone()
    return None if found is None else Row(*found)


def load_owned(database: Database, task: str, token: int) -> Row:
    """Return the row of a task that an execution owns with its token.

    Raises LostError if the token has changed: the execution has lost the task and must end.
    """
    row = load(database, task)
    if row is None or row.token != token:
        raise LostError(task)
    return row


EVENTS_KEPT: Final = 500
"""The minimum number of the last events of a task that are stored (EVT-017)."""
_TRIM_EVERY: Final = 50

KEEP: Final[Any] = object()
"""Do not change the value."""


def change(
    database: Database,
    row: Row,
    to: State,
    detail: Detail | None = None,
    *,
    owner: str | None = KEEP,
    due: int | None = KEEP,
    untold: bool = False,
    retention_ms: int = 0,
    new: bool = False,
) -> Change:
    """Move a task to its next revision, with exactly one event, in this transaction.

    `detail` is the payload of the change; a result, a failure or progress is also stored in the
    row. An `owner` of None releases the task, a name assigns it to that instance; either changes
    the token. `untold` marks a question whose message must not be lost; a final event is always
    marked. A final state also releases the task, clears the timer, closes open questions, and
    retains the task and its replay record for at least `retention_ms` from now.

    After its deadline a task fails with `deadline-expired` instead of any change, unless the change
    is already a failure, a rejection or a cancellation (EXE-026).

    The row is changed in place; a `new` row is not in the database yet, and is inserted in its
    state after the change. Raises TransitionError.
    """
    if to not in TRANSITIONS[row.state]:
        raise TransitionError(f"task {row.id} cannot go from {row.state} to {to}")
    if is_late(database, row) and to not in ("failed", "rejected"):
        to, detail, owner = "failed", Failure.of(errors.deadline_expired()), None
    waited = row.state == "input-required"
    row.state = to
    row.revision += 1
    # never backwards, even if the clock is set back (TSK-005)
    row.updated = max(row.updated, database.now)
    _keep_detail(row, detail)
    if due is not KEEP:
        row.due = due
    if to == "input-required":
        row.attempts = 0  # it now waits for a person, so the executions so far made progress
    if to in TERMINAL:
        row.set_aside = row.not_before = None
        row.waits = 0
        owner = None
        row.due = None
        row.promised = max(row.shown_until, database.now + retention_ms)
        row.retain_until = max(row.retain_until, database.steady + retention_ms)
        if not new:
            _close(database, row, waited=waited)
    if owner is not KEEP and (owner != row.owner or owner is None):
        row.owner = owner
        row.token += 1
    if row.visible and (untold or to in TERMINAL):
        row.untold = row.revision
    if new:
        put(database, row)
    else:
        update(database, row)
    database.execute(
        "INSERT INTO events (task, revision, state, at, retain, detail) VALUES (?, ?, ?, ?, ?, ?)",
        (row.id, row.revision, row.state, row.updated, row.shown_until, encoded(detail)),
    )
    if row.revision % _TRIM_EVERY == 0:
        _trim(database, row)
    if to not in TERMINAL:
        return Change(msgspec.structs.replace(row), detail)
    weigh(database, row.id)
    ready = waiters.wake_tasks(database, row.id, success=is_done(row))
    return Change(msgspec.structs.replace(row), detail, ready)


def _keep_detail(row: Row, detail: Detail | None) -> None:
    if isinstance(detail, Progress):
        row.progress = encode(detail)
    elif isinstance(detail, Result):
        row.result = encode(detail)
    elif isinstance(detail, Failure):
        row.failure = encode(detail)


_INSERT: Final = (
    f"INSERT INTO tasks ({COLUMNS}, bytes)"  # noqa: S608
    f" VALUES ({', '.join('?' * (len(Row.__struct_fields__) + 1))})"
)
_ROW_BYTES: Final = 512
"""The approximate size of a task without its texts."""
_CHILD_BYTES: Final = 96
"""The approximate size of an event, a part, a step or a question without its texts."""


def put(database: Database, row: Row) -> None:
    """Insert a row."""
    database.execute(_INSERT, (*msgspec.structs.astuple(row), request_bytes(row.request)))


def request_bytes(request: str) -> int:
    """Return the approximate size of a task that has nothing yet but its request."""
    return _ROW_BYTES + len(request.encode())


def size_of(row: Row) -> int:
    """Return the approximate size of an ended task, without reading its related rows.

    Its result is stored in the row and in its last event.
    """
    texts = (row.request, row.progress, row.result, row.result, row.failure, row.failure)
    return _ROW_BYTES + _CHILD_BYTES * row.revision + sum(len(text or "") for text in texts)


def weigh(database: Database, task: str) -> None:
    """Store the size of an ended task, including its related rows."""
    database.execute(_WEIGH[database.dialect], (task,))


def _weighing(size: str) -> str:
    """Return the statement for `_weigh`; `size` is an expression for the size of a column
    in bytes.
    """

    def texts(*columns: str) -> str:
        return " + ".join(f"coalesce({size.format(column)}, 0)" for column in columns)

    def children(table: str, *columns: str) -> str:
        return (
            f" + (SELECT coalesce(sum({_CHILD_BYTES} + {texts(*columns)}), 0) FROM {table} c"  # noqa: S608 - constant names
            " WHERE c.task = tasks.id)"
        )

    return (
        f"UPDATE tasks SET bytes = {_ROW_BYTES}"  # noqa: S608 - constant names
        f" + {texts('request', 'progress', 'result', 'failure')}"
        f"{children('events', 'c.detail')}{children('parts', 'c.output')}"
        f"{children('journal', 'c.result')}{children('inputs', 'c.question', 'c.answer')}"
        " WHERE id = ?"
    )


_WEIGH: Final[Mapping[Dialect, str]] = {
    "sqlite": _weighing("length(CAST({} AS BLOB))"),
    "postgresql": _weighing("octet_length({})"),
}


_CHANGED: Final = (
    *("state", "revision", "owner", "token", "progress", "result", "failure", "visible"),
    *("untold", "due", "updated", "retain_until", "promised", "attempts", "set_aside"),
    *("not_before", "waits", "children", "tries"),
)
_UPDATE: Final = f"UPDATE tasks SET {', '.join(f'{name} = ?' for name in _CHANGED)} WHERE id = ?"  # noqa: S608


def update(database: Database, row: Row) -> None:
    """Update the columns of a row that can change, without a new revision."""
    values: list[Value] = [getattr(row, name) for name in _CHANGED]
    database.execute(_UPDATE, (*values, row.id))


def _trim(database: Database, row: Row) -> None:
    """Delete the oldest events, so that a task that reports for days does not fill the disk.

    All events up to one revision are deleted, so they form one gap, however long it is.
    """
    last = row.revision - EVENTS_KEPT
    if row.untold is not None:
        last = min(last, row.untold - 1)
    database.execute("DELETE FROM events WHERE task = ? AND revision <= ?", (row.id, last))


def _close(database: Database, row: Row, *, waited: bool) -> None:
    """Close the question that the task `waited` for, and keep a named replay record as long as the
    task.
    """
    if waited:
        recent.close(database, row.id, "withdrawn")
    database.execute(
        "UPDATE replay SET expires = ? WHERE task = ? AND named = 1 AND expires < ?",
        (row.retain_until, row.id, row.retain_until),
    )


def encoded(detail: Detail | None) -> str | None:
    """Return the XML to store of the payload of a change."""
    return None if detail is None else encode(detail)


def decoded(text: str | None) -> Detail | None:
    """Decode the result of `encoded`.

    Raises:
        ContentError: the database contains something else.
    """
    return None if text is None else read(text, *get_args(Detail))


def is_done(row: Row) -> bool:
    """Return whether a task has completed and its result reports no error."""
    return row.state == "completed" and not (
        row.result is not None and read(row.result, Result).is_error
    )


def event_of(
    row: Row, *, state: State, revision: int, at: int, retain: int, detail: Detail | None
) -> Task:
    """Return the `<task/>` element of one revision (EVT-002)."""
    return Task(
        id=row.id,
        skill=row.skill,
        state=state,
        revision=revision,
        created=moment(row.created),
        updated=moment(at),
        retain_until=moment(retain),
        deadline=None if row.deadline is None else moment(row.deadline),
        context=row.context,
        progress=detail if isinstance(detail, Progress) else None,
        outputs=(detail,) if isinstance(detail, Output) else (),
        input=detail if isinstance(detail, Input) else None,
        confirm=detail if isinstance(detail, Confirm) else None,
        result=detail if isinstance(detail, Result) else None,
        failure=detail if isinstance(detail, Failure) else None,
    )

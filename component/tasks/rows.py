"""The row of a task, and the one way to change it.

Every change is one transaction: the row, its event, and what belongs to it. All functions here run
inside an operation of the storage (`Storage.write`), take its `Database`, and never wait.

Payloads are kept as the XML that is sent, so what a task says of itself is declared once.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, get_args

import msgspec

from component.storage.database import Database, Dialect, Value
from component.tasks import recent
from component.tasks.errors import LostError, TransitionError
from component.tasks.states import TERMINAL, TRANSITIONS
from xep.binding import encode, read
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Confirm
from xep.fluux_agent.execute import Output, Result, State
from xep.fluux_agent.task import Failure, Input, Progress, Task

Detail = Progress | Output | Input | Confirm | Result | Failure
"""What a change brings, and its event tells."""


class Row(msgspec.Struct):
    """The row of a task as one transaction sees it. Times are milliseconds since 1970, UTC.

    `request` is the JSON of a `Request`; `progress`, `result` and `failure` are XML. `owner` is
    the instance that runs it, `token` moves on whenever the owner changes. A row that is not
    `visible` belongs to a call that may still be answered inline: nobody is told of it.
    `untold` is the revision of an event that must be sent and was not yet. `due` is when the timer
    has to look at it.
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


COLUMNS: Final = ", ".join(Row.__struct_fields__)


class Change(msgspec.Struct, frozen=True):
    """One committed revision of a task: the row after it, and what it brought."""

    row: Row
    detail: Detail | None = None

    @property
    def event(self) -> Task:
        """The `<task/>` that tells of it (EVT-002)."""
        return event_of(
            self.row,
            state=self.row.state,
            revision=self.row.revision,
            at=self.row.updated,
            retain=self.row.retain_until,
            detail=self.detail,
        )


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def moment(milliseconds: int) -> datetime:
    """The time of so many milliseconds since 1970."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def milliseconds(time: datetime) -> int:
    """The milliseconds since 1970 of an aware time, rounded up: an instant is never early."""
    return -((_EPOCH - time) // timedelta(milliseconds=1))


def load(database: Database, task: str) -> Row | None:
    """The row, locked until the end of the transaction; None if there is none."""
    lock = " FOR NO KEY UPDATE" if database.dialect == "postgresql" else ""
    found = database.execute(
        f"SELECT {COLUMNS} FROM tasks WHERE id = ?{lock}",  # noqa: S608 - columns of ours
        (task,),
    ).fetchone()
    return None if found is None else Row(*found)


def load_owned(database: Database, task: str, token: int) -> Row:
    """The row of a task that a run holds by its token.

    Raises LostError if the token has moved on: the run has lost the task and must end.
    """
    row = load(database, task)
    if row is None or row.token != token:
        raise LostError(task)
    return row


EVENTS_KEPT: Final = 500
"""How many of the last events of a task are kept at least (EVT-017)."""
_TRIM_EVERY: Final = 50

KEEP: Final[Any] = object()
"""Leave it as it is."""


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
    """Take a task to its next revision, with exactly one event, in this transaction.

    `detail` is what the change brings; a result or a failure becomes the row's, and so does
    progress. `owner` None gives the task up, a name gives it to that instance; either moves the
    token. `untold` marks a question whose message must not get lost; a final event is always so.
    A final state also gives the task up, takes the timer off, closes open questions, and keeps it
    and its replay record for `retention_ms` from now at least.

    Work that has reached its deadline is settled as failed with `deadline-expired` instead of any
    change but to an end that is a failure already, a rejection, or none (EXE-026).

    The row is changed in place; one that is `new` is not in the database yet, and is put there as
    it is after this. Raises TransitionError.
    """
    if to not in TRANSITIONS[row.state]:
        raise TransitionError(f"task {row.id} cannot go from {row.state} to {to}")
    late = row.deadline is not None and database.now >= row.deadline
    if late and to not in ("failed", "rejected"):
        to, detail, owner = "failed", Failure.of(errors.deadline_expired()), None
    waited = row.state == "input-required"
    row.state = to
    row.revision += 1
    row.updated = max(row.updated, database.now)  # never back, whatever the clock does (TSK-005)
    if isinstance(detail, Progress):
        row.progress = encode(detail)
    elif isinstance(detail, Result):
        row.result = encode(detail)
    elif isinstance(detail, Failure):
        row.failure = encode(detail)
    if due is not KEEP:
        row.due = due
    if to in TERMINAL:
        owner = None
        row.due = None
        row.retain_until = max(row.retain_until, database.now + retention_ms)
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
        _update(database, row)
    database.execute(
        "INSERT INTO events (task, revision, state, at, retain, detail) VALUES (?, ?, ?, ?, ?, ?)",
        (row.id, row.revision, row.state, row.updated, row.retain_until, encoded(detail)),
    )
    if row.revision % _TRIM_EVERY == 0:
        _trim(database, row)
    if row.state in TERMINAL:
        _weigh(database, row)
    return Change(msgspec.structs.replace(row), detail)


_INSERT: Final = (
    f"INSERT INTO tasks ({COLUMNS}, bytes)"  # noqa: S608
    f" VALUES ({', '.join('?' * (len(Row.__struct_fields__) + 1))})"
)
_ROW_BYTES: Final = 512
"""About what a task takes beside its texts."""
_CHILD_BYTES: Final = 96
"""The same of an event, a part, a step or a question."""


def put(database: Database, row: Row) -> None:
    """Write a row that is not there yet."""
    database.execute(_INSERT, (*msgspec.structs.astuple(row), request_bytes(row.request)))


def request_bytes(request: str) -> int:
    """About how many bytes a task takes that has nothing yet but its request."""
    return _ROW_BYTES + len(request.encode())


def size_of(row: Row) -> int:
    """About how many bytes an ended task takes, without looking at what belongs to it.

    Its result stands in the row and in its last event.
    """
    texts = (row.request, row.progress, row.result, row.result, row.failure, row.failure)
    return _ROW_BYTES + _CHILD_BYTES * row.revision + sum(len(text or "") for text in texts)


def _weigh(database: Database, row: Row) -> None:
    """Write down how many bytes an ended task takes, with everything that belongs to it."""
    database.execute(_WEIGH[database.dialect], (row.id,))


def _weighing(size: str) -> str:
    """The statement for `_weigh`; `size` gives the bytes of a column."""

    def texts(*columns: str) -> str:
        return " + ".join(f"coalesce({size.format(column)}, 0)" for column in columns)

    def children(table: str, *columns: str) -> str:
        return (
            f" + (SELECT coalesce(sum({_CHILD_BYTES} + {texts(*columns)}), 0) FROM {table} c"  # noqa: S608 - names of ours
            " WHERE c.task = tasks.id)"
        )

    return (
        f"UPDATE tasks SET bytes = {_ROW_BYTES}"  # noqa: S608 - names of ours
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
    *("untold", "due", "updated", "retain_until"),
)
_UPDATE: Final = f"UPDATE tasks SET {', '.join(f'{name} = ?' for name in _CHANGED)} WHERE id = ?"  # noqa: S608


def _update(database: Database, row: Row) -> None:
    values: list[Value] = [getattr(row, name) for name in _CHANGED]
    database.execute(_UPDATE, (*values, row.id))


def _trim(database: Database, row: Row) -> None:
    """Drop the oldest events, so that work which reports for days does not fill the disk.

    All up to one revision: what is gone is then one gap, however long it is.
    """
    last = row.revision - EVENTS_KEPT
    if row.untold is not None:
        last = min(last, row.untold - 1)
    database.execute("DELETE FROM events WHERE task = ? AND revision <= ?", (row.id, last))


def _close(database: Database, row: Row, *, waited: bool) -> None:
    """What ends with the task: the question it `waited` for. Its replay record lives as long."""
    if waited:
        recent.close(database, row.id, "withdrawn")
    database.execute(
        "UPDATE replay SET expires = ? WHERE task = ? AND expires < ?",
        (row.retain_until, row.id, row.retain_until),
    )


def encoded(detail: Detail | None) -> str | None:
    """The XML to keep of what a change brought."""
    return None if detail is None else encode(detail)


def decoded(text: str | None) -> Detail | None:
    """What `encoded` kept.

    Raises:
        ContentError: the database holds something else.
    """
    return None if text is None else read(text, *get_args(Detail))


def event_of(
    row: Row, *, state: State, revision: int, at: int, retain: int, detail: Detail | None
) -> Task:
    """The `<task/>` that tells of one revision (EVT-002)."""
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

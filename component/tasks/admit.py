"""Creates tasks: the rows that admission writes, in one transaction with their replay record."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from component.storage.database import Database
from component.tasks.journal import ATOMIC, Recorded, StepId, begin_step, end_step
from component.tasks.protocol import Call
from component.tasks.queues import QueueLimits
from component.tasks.recent import Certainty
from component.tasks.request import Request
from component.tasks.retention import DEFAULT_BOUNDS, Bounds
from component.tasks.rows import (
    Change,
    Row,
    change,
    decoded,
    load,
    milliseconds,
    moment,
    request_bytes,
    steady,
)
from xep.binding import encode
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Accepted, Output, State
from xep.fluux_agent.task import Progress
from xep.result_sets import PAGE_ROOM

PRIORITIES: Final[Mapping[Literal["low", "normal", "high"], int]] = {
    "low": -1,
    "normal": 0,
    "high": 1,
}


class TaskLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of durable work, in seconds, counts, and bytes of XML.

    `replay_s` is for how long a repetition is known, `retention_s` how long a task is kept after
    its end. `tasks_per_principal` may be open at a time, `running_per_principal` of them run at a
    time here, `running_total` of all. A result of more than `result_bytes` is too big. A task whose
    execution has ended with its process `max_attempts` times in a row is set aside. `queues` are
    the bounds of named queues. Requests of open tasks of a principal have at most `open_bytes`
    together, and `kept` bounds what is kept of its ended ones; it has at most
    `records_per_principal` replay records. At most `held_per_person` notifications of one agent are
    held for a person. `certainty` is what an answer in
    words is held against. The entries of a page have at most `page_room` bytes.
    """

    inline_s: float = 10.0
    replay_s: float = 86400.0
    retention_s: float = 7 * 86400.0
    tasks_per_principal: int = 100
    running_total: int = 64
    running_per_principal: int = 16
    ask_expires_s: float = 86400.0
    certainty: Certainty = Certainty()
    poll_after_s: int = 5
    retry_after_s: int = 5
    drain_s: float = 10.0
    result_bytes: int = 200_000
    max_attempts: int = 3
    queues: Mapping[str, QueueLimits] = {}
    open_bytes: int = 16_000_000
    records_per_principal: int = 20_000
    kept: Bounds = DEFAULT_BOUNDS
    held_per_person: int = 500
    page_room: int = PAGE_ROOM

    @property
    def retention_ms(self) -> int:
        """The retention of an ended task, in milliseconds."""
        return round(self.retention_s * 1000)

    @property
    def replay_ms(self) -> int:
        """The time for which a repetition is recognised, in milliseconds."""
        return round(self.replay_s * 1000)


def request_row(call: Call, limits: TaskLimits) -> str:
    """Return the JSON that the row stores of a request; made before the transaction."""
    asked = call.confirmation
    return Request(
        call=call.request.without_params(),
        arguments=msgspec.Raw(msgspec.json.encode(call.arguments)),
        id=call.request.request,
        thread=call.request.thread,
        poll_after=limits.poll_after_s,
        origin=call.origin,
        lang=call.lang,
        caller_context=call.caller_context,
        confirmers=() if asked is None else tuple([str(one.bare) for one in asked.asked]),
        risk="medium" if asked is None else asked.risk,
        confirm_s=86400.0 if asked is None else asked.expires_s,
        undecided=call.undecided,
    ).encoded()


def new_row(
    database: Database, task: str, call: Call, request: str, limits: TaskLimits, *, visible: bool
) -> Row:
    """Return the row of a new task, accepted at revision 0, which has no event. The row is not
    written yet.

    Raises StanzaError: `deadline-expired`; the transaction must then be rolled back.
    """
    asked = call.request
    deadline = None if asked.deadline is None else milliseconds(asked.deadline)
    if deadline is not None and database.settled >= deadline:
        raise errors.deadline_expired()
    return Row(
        id=task,
        principal=str(call.principal),
        requester=str(call.requester),
        target=str(call.target),
        skill=call.skill.name,
        version=call.skill.version,
        request=request,
        context=asked.context,
        state="accepted",
        revision=0,
        priority=PRIORITIES[asked.priority],
        owner=None,
        token=0,
        progress=None,
        result=None,
        failure=None,
        visible=int(visible),
        untold=None,
        due=None if deadline is None else steady(database, deadline),
        deadline=deadline,
        created=database.now,
        updated=database.now,
        retain_until=database.steady + limits.retention_ms,
        promised=database.now + limits.retention_ms,
        queue=call.skill.queue,
    )


def refuse_crowd(database: Database, principal: str, limits: TaskLimits, request: str = "") -> None:
    """Raise StanzaError, `busy`, if a principal already has as many open tasks as allowed, or if
    their requests and this one exceed the allowed bytes.
    """
    count, size = database.execute(
        "SELECT count(*), coalesce(sum(bytes), 0) FROM (SELECT bytes FROM tasks WHERE"
        " principal = ? AND state IN ('accepted', 'running', 'input-required', 'cancelling')"
        " LIMIT ?) AS open",
        (principal, limits.tasks_per_principal),
    ).fetchone() or (0, 0)
    if count >= limits.tasks_per_principal:
        raise errors.busy(limits.retry_after_s)
    if count and request and size + request_bytes(request) > limits.open_bytes:
        raise errors.busy(limits.retry_after_s)


def accepted_as(row: Row, state: State, limits: TaskLimits) -> Accepted:
    """Return the `<accepted/>` of a new task (EXE-023, EXE-024)."""
    return Accepted(
        task=row.id,
        state="input-required" if state == "input-required" else "accepted",
        retain_until=moment(row.shown_until),
        poll_after=limits.poll_after_s,
    )


def begin(database: Database, row: Row, owner: str, *, atomic: bool, new: bool = False) -> Change:
    """Set a task to running, owned by `owner`; the only step of an `atomic` skill begins with it.

    A `new` row is inserted.
    """
    row.attempts += 1
    made = change(database, row, "running", owner=owner, new=new)
    if atomic and made.row.state == "running":
        begin_step(database, row.id, row.token, StepId(ATOMIC))
    return made


def add_part(database: Database, row: Row, output: Output) -> Change:
    """Add a part of an artifact, with its own event (ART-001)."""
    database.execute(
        "INSERT INTO parts (task, name, part, last, output) VALUES (?, ?, ?, ?, ?)",
        (row.id, output.name, output.part, int(output.last), encode(output)),
    )
    return change(database, row, row.state, output)


def catch_up(
    database: Database,
    row: Row,
    journal: Mapping[str, Recorded],
    parts: Iterable[Output],
    progress: Progress | None,
) -> list[Change]:
    """Write what an execution did before it had a row."""
    for step, recorded in journal.items():
        end_step(database, row.id, row.token, step, recorded)
    made = [add_part(database, row, part) for part in parts if row.state == "running"]
    if progress is not None and row.state == "running":
        made.append(change(database, row, "running", progress))
    return made


def reveal(database: Database, row: Row) -> Sequence[Change]:
    """Make a task visible whose request was expected to end inline; its events so far are
    published.

    The caller writes the record of its request.
    """
    row.visible = 1
    database.execute("UPDATE tasks SET visible = 1 WHERE id = ?", (row.id,))
    found = database.execute(
        "SELECT revision, state, at, retain, detail FROM events WHERE task = ? ORDER BY revision",
        (row.id,),
    ).fetchall()
    return [
        Change(
            msgspec.structs.replace(
                row, revision=revision, state=state, updated=at, promised=retain
            ),
            decoded(detail),
        )
        for revision, state, at, retain, detail in found
    ]


def the_row(database: Database, task: str) -> Row:
    """Return the row of a task of any principal. Raises StanzaError: `unknown-task`."""
    row = load(database, task)
    if row is None:
        raise errors.unknown_task()
    return row

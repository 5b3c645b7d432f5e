"""New tasks: the rows that admission writes, in one commit with their replay record."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from component.storage.database import Database
from component.tasks.kept import Bounds
from component.tasks.protocol import Call
from component.tasks.recent import Certainty
from component.tasks.request import Request
from component.tasks.rows import (
    Change,
    Row,
    change,
    decoded,
    load,
    milliseconds,
    moment,
    request_bytes,
)
from xep.binding import encode
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Accepted, Output, State
from xep.fluux_agent.task import Progress

PRIORITIES: Final[Mapping[Literal["low", "normal", "high"], int]] = {
    "low": -1,
    "normal": 0,
    "high": 1,
}

ATOMIC: Final = ""
"""The one step of a skill that has no steps of its own and must not run twice."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds the durable work. Seconds, counts, and bytes of XML.

    `replay_s` is for how long a repetition is known, `retention_s` how long a task is kept after
    its end. `tasks_per_principal` may be open at a time, `running_per_principal` of them run at a
    time here, `running_total` of all. A result of more than `result_bytes` is too big. Requests
    of open tasks of a principal have at most `open_bytes` together, and `kept` bounds what is kept
    of its ended ones.
    `certainty` is what an answer in words is held against.
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
    open_bytes: int = 16_000_000
    kept: Bounds = Bounds()

    @property
    def retention_ms(self) -> int:
        """Milliseconds that a task is kept after its end."""
        return round(self.retention_s * 1000)

    @property
    def replay_ms(self) -> int:
        """Milliseconds for which a repetition is known."""
        return round(self.replay_s * 1000)


def request_row(call: Call, limits: Limits) -> str:
    """What the row keeps of a request, ready before the transaction."""
    asked = call.confirmation
    return Request(
        execute=encode(call.execute),
        arguments=msgspec.Raw(msgspec.json.encode(call.arguments)),
        id=call.execute.request,
        thread=call.execute.thread,
        poll_after=limits.poll_after_s,
        origin=call.origin,
        lang=call.lang,
        hand=call.hand,
        confirmers=() if asked is None else tuple([str(one.bare) for one in asked.asked]),
        risk="medium" if asked is None else asked.risk,
        confirm_s=86400.0 if asked is None else asked.expires_s,
    ).encoded()


def new_row(
    database: Database, task: str, call: Call, request: str, limits: Limits, *, visible: bool
) -> Row:
    """The row of a new task, accepted at revision 0, which has no event. It is not written yet.

    Raises StanzaError: `deadline-expired`, and then nothing of this transaction may stay.
    """
    execute = call.execute
    deadline = None if execute.deadline is None else milliseconds(execute.deadline)
    if deadline is not None and database.now >= deadline:
        raise errors.deadline_expired()
    return Row(
        id=task,
        principal=str(call.principal),
        requester=str(call.requester),
        target=str(call.target),
        skill=call.skill.name,
        version=call.skill.version,
        request=request,
        context=execute.context,
        state="accepted",
        revision=0,
        priority=PRIORITIES[execute.priority],
        owner=None,
        token=0,
        progress=None,
        result=None,
        failure=None,
        visible=int(visible),
        untold=None,
        due=deadline,
        deadline=deadline,
        created=database.now,
        updated=database.now,
        retain_until=database.now + limits.retention_ms,
    )


def refuse_crowd(database: Database, principal: str, limits: Limits, request: str = "") -> None:
    """Raise StanzaError, `busy`, if a principal has as many open tasks as it may have, or if their
    requests and this one have more bytes than they may have together.
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


def accepted_as(row: Row, state: State, limits: Limits) -> Accepted:
    """The `<accepted/>` of a new task (EXE-023, EXE-024)."""
    return Accepted(
        task=row.id,
        state="input-required" if state == "input-required" else "accepted",
        retain_until=moment(row.retain_until),
        poll_after=limits.poll_after_s,
    )


def begin(database: Database, row: Row, owner: str, *, atomic: bool, new: bool = False) -> Change:
    """Make a task running, by `owner`; an `atomic` skill's one step begins with it.

    A `new` row is written by this.
    """
    made = change(database, row, "running", owner=owner, new=new)
    if atomic and made.row.state == "running":
        begin_step(database, row, ATOMIC)
    return made


def begin_step(database: Database, row: Row, step: str) -> None:
    """A step with effects begins. One that has begun before begins again, if it may."""
    database.execute(
        "INSERT INTO journal (task, step, token, done) VALUES (?, ?, ?, 0)"
        " ON CONFLICT (task, step) DO UPDATE SET token = excluded.token",
        (row.id, step, row.token),
    )


def end_step(database: Database, row: Row, step: str, result: str) -> None:
    """A step is done for good (RPL-018)."""
    database.execute(
        "INSERT INTO journal (task, step, token, done, result) VALUES (?, ?, ?, 1, ?)"
        " ON CONFLICT (task, step) DO UPDATE SET done = 1, token = excluded.token,"
        " result = excluded.result",
        (row.id, step, row.token, result),
    )


def add_part(database: Database, row: Row, output: Output) -> Change:
    """Show a part of an artifact, in an event of its own (ART-001)."""
    database.execute(
        "INSERT INTO parts (task, name, part, last, output) VALUES (?, ?, ?, ?, ?)",
        (row.id, output.name, output.part, int(output.last), encode(output)),
    )
    return change(database, row, row.state, output)


def catch_up(
    database: Database,
    row: Row,
    journal: Mapping[str, str],
    parts: Iterable[Output],
    progress: Progress | None,
) -> list[Change]:
    """Write what a run did while it had no rows."""
    for step, result in journal.items():
        end_step(database, row, step, result)
    made = [add_part(database, row, part) for part in parts if row.state == "running"]
    if progress is not None and row.state == "running":
        made.append(change(database, row, "running", progress))
    return made


def reveal(database: Database, row: Row) -> Sequence[Change]:
    """Make a task seen, whose request was thought to end inline; its events so far are to be told.

    The record of its request is the caller's to write.
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
                row, revision=revision, state=state, updated=at, retain_until=retain
            ),
            decoded(detail),
        )
        for revision, state, at, retain, detail in found
    ]


def the_row(database: Database, task: str) -> Row:
    """The row of a task, whosever it is. Raises StanzaError: `unknown-task`."""
    row = load(database, task)
    if row is None:
        raise errors.unknown_task()
    return row

"""What a run commits: each function here is one transaction of its own.

Whatever works on a row names its token, and raises LostError if the run has lost it.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from component.storage.database import Database
from component.tasks import admit, leases, replay
from component.tasks.admit import Limits
from component.tasks.protocol import Call
from component.tasks.replay import Answer
from component.tasks.rows import Change, Row, change, load_owned
from component.tasks.states import TERMINAL
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Accepted, Output, Result, State
from xep.fluux_agent.task import Progress

Grown: TypeAlias = tuple[Row, Accepted, Sequence[Change]]
"""The row of a task, what answers its request, and what is to be told."""


class AlreadyError(Exception):
    """The request has a record already: another run is its own."""

    def __init__(self, found: replay.Found) -> None:
        self.found = found
        super().__init__("the request has a record already")


def become_task(
    database: Database,
    *,
    call: Call,
    task: str,
    request: str,
    limits: Limits,
    owner: str,
    repeatable: bool,
    atomic: bool,
    visible: bool,
    journal: Mapping[str, str],
    parts: Sequence[Output],
    progress: Progress | None,
    step: str | None,
) -> Grown:
    """Give a run rows, with what it has done so far, and let `step` begin.

    `visible` answers its request with the task. Raises AlreadyError, and StanzaError where there
    is no room for it; then nothing of this transaction may stay.
    """
    if repeatable:
        admit.refuse_crowd(database, str(call.principal), limits, request)
    row = admit.new_row(database, task, call, request, limits, visible=visible)
    accepted = admit.accepted_as(row, "accepted", limits)
    made = [admit.begin(database, row, owner, atomic=atomic, new=True)]
    made += admit.catch_up(database, row, journal, parts, progress)
    if step is not None and row.state == "running":
        admit.begin_step(database, row, step)
    answer = accepted if visible else None
    if repeatable:
        found = replay.record(
            *(database, call.key, call.digest),
            window_ms=limits.replay_ms,
            owner=owner,
            task=row.id,
            answer=answer,
        )
        if found is not None:
            raise AlreadyError(found)
    else:
        replay.answer_record(database, call.key, answer, task=row.id)
    return row, accepted, made


def reveal(database: Database, *, row: Row, limits: Limits) -> Grown:
    """Make a task seen, and answer its request so."""
    mine = load_owned(database, row.id, row.token)
    accepted = admit.accepted_as(mine, "accepted", limits)
    changes = admit.reveal(database, mine)
    replay.accept_record(database, mine.id, accepted)
    return mine, accepted, changes


def begin_step(database: Database, *, row: Row, step: str, retention_ms: int) -> Change | None:
    """Let a step with effects begin; where the deadline has passed, that ends the task instead."""
    mine = load_owned(database, row.id, row.token)
    if mine.deadline is not None and database.now >= mine.deadline:
        late = errors.deadline_expired()
        return replay.end(database, mine, "failed", late, retention_ms=retention_ms)
    if mine.state != "cancelling":
        admit.begin_step(database, mine, step)
    return None


def end(
    database: Database,
    *,
    row: Row,
    ended: Answer | None,
    drained: bool,
    unbegun: Sequence[str],
    progress: Progress | None,
    repeatable: bool,
    retention_ms: int,
) -> list[Change]:
    """Write how a run ended: with `ended`, or cancelled; `drained` gives its task back instead.

    Of the `unbegun` steps, which were to begin and did not, no trace is left. `progress` is what
    was not told yet.
    """
    mine = load_owned(database, row.id, row.token)
    for step in unbegun:
        database.execute(
            "DELETE FROM journal WHERE task = ? AND step = ? AND done = 0", (row.id, step)
        )
    if ended is None and drained:
        database.notify(leases.CHANNEL)  # others need not wait for our end
        return leases.release(database, mine, retention_ms=retention_ms)
    made: list[Change] = []
    if progress is not None and mine.state == "running":
        made.append(change(database, mine, "running", progress))
    if mine.state in TERMINAL:
        return made
    to: State = "failed"
    if isinstance(ended, Result):
        to = "completed"
    elif ended is None and mine.state == "cancelling":
        to = "cancelled"
    outcome = ended if not isinstance(ended, Accepted) else None
    if to == "failed" and outcome is None:
        outcome = errors.internal()
    made.append(
        replay.end(database, mine, to, outcome, repeatable=repeatable, retention_ms=retention_ms)
    )
    return made

"""How a task changes: its states, the one function that makes a revision, and transactions.

Every change is one transaction: the row, its event, and related rows. All functions here run inside
a storage operation, take its `Transaction`, and never wait. Payloads are stored as the XML that is
sent, so their format is declared once.
"""

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from anyio.abc import TaskGroup

from component.audit.protocol import AuditEvent
from component.skills.inputs import Arguments
from component.skills.skill import Skill
from component.store import waiters
from component.store.database import Database
from component.store.storage import Storage
from component.tasks import journal, leases, question_rows, replay, rows
from component.tasks.gate import SkillAccess
from component.tasks.leases import Slots
from component.tasks.protocol import Question, TaskLimits
from component.tasks.receipts import MakeReceipt, end_with_receipt, error_with
from component.tasks.replay import RecordBound, RecordedAnswer
from component.tasks.request import Request
from component.tasks.rows import TERMINAL, Detail, OpenBound, Row
from xep.binding import encode, read
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Confirm
from xep.fluux_agent.execute import Accepted, Output, Result, State
from xep.fluux_agent.plan import PlanSteps
from xep.fluux_agent.task import Failure, Input, Progress
from xep.stanza_error import StanzaError

if TYPE_CHECKING:
    from component.tasks.standing import StandingApprovals

T = TypeVar("T")

TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    "accepted": frozenset(("running", "input-required", "cancelled", "failed", "rejected")),
    "running": frozenset(("running", "input-required", "cancelling", "completed", "failed")),
    "input-required": frozenset(
        ("input-required", "accepted", "running", "cancelled", "failed", "rejected")
    ),
    "cancelling": frozenset(("cancelling", "cancelled", "completed", "failed")),
    "completed": frozenset(),
    "failed": frozenset(),
    "rejected": frozenset(),
    "cancelled": frozenset(),
}
"""The allowed next states of each state (TSK-001); a state can follow itself with progress or a
part of an output.
"""


class TransitionError(Exception):
    """The table of states does not allow a change: a bug in this program."""


class Change(msgspec.Struct, frozen=True):
    """One committed revision of a task: the row after it, and its payload.

    `ready` are the principals of other tasks that waited for this one and can be claimed now.
    `question` is the question that the change asked, or that expired with it.
    """

    row: Row
    detail: Detail | None = None
    ready: tuple[str, ...] = ()
    question: Question | None = None


# Transactions.


class Transaction:
    """One operation's view of the database, and the changes to publish after its commit.

    It is a `component.store.database.Database`, and goes wherever one is expected. `has_slots`
    returns whether one more task can run on this instance.
    """

    def __init__(
        self,
        database: Database,
        limits: TaskLimits,
        instance: str = "",
        has_slots: Callable[[], bool] = lambda: False,
    ) -> None:
        self._has_slots = has_slots
        self.limits = limits
        self.instance = instance
        self.dialect = database.dialect
        self.now = database.now
        self.settled = database.settled
        self.steady = database.steady
        self.execute = database.execute
        self.expect = database.expect
        self.notify = database.notify
        self.changes: list[Change] = []
        self.answers: list[tuple[str, int]] = []
        """Principals for whom a recorded answer is stored, and its size in bytes."""
        self.ready: set[str] = set()
        """Shares that may have queued tasks after this; "" for any."""
        self.has_timers = False
        self.audited: list[AuditEvent] = []
        """What is recorded in the audit log after the commit, besides the changes."""
        self.make_receipt: MakeReceipt | None = None

    def publish(self, *changes: Change) -> None:
        """Publish changes after the commit; the children of a task that has ended are cancelled,
        and what a child reports is reported by its parent, if that wants it.
        """
        self.changes += changes
        for made in changes:
            row = made.row
            self.queued(row, *made.ready)
            if row.parent is not None:
                self.publish(*report_to_parent(self, row, made.detail))
            if row.children and row.state in TERMINAL:
                cancel_children(self, row.id)

    def queued(self, row: Row, *ready: str) -> None:
        """After the commit, let a task be claimed if it can be, now or when it is due; and tasks of
        the shares `ready`.
        """
        if row.wake_at is not None:
            self.has_timers = True
        if row.queue is not None and row.owner is None:
            self.ready.add("")  # the next task in its queue may start
        if rows.is_queued(row):
            ready = (*ready, row.share)
        if ready:
            self.ready.update(ready)
            self.wake_others()

    def wake_others(self) -> None:
        """Wake another instance to claim queued tasks, unless this one has slots for them."""
        if not self._has_slots():
            leases.wake_one(self)


class TaskRuntime:
    """What this instance runs tasks with: the database, the skills, the slots, and a task group.

    `publish` receives the changes of one commit, and the run that made it, if one did. It is called
    on the event loop, and never raises.

    Attributes:
        instance: the name of this instance among those that share the database; it takes a new one
            after it was evicted.
        group: the task group of the service; None while it does not run.
        draining: whether the service stops, and no more work starts.
        make_receipt: signs receipts about delegated work; None gives it none.
        standing: the standing approvals; None offers and uses none.
    """

    def __init__(
        self,
        storage: Storage,
        skills: SkillAccess,
        limits: TaskLimits,
        publish: Callable[[Transaction, object], None],
    ) -> None:
        self.storage = storage
        self.skills = skills
        self.limits = limits
        self.instance = leases.new_instance()
        self.open_tasks = OpenBound(limits, skills.most_open)
        self.records = RecordBound(limits.records_per_principal, limits.retry_after_s)
        self.slots = Slots(limits.running_total, limits.running_per_principal, skills.most_running)
        self.group: TaskGroup | None = None
        self.make_receipt: MakeReceipt | None = None
        self.standing: StandingApprovals | None = None
        self.draining = False
        self._publish = publish

    def has_slots(self) -> bool:
        """Return whether one more task can run on this instance."""
        return self.slots.free > 0 and not self.draining

    async def commit(
        self,
        op: Callable[[Transaction], T],
        *,
        tasks: Collection[str] = (),
        keep_trying: bool = False,
        by: object = None,
    ) -> T:
        """Run an operation, and return its value after it is on disk and its changes are published.

        `tasks` are the ids of the tasks that it changes, as far as they are known before; see
        `Storage.write`. With `keep_trying` an operation that the database refuses is tried again
        until it succeeds or the caller is cancelled. `by` is the run that makes the changes.

        Raises StorageError, and the errors of the operation.
        """

        def run(database: Database) -> tuple[T, Transaction]:
            transaction = Transaction(database, self.limits, self.instance, self.has_slots)
            transaction.make_receipt = self.make_receipt
            return op(transaction), transaction

        value, tx = await self.storage.write(run, keep_trying=keep_trying, tasks=tasks)
        if tx.changes or tx.ready or tx.has_timers or tx.answers or tx.audited:
            self._publish(tx, by)
        return value

    def start(self, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Start work in the task group. Raises StanzaError: the service has stopped."""
        if self.group is None:
            raise errors.busy(self.limits.retry_after_s)
        coroutine = work(*args)
        try:
            self.group.create_task(coroutine)
        except RuntimeError:  # the last task of the group has ended, and the service stops
            # On trio, anyio would leave a coroutine that was never awaited.
            coroutine.close()
            raise errors.busy(self.limits.retry_after_s) from None


# Revisions.

KEEP: Final[Any] = object()
"""Do not change the value."""


def change(
    tx: Transaction,
    row: Row,
    to: State,
    detail: Detail | None = None,
    *,
    owner: str | None = KEEP,
    wake_at: int | None = KEEP,
    new: bool = False,
) -> Change:
    """Move a task to its next revision, with exactly one event, in this transaction.

    `detail` is the payload of the change; a result, a failure or progress is also stored in the
    row. An `owner` of None releases the task, a name assigns it to that instance; either changes
    the fence. A question and a final event are marked, because their messages must not be lost. A
    final state also releases the task, clears the timer, closes open questions, and retains the
    task and its replay record for the retention from now.

    After its deadline a task fails with `deadline-expired` instead of any change, unless the change
    is already a failure, a rejection or a cancellation (EXE-026).

    The row is changed in place; a `new` row is not in the database yet, and is inserted in its
    state after the change. Raises TransitionError.
    """
    if to not in TRANSITIONS[row.state]:
        raise TransitionError(f"task {row.id} cannot go from {row.state} to {to}")
    if rows.is_late(tx, row) and to not in ("failed", "rejected"):
        to, detail, owner = "failed", Failure.of(errors.deadline_expired()), None
    waited = row.state == "input-required"
    row.state = to
    row.revision += 1
    # never backwards, even if the clock is set back (TSK-005)
    row.updated = max(row.updated, tx.now)
    detail = _with_receipt(tx, row, to, detail)
    text = None if detail is None else encode(detail)
    match detail:
        case Progress():
            row.progress = text
        case Result():
            row.result = text
        case Failure():
            row.failure = text
    if wake_at is not KEEP:
        row.wake_at = wake_at
    if to == "input-required":
        row.attempts = 0  # it now waits for a person, so the executions so far made progress
    outline = None
    if to in TERMINAL:
        owner = None
        outline = _conclude(tx, row, waited=waited, new=new)
    if owner is not KEEP and (owner != row.owner or owner is None):
        row.owner = owner
        row.fence += 1
    if row.promoted and (outline is not None or isinstance(detail, Confirm | Input)):
        row.unsent_revision = row.revision
    if new:
        rows.put(tx, row)
    _add_event(tx, row, text)
    if not new:
        rows.update(tx, row)
    ready: tuple[str, ...] = ()
    if outline is not None:
        success = to == "completed" and not (isinstance(detail, Result) and detail.is_error)
        is_waited_for = row.parent is not None or outline.origin == "tool"
        ready = waiters.wake_tasks(tx, row.id, success=success, expected=is_waited_for)
    return Change(msgspec.structs.replace(row), detail, ready)


def _with_receipt(tx: Transaction, row: Row, to: State, detail: Detail | None) -> Detail | None:
    """Return the payload of a change, with a receipt if it is the end of delegated work."""
    if to not in TERMINAL or tx.make_receipt is None or not rows.outline_of(row).delegation:
        return detail
    return end_with_receipt(tx.make_receipt, rows.request_of(row), detail, to, (row.id, tx))


def _conclude(tx: Transaction, row: Row, *, waited: bool, new: bool) -> rows.Outline:
    """Set what a final state changes in the row and its related rows; return the outline of the
    request.
    """
    row.set_aside = row.not_before = row.wake_at = None
    row.waits = 0
    if row.plan is not None:
        row.plan = encode(read(row.plan, PlanSteps).ended())
    retention = tx.limits.retention_ms
    row.promised = max(row.shown_until, tx.now + retention)
    row.retain_until = max(row.retain_until, tx.steady + retention)
    if waited:
        question_rows.close(tx, row.id, "withdrawn")
    outline = rows.outline_of(row)
    if not new and outline.name is not None:
        replay.keep_record(tx, row.id, row.retain_until)
    return outline


EVENTS_KEPT: Final = 500
"""The minimum number of the last events of a task that are stored (EVT-017)."""
_TRIM_EVERY: Final = 50


def _add_event(tx: Transaction, row: Row, detail: str | None) -> None:
    """Store the event of the present revision, and delete the oldest events now and then.

    So a task that reports for days does not fill the disk. All events up to one revision are
    deleted, so they form one gap, however long it is.
    """
    tx.execute(
        "INSERT INTO events (task, revision, state, at, retain, detail, plan)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (row.id, row.revision, row.state, row.updated, row.shown_until, detail, row.plan),
    )
    if row.revision % _TRIM_EVERY == 0:
        last = row.revision - EVENTS_KEPT
        if row.unsent_revision is not None:
            last = min(last, row.unsent_revision - 1)
        tx.execute("DELETE FROM events WHERE task = ? AND revision <= ?", (row.id, last))


def end(
    tx: Transaction,
    row: Row,
    to: State,
    outcome: Result | StanzaError | None,
    *,
    repeatable: bool = False,
) -> Change:
    """End a task, and answer its request with the outcome unless it was answered with the task
    (RPL-013). `repeatable` says that a retry has no effect twice (TSK-009).
    """
    assert to in TERMINAL
    detail = (
        Failure.of(outcome, repeatable=repeatable) if isinstance(outcome, StanzaError) else outcome
    )
    made = change(tx, row, to, detail)
    if not row.promoted:
        answer: RecordedAnswer | None = errors.deadline_expired()
        if made.row.state == to:
            answer = made.detail if isinstance(made.detail, Result) else outcome
        answer = _signed(answer or errors.outcome_unknown(), made)
        replay.answer_task(tx, row.id, row.principal, answer)
    return made


def ended_with(made: Change, wanted: RecordedAnswer | None = None) -> RecordedAnswer:
    """Return the answer to a request whose task has ended like this; `wanted` was intended, unless
    the deadline passed, or others ended the task.
    """
    if isinstance(made.detail, Result):
        return made.detail
    if made.row.state == "failed" and isinstance(made.detail, Failure):
        for condition in made.detail.conditions:
            if isinstance(condition, errors.DeadlineExpired):
                return _signed(errors.deadline_expired(), made)
    return _signed(wanted or errors.outcome_unknown(), made)


def _signed(answer: RecordedAnswer, made: Change) -> RecordedAnswer:
    """Return the answer to a request with the receipt of the failure of its task."""
    if isinstance(answer, StanzaError) and isinstance(made.detail, Failure):
        return error_with(answer, made.detail.receipt)
    return answer


# What happens to tasks.

PRIORITIES: Final[Mapping[str, int]] = {"low": -1, "normal": 0, "high": 1}


def stored_request(request: Request, arguments: Arguments, limits: TaskLimits) -> str:
    """Return the JSON that the row of a task stores of its request."""
    stored = request.stored(arguments, limits.poll_after_s)
    return msgspec.json.encode(stored).decode()


def new_row(tx: Transaction, task: str, request: Request, skill: Skill, stored: str) -> Row:
    """Return the row of a new task, accepted at revision 0, which is not written yet.

    Raises StanzaError: `deadline-expired`, or its parent has ended; the transaction must then be
    rolled back.
    """
    if request.parent and not rows.is_open(tx, request.parent):
        raise StanzaError("not-allowed", "The work that this is a part of has ended.")
    deadline = None if request.deadline is None else rows.milliseconds(request.deadline)
    if deadline is not None and tx.settled >= deadline:
        raise errors.deadline_expired()
    retention = tx.limits.retention_ms
    return Row(
        id=task,
        principal=str(request.principal),
        requester=str(request.requester),
        target=str(request.target),
        skill=skill.name,
        version=skill.version,
        request=stored,
        context=request.context,
        priority=PRIORITIES[request.priority],
        wake_at=None if deadline is None else rows.steady(tx, deadline),
        deadline=deadline,
        created=tx.now,
        updated=tx.now,
        retain_until=tx.steady + retention,
        promised=tx.now + retention,
        queue=f"{skill.queue} {request.group}" if request.group else skill.queue,
        parent=request.parent or None,
        progress=encode(Progress(text=request.about)) if request.about else None,
        share=request.share,
    )


def accepted_as(row: Row, state: State, limits: TaskLimits) -> Accepted:
    """Return the `<accepted/>` of a new task (EXE-023, EXE-024)."""
    return Accepted(
        task=row.id,
        state="input-required" if state == "input-required" else "accepted",
        retain_until=rows.moment(row.shown_until),
        poll_after=limits.poll_after_s,
    )


def begin(tx: Transaction, row: Row, owner: str, *, atomic: bool, new: bool = False) -> Change:
    """Set a task to running; the only step of an `atomic` skill begins. A `new` row is inserted."""
    row.attempts += 1
    made = change(tx, row, "running", owner=owner, new=new)
    if atomic and made.row.state == "running":
        journal.begin_step(tx, row, journal.StepId(journal.ATOMIC))
    return made


def add_part(tx: Transaction, row: Row, output: Output) -> Change:
    """Add a part of an artifact, with its own event (ART-001)."""
    tx.execute(
        "INSERT INTO parts (task, name, part, last, output) VALUES (?, ?, ?, ?, ?)",
        (row.id, output.name, output.part, int(output.last), encode(output)),
    )
    return change(tx, row, row.state, output)


def report_to_parent(tx: Transaction, row: Row, detail: Detail | None) -> Sequence[Change]:
    """Report the progress of a child task, and the parts of its artifacts, as those of its parent;
    parts that came while the parent could report nothing follow with the next one, or with the
    result.
    """
    if not isinstance(detail, Progress | Output | Result) or row.parent is None:
        return ()
    shown_as = rows.outline_of(row).shown_as
    parent = rows.load(tx, row.parent) if shown_as else None
    if parent is None or parent.state != "running":
        return ()
    if isinstance(detail, Progress):
        return (change(tx, parent, "running", detail),)
    made: list[Change] = []
    room = tx.limits.result_bytes // 2 - rows.size_of_parts(tx, parent.id)
    for part in rows.unshown_parts(tx, row.id, parent.id, f"{shown_as}/"):
        room -= len(encode(part).encode())
        if room < 0 or parent.state in TERMINAL:
            break
        made.append(add_part(tx, parent, part))
    return made


def reveal(tx: Transaction, row: Row) -> Sequence[Change]:
    """Make a task visible that was expected to end inline, and return its events so far. The caller
    writes the record of its request.
    """
    row.promoted = 1
    rows.update(tx, row)
    return [Change(then, detail) for then, detail in rows.events_of(tx, row)]


def release(tx: Transaction, row: Row, *, drained: bool = False) -> list[Change]:
    """Release a task, or end it if it is being cancelled. `drained` says that its run was stopped
    by a shutdown, which does not count as a failed attempt.
    """
    if row.state == "cancelling":
        return [end_cancelled(tx, row)]
    row.owner = None
    row.fence += 1
    if drained:
        row.attempts = max(0, row.attempts - 1)
    rows.update(tx, row)
    return []


def release_all(tx: Transaction, owner: str) -> list[Change]:
    """Release all tasks of an owner; those that were being cancelled end (design, "States")."""
    # locked in a fixed order
    owned = rows.select(tx, "WHERE owner = ? ORDER BY id", (owner,), rows.LOCK)
    return [made for row in owned for made in release(tx, row)]


def cancel(tx: Transaction, row: Row) -> list[Change]:
    """Cancel a task, unless it has ended or is already being cancelled (CAN-005, CAN-006)."""
    if row.state in ("accepted", "input-required"):
        return [end(tx, row, "cancelled", None)]
    if row.state != "running":
        return []
    made = [change(tx, row, "cancelling")]
    if made[0].row.state == "cancelling":  # and its deadline has not passed
        if row.owner is None:
            made.append(end_cancelled(tx, row))
        else:
            tx.notify(leases.CHANNEL)
    return made


def cancel_children(tx: Transaction, parent: str, among: Collection[str] | None = None) -> None:
    """Cancel the children of a task that have not ended: all, or those `among` these."""
    # locked in a fixed order
    rest = f"WHERE parent = ? AND {rows.OPEN} ORDER BY id"
    for child in rows.select(tx, rest, (parent,), rows.LOCK):
        if among is None or child.id in among:
            tx.publish(*cancel(tx, child))


def end_cancelled(tx: Transaction, row: Row) -> Change:
    """End a task whose run died while the task was being cancelled (CAN-004)."""
    if rows.exists(tx, "SELECT 1 FROM journal WHERE task = ? AND done = 0 LIMIT 1", row.id):
        return end(tx, row, "failed", errors.outcome_unknown())
    return end(tx, row, "cancelled", None)

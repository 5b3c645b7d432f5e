"""Manages the tasks of all principals, for operators: lists, counts, cancel, retry, release.

The command line uses it too, because it does not need a running service. Database triggers update
the counts on every change (`component.tasks.rows`), so no operation here takes longer when
there are more tasks.
"""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from component.store.database import Database
from component.store.outages import Outage
from component.store.storage import Storage
from component.tasks import changes, journal, leases, queries, rows
from component.tasks.changes import Transaction
from component.tasks.journal import Journal
from component.tasks.protocol import AGENT_WORK, TaskLimits
from component.tasks.rows import TERMINAL, Row
from xep.binding import read
from xep.fluux_agent.errors import OutcomeUnknown, Timeout
from xep.fluux_agent.execute import State
from xep.fluux_agent.task import Cancel, Failure, Task
from xep.jid import JID
from xep.stanza_error import StanzaError


class RefusedError(Exception):
    """A task cannot be cancelled, retried or released; the message is a sentence for an admin."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of tasks in each state, ended ones as long as they are retained; those `queued`
    for a claim, and those `owned` by an instance.
    """

    accepted: int = 0
    running: int = 0
    input_required: int = 0
    cancelling: int = 0
    completed: int = 0
    failed: int = 0
    rejected: int = 0
    cancelled: int = 0
    queued: int = 0
    owned: int = 0


class QueueLine(msgspec.Struct, frozen=True):
    """The state of a queue."""

    name: str
    limit: int | None
    per_minute: float | None
    running: int
    waiting: int


class Held(msgspec.Struct, frozen=True):
    """A task, its principal, the address that requested it, and the address that received that."""

    task: Task
    principal: str
    requester: str
    target: str


class TaskAdmin:
    """Manages all tasks. Every method raises StorageError if the database refuses.

    Args:
        cancel: cancels a task of a principal at an agent's address, as `TaskService.cancel` does;
            without it the rows are changed here, for use when no process runs the tasks.
        requeued: called with the id of a task that was queued; without it the task waits until
            an instance claims it.
    """

    def __init__(
        self,
        storage: Storage,
        limits: TaskLimits,
        cancel: Callable[[JID, JID, Cancel], Awaitable[Task]] | None = None,
        requeued: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._storage = storage
        self._limits = limits
        self._cancel = cancel
        self._requeued = requeued

    async def list_all(
        self, state: State | None, principal: str | None, limit: int
    ) -> Sequence[Held]:
        """Return the tasks that match the filters, the newest first, at most `limit`."""
        return await self._storage.read(lambda db: list_rows(db, state, principal, limit))

    async def show(self, task: str) -> Held | None:
        """Return one task; None if it does not exist."""
        return await self._storage.read(self._op(task, lambda _, row: row, lock=False))

    async def cancel(self, task: str) -> Held | None:
        """Cancel a task, and return its state after that; None if it does not exist."""
        held = await self.show(task)
        if held is None:
            return None
        if self._cancel is not None:
            who, at = JID.parse(held.principal), JID.parse(held.target)
            try:
                return msgspec.structs.replace(
                    held, task=await self._cancel(who, at, Cancel(id=task))
                )
            except StanzaError:
                return None  # deleted in the meantime

        def op(tx: Transaction, row: Row) -> Row:
            if row.owner is not None and tx.dialect == "sqlite":
                # Only the process that holds the directory's lock can write here, so that owner is
                # dead.
                changes.release(tx, row)
            tx.publish(*changes.cancel(tx, row))
            return row

        return await self._storage.write(self._op(task, op))

    async def retry(self, task: str, *, force: bool = False) -> Held | None:
        """Retry a failed task, or one whose result reports an error: start a new task from its
        journal. Return None if the task does not exist.

        Steps that returned a value are not repeated. Steps that failed or were interrupted run
        again, with the same idempotency keys; for steps with effects this requires `force`. Child
        tasks that did not complete are retried in the same way; completed ones become children of
        the new task.

        Raises RefusedError if the task or a child task has not ended, if a retry could repeat an
        effect, or if the task completed without an error.
        """

        def op(tx: Transaction, row: Row) -> Row:
            return _retry(tx, row, force=force)

        return await self._queue(task, op)

    async def release(self, task: str) -> Held | None:
        """Release a task that was set aside, None if it does not exist. Raises RefusedError."""

        def op(tx: Transaction, row: Row) -> Row:
            if row.set_aside is None:
                raise RefusedError(f"Task {task} is not set aside: it is {row.state}.")
            row.set_aside, row.attempts = None, 0
            rows.update(tx, row)
            return row

        return await self._queue(task, op)

    async def _queue(self, task: str, op: Callable[[Transaction, Row], Row]) -> Held | None:
        def queue(tx: Transaction, row: Row) -> Row:
            queued = op(tx, row)
            leases.wake_one(tx)
            return queued

        held = await self._storage.write(self._op(task, queue))
        if held is not None and held.task.id is not None:
            self._requeued(held.task.id)
        return held

    def _op(
        self, task: str, op: Callable[[Transaction, Row], Row], *, lock: bool = True
    ) -> Callable[[Database], Held | None]:
        """Return the operation on a task that its principal can see, whose value is the task. The
        row is locked unless it is only read.
        """

        def run(database: Database) -> Held | None:
            tx = Transaction(database, self._limits)
            row = rows.load(tx, task, lock=lock)
            if row is None or not row.promoted:
                return None
            row = op(tx, row)
            return _held(row, queries.whole_task(tx, row))

        return run

    async def queues(self) -> Sequence[QueueLine]:
        """Return the named queues that have limits or tasks, without those of sub-agents."""
        sql = (
            "SELECT queue, count(owner), count(CASE WHEN owner IS NULL THEN 1 END) FROM tasks"
            " WHERE queue IS NOT NULL AND queue NOT LIKE '% %' AND state IN ('accepted', 'running')"
            " GROUP BY queue"
        )
        found = await self._storage.read(lambda database: database.execute(sql).fetchall())
        limits = {name: one for name, one in self._limits.queues.items() if name != AGENT_WORK}
        counts = {queue: (running, waiting) for queue, running, waiting in found}
        lines: list[QueueLine] = []
        for name in sorted(limits.keys() | counts.keys()):
            bounds = limits.get(name)
            limit, rate = (None, None) if bounds is None else (bounds.running, bounds.per_minute)
            lines.append(QueueLine(name, limit, rate, *counts.get(name, (0, 0))))
        return lines

    async def find_outage(self) -> Outage | None:
        """Return the outage of the database, if it cannot be used."""
        return await self._storage.find_outage()

    async def counts(self) -> Counts:
        """Return how many tasks there are."""
        return await self._storage.read(count)


def list_rows(
    database: Database, state: State | None, principal: str | None, limit: int
) -> Sequence[Held]:
    """Return the tasks that match, the newest first; each combination of filters has an index."""
    meant: rows.Filter = {"promoted = 1": ()}
    for column, value in (("state", state), ("principal", principal)):
        if value is not None:
            meant[f"{column} = ?"] = (value,)
    found = rows.listed(database, meant, "created DESC, id", limit)
    return [_held(row, rows.event_of(row, rows.decoded(row.progress))) for row in found]


def _held(row: Row, task: Task) -> Held:
    return Held(task, row.principal, row.requester, row.target)


def _retry(tx: Transaction, row: Row, *, force: bool, parent: str | None = None) -> Row:
    if row.state not in TERMINAL:
        raise RefusedError(f"Task {row.id} has not ended: it is {row.state}. Cancel it first.")
    if rows.is_done(row):
        raise RefusedError(f"Task {row.id} is completed: there is nothing to retry.")
    failure = None if row.failure is None else read(row.failure, Failure)
    repeatable = failure is not None and failure.repeatable
    unknown = failure is not None and any(
        isinstance(one, OutcomeUnknown | Timeout) for one in failure.conditions
    )
    recorded = journal.read_journal(tx, row.id)
    if not (repeatable or force) and (unknown or journal.has_unfinished_steps(recorded)):
        raise RefusedError(
            f"It is not known whether task {row.id} had an effect in a step that was interrupted or"
            " failed, and a retry would run that step again. Find out first, or use force to "
            "retry it anyway."
        )
    task = leases.new_instance()
    children = _retry_children(tx, recorded, task, force=force)
    # The new task has neither the deadline nor the name of the old request.
    request = msgspec.structs.replace(rows.request_of(row), deadline=None, name=None)
    retention = tx.limits.retention_ms
    made = Row(
        id=task,
        principal=row.principal,
        requester=row.requester,
        target=row.target,
        skill=row.skill,
        version=row.version,
        request=msgspec.json.encode(request).decode(),
        context=row.context,
        priority=row.priority,
        created=tx.now,
        updated=tx.now,
        retain_until=tx.steady + retention,
        promised=tx.now + retention,
        promoted=row.promoted,
        origin=row.origin or row.id,
        parent=parent,
        queue=row.queue,
        children=len(children),
        share=row.share,
    )
    rows.put(tx, made)
    journal.copy_results(tx, recorded, made, children)
    return made


def _retry_children(
    tx: Transaction, recorded: Journal, parent: str, *, force: bool
) -> dict[str, str | None]:
    """Retry the child tasks in the journal of a failed task for `parent`, the task that retries it.

    Returns the ids of the new children by those that they replace; None: it is to be started again.
    Children that completed, or whose failure the task had handled, become children of `parent`.
    Raises RefusedError.
    """
    retried: dict[str, str | None] = {}
    started, settled = journal.children_in(recorded)
    for task in sorted(started):
        child = rows.load(tx, task)
        if child is not None and (task in settled or rows.is_done(child)):
            child.parent = parent
            rows.update(tx, child)
        elif child is not None:
            retried[task] = _retry(tx, child, force=force, parent=parent).id
        elif task in settled:
            continue
        elif force:
            retried[task] = None
        else:
            raise RefusedError(
                f"The child task {task} is no longer retained, so it is not known what it did."
                " Find out first, or use force to start it again."
            )
    return retried


def count(database: Database) -> Counts:
    """Return how many tasks there are."""
    states: dict[str, int] = {}
    queued = owned = 0
    found = database.execute("SELECT state, owned, sum(n) FROM task_counts GROUP BY state, owned")
    for state, has_owner, number in found.fetchall():
        name = state.replace("-", "_")
        states[name] = states.get(name, 0) + number
        owned += number if has_owner else 0
        queued += number if not has_owner and state in ("accepted", "running") else 0
    return Counts(**states, queued=queued, owned=owned)

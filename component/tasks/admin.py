"""Manages the tasks of all principals, for operators: lists, counts, cancel, retry, release.

The command line uses it too, because it does not need a running service. Database triggers update
the counts on every change (`component.storage.triggers`), so no operation here takes longer when
there are more tasks.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

import msgspec

from component import system
from component.storage.database import Database, Value
from component.tasks import instances, queries
from component.tasks.journal import (
    Journal,
    children_in,
    copy_results,
    has_unfinished_steps,
    read_journal,
)
from component.tasks.queues import QueueLimits, QueueLine, lines_of
from component.tasks.request import request_of
from component.tasks.rows import Row, decoded, event_of, is_done, load, put
from component.tasks.states import TERMINAL
from xep.binding import read
from xep.fluux_agent.errors import OutcomeUnknown, Timeout
from xep.fluux_agent.execute import State
from xep.fluux_agent.task import Cancel, Failure, Task
from xep.jid import JID
from xep.stanza_error import StanzaError

T = TypeVar("T")

_LISTED: Final = ", ".join(
    "NULL" if name in ("result", "failure") else name for name in Row.__struct_fields__
)


class RefusedError(Exception):
    """A task cannot be cancelled, retried or released; the message is a sentence for an admin."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of tasks in each state; ended tasks count for as long as they are retained.

    `queued` tasks wait until an instance claims them; `owned` tasks run on one now.
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


class Held(msgspec.Struct, frozen=True):
    """A task, its principal, the address that requested it, and the component's address that
    received the request.
    """

    task: Task
    principal: str
    requester: str
    target: str


class Store(Protocol):
    """Reads and writes rows; `component.storage.Storage` implements it. Both raise StorageError."""

    async def read(self, op: Callable[[Database], T]) -> T:
        """Return the value of an operation that reads."""

    async def write(self, op: Callable[[Database], T]) -> T:
        """Return the value of an operation that writes, after the commit."""


class TaskAdmin:
    """Manages all tasks. Every method raises StorageError if the database refuses.

    Args:
        store: reads and writes the rows.
        retention_ms: milliseconds for which a task is retained after its end.
        cancel: cancels a task of a principal at an agent's address, as `Tasks.cancel` does;
            without it the rows are changed here, for use when no process runs the tasks.
        requeued: called with the id of a task that was queued; without it the task waits until
            an instance claims it.
        queues: the limits of named queues.
    """

    def __init__(
        self,
        store: Store,
        retention_ms: int,
        cancel: Callable[[JID, JID, Cancel], Awaitable[Task]] | None = None,
        requeued: Callable[[str], None] = lambda _: None,
        queues: Mapping[str, QueueLimits] = MappingProxyType({}),
    ) -> None:
        self._store = store
        self._retention_ms = retention_ms
        self._cancel = cancel
        self._requeued = requeued
        self._queues = queues

    async def list_all(
        self, state: State | None, principal: str | None, limit: int
    ) -> Sequence[Held]:
        """Return the tasks that match the filters, the newest first, at most `limit`."""
        return await self._store.read(lambda db: list_rows(db, state, principal, limit))

    async def show(self, task: str) -> Held | None:
        """Return one task; None if it does not exist."""

        def op(database: Database) -> Held | None:
            row = _seen(database, task)
            return None if row is None else _held(row, queries.whole_task(database, row))

        return await self._store.read(op)

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
        retention_ms = self._retention_ms

        def op(database: Database) -> Held | None:
            row = _seen(database, task)
            if row is None:
                return None
            if row.owner is not None and database.dialect == "sqlite":
                # Only the process that holds the directory's lock can write here, so that owner is
                # dead.
                instances.release(database, row, retention_ms=retention_ms)
            instances.cancel_row(database, row, retention_ms=retention_ms)
            return _held(row, queries.whole_task(database, row))

        return await self._store.write(op)

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
        fresh, retention_ms = system.token_hex(16), self._retention_ms

        def op(database: Database) -> Held | None:
            row = _seen(database, task)
            if row is None:
                return None
            made = _retry(database, row, fresh, retention_ms, force=force)
            return _held(made, queries.whole_task(database, made))

        return await self._queue(op)

    async def release(self, task: str) -> Held | None:
        """Release a task that was set aside, so that it runs again. Return None if the task does
        not exist. Raises RefusedError.
        """

        def op(database: Database) -> Held | None:
            row = _seen(database, task)
            if row is None:
                return None
            if row.set_aside is None:
                raise RefusedError(f"Task {task} is not set aside: it is {row.state}.")
            row.set_aside, row.attempts = None, 0
            database.execute(
                "UPDATE tasks SET set_aside = NULL, attempts = 0 WHERE id = ?", (row.id,)
            )
            instances.wake_one(database)
            return _held(row, queries.whole_task(database, row))

        return await self._queue(op)

    async def _queue(self, op: Callable[[Database], Held | None]) -> Held | None:
        held = await self._store.write(op)
        if held is not None and held.task.id is not None:
            self._requeued(held.task.id)
        return held

    async def queues(self) -> Sequence[QueueLine]:
        """Return the named queues: their limits, and how many of their tasks run and wait."""
        return await self._store.read(lambda database: lines_of(database, self._queues))

    async def counts(self) -> Counts:
        """Return how many tasks there are."""
        return await self._store.read(count)


def list_rows(
    database: Database, state: State | None, principal: str | None, limit: int
) -> Sequence[Held]:
    """Return the tasks that match the filters, the newest first, at most `limit`.

    Each combination of filters has an index in this order.
    """
    meant: list[str] = ["visible = 1"]
    values: list[Value] = []
    for column, value in (("state", state), ("principal", principal)):
        if value is not None:
            meant.append(f"{column} = ?")
            values.append(value)
    found = database.execute(
        f"SELECT {_LISTED} FROM tasks WHERE {' AND '.join(meant)}"  # noqa: S608 - constant columns
        f" ORDER BY created DESC, id LIMIT {limit:d}",
        values,
    ).fetchall()
    return [_listed(Row(*row)) for row in found]


def _seen(database: Database, task: str) -> Row | None:
    row = load(database, task)
    return row if row is not None and row.visible else None


def _held(row: Row, task: Task) -> Held:
    return Held(task, row.principal, row.requester, row.target)


def _listed(row: Row) -> Held:
    progress = decoded(row.progress)
    task = event_of(
        row,
        state=row.state,
        revision=row.revision,
        at=row.updated,
        retain=row.shown_until,
        detail=progress,
    )
    return _held(row, task)


def _retry(
    database: Database,
    row: Row,
    task: str,
    retention_ms: int,
    *,
    force: bool,
    parent: str | None = None,
) -> Row:
    """Create a new task that retries one that failed. Raises RefusedError."""
    if row.state not in TERMINAL:
        raise RefusedError(f"Task {row.id} has not ended: it is {row.state}. Cancel it first.")
    if is_done(row):
        raise RefusedError(f"Task {row.id} is completed: there is nothing to retry.")
    failure = None if row.failure is None else read(row.failure, Failure)
    repeatable = failure is not None and failure.repeatable
    unknown = failure is not None and any(
        isinstance(one, OutcomeUnknown | Timeout) for one in failure.conditions
    )
    journal = read_journal(database, row.id)
    if not (repeatable or force) and (unknown or has_unfinished_steps(journal)):
        raise RefusedError(
            f"It is not known whether task {row.id} had an effect in a step that was interrupted or"
            " failed, and a retry would run that step again. Find out first, or use force to "
            "retry it anyway."
        )
    children = _retry_children(database, journal, task, retention_ms, force=force)
    # The new task has neither the deadline nor the request id of the old one.
    request = request_of(row)
    asked = msgspec.structs.replace(request.asked.without_params(), deadline=None)
    made = msgspec.structs.replace(
        row,
        id=task,
        request=msgspec.structs.replace(request, call=asked, execute="", id=None).encoded(),
        state="accepted",
        revision=0,
        owner=None,
        token=0,
        progress=None,
        result=None,
        failure=None,
        untold=None,
        due=None,
        deadline=None,
        created=database.now,
        updated=database.now,
        retain_until=database.steady + retention_ms,
        promised=database.now + retention_ms,
        origin=row.origin or row.id,
        attempts=0,
        set_aside=None,
        parent=parent,
        not_before=None,
        waits=0,
        children=len(children),
        tries=0,
    )
    put(database, made)
    copy_results(database, journal, task, made.token, children)
    instances.wake_one(database)
    return made


def _retry_children(
    database: Database, journal: Journal, parent: str, retention_ms: int, *, force: bool
) -> dict[str, str | None]:
    """Retry the child tasks in the journal of a failed task for `parent`, the task that retries it.

    Returns the ids of the new children by the ids of those that they replace; None means that the
    child is to be started again. Children that completed, and children whose failure the task had
    already handled, become children of `parent`. Raises RefusedError.
    """
    retried: dict[str, str | None] = {}
    started, settled = children_in(journal)
    for task in sorted(started):
        child = load(database, task)
        if task in settled or (child is not None and is_done(child)):
            database.execute("UPDATE tasks SET parent = ? WHERE id = ?", (parent, task))
        elif child is not None:
            retried[task] = fresh = system.token_hex(16)
            _retry(database, child, fresh, retention_ms, force=force, parent=parent)
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
    found = database.execute(
        "SELECT state, owned, sum(n) FROM task_counts GROUP BY state, owned"
    ).fetchall()
    states: dict[str, int] = {}
    queued = owned = 0
    for state, has_owner, number in found:
        states[state.replace("-", "_")] = states.get(state.replace("-", "_"), 0) + number
        owned += number if has_owner else 0
        queued += number if not has_owner and state in ("accepted", "running") else 0
    return Counts(**states, queued=queued, owned=owned)

"""All tasks of everybody, for those who run the service.

What it shows and does needs no engine, so it serves the command line too when no service runs.
"""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from component.storage.database import Database, Value
from component.tasks import leases, reading
from component.tasks.request import request_of
from component.tasks.rows import COLUMNS, Row, decoded, event_of, load
from component.tasks.states import TERMINAL
from xep.binding import encode, read
from xep.fluux_agent.errors import OutcomeUnknown, Timeout
from xep.fluux_agent.execute import Execute, State
from xep.fluux_agent.task import Cancel, Failure, Task
from xep.jid import JID
from xep.stanza_error import StanzaError

T = TypeVar("T")

_LISTED: Final = ", ".join(
    "NULL" if name in ("result", "failure") else name for name in Row.__struct_fields__
)
_OPEN: Final = "state IN ('accepted', 'running', 'input-required', 'cancelling')"
"""As the index of open tasks says it: those in another way are not known to be in it."""
_COUNTED: Final = (
    # Each from an index, as rows are wide and most are of tasks that are completed: those are what
    # the others leave of all. In one statement, so that it is one moment of which this tells.
    "SELECT state, count(*), count(owner),"  # noqa: S608 - ours
    " count(CASE WHEN owner IS NULL AND state IN ('accepted', 'running') THEN 1 END)"
    f" FROM tasks WHERE {_OPEN} GROUP BY state"
    " UNION ALL SELECT state, count(*), 0, 0 FROM tasks"
    " WHERE state IN ('failed', 'rejected', 'cancelled') GROUP BY state"
    " UNION ALL SELECT 'completed', count(*), 0, 0 FROM tasks"
)


class RefusedError(Exception):
    """Something cannot be done to a task: one sentence for an admin."""


class Held(msgspec.Struct, frozen=True):
    """A task, whose it is, who asked for it and at which address of ours."""

    task: Task
    principal: str
    requester: str
    target: str


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many tasks there are in each state, ended ones for as long as they are kept.

    `queued` wait for their turn, `owned` are run by an instance at this moment.
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


class Store(Protocol):
    """Where the rows are; `component.storage.Storage` is one. Both raise StorageError."""

    async def read(self, op: Callable[[Database], T]) -> T:
        """The value of an operation that reads."""

    async def write(self, op: Callable[[Database], T]) -> T:
        """The value of an operation that writes, after the commit."""


class Ledger:
    """All tasks. Every method raises StorageError if the database refuses.

    Args:
        store: where the rows are.
        retention_ms: milliseconds that a task is kept after its end.
        cancel: ends a task of a principal at an address of ours, as `Tasks.cancel` does; without
            it the rows are changed here, which is for when nobody runs them in this process.
        retry: begins a new task with the request of another; without it the new row waits for
            the next instance that looks.
    """

    def __init__(
        self,
        store: Store,
        retention_ms: int,
        cancel: Callable[[JID, JID, Cancel], Awaitable[Task]] | None = None,
        retry: Callable[[str], Awaitable[Task]] | None = None,
    ) -> None:
        self._store = store
        self._retention_ms = retention_ms
        self._cancel = cancel
        self._retry = retry

    async def list_all(
        self, state: State | None, principal: str | None, limit: int
    ) -> Sequence[Held]:
        """The tasks that meet the filters, the one created last first, `limit` at most."""
        meant: list[str] = ["visible = 1"]
        values: list[Value] = []
        order = "created DESC, id"
        if state is not None and state not in TERMINAL:
            # Few of all that are kept: take the index of those and sort them. SQLite would go
            # through all by their order, if that were a column's.
            meant.append(_OPEN)
            order = "created + 0 DESC, id"
        for column, value in (("state", state), ("principal", principal)):
            if value is not None:
                meant.append(f"{column} = ?")
                values.append(value)

        def op(database: Database) -> list[Held]:
            found = database.execute(
                f"SELECT {_LISTED} FROM tasks WHERE {' AND '.join(meant)}"  # noqa: S608 - ours
                f" ORDER BY {order} LIMIT ?",
                (*values, limit),
            ).fetchall()
            return [_listed(Row(*row)) for row in found]

        return await self._store.read(op)

    async def show(self, task: str) -> Held | None:
        """One task whole; None if there is none."""

        def op(database: Database) -> Held | None:
            row = _seen(database, task)
            return None if row is None else _held(row, reading.whole(database, row))

        return await self._store.read(op)

    async def cancel(self, task: str) -> Held | None:
        """Ask a task to end, and return it as it is then; None if there is none."""
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
                return None  # it has gone meanwhile
        retention_ms = self._retention_ms

        def op(database: Database) -> Held | None:
            row = _seen(database, task)
            if row is None:
                return None
            if row.owner is not None and database.dialect == "sqlite":
                # Whoever can write here has the directory's lock: that owner is dead.
                leases.release(database, row, retention_ms=retention_ms)
            leases.cancel_row(database, row, retention_ms=retention_ms)
            return _held(row, reading.whole(database, row))

        return await self._store.write(op)

    async def retry(self, task: str, *, force: bool = False) -> Held | None:
        """Begin a new task with the request of one that has failed, and return it; None: unknown.

        `force` does so even if it is not known whether the first one had an effect.

        Raises RefusedError if it has not ended, has done its work, or may not be begun again.
        """
        row = await self._store.read(lambda database: _seen(database, task))
        if row is None:
            return None
        _check(row, force=force)
        if self._retry is not None:
            try:
                return _held(row, await self._retry(task))
            except StanzaError as error:
                raise RefusedError(_sentence(error)) from None
        if request_of(row).confirmers:
            raise RefusedError(
                f"Task {task} needs the confirmation of a person, whom only the service can ask:"
                " start it, and try again."
            )
        fresh = secrets.token_hex(16)

        def op(database: Database) -> Held:
            return _again(database, row, fresh, self._retention_ms)

        return await self._store.write(op)

    async def counts(self) -> Counts:
        """How many tasks there are."""

        def op(database: Database) -> Counts:
            found = database.execute(_COUNTED).fetchall()
            states = {state.replace("-", "_"): count for state, count, _, _ in found}
            states["completed"] -= sum(states.values()) - states["completed"]
            owned, queued = (sum(row[at] for row in found) for at in (2, 3))
            return Counts(**states, queued=queued, owned=owned)

        return await self._store.read(op)


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
        retain=row.retain_until,
        detail=progress,
    )
    return _held(row, task)


def _check(row: Row, *, force: bool) -> None:
    if row.state not in TERMINAL:
        raise RefusedError(f"Task {row.id} has not ended: it is {row.state}. Cancel it first.")
    if row.state == "completed":
        raise RefusedError(f"Task {row.id} is completed: there is nothing to try again.")
    failure = None if row.failure is None else read(row.failure, Failure)
    if failure is None or failure.repeatable or force:
        return
    if any(isinstance(one, OutcomeUnknown | Timeout) for one in failure.conditions):
        raise RefusedError(
            f"It is not known whether task {row.id} had an effect, and trying again could make it"
            " happen twice. Find that out first; force begins it anyway."
        )


def _again(database: Database, row: Row, task: str, retention_ms: int) -> Held:
    """A new row with the request of another. Neither its deadline nor its request id is kept."""
    request = request_of(row)
    asked = read(request.execute, Execute)
    request = msgspec.structs.replace(
        request,
        execute=encode(msgspec.structs.replace(asked, request=None, deadline=None)),
        id=None,
    )
    made = msgspec.structs.replace(
        row,
        id=task,
        request=request.encoded(),
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
        retain_until=database.now + retention_ms,
    )
    values = msgspec.structs.astuple(made)
    database.execute(
        f"INSERT INTO tasks ({COLUMNS}) VALUES ({', '.join('?' * len(values))})",  # noqa: S608
        values,
    )
    database.notify("tasks")  # an instance on another host can begin it now
    return _held(made, reading.whole(database, made))


def _sentence(error: StanzaError) -> str:
    return error.text or f"The agent refuses with {error.condition}."

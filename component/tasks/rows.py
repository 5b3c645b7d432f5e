"""The tables `tasks`, `events` and `parts`, and the statements that several modules need."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, Final, TypeAlias, get_args

import msgspec

from component.agent_addresses import both_addresses
from component.caches import LRUCache
from component.policy.taint import Taint
from component.store.database import Database, Dialect, Value, Values, among
from component.store.schema import Table
from component.tasks.protocol import DeletedTask, TaskLimits
from component.tasks.request import NO_JSON, Request
from xep.binding import read
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Confirm
from xep.fluux_agent.execute import Output, Result, State
from xep.fluux_agent.plan import PlanSteps
from xep.fluux_agent.task import Failure, Input, Progress, Task
from xep.jid import JID

TERMINAL: Final[frozenset[State]] = frozenset(("completed", "failed", "rejected", "cancelled"))
"""Final states: a task in one of these never changes again (TSK-002)."""


class LostError(Exception):
    """The run no longer owns the task, so it stops and sends nothing."""


# The number of tasks in each state, with and without an owner. On PostgreSQL each connection has
# its own rows, by the id of its server process, so writers never wait for each other;
# `component.tasks.admin` adds them up.

_COUNT_SQLITE: Final = """
INSERT INTO task_counts (shard, state, owned, n)
VALUES (0, {row}.state, {row}.owner IS NOT NULL, {n})
ON CONFLICT (shard, state, owned) DO UPDATE SET n = n + excluded.n;
"""

_OUT: Final = _COUNT_SQLITE.format(row="OLD", n=-1)

_IN: Final = _COUNT_SQLITE.format(row="NEW", n=1)

COUNT_TASKS_SQLITE: Final = (
    f"CREATE TRIGGER tasks_counted_in AFTER INSERT ON tasks BEGIN {_IN} END",
    f"""
    CREATE TRIGGER tasks_counted AFTER UPDATE OF state, owner ON tasks
    WHEN OLD.state <> NEW.state OR (OLD.owner IS NULL) <> (NEW.owner IS NULL)
    BEGIN {_OUT} {_IN} END
    """,
    f"CREATE TRIGGER tasks_counted_out AFTER DELETE ON tasks BEGIN {_OUT} END",
)

COUNT_TASKS_POSTGRES: Final = (
    """
    CREATE FUNCTION count_tasks() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP <> 'INSERT' THEN
            INSERT INTO task_counts AS kept (shard, state, owned, n)
            VALUES (pg_backend_pid(), OLD.state, (OLD.owner IS NOT NULL)::int, -1)
            ON CONFLICT (shard, state, owned) DO UPDATE SET n = kept.n - 1;
        END IF;
        IF TG_OP <> 'DELETE' THEN
            INSERT INTO task_counts AS kept (shard, state, owned, n)
            VALUES (pg_backend_pid(), NEW.state, (NEW.owner IS NOT NULL)::int, 1)
            ON CONFLICT (shard, state, owned) DO UPDATE SET n = kept.n + 1;
        END IF;
        RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER tasks_counted AFTER INSERT OR DELETE ON tasks
    FOR EACH ROW EXECUTE FUNCTION count_tasks()
    """,
    """
    CREATE TRIGGER tasks_counted_change AFTER UPDATE ON tasks FOR EACH ROW
    WHEN (OLD.state <> NEW.state OR (OLD.owner IS NULL) <> (NEW.owner IS NULL))
    EXECUTE FUNCTION count_tasks()
    """,
)

TABLES: Final = (
    Table(
        name="tasks",
        columns="""
            id TEXT PRIMARY KEY,
            principal TEXT {C} NOT NULL,
            requester TEXT NOT NULL,
            target TEXT NOT NULL,
            skill TEXT NOT NULL,
            version TEXT NOT NULL,
            request TEXT NOT NULL,
            context TEXT,
            state TEXT NOT NULL,
            revision INTEGER NOT NULL,
            priority INTEGER NOT NULL,
            owner TEXT,
            fence INTEGER NOT NULL,
            progress TEXT,
            result TEXT,
            failure TEXT,
            promoted INTEGER NOT NULL,
            unsent_revision INTEGER,
            wake_at BIGINT,
            deadline BIGINT,
            created BIGINT NOT NULL,
            updated BIGINT NOT NULL,
            retain_until BIGINT NOT NULL,
            bytes BIGINT,
            origin TEXT,
            attempts INTEGER NOT NULL DEFAULT 0,
            set_aside TEXT,
            parent TEXT,
            queue TEXT {C},
            not_before BIGINT,
            waits INTEGER NOT NULL DEFAULT 0,
            children INTEGER NOT NULL DEFAULT 0,
            tries INTEGER NOT NULL DEFAULT 0,
            promised BIGINT,
            taints TEXT,
            share TEXT {C} NOT NULL CHECK (share <> ''),
            plan TEXT
        """,
        indexes={
            "tasks_queue": "(share, priority DESC, created, id)"
            " WHERE owner IS NULL AND state IN ('accepted', 'running')",
            "tasks_owned": "(owner) WHERE owner IS NOT NULL",
            "tasks_wake_at": "(wake_at) WHERE wake_at IS NOT NULL",
            "tasks_untold": "(updated) WHERE unsent_revision IS NOT NULL",
            "tasks_retain": "(retain_until)",
            "tasks_created": "(created DESC, id) WHERE promoted = 1",
            "tasks_kept": "(principal, updated, id, bytes, state, unsent_revision)"
            " WHERE state IN ('completed', 'failed', 'rejected', 'cancelled')",
            "tasks_open_bytes": "(share, bytes, state)"
            " WHERE state IN ('accepted', 'running', 'input-required', 'cancelling')",
            "tasks_set_aside": "(created) WHERE set_aside IS NOT NULL",
            "tasks_parent": "(parent) WHERE parent IS NOT NULL",
            "tasks_in_queue": "(queue, owner) WHERE queue IS NOT NULL",
            "tasks_listed": "(principal, created DESC, id) WHERE promoted = 1",
            "tasks_state": "(principal, state, created DESC, id) WHERE promoted = 1",
            "tasks_context": "(principal, context, created DESC, id) WHERE context IS NOT NULL",
            "tasks_updated": "(principal, updated) WHERE promoted = 1",
            "tasks_by_state": "(state, created DESC, id) WHERE promoted = 1",
        },
        has_rowid=True,
        kept="stored for `tasks.retention_s`, as promised to their callers",
    ),
    Table(
        name="events",
        columns="""
            task TEXT NOT NULL REFERENCES tasks ON DELETE CASCADE,
            revision INTEGER NOT NULL,
            state TEXT NOT NULL,
            at BIGINT NOT NULL,
            retain BIGINT NOT NULL,
            detail TEXT,
            plan TEXT,
            PRIMARY KEY (task, revision)
        """,
        kept="part of a task",
    ),
    Table(
        name="parts",
        columns="""
            task TEXT NOT NULL REFERENCES tasks ON DELETE CASCADE,
            name TEXT {C} NOT NULL,
            part INTEGER NOT NULL,
            last INTEGER NOT NULL,
            output TEXT NOT NULL,
            PRIMARY KEY (task, name, part)
        """,
        kept="part of a task",
    ),
    Table(
        name="waiters",
        columns="""
            task TEXT NOT NULL,
            waiter TEXT NOT NULL,
            home TEXT,
            eager INTEGER NOT NULL,
            ended INTEGER NOT NULL,
            PRIMARY KEY (task, waiter)
        """,
        indexes={"waiters_waiter": "(waiter)", "waiters_ready": "(home) WHERE ended = 1"},
        kept="part of a task",
    ),
    Table(
        name="task_counts",
        columns="""
            shard BIGINT NOT NULL,
            state TEXT NOT NULL,
            owned INTEGER NOT NULL,
            n BIGINT NOT NULL,
            PRIMARY KEY (shard, state, owned)
        """,
        sqlite=COUNT_TASKS_SQLITE,
        postgres=COUNT_TASKS_POSTGRES,
        kept="counts",
        is_work=False,
    ),
)

Detail = Progress | Output | Input | Confirm | Result | Failure
"""The payload of a change, which its event contains."""


class Row(msgspec.Struct):
    """The row of a task as one transaction sees it. Times are milliseconds since 1970, UTC.

    The times `wake_at`, `not_before` and `retain_until` are by the steady clock
    (`component.store.database.Database`).

    `request` is the JSON of a `Request`; `progress`, `result` and `failure` are XML. `owner` is the
    instance that runs the task; `fence` changes whenever the owner does. A row that is not
    `promoted` belongs to a call that may still be answered inline: no event is sent for it.
    `unsent_revision` is the revision of an event that must be sent and was not yet. The timer
    checks the task at `wake_at`. `origin` is the task that this one retries, whose idempotency keys
    it uses. `attempts` counts the executions that have started since the last recorded progress;
    `set_aside` says why none starts until an operator decides. `parent` is the task whose execution
    started this one, `queue` its named queue. It is not claimed before `not_before`, nor while it
    waits for `waits` other tasks. `children` counts the tasks that it started, `tries` its failed
    executions that the skill has retried. `share` is that of its request. `promised` is
    `retain_until` as callers were told it, by the wall clock of that time; None where it is the
    same. `taints` are the possible authors of its result, with spaces between; None while there is
    no result of the skill. `plan` is the XML of the steps of a task that is a plan.
    """

    id: str
    principal: str
    requester: str
    target: str
    skill: str
    version: str
    request: str
    context: str | None
    priority: int
    created: int
    updated: int
    retain_until: int
    promised: int | None = None
    state: State = "accepted"
    revision: int = 0
    owner: str | None = None
    fence: int = 0
    progress: str | None = None
    result: str | None = None
    failure: str | None = None
    promoted: int = 0
    unsent_revision: int | None = None
    wake_at: int | None = None
    deadline: int | None = None
    origin: str | None = None
    attempts: int = 0
    set_aside: str | None = None
    parent: str | None = None
    queue: str | None = None
    not_before: int | None = None
    waits: int = 0
    children: int = 0
    tries: int = 0
    taints: str | None = None
    share: str = ""
    plan: str | None = None

    @property
    def authors(self) -> tuple[Taint, ...]:
        """The possible authors of the result, or of the reason why there is none."""
        return msgspec.convert((self.taints or "").split(), tuple[Taint, ...])

    @property
    def shown_until(self) -> int:
        """Until when callers are told that the task is retained, in milliseconds since 1970."""
        return self.retain_until if self.promised is None else self.promised


COLUMNS: Final = ", ".join(Row.__struct_fields__)
OPEN: Final = "state IN ('accepted', 'running', 'input-required', 'cancelling')"
"""Same condition as in the index `tasks_open_bytes`."""
ENDED: Final = "state IN ('completed', 'failed', 'rejected', 'cancelled')"
"""Same condition as in the index `tasks_kept`."""
QUEUED: Final = (
    "owner IS NULL AND state IN ('accepted', 'running') AND set_aside IS NULL"
    " AND not_before IS NULL AND waits = 0"
)
"""Matches tasks that can be claimed now; see `is_queued`. The timer clears `not_before` when it is
due.
"""
NOT_ENDED: Final = " AND ".join(f"state <> '{state}'" for state in sorted(TERMINAL))
"""Not written as a list: SQLite builds an index for a list as soon as one row is compared with it.
That takes 50 µs, which would distinguish a task that is no longer retained from one that never
existed (TSK-011).
"""

LOCK: Final = " FOR NO KEY UPDATE"
SKIP: Final = " FOR UPDATE SKIP LOCKED"
"""Instances that do this at once skip each other's rows instead of waiting or deadlocking."""


def is_queued(row: Row) -> bool:
    """Return whether a task can be claimed now."""
    return (
        row.owner is None
        and row.state in ("accepted", "running")
        and row.set_aside is None
        and row.not_before is None
        and not row.waits
    )


def is_done(row: Row) -> bool:
    """Return whether a task has completed and its result reports no error."""
    return row.state == "completed" and not (
        row.result is not None and read(row.result, Result).is_error
    )


def is_late(database: Database, row: Row) -> bool:
    """Return whether the deadline of a task has passed."""
    return row.deadline is not None and database.settled >= row.deadline


def request_of(row: Row) -> Request:
    """Return the request of a task. Raises msgspec.DecodeError."""
    return msgspec.json.decode(row.request, type=Request)


class Outline(msgspec.Struct, frozen=True):
    """What a change of a task needs to know of its request."""

    name: str | None = None
    origin: str = "iq"
    delegation: msgspec.Raw = NO_JSON
    shown_as: str = ""


def outline_of(row: Row) -> Outline:
    """Return the outline of the request of a task, without decoding the rest."""
    try:
        return msgspec.json.decode(row.request, type=Outline)
    except msgspec.DecodeError:  # what cannot be decoded is reported when the task is run
        return Outline("", "tool")


# Times.

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def moment(milliseconds: int) -> datetime:
    """Return the datetime for milliseconds since 1970."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def milliseconds(time: datetime) -> int:
    """Return the milliseconds since 1970 of an aware time, rounded up."""
    return -((_EPOCH - time) // timedelta(milliseconds=1))


def steady(database: Database, time: int) -> int:
    """Convert a wall-clock time to the steady clock, unless the wall clock is set before then."""
    return time - database.now + database.steady


def next_due(database: Database, row: Row, *times: int | None) -> int | None:
    """Return when to check a task: at its deadline, `not_before` or one of `times`; None: never."""
    deadline = None if row.deadline is None else steady(database, row.deadline)
    return min(
        (time for time in (deadline, row.not_before, *times) if time is not None), default=None
    )


# Statements.


def exists(database: Database, sql: str, *values: Value) -> bool:
    """Return whether a statement finds a row."""
    return database.execute(sql, values).fetchone() is not None


def column(database: Database, sql: str, *values: Value) -> list[Any]:
    """Return the first column of what a statement finds."""
    return [row[0] for row in database.execute(sql, values).fetchall()]


def select(database: Database, rest: str, values: Values = (), lock: str = "") -> list[Row]:
    """Return the rows that match; `rest` follows `FROM tasks`. Only PostgreSQL has locks."""
    locked = lock if database.dialect == "postgresql" else ""
    found = database.execute(f"SELECT {COLUMNS} FROM tasks {rest}{locked}", values)  # noqa: S608
    return [Row(*row) for row in found.fetchall()]


def load(database: Database, task: str, *, lock: bool = True) -> Row | None:
    """Return the row, by default locked until the end of the transaction; None if there is none."""
    found = select(database, "WHERE id = ?", (task,), LOCK if lock else "")
    return found[0] if found else None


def load_or_raise(database: Database, task: str) -> Row:
    """Return the row of a task of any principal. Raises StanzaError: `unknown-task`."""
    row = load(database, task)
    if row is None:
        raise errors.unknown_task()
    return row


_CURRENT: Final = (
    "SELECT 1 FROM tasks WHERE id = ? AND owner = ? AND fence = ? AND revision = ?"
    " AND promoted = ? AND coalesce(wake_at, -1) = ? AND coalesce(unsent_revision, -1) = ?"
)
"""Finds a task in which nothing has changed that others may change while a run owns it."""


def current(database: Database, row: Row) -> Row:
    """Return a copy of the row of a task that a run owns, as it is now, and lock it; `row` is the
    row as the run knows it. Raises LostError if the fence has changed.
    """
    wake_at = -1 if row.wake_at is None else row.wake_at
    unsent = -1 if row.unsent_revision is None else row.unsent_revision
    lock = LOCK if database.dialect == "postgresql" else ""
    values = (row.id, row.owner, row.fence, row.revision, row.promoted, wake_at, unsent)
    if database.expect(f"{_CURRENT}{lock}", values):
        return msgspec.structs.replace(row)
    found = load(database, row.id)
    if found is None or found.fence != row.fence:
        raise LostError(row.id)
    return found


_INSERT: Final = (
    f"INSERT INTO tasks ({COLUMNS}, bytes)"  # noqa: S608
    f" VALUES ({', '.join('?' * (len(Row.__struct_fields__) + 1))})"
)
_CHANGED: Final = (
    *("state", "revision", "owner", "fence", "progress", "result", "failure", "promoted"),
    *("unsent_revision", "wake_at", "updated", "retain_until", "promised", "attempts", "set_aside"),
    *("not_before", "waits", "children", "tries", "parent", "version", "taints", "plan"),
)
_SET: Final = f"UPDATE tasks SET {', '.join(f'{name} = ?' for name in _CHANGED)}"  # noqa: S608 - constant names
_UPDATE: Final = f"{_SET} WHERE id = ?"


def put(database: Database, row: Row) -> None:
    """Insert a row."""
    database.execute(_INSERT, (*msgspec.structs.astuple(row), request_bytes(row.request)))


_changed: Final[Callable[[Row], tuple[Value, ...]]] = attrgetter(*_CHANGED)


def update(database: Database, row: Row) -> None:
    """Update the columns of a row that can change, and the size of an ended task."""
    values = _changed(row)
    if row.state not in TERMINAL:
        database.execute(_UPDATE, (*values, row.id))
        return
    texts = (row.request, row.progress, row.result, row.failure, row.plan)
    size = _ROW_BYTES + sum(len(text.encode()) for text in texts if text is not None)
    database.execute(_UPDATE_ENDED[database.dialect], (*values, size, row.id))


def delete(database: Database, tasks: Sequence[str]) -> list[DeletedTask]:
    """Delete tasks and what they waited for; return those that their principals could see."""
    these, ids = among(database, "id", tasks)
    database.execute(
        f"WITH RECURSIVE family(id) AS (SELECT id FROM tasks WHERE {these} UNION"  # noqa: S608
        " SELECT tasks.id FROM tasks JOIN family ON tasks.parent = family.id)"
        " DELETE FROM waiters WHERE waiter IN (SELECT id FROM family)",
        (ids,),
    )
    found = database.execute(
        f"DELETE FROM tasks WHERE {these} RETURNING id, principal, target, promoted",  # noqa: S608
        (ids,),
    ).fetchall()
    return [DeletedTask(task, who, at) for task, who, at, promoted in found if promoted]


# Sizes.

_ROW_BYTES: Final = 512
"""The approximate size of a task without its texts."""
_CHILD_BYTES: Final = 96
"""The approximate size of an event, a part, a step or a question without its texts."""


def request_bytes(request: str) -> int:
    """Return the approximate size of a task that has nothing yet but its request."""
    return _ROW_BYTES + len(request.encode())


def size_of(row: Row) -> int:
    """Return the approximate size of an ended task, without reading its related rows."""
    texts = (row.request, row.progress, row.result, row.result, row.failure, row.failure)
    events = (_CHILD_BYTES + len(row.plan or "")) * row.revision
    return _ROW_BYTES + len(row.plan or "") + events + sum(len(text or "") for text in texts)


def _measuring(size: str) -> str:
    """Return the statement that updates the row and the size of an ended task; `size` is an
    expression for the size of a column.
    """

    def children(table: str, *columns: str) -> str:
        texts = "".join(f" + coalesce({size.format(column)}, 0)" for column in columns)
        return (
            f" + (SELECT coalesce(sum({_CHILD_BYTES}{texts}), 0) FROM {table} c"  # noqa: S608 - constant names
            " WHERE c.task = tasks.id)"
        )

    return (
        f"{_SET}, bytes = CAST(? AS BIGINT)"
        f"{children('events', 'c.detail', 'c.plan')}{children('parts', 'c.output')}"
        f"{children('journal', 'c.result')}{children('inputs', 'c.question', 'c.answer')}"
        " WHERE id = ?"
    )


_UPDATE_ENDED: Final[Mapping[Dialect, str]] = {
    "sqlite": _measuring("length(CAST({} AS BLOB))"),
    "postgresql": _measuring("octet_length({})"),
}

_PRINCIPALS: Final = 10_000
"""Number of shares whose counts are cached; the tasks of others are counted more often."""


class OpenBound:
    """Refuses new work of a share that has too many open tasks, or too large ones; and of an agent
    that asks for several people, if their shares together have too many.

    The tasks are counted only when as many were accepted as there was room for, which leaves room
    that ended tasks have freed unused until then. Several instances on one database do not see what
    the others accept, so each uses a tenth of the room before it counts again.

    Args:
        limits: the limits of one share.
        most_open: returns the maximum number of open tasks of an agent (a bare JID); their requests
            may be larger in proportion.
    """

    def __init__(self, limits: TaskLimits, most_open: Callable[[str], int] | None = None) -> None:
        self._limits = limits
        self._most_open = most_open
        self._left: LRUCache[str, tuple[int, int]] = LRUCache(_PRINCIPALS)
        """Tasks and bytes that a share, or an agent, may add before its tasks are counted."""

    def check(self, database: Database, share: str, request: str = "") -> None:
        """Check whether a new task with this request is allowed. Raises StanzaError: `busy`, if
        there are too many open tasks, or their requests are too large together.
        """
        size = request_bytes(request) if request else 0
        agent, _, origin = share.partition(" ")
        left: dict[str, tuple[int, int]] = {}
        # All shares of an agent begin with its address and a space.
        for whose in (share, f"{agent} ") if origin and self._most_open else (share,):
            tasks, room = self._left.get(whose, (0, 0))
            if tasks <= 0 or room < size:
                tasks, room = self._count(database, whose, size)
            left[whose] = (tasks - 1, room - size)
        for whose, after in left.items():
            self._left[whose] = after

    def _count(self, database: Database, whose: str, size: int) -> tuple[int, int]:
        """Return the room of a share, or of all shares of an agent."""
        limits, most = self._limits, self._limits.tasks_per_principal
        which, values = "share = ?", [whose]
        agent = whose.removesuffix(" ")
        if agent != whose and self._most_open is not None:
            most = self._most_open(agent)
            which, values = "share > ? AND share < ?", [whose, f"{agent}!"]  # "!" follows the space
        count, taken = database.execute(
            "SELECT count(*), coalesce(sum(bytes), 0) FROM (SELECT bytes FROM tasks WHERE"  # noqa: S608
            f" {which} AND {OPEN} LIMIT ?) AS open",
            (*values, most),
        ).fetchone() or (0, 0)
        bytes_ = max(limits.open_bytes, limits.open_bytes * most // limits.tasks_per_principal)
        tasks, room = most - count, bytes_ - int(taken)
        if tasks <= 0 or (count and room < size):
            raise errors.busy(limits.retry_after_s)
        return (tasks, room) if database.dialect == "sqlite" else (tasks // 10, room // 10)


# What principals and operators see.

_LISTED: Final = ", ".join(
    "NULL" if name in ("result", "failure") else name for name in Row.__struct_fields__
)
_THEIRS: Final = (
    f"principal = ? AND target IN (?, ?) AND promoted = 1 AND (({NOT_ENDED}) OR retain_until >= ?)"
)


def find(database: Database, who: JID, at: JID, task: str, *, lock: bool = False) -> Row | None:
    """Return the row of a task of this principal at an address of the agent; None if it is not
    visible.
    """
    values: list[Value] = [task, str(who), *map(str, both_addresses(at)), database.steady]
    found = select(database, f"WHERE id = ? AND {_THEIRS}", values, LOCK if lock else "")
    return found[0] if found else None


Filter: TypeAlias = dict[str, Sequence[Value]]
"""Conditions on the tasks of a list, each with its values."""


def theirs(database: Database, who: JID, at: JID) -> Filter:
    """Return the filter for the tasks that a principal sees at an address of an agent."""
    return {_THEIRS: (str(who), *map(str, both_addresses(at)), database.steady)}


def listed(database: Database, meant: Filter, order: str, limit: int) -> list[Row]:
    """Return the rows of a list without their results and failures."""
    found = database.execute(
        f"SELECT {_LISTED} FROM tasks WHERE {' AND '.join(meant)}"  # noqa: S608
        # Not a parameter: PostgreSQL would make a new plan for each value.
        f" ORDER BY {order} LIMIT {limit:d}",
        [value for values in meant.values() for value in values],
    ).fetchall()
    return [Row(*row) for row in found]


_FOLDING: Final = 0x666F6C64  # "fold" in ASCII: the advisory lock for folding


def fold_counts(database: Database) -> None:
    """Merge the counter rows of closed connections of PostgreSQL, so that there are few."""
    if database.dialect == "sqlite":
        return
    if column(database, "SELECT pg_try_advisory_xact_lock(?)", _FOLDING) != [True]:
        return  # another instance does it
    found = database.execute(
        "DELETE FROM task_counts WHERE shard <> 0"
        " AND shard NOT IN (SELECT pid FROM pg_stat_activity WHERE pid IS NOT NULL)"
        " RETURNING state, owned, n"
    ).fetchall()
    for state, owned, number in sorted(found):
        database.execute(
            "INSERT INTO task_counts AS kept (shard, state, owned, n) VALUES (0, ?, ?, ?)"
            " ON CONFLICT (shard, state, owned) DO UPDATE SET n = kept.n + excluded.n",
            (state, owned, number),
        )


def kept_of(database: Database, principal: str, most: int | None = None) -> tuple[int, int]:
    """Return the number and size of ended tasks of a principal, counting `most` at most."""
    limit = "" if most is None else f" ORDER BY updated, id LIMIT {most:d}"
    count, size = database.execute(
        "SELECT count(*), coalesce(sum(bytes), 0) FROM"  # noqa: S608 - constant text
        f" (SELECT bytes FROM tasks WHERE principal = ? AND {ENDED}{limit}) AS kept",
        (principal,),
    ).fetchone() or (0, 0)
    return int(count), int(size)


# Events, and parts of artifacts.


def events_of(
    database: Database, row: Row, first: int = 0, last: int = 2**53, *, backwards: bool = False
) -> Iterator[tuple[Row, Detail | None]]:
    """Return the stored events of a task between two revisions, both included: the row as it was
    then, and the payload.
    """
    found = database.execute(
        "SELECT revision, state, at, retain, plan, detail FROM events WHERE task = ?"  # noqa: S608
        f" AND revision BETWEEN ? AND ? ORDER BY revision {'DESC' if backwards else ''}",
        (row.id, first, last),
    )
    for revision, state, at, retain, plan, detail in iter(found.fetchone, None):
        then = msgspec.structs.replace(
            row, revision=revision, state=state, updated=at, promised=retain, plan=plan
        )
        yield then, decoded(detail)


def decoded(text: str | None) -> Detail | None:
    """Decode the payload of a change, which an event has as XML. Raises ContentError."""
    return None if text is None else read(text, *get_args(Detail))


def is_open(database: Database, task: str) -> bool:
    """Return whether a task has not ended, and lock its row, so that it does not end before this
    transaction.
    """
    found = load(database, task)
    return found is not None and found.state not in TERMINAL


def asked_below(database: Database, task: str) -> str | None:
    """Return a task that waits for a person, and that was started by this one or by one that was
    started by it; None if there is none.
    """
    found = database.execute(
        "WITH RECURSIVE family(id, state) AS (SELECT id, state FROM tasks WHERE parent = ? UNION"
        " SELECT tasks.id, tasks.state FROM tasks JOIN family ON tasks.parent = family.id)"
        " SELECT min(id) FROM family WHERE state = 'input-required'",
        (task,),
    ).fetchone()
    return None if found is None else found[0]


def event_of(row: Row, detail: Detail | None) -> Task:
    """Return the `<task/>` element of the present revision of a row (EVT-002)."""
    return Task(
        id=row.id,
        skill=row.skill,
        state=row.state,
        revision=row.revision,
        created=moment(row.created),
        updated=moment(row.updated),
        retain_until=moment(row.shown_until),
        deadline=None if row.deadline is None else moment(row.deadline),
        context=row.context,
        progress=detail if isinstance(detail, Progress) else None,
        plan=None if row.plan is None else read(row.plan, PlanSteps),
        outputs=(detail,) if isinstance(detail, Output) else (),
        input=detail if isinstance(detail, Input) else None,
        confirm=detail if isinstance(detail, Confirm) else None,
        result=detail if isinstance(detail, Result) else None,
        failure=detail if isinstance(detail, Failure) else None,
    )


def unshown_parts(database: Database, child: str, parent: str, prefix: str) -> Iterator[Output]:
    """Return the parts of artifacts of a task that its parent has not shown yet, as parts of
    artifacts there, whose names begin with the prefix.
    """
    found = column(
        database,
        "SELECT output FROM parts c WHERE task = ? AND NOT EXISTS (SELECT 1 FROM parts p WHERE"
        " p.task = ? AND p.name = ? || c.name AND p.part = c.part) ORDER BY name, part",
        *(child, parent, prefix),
    )
    for text in found:
        part = read(text, Output)
        yield msgspec.structs.replace(part, name=prefix + part.name)


def size_of_parts(database: Database, task: str) -> int:
    """Return the size of the parts of artifacts of a task, in characters."""
    sql = "SELECT coalesce(sum(length(output)), 0) FROM parts WHERE task = ?"
    return int(column(database, sql, task)[0])


def parts_of(database: Database, task: str) -> list[Output]:
    """Return the parts of the artifacts of a task, in order."""
    found = column(database, "SELECT output FROM parts WHERE task = ? ORDER BY name, part", task)
    return [read(text, Output) for text in found]

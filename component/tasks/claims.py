"""Decides which task runs next: of the principal with the fewest running tasks, that with the
highest priority.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from component.storage.database import Database, Value
from component.tasks.queues import Capacity, QueueLimits
from component.tasks.rows import COLUMNS, QUEUED, Row


class Slot:
    """A slot of a running task, taken when the task is claimed and held until its execution has
    ended.

    Calling `release` several times has the same effect as once, so a slot is neither lost nor freed
    twice.
    """

    __slots__ = ("_release", "principal", "suspect")

    def __init__(
        self, principal: str, release: Callable[["Slot"], None], *, suspect: bool = False
    ) -> None:
        self.principal = principal
        self.suspect = suspect
        self._release: Callable[[Slot], None] | None = release

    def release(self) -> None:
        """Free the slot."""
        release, self._release = self._release, None
        if release is not None:
            release(self)


class Slots:
    """Counts the tasks that run on this instance.

    Args:
        total: the maximum number of running tasks of all principals.
        per_principal: the maximum for one principal.
        released: called after a slot is released.
    """

    def __init__(
        self, total: int, per_principal: int, released: Callable[[], None] = lambda: None
    ) -> None:
        self.total = total
        self.per_principal = per_principal
        self._running: Counter[str] = Counter()
        self._sum = 0
        self._suspects = 0
        self._released = released

    @property
    def running(self) -> Mapping[str, int]:
        """The number of running tasks of each principal that has any."""
        return self._running

    @property
    def free(self) -> int:
        """The number of free slots."""
        return max(0, self.total - self._sum)

    @property
    def suspects(self) -> int:
        """The number of running tasks that may be what crashes the process."""
        return self._suspects

    def has(self, principal: str) -> bool:
        """Return whether one more task of the principal may run."""
        return self._running[principal] < min(self.per_principal, self.bound(self.free))

    def bound(self, free: int) -> int:
        """Return how many tasks one principal may run while `free` slots are left.

        It may use as many slots as are still free, and its share at most: so a few principals with
        long tasks do not keep others from starting. A share of more than half of all slots is
        applied as configured.
        """
        return free if self.total >= 2 * self.per_principal else free and self.per_principal

    def take(self, principal: str, *, suspect: bool = False) -> Slot:
        """Take a slot, even beyond the bounds: an execution that has begun is not stopped."""
        self._running[principal] += 1
        self._sum += 1
        self._suspects += suspect
        return Slot(principal, self._give_back, suspect=suspect)

    def _give_back(self, slot: Slot) -> None:
        principal = slot.principal
        self._sum -= 1
        self._suspects -= slot.suspect
        self._running[principal] -= 1
        if not self._running[principal]:
            del self._running[principal]
        self._released()


_MOST_PRINCIPALS: Final = 128
"""The maximum number of principals that one claim considers; the next claim continues
after them.
"""
SUSPECT_ATTEMPTS: Final = 2
"""A task with so many attempts may be what crashes the process. It runs while no other such task
does, so that the others are not blamed for it.
"""


class Claimed(msgspec.Struct, frozen=True):
    """The result of a claim; the next claim continues at `after`, `more` says whether tasks may be
    left.

    `retry_ms` is the number of milliseconds until a queue that has reached its rate lets a task
    start.
    """

    rows: Sequence[Row]
    after: str
    more: bool
    retry_ms: int | None = None


class Claimant(msgspec.Struct, frozen=True):
    """The instance that claims, and its free capacity.

    `skills` are the names of its skills, None for any: a task whose skill it lacks, or whose id is
    in `unfit`, is left to other instances. The instance has `free` slots; `share` is the maximum
    for each principal, and `running` counts the running tasks of each. `suspect` says that a task
    with `SUSPECT_ATTEMPTS` may be claimed. `queues` are the limits of named queues.
    """

    instance: str
    skills: Sequence[str] | None
    free: int
    share: int
    running: Mapping[str, int]
    bound: Callable[[int], int]
    queues: Mapping[str, QueueLimits]
    unfit: Sequence[str] = ()
    suspect: bool = True


def claim(database: Database, claimant: Claimant, *, after: str) -> Claimed:
    """Claim as many queued tasks as there are slots. Only their leases change.

    The claim starts with the principals after `after` and wraps around.
    """
    principals = _principals(database, after)
    capacity = Capacity(database, claimant.queues)
    rounds: list[tuple[int, int, str]] = []
    more = len(principals) == _MOST_PRINCIPALS
    suspect = claimant.suspect
    waiting: dict[str, list[Row]] = {}
    for place, principal in enumerate(principals):
        here = claimant.running.get(principal, 0)
        free = min(claimant.share - here, claimant.free)
        if free <= 0:
            more = True
            continue
        without = capacity.exhausted
        rows = _next_of(database, claimant, principal, free, without, suspects=False)
        more |= len(rows) == free
        found = _next_of(database, claimant, principal, 1, without, suspects=True)
        if found and len(rows) < free:
            more = True
            rows += found if suspect else ()
            suspect = False
        waiting[principal] = rows
        rounds += [(here + turn, place, principal) for turn in range(len(rows))]
    taken: list[Row] = []
    for here, _, principal in sorted(rounds):
        if here >= claimant.bound(claimant.free - len(taken)):
            more = True
            break
        row = waiting[principal].pop(0)
        if len(taken) == claimant.free or not capacity.take(row.queue):
            more = True
            continue
        row.owner = claimant.instance
        row.token += 1
        database.execute(
            "UPDATE tasks SET owner = ?, token = ? WHERE id = ?", (row.owner, row.token, row.id)
        )
        taken.append(row)
    return Claimed(taken, principals[-1] if principals else "", more, capacity.retry_ms)


def _principals(database: Database, after: str) -> list[str]:
    """Return principals with queued work, by a skip scan: each query seeks the principal after the
    last.

    The scan ends at the first principal that it sees twice. That need not be the one it started
    with: on PostgreSQL another instance may claim all tasks of a principal between two queries.
    """
    found: dict[str, None] = {}
    wrapped = not after
    while len(found) < _MOST_PRINCIPALS:
        row = database.execute(
            f"SELECT principal FROM tasks WHERE principal > ? AND {QUEUED}"  # noqa: S608
            " ORDER BY principal LIMIT 1",
            (after,),
        ).fetchone()
        if row is not None and row[0] not in found:
            after = row[0]
            found[after] = None
        elif row is None and not wrapped:
            after, wrapped = "", True
        else:
            break
    return list(found)


def _next_of(
    database: Database,
    claimant: Claimant,
    principal: str,
    count: int,
    without: Sequence[str],
    *,
    suspects: bool,
) -> list[Row]:
    lock = " FOR UPDATE SKIP LOCKED" if database.dialect == "postgresql" else ""
    values: list[Value] = [principal, SUSPECT_ATTEMPTS]
    conditions = ""
    if claimant.skills is not None:
        # One parameter, regardless of the number of skills.
        names = msgspec.json.encode(claimant.skills).decode()
        if database.dialect == "postgresql":
            conditions = " AND skill IN (SELECT jsonb_array_elements_text(CAST(? AS jsonb)))"
        else:
            conditions = " AND skill IN (SELECT value FROM json_each(?))"
        values.append(names)
    if without:
        marks = ", ".join("?" * len(without))
        conditions += f" AND (queue IS NULL OR queue NOT IN ({marks}))"
        values += without
    if claimant.unfit:
        conditions += f" AND id NOT IN ({', '.join('?' * len(claimant.unfit))})"
        values += claimant.unfit
    found = database.execute(
        f"SELECT {COLUMNS} FROM tasks WHERE principal = ? AND {QUEUED}"  # noqa: S608
        f" AND attempts {'>=' if suspects else '<'} ?{conditions}"
        f" ORDER BY priority DESC, created, id LIMIT ?{lock}",
        (*values, count),
    ).fetchall()
    return [Row(*row) for row in found]


def unknown_skills(database: Database, claimant: Claimant) -> list[str]:
    """Return some of the skills that queued tasks need and the instance does not have."""
    if claimant.skills is None:
        return []
    found = database.execute(f"SELECT DISTINCT skill FROM tasks WHERE {QUEUED} LIMIT 20").fetchall()  # noqa: S608
    return sorted({skill for (skill,) in found} - set(claimant.skills))

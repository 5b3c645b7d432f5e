"""Which instance owns which task, and which task an instance claims next.

A task is leased to an instance; the number `fence` in its row fences it. On SQLite one process uses
a data directory, so every earlier owner is dead. On PostgreSQL instances send heartbeats, and an
instance is dead if its counter has not changed for a time that the observer measures with its own
monotonic clock. No wall clock is involved, so a clock that jumps on any host never costs a lease. A
process that restarts on the same data directory need not wait for that
(`component.store.Storage.place`).

Of the queued tasks that run next, those of the share with the fewest running tasks come first,
and of these the one with the highest priority.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Final

import msgspec

from component import system
from component.store.database import Database, Value, among
from component.store.schema import Table
from component.tasks.protocol import QueueLimits
from component.tasks.rows import QUEUED, SKIP, Row, column, exists, select

TABLES: Final = (
    Table(
        name="instances",
        columns="""
            id TEXT PRIMARY KEY, heartbeat BIGINT NOT NULL,
            place TEXT,
            channel TEXT,
            idle INTEGER NOT NULL DEFAULT 0
        """,
        has_rowid=True,
        kept="processes",
        is_work=False,
    ),
    Table(
        name="queues",
        columns="""
            name TEXT {C} PRIMARY KEY,
            started BIGINT NOT NULL,
            allowance DOUBLE PRECISION NOT NULL
        """,
        kept="queues",
    ),
)


CHANNEL: Final = "tasks"
"""The channel on which an instance announces that it cancelled a task of another one."""
HEARTBEAT_S: Final = 2.0
DEAD_S: Final = 12.0
"""An instance whose heartbeat has not changed for this time is dead."""
GAP_S: Final = 6.0
"""After a longer pause of its own process, an observer starts counting again."""


def new_instance() -> str:
    """Return a new name for this instance."""
    return system.token_hex(16)


def join(database: Database, instance: str, place: str | None, channel: str) -> None:
    """Join the instances that share the database; one that used the same place before is dead."""
    if place is not None:
        database.execute("DELETE FROM instances WHERE place = ?", (place,))
    database.execute(
        "INSERT INTO instances (id, heartbeat, place, channel, idle) VALUES (?, 0, ?, ?, 0)",
        (instance, place, channel),
    )


def mark_idle(database: Database, instance: str) -> None:
    """Record that this instance has free slots and found nothing to claim."""
    if database.dialect == "postgresql":
        database.execute("UPDATE instances SET idle = 1 WHERE id = ? AND idle = 0", (instance,))


_NONE_IDLE: Final = (
    "SELECT 1 WHERE NOT EXISTS"
    " (SELECT 1 FROM instances WHERE idle = 1 AND id <> ? AND channel IS NOT NULL)"
)


def wake_one(database: Database, *, but: str = "") -> None:
    """Wake one idle instance other than `but`, if there is one, to claim queued tasks."""
    if database.dialect != "postgresql" or database.expect(_NONE_IDLE, (but,)):
        return
    found = database.execute(
        "UPDATE instances SET idle = 0 WHERE id = (SELECT id FROM instances"
        " WHERE idle = 1 AND id <> ? AND channel IS NOT NULL LIMIT 1 FOR UPDATE SKIP LOCKED)"
        " RETURNING channel",
        (but,),
    ).fetchone()
    if found is not None:
        database.notify(found[0])


def others_alive(database: Database, instance: str) -> bool:
    """Return whether another instance shares the database."""
    return exists(database, "SELECT 1 FROM instances WHERE id <> ? LIMIT 1", instance)


class Watch:
    """Finds instances whose heartbeat has stopped. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = system.monotonic) -> None:
        self._clock = clock
        self._read = clock()
        self._seen: dict[str, tuple[int, float]] = {}

    def dead(self, heartbeats: Mapping[str, int]) -> Mapping[str, int]:
        """Return the dead instances, each with its last heartbeat."""
        now = self._clock()
        if now - self._read > GAP_S:
            # This process was paused, so missed heartbeats say nothing about the others.
            self._seen.clear()
        self._read = now
        seen = {}
        for instance, count in heartbeats.items():
            known = self._seen.get(instance)
            seen[instance] = known if known and known[0] == count else (count, now)
        self._seen = seen
        return {one: count for one, (count, since) in seen.items() if now - since >= DEAD_S}


_MINUTE_MS: Final = 60_000


class Capacity:
    """How many tasks of each queue may start in one claim; queues without `limits` have none.

    The name of a queue may end with a space and a group, for each of which the limits apply
    separately. `retry_ms` are the milliseconds until a queue that has reached its rate lets a task
    start.
    """

    def __init__(self, database: Database, limits: Mapping[str, QueueLimits]) -> None:
        self._database = database
        self._left: dict[str, int] = {}
        self._allowance: dict[str, float] = {}
        self.retry_ms: int | None = None
        queued = (
            "SELECT DISTINCT queue FROM tasks"  # noqa: S608 - a constant condition
            f" WHERE (queue = ? OR queue > ? AND queue < ?) AND {QUEUED} ORDER BY queue"
        )
        for name in sorted(limits):
            # The names of its groups are after the space; "!" follows the space.
            for queue in column(database, queued, name, f"{name} ", f"{name}!"):
                self._look(name, queue, limits[name])

    def _look(self, name: str, queue: str, limits: QueueLimits) -> None:
        database, now = self._database, self._database.steady
        lock = " FOR UPDATE" if database.dialect == "postgresql" else ""
        database.execute(
            "INSERT INTO queues (name, started, allowance) VALUES (?, ?, 1)"
            " ON CONFLICT (name) DO NOTHING",
            (name, now),
        )
        since, allowance = database.execute(
            f"SELECT started, allowance FROM queues WHERE name = ?{lock}",  # noqa: S608 - ours
            (name,),
        ).fetchone() or (now, 1.0)
        running = "SELECT count(*) FROM tasks WHERE queue = ? AND owner IS NOT NULL"
        left = max(0, limits.running - column(database, running, queue)[0])
        if limits.per_minute is not None and queue == name:
            rate = limits.per_minute / _MINUTE_MS
            # Unused capacity may be used at once: that of one second, at least one task.
            most = max(1.0, limits.per_minute / 60)
            allowance = min(most, allowance + max(0, now - since) * rate)
            self._allowance[name] = allowance
            if left and allowance < 1:
                wait = int((1 - allowance) / rate) + 1
                self.retry_ms = wait if self.retry_ms is None else min(self.retry_ms, wait)
            left = min(left, int(allowance))
        self._left[queue] = left

    @property
    def exhausted(self) -> list[str]:
        """Return the queues that may not start a task now."""
        return [name for name, left in self._left.items() if not left]

    def take(self, name: str | None) -> bool:
        """Return whether a queue may start one more task; if so, the task is counted."""
        if name is None or name not in self._left:
            return True
        if not self._left[name]:
            return False
        self._left[name] -= 1
        if name in self._allowance:
            self._allowance[name] -= 1
            self._database.execute(
                "UPDATE queues SET started = ?, allowance = ? WHERE name = ?",
                (self._database.steady, self._allowance[name], name),
            )
        return True


class Slot:
    """A slot of a running task, taken when the task is claimed and held until its execution has
    ended. It is freed once, however often `release` is called.
    """

    __slots__ = ("_slots", "share", "suspect")

    def __init__(self, slots: "Slots", share: str, *, suspect: bool) -> None:
        self._slots: Slots | None = slots
        self.share = share
        self.suspect = suspect

    def release(self) -> None:
        """Free the slot."""
        slots, self._slots = self._slots, None
        if slots is not None:
            slots.give_back(self)


class Slots:
    """Counts the tasks that run on this instance: at most `total`, `per_share` of each share, and
    as many of an agent with several shares as `most_of` says.

    Attributes:
        released: is called after a slot is released.
        running: the number of running tasks of each share that has any.
        suspects: the number of running tasks that may be what crashes the process.
    """

    def __init__(
        self, total: int, per_share: int, most_of: Callable[[str], int] | None = None
    ) -> None:
        self.total = total
        self.per_share = per_share
        self.running: Counter[str] = Counter()
        self.suspects = 0
        self.released: Callable[[], None] = lambda: None
        self._most_of = most_of
        self._of_agents: Counter[str] = Counter()
        """The running tasks of principals that have several shares."""
        self._sum = 0

    @property
    def free(self) -> int:
        """The number of free slots."""
        return max(0, self.total - self._sum)

    def snapshot(self) -> "Slots":
        """Return the slots as they are now, for another thread."""
        copied = copy(self)
        copied.running = self.running.copy()
        copied._of_agents = self._of_agents.copy()  # noqa: SLF001 - of this class
        return copied

    def has(self, share: str) -> bool:
        """Return whether one more task of the share may run."""
        return self.left_of(share) > 0 and self.running[share] < self.bound(self.free)

    def left_of(self, share: str) -> int:
        """Return how many more tasks of a share may run, as far as others leave slots."""
        return min(self.per_share - self.running[share], self.left_of_agent(share))

    def left_of_agent(self, share: str) -> int:
        """Return how many more tasks of all shares of an agent may run."""
        principal, _, origin = share.partition(" ")
        if not origin or self._most_of is None:
            return self.total
        return self._most_of(principal) - self._of_agents[principal]

    def bound(self, free: int) -> int:
        """Return how many tasks one share may run while `free` slots are left.

        It may use as many slots as are still free, and its limit at most: so a few shares with long
        tasks do not keep others from starting. A limit of more than half of all slots is applied as
        configured.
        """
        return free if self.total >= 2 * self.per_share else free and self.per_share

    def try_take(self, share: str, spare: int = 0) -> Slot | None:
        """Return a slot if the share may run one more task and `spare` slots are left then."""
        if self.free <= spare or not self.has(share):
            return None
        return self.take(share)

    def take(self, share: str, *, suspect: bool = False) -> Slot:
        """Take a slot, even beyond the bounds: an execution that has begun is not stopped."""
        self._count(share, 1)
        self.suspects += suspect
        return Slot(self, share, suspect=suspect)

    def give_back(self, slot: Slot) -> None:
        """Count a slot as free."""
        self.suspects -= slot.suspect
        self._count(slot.share, -1)
        self.released()

    def _count(self, share: str, number: int) -> None:
        self._sum += number
        self.running[share] += number
        if not self.running[share]:
            del self.running[share]
        principal, _, origin = share.partition(" ")
        if origin:
            self._of_agents[principal] += number
            if not self._of_agents[principal]:
                del self._of_agents[principal]


_MOST_SHARES: Final = 128
"""The maximum number of shares that one claim considers."""
SUSPECT_ATTEMPTS: Final = 2
"""A task with so many attempts may be what crashes the process. It runs while no other such task
does, so that the others are not blamed for it.
"""


class Claimed(msgspec.Struct, frozen=True):
    """The result of a claim; the next claim continues at `after`, `more` says whether tasks may be
    left, and `retry_ms` is that of `Capacity`.
    """

    rows: Sequence[Row]
    after: str
    more: bool
    retry_ms: int | None = None


class Claimant(msgspec.Struct, frozen=True):
    """The instance that claims, with its slots as they were when the claim began.

    `skills` are the names of its skills, None for any: a task whose skill it lacks, or whose id is
    in `unfit`, is left to other instances. `queues` are the limits of named queues.
    """

    instance: str
    skills: Sequence[str] | None
    slots: Slots
    queues: Mapping[str, QueueLimits]
    unfit: Sequence[str] = ()


def claim(database: Database, claimant: Claimant, *, after: str) -> Claimed:
    """Claim as many queued tasks as there are slots, first of the shares after `after`."""
    shares = _shares(database, after)
    capacity = Capacity(database, claimant.queues if shares else {})
    rounds: list[tuple[int, int, str]] = []
    more = len(shares) == _MOST_SHARES
    slots = claimant.slots
    free_slots, suspect = slots.free, not slots.suspects
    waiting: dict[str, list[Row]] = {}
    but, but_values = _left_out(database, claimant, capacity.exhausted)

    def next_of(share: str, attempts: str, count: int) -> list[Row]:
        rest = (
            f"WHERE share = ? AND {QUEUED} AND attempts {attempts} {SUSPECT_ATTEMPTS}{but}"
            " ORDER BY priority DESC, created, id LIMIT ?"
        )
        return select(database, rest, (share, *but_values, count), SKIP)

    for place, share in enumerate(shares):
        here = slots.running[share]
        free = min(slots.left_of(share), free_slots)
        if free <= 0:
            more = True
            continue
        found = next_of(share, "<", free)
        more |= len(found) == free
        suspects = next_of(share, ">=", 1)
        if suspects and len(found) < free:
            more = True
            found += suspects if suspect else ()
            suspect = False
        waiting[share] = found
        rounds += [(here + turn, place, share) for turn in range(len(found))]
    taken: list[Row] = []
    left_of_agents: dict[str, int] = {}
    for here, _, share in sorted(rounds):
        if here >= slots.bound(free_slots - len(taken)):
            more = True
            break
        row, agent = waiting[share].pop(0), share.partition(" ")[0]
        left = left_of_agents.setdefault(agent, slots.left_of_agent(share))
        if len(taken) == free_slots or left <= 0 or not capacity.take(row.queue):
            more = True
            continue
        left_of_agents[agent] = left - 1
        row.owner, row.fence = claimant.instance, row.fence + 1
        taken.append(row)
    if taken:
        these, ids = among(database, "id", [row.id for row in taken])
        database.execute(
            f"UPDATE tasks SET owner = ?, fence = fence + 1 WHERE {these}",  # noqa: S608
            (claimant.instance, ids),
        )
    return Claimed(taken, shares[-1] if shares else "", more, capacity.retry_ms)


def _shares(database: Database, after: str) -> list[str]:
    """Return shares with queued work, by a skip scan: each query seeks the share after the last.

    The scan ends at the first share that it sees twice. That need not be the one it started
    with: on PostgreSQL another instance may claim all tasks of a share between two queries.
    """
    following = f"SELECT share FROM tasks WHERE share > ? AND {QUEUED} ORDER BY share LIMIT 1"  # noqa: S608
    found: dict[str, None] = {}
    wrapped = not after
    while len(found) < _MOST_SHARES:
        row = database.execute(following, (after,)).fetchone()
        if row is not None and row[0] not in found:
            after = row[0]
            found[after] = None
        elif row is None and not wrapped:
            after, wrapped = "", True
        else:
            break
    return list(found)


def _left_out(
    database: Database, claimant: Claimant, exhausted: Sequence[str]
) -> tuple[str, list[Value]]:
    but, values = "", list[Value]()
    if claimant.skills is not None:
        known, names = among(database, "skill", claimant.skills)
        but += f" AND {known}"
        values.append(names)
    if exhausted:
        full, names = among(database, "queue", exhausted)
        but += f" AND (queue IS NULL OR NOT {full})"
        values.append(names)
    if claimant.unfit:
        unfit, ids = among(database, "id", claimant.unfit)
        but += f" AND NOT {unfit}"
        values.append(ids)
    return but, values


def unknown_skills(database: Database, claimant: Claimant) -> list[str]:
    """Return some of the skills that queued tasks need and the instance does not have."""
    if claimant.skills is None:
        return []
    queued = column(database, f"SELECT DISTINCT skill FROM tasks WHERE {QUEUED} LIMIT 20")  # noqa: S608
    return sorted(set(queued) - set(claimant.skills))

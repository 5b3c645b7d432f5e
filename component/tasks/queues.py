"""Named queues: limits on how many of their tasks run at once, and how many start in a minute.

The tasks of a skill that declares `queue="mail"` use the queue of that name. The limits apply to
all instances that share the database together: each claim locks the row of the queue.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from component.storage.database import Database
from component.tasks.rows import QUEUED

_MINUTE_MS: Final = 60_000


class QueueLimits(msgspec.Struct, frozen=True):
    """The limits of one queue: tasks that run at once, and tasks that start in a minute; None: no
    limit.
    """

    running: int
    per_minute: float | None = None


class Capacity:
    """How many tasks of each queue may start in one claim.

    Args:
        database: of the claim.
        limits: the limits of the queues by name; other queues have none.

    Attributes:
        retry_ms: milliseconds until a queue that has reached its rate lets the next task start.
    """

    def __init__(self, database: Database, limits: Mapping[str, QueueLimits]) -> None:
        self._database = database
        self._left: dict[str, int] = {}
        self._allowance: dict[str, float] = {}
        self._limits = limits
        self.retry_ms: int | None = None
        for name in sorted(limits):
            waiting = database.execute(
                f"SELECT 1 FROM tasks WHERE queue = ? AND {QUEUED} LIMIT 1",  # noqa: S608 - ours
                (name,),
            ).fetchone()
            if waiting is not None:
                self._look(name, limits[name])

    def _look(self, name: str, limits: QueueLimits) -> None:
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
        (running,) = database.execute(
            "SELECT count(*) FROM tasks WHERE queue = ? AND owner IS NOT NULL", (name,)
        ).fetchone() or (0,)
        left = max(0, limits.running - running)
        if limits.per_minute is not None:
            rate = limits.per_minute / _MINUTE_MS
            # Unused capacity may be used at once: that of one second, at least one task.
            most = max(1.0, limits.per_minute / 60)
            allowance = min(most, allowance + max(0, now - since) * rate)
            self._allowance[name] = allowance
            if left and allowance < 1:
                wait = int((1 - allowance) / rate) + 1
                self.retry_ms = wait if self.retry_ms is None else min(self.retry_ms, wait)
            left = min(left, int(allowance))
        self._left[name] = left

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


class QueueLine(msgspec.Struct, frozen=True):
    """The state of a queue."""

    name: str
    limit: int | None
    per_minute: float | None
    running: int
    waiting: int


def lines_of(database: Database, limits: Mapping[str, QueueLimits]) -> list[QueueLine]:
    """Return all queues that have bounds or tasks, by name."""
    counts: dict[str, tuple[int, int]] = {
        name: (running, waiting)
        for name, running, waiting in database.execute(
            "SELECT queue, count(owner), count(CASE WHEN owner IS NULL THEN 1 END) FROM tasks"
            " WHERE queue IS NOT NULL AND state IN ('accepted', 'running') GROUP BY queue"
        ).fetchall()
    }
    found = []
    for name in sorted(limits.keys() | counts.keys()):
        bounds = limits.get(name)
        running, waiting = counts.get(name, (0, 0))
        limit, rate = (None, None) if bounds is None else (bounds.running, bounds.per_minute)
        found.append(QueueLine(name, limit, rate, running, waiting))
    return found

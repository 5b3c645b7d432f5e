"""Ownership of tasks: a lease of an instance, fenced by the token of the row.

On SQLite one process uses a data directory, so every earlier owner is dead. On PostgreSQL instances
send heartbeats, and an instance is dead if its counter has not changed for a time that the observer
measures with its own monotonic clock. No wall clock is involved, so a clock that jumps on any host
never costs a lease. A process that restarts on the same data directory need not wait for that
(`component.storage.Storage.place`).
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from component import system
from component.storage.database import Database
from component.tasks.idempotency import end
from component.tasks.journal import has_begun_steps
from component.tasks.rows import COLUMNS, QUEUED, Change, Row, change
from xep.fluux_agent import errors

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
    """Join the instances that share the database; an instance that used the same place before is
    dead.

    Notifications on `channel` wake only this instance.
    """
    if place is not None:
        database.execute("DELETE FROM instances WHERE place = ?", (place,))
    database.execute(
        "INSERT INTO instances (id, beat, place, channel, idle) VALUES (?, 0, ?, ?, 0)",
        (instance, place, channel),
    )


def mark_idle(database: Database, instance: str) -> None:
    """Record that this instance has free slots and found nothing to claim. Does nothing
    on SQLite.
    """
    if database.dialect == "postgresql":
        database.execute("UPDATE instances SET idle = 1 WHERE id = ? AND idle = 0", (instance,))


def wake_one(database: Database, *, but: str = "") -> None:
    """Wake one idle instance other than `but`, if there is one, to claim queued tasks."""
    if database.dialect != "postgresql":
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
    found = database.execute("SELECT 1 FROM instances WHERE id <> ? LIMIT 1", (instance,))
    return found.fetchone() is not None


def rejoin(database: Database, before: str, instance: str, place: str | None, channel: str) -> None:
    """Join again under a new name, together with the work started since the old name was evicted.

    Tasks that others have taken over have another owner or none; their executions notice it by the
    token.
    """
    join(database, instance, place, channel)
    database.execute("UPDATE tasks SET owner = ? WHERE owner = ?", (instance, before))
    database.execute(
        "UPDATE replay SET owner = ? WHERE owner = ? AND answer IS NULL", (instance, before)
    )


def being_cancelled(database: Database, owner: str) -> list[str]:
    """Return the tasks of an instance that others have cancelled."""
    found = database.execute(
        "SELECT id FROM tasks WHERE owner = ? AND state = 'cancelling'", (owner,)
    )
    return [task for (task,) in found.fetchall()]


def leave(database: Database, instance: str) -> None:
    """Leave the instances that share the database; its tasks become available to the others."""
    database.execute("DELETE FROM instances WHERE id = ?", (instance,))


class Heartbeat(msgspec.Struct, frozen=True):
    """The information that an instance gets with its heartbeat.

    The heartbeats of the others, whether tasks wait to be claimed, and whether a timer has passed
    that its instance, possibly dead, has not handled.
    """

    others: Mapping[str, int]
    queued: bool
    overdue: bool = False


def beat(database: Database, instance: str) -> Heartbeat | None:
    """Send one heartbeat; return None if this instance was declared dead."""
    beaten = database.execute("UPDATE instances SET beat = beat + 1 WHERE id = ?", (instance,))
    if beaten.rowcount == 0:
        return None
    found = database.execute("SELECT id, beat FROM instances WHERE id <> ?", (instance,))
    others = dict(found.fetchall())
    queued = database.execute(f"SELECT 1 FROM tasks WHERE {QUEUED} LIMIT 1").fetchone()  # noqa: S608
    overdue = database.execute(
        "SELECT 1 FROM tasks WHERE due <= ? LIMIT 1", (database.steady,)
    ).fetchone()
    return Heartbeat(others, queued is not None, overdue is not None)


class Watch:
    """Finds instances whose heartbeat has stopped. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = system.monotonic) -> None:
        self._clock = clock
        self._read = clock()
        self._seen: dict[str, tuple[int, float]] = {}

    def dead(self, beats: Mapping[str, int]) -> Mapping[str, int]:
        """Return the dead instances, each with its last heartbeat."""
        now = self._clock()
        if now - self._read > GAP_S:
            # This process was paused, so missed heartbeats say nothing about the others.
            self._seen.clear()
        self._read = now
        seen = {}
        for instance, count in beats.items():
            known = self._seen.get(instance)
            seen[instance] = known if known and known[0] == count else (count, now)
        self._seen = seen
        return {one: count for one, (count, since) in seen.items() if now - since >= DEAD_S}


def evict(
    database: Database, instance: str, count: int, *, retention_ms: int
) -> list[Change] | None:
    """Release the work of a dead instance; return None if it has sent a heartbeat, or is already
    evicted.
    """
    gone = database.execute("DELETE FROM instances WHERE id = ? AND beat = ?", (instance, count))
    return take_from(database, instance, retention_ms=retention_ms) if gone.rowcount else None


def orphans(database: Database, *, retention_ms: int) -> list[Change]:
    """Release tasks whose owners send no heartbeats: they left, or ran on SQLite."""
    found = database.execute(
        "SELECT DISTINCT owner FROM tasks WHERE owner IS NOT NULL"
        " AND owner NOT IN (SELECT id FROM instances)"
    ).fetchall()
    changes: list[Change] = []
    for (owner,) in found:
        changes += take_from(database, owner, retention_ms=retention_ms)
    return changes


def take_from(database: Database, owner: str, *, retention_ms: int) -> list[Change]:
    """Release all tasks of an owner; those that were being cancelled end (design, "States")."""
    lock = " FOR NO KEY UPDATE" if database.dialect == "postgresql" else ""
    found = database.execute(
        f"SELECT {COLUMNS} FROM tasks WHERE owner = ? ORDER BY id{lock}",  # noqa: S608 - ours
        (owner,),
    ).fetchall()
    changes: list[Change] = []
    for row in [Row(*row) for row in found]:
        changes += release(database, row, retention_ms=retention_ms)
    return changes


def release(
    database: Database, row: Row, *, retention_ms: int, drained: bool = False
) -> list[Change]:
    """Release a task so that any instance can claim it; a task that was being cancelled ends
    instead.

    `drained` says that its execution was stopped by a shutdown, which does not count as a failed
    attempt.
    """
    if row.state == "cancelling":
        return [end_cancelled(database, row, retention_ms=retention_ms)]
    row.owner = None
    row.token += 1
    if drained:
        row.attempts = max(0, row.attempts - 1)
    database.execute(
        "UPDATE tasks SET owner = NULL, token = ?, attempts = ? WHERE id = ?",
        (row.token, row.attempts, row.id),
    )
    return []


def children_of(database: Database, task: str) -> list[Row]:
    """Return the tasks that a task has started and that have not ended, locked in a fixed order."""
    lock = " FOR NO KEY UPDATE" if database.dialect == "postgresql" else ""
    found = database.execute(
        f"SELECT {COLUMNS} FROM tasks WHERE parent = ? AND state IN"  # noqa: S608 - ours
        f" ('accepted', 'running', 'input-required', 'cancelling') ORDER BY id{lock}",
        (task,),
    )
    return [Row(*row) for row in found.fetchall()]


def cancel_row(database: Database, row: Row, *, retention_ms: int) -> list[Change]:
    """Cancel a task; nothing changes if it has ended or is already being cancelled (CAN-005,
    CAN-006).
    """
    if row.state in ("accepted", "input-required"):
        return [end(database, row, "cancelled", None, retention_ms=retention_ms)]
    if row.state != "running":
        return []
    changes = [change(database, row, "cancelling", retention_ms=retention_ms)]
    if changes[0].row.state == "cancelling":  # and its deadline has not passed
        if row.owner is None:
            changes.append(end_cancelled(database, row, retention_ms=retention_ms))
        else:
            database.notify(CHANNEL)
    return changes


def end_cancelled(database: Database, row: Row, *, retention_ms: int) -> Change:
    """End a task whose execution died while the task was being cancelled (CAN-004)."""
    if has_begun_steps(database, row.id):
        unknown = errors.outcome_unknown()
        return end(database, row, "failed", unknown, retention_ms=retention_ms)
    return end(database, row, "cancelled", None, retention_ms=retention_ms)

"""Whose a task is: a lease of the instance, fenced by the token of the row.

On SQLite there is one process to a data directory, so every owner from before is dead. On
PostgreSQL instances beat, and one whose beat stands still by the watcher's own monotonic clock is
dead. No wall clock takes part, so no jump of any host's can cost a lease. Who comes back to the
place of a former life of its own need not wait for that (`component.storage.Storage.place`).
"""

import secrets
import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from component.storage.database import Database
from component.tasks.replay import end
from component.tasks.rows import COLUMNS, Change, Row, change
from xep.fluux_agent import errors

CHANNEL: Final = "tasks"
"""On which instances say that there is work for all, or a task of another one's to be ended."""
BEAT_S: Final = 2.0
DEAD_S: Final = 12.0
"""A beat that stands still for so long is that of a dead instance."""
GAP_S: Final = 6.0
"""After a longer pause of its own, a watcher counts anew."""


def new_instance() -> str:
    """A name for this life of the process."""
    return secrets.token_hex(16)


def join(database: Database, instance: str, place: str | None) -> None:
    """Be among those who beat. Whoever did so at the same place before is dead."""
    if place is not None:
        database.execute("DELETE FROM instances WHERE place = ?", (place,))
    database.execute("INSERT INTO instances (id, beat, place) VALUES (?, 0, ?)", (instance, place))


def rejoin(database: Database, before: str, instance: str, place: str | None) -> None:
    """Be among those who beat again, under a new name, with what was begun since the old one went.

    What others have taken over has no owner, or theirs; its runs find that out by their tokens.
    """
    join(database, instance, place)
    database.execute("UPDATE tasks SET owner = ? WHERE owner = ?", (instance, before))
    database.execute(
        "UPDATE replay SET owner = ? WHERE owner = ? AND answer IS NULL", (instance, before)
    )


def being_cancelled(database: Database, owner: str) -> list[str]:
    """The tasks of an instance that others have asked to end."""
    found = database.execute(
        "SELECT id FROM tasks WHERE owner = ? AND state = 'cancelling'", (owner,)
    )
    return [task for (task,) in found.fetchall()]


def leave(database: Database, instance: str) -> None:
    """Be no more among them; what this instance still owned is for the others."""
    database.execute("DELETE FROM instances WHERE id = ?", (instance,))


def beat(database: Database, instance: str) -> Mapping[str, int] | None:
    """Beat once, and return the beats of the others; None if this instance was declared dead."""
    beaten = database.execute("UPDATE instances SET beat = beat + 1 WHERE id = ?", (instance,))
    if beaten.rowcount == 0:
        return None
    found = database.execute("SELECT id, beat FROM instances WHERE id <> ?", (instance,))
    return dict(found.fetchall())


class Watch:
    """Finds instances whose beat stands still. `clock` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._read = clock()
        self._seen: dict[str, tuple[int, float]] = {}

    def dead(self, beats: Mapping[str, int]) -> Mapping[str, int]:
        """Those that did not beat for too long, with the beat at which they stopped."""
        now = self._clock()
        if now - self._read > GAP_S:
            # Paused ourselves: what we missed says nothing of the others.
            self._seen.clear()
        self._read = now
        seen = {}
        for instance, count in beats.items():
            known = self._seen.get(instance)
            seen[instance] = known if known and known[0] == count else (count, now)
        self._seen = seen
        return {one: count for one, (count, since) in seen.items() if now - since >= DEAD_S}


def bury(database: Database, instance: str, count: int, *, retention_ms: int) -> list[Change]:
    """Take the work of a dead instance from it, unless it has beaten after all."""
    gone = database.execute("DELETE FROM instances WHERE id = ? AND beat = ?", (instance, count))
    return take_from(database, instance, retention_ms=retention_ms) if gone.rowcount else []


def orphans(database: Database, *, retention_ms: int) -> list[Change]:
    """Take work from owners that are not among those who beat: they left, or were SQLite's."""
    found = database.execute(
        "SELECT DISTINCT owner FROM tasks WHERE owner IS NOT NULL"
        " AND owner NOT IN (SELECT id FROM instances)"
    ).fetchall()
    changes: list[Change] = []
    for (owner,) in found:
        changes += take_from(database, owner, retention_ms=retention_ms)
    return changes


def take_from(database: Database, owner: str, *, retention_ms: int) -> list[Change]:
    """Release all tasks of an owner; what was being cancelled ends (design, "States")."""
    lock = " FOR NO KEY UPDATE" if database.dialect == "postgresql" else ""
    found = database.execute(
        f"SELECT {COLUMNS} FROM tasks WHERE owner = ?{lock}",  # noqa: S608 - columns of ours
        (owner,),
    ).fetchall()
    changes: list[Change] = []
    for row in [Row(*row) for row in found]:
        changes += release(database, row, retention_ms=retention_ms)
    return changes


def release(database: Database, row: Row, *, retention_ms: int) -> list[Change]:
    """Give a task up for whoever claims it; what was being cancelled ends instead."""
    if row.state == "cancelling":
        return [end_cancelled(database, row, retention_ms=retention_ms)]
    row.owner = None
    row.token += 1
    database.execute("UPDATE tasks SET owner = NULL, token = ? WHERE id = ?", (row.token, row.id))
    return []


def cancel_row(database: Database, row: Row, *, retention_ms: int) -> list[Change]:
    """Ask a task to end; nothing changes if it has ended or was asked before (CAN-005, CAN-006)."""
    if row.state in ("accepted", "input-required"):
        return [end(database, row, "cancelled", None, retention_ms=retention_ms)]
    if row.state != "running":
        return []
    changes = [change(database, row, "cancelling", retention_ms=retention_ms)]
    if changes[0].row.state == "cancelling":  # and not past its deadline
        if row.owner is None:
            changes.append(end_cancelled(database, row, retention_ms=retention_ms))
        else:
            database.notify(CHANNEL)
    return changes


def end_cancelled(database: Database, row: Row, *, retention_ms: int) -> Change:
    """End a task whose run is gone while it was being cancelled (CAN-004)."""
    if begun_steps(database, row.id):
        unknown = errors.outcome_unknown()
        return end(database, row, "failed", unknown, retention_ms=retention_ms)
    return end(database, row, "cancelled", None, retention_ms=retention_ms)


def begun_steps(database: Database, task: str) -> bool:
    """Whether a step of the task has begun and left no record of its end."""
    found = database.execute(
        "SELECT 1 FROM journal WHERE task = ? AND done = 0 LIMIT 1", (task,)
    ).fetchone()
    return found is not None


class Journal(msgspec.Struct):
    """What is recorded of a task's steps: the results of those done, the names of those begun."""

    done: dict[str, str]
    begun: set[str]


def journal_of(database: Database, task: str) -> Journal:
    """The steps of a task."""
    journal = Journal({}, set())
    for step, done, result in database.execute(
        "SELECT step, done, result FROM journal WHERE task = ?", (task,)
    ).fetchall():
        if done:
            journal.done[step] = result
        else:
            journal.begun.add(step)
    return journal

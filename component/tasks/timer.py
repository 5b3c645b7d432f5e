"""Changes to tasks that the passing of time causes: deadlines, and questions that expire."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio
import msgspec

from component.storage.clock import GRACE_MS
from component.storage.database import Database
from component.tasks.idempotency import end
from component.tasks.journal import nothing_ran
from component.tasks.questions import lapse, open_of
from component.tasks.rows import COLUMNS, Change, Row, is_late, is_queued, next_due
from component.tasks.states import TERMINAL
from xep.fluux_agent import errors

_AT_ONCE: Final = 100
_LONGEST_S: Final = 60.0
"""The maximum delay until a change of the wall clock is noticed."""
_AGAIN_MS: Final = 5_000
"""When to check a deadline again that has passed by a clock that was just set."""


class Fallen(msgspec.Struct, frozen=True):
    """What was settled, and the milliseconds until the next timer; None: no timer is set.

    `ready` are the principals of tasks that may start or continue now. `skew` is how far the wall
    clock was ahead of the steady clock.
    """

    changes: Sequence[Change]
    next_ms: int | None
    skew: int | None
    ready: Sequence[str] = ()


def fall_due(database: Database, *, retention_ms: int, skew: int | None = None) -> Fallen:
    """Settle deadlines and questions that have expired (EXE-027, CNF-038, INP-013).

    `skew` is that of the last call; None at the start. If it has changed, the wall clock was set,
    and deadlines may have passed that were not due yet.
    """
    count_downtime(database)
    lock = " FOR UPDATE SKIP LOCKED" if database.dialect == "postgresql" else ""
    seen: int | None = database.now - database.steady
    changes: list[Change] = []
    ready: list[str] = []
    conditions: list[tuple[str, int]] = [("due <= ? ORDER BY due", database.steady)]
    if seen != skew:
        conditions.append(("due IS NOT NULL AND deadline <= ? ORDER BY deadline", database.now))
    for condition, time in conditions:
        found = database.execute(
            f"SELECT {COLUMNS} FROM tasks WHERE {condition} LIMIT {_AT_ONCE}{lock}",  # noqa: S608
            (time,),
        ).fetchall()
        for row in [Row(*row) for row in found]:
            made = _settle(database, row, retention_ms=retention_ms)
            if made is not None:
                changes.append(made)
            elif is_queued(row):
                ready.append(row.principal)
        if len(found) == _AT_ONCE and len(conditions) == 2:
            seen = skew  # there may be more of them
    (due,) = database.execute("SELECT min(due) FROM tasks WHERE due IS NOT NULL").fetchone() or (
        None,
    )
    return Fallen(changes, None if due is None else max(0, due - database.steady), seen, ready)


def count_downtime(database: Database) -> None:
    """Count the downtime of the service towards the expiry of questions, once it is known well
    enough.

    Only the machine's clock tells how long it was down, and it may have been wrong at startup. So
    the steady clock stopped, and people would have longer to answer than they were told. Some
    minutes after the start the clock is assumed to be right.
    """
    row = database.execute("SELECT downtime, back_at FROM clock WHERE downtime > 0").fetchone()
    if row is None or database.steady < row[1] + GRACE_MS:
        return
    downtime, back_at = row
    made = database.execute("UPDATE clock SET downtime = 0 WHERE downtime = ?", (downtime,))
    if made.rowcount == 0:
        return  # another instance was first
    # A question of an earlier release has no time at which it was asked.
    asked = "state = 'open' AND (asked_at IS NULL OR asked_at <= ?)"
    database.execute(
        f"UPDATE tasks SET due = ? WHERE id IN (SELECT task FROM inputs WHERE {asked})"  # noqa: S608
        " AND state = 'input-required'",
        (database.steady, back_at),
    )
    database.execute(
        f"UPDATE inputs SET expires = expires - ? WHERE {asked}",  # noqa: S608 - constant text
        (downtime, back_at),
    )


def _settle(database: Database, row: Row, *, retention_ms: int) -> Change | None:
    if row.state in TERMINAL:
        _postpone(database, row, None)
        return None
    lapsed = lapse(database, row, retention_ms=retention_ms)
    if lapsed is None and is_late(database, row):
        late = errors.deadline_expired()
        return end(
            *(database, row, "failed", late),
            repeatable=nothing_ran(database, row.id),
            retention_ms=retention_ms,
        )
    if lapsed is None:
        question = open_of(database, row.id) if row.state == "input-required" else None
        if row.not_before is not None and row.not_before <= database.steady:
            row.not_before = None
            database.execute("UPDATE tasks SET not_before = NULL WHERE id = ?", (row.id,))
        due = next_due(database, row, None if question is None else question.expires)
        if due is not None and due <= database.steady:
            due = database.steady + _AGAIN_MS  # a deadline, which follows the wall clock
        _postpone(database, row, due)
    return lapsed


def _postpone(database: Database, row: Row, due: int | None) -> None:
    database.execute("UPDATE tasks SET due = ? WHERE id = ?", (due, row.id))


class Timer:
    """Sleeps until the next timer is due.

    Args:
        settle: settles what is due, and returns the milliseconds until the next timer.
    """

    def __init__(self, settle: Callable[[], Awaitable[int | None]]) -> None:
        self._settle = settle
        self._woken = anyio.Event()

    def wake(self) -> None:
        """Check the timers again, because one may be due sooner."""
        self._woken.set()

    async def run(self) -> None:
        """Settle timers until cancelled."""
        while True:
            wait = await self._settle()
            # One millisecond more, so that the clock of the database has passed the time.
            seconds = _LONGEST_S if wait is None else min((wait + 1) / 1000, _LONGEST_S)
            with anyio.move_on_after(seconds):
                await self._woken.wait()
            self._woken = anyio.Event()

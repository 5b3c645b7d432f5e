"""What happens to tasks because time passes: deadlines, and questions that lapse."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio
import msgspec

from component.storage.database import Database
from component.tasks.questions import lapse, nothing_ran, open_of
from component.tasks.replay import end
from component.tasks.rows import COLUMNS, Change, Row
from component.tasks.states import TERMINAL
from xep.fluux_agent import errors

_AT_ONCE: Final = 100
_LONGEST_S: Final = 60.0
"""A wall clock that was set is noticed within that."""


class Fallen(msgspec.Struct, frozen=True):
    """What fell due, and in how many milliseconds the next does; None: nothing is to come."""

    changes: Sequence[Change]
    next_ms: int | None


def fall_due(database: Database, *, retention_ms: int) -> Fallen:
    """Settle what is past its deadline or its question's time (EXE-027, CNF-038, INP-013)."""
    lock = " FOR UPDATE SKIP LOCKED" if database.dialect == "postgresql" else ""
    found = database.execute(
        f"SELECT {COLUMNS} FROM tasks WHERE due <= ? ORDER BY due LIMIT {_AT_ONCE}{lock}",  # noqa: S608
        (database.now,),
    ).fetchall()
    changes: list[Change] = []
    for row in [Row(*row) for row in found]:
        made = _settle(database, row, retention_ms=retention_ms)
        if made is not None:
            changes.append(made)
    (due,) = database.execute("SELECT min(due) FROM tasks WHERE due IS NOT NULL").fetchone() or (
        None,
    )
    return Fallen(changes, None if due is None else max(0, due - database.now))


def _settle(database: Database, row: Row, *, retention_ms: int) -> Change | None:
    if row.state in TERMINAL:
        _postpone(database, row, None)
        return None
    if row.deadline is not None and database.now >= row.deadline:
        late = errors.deadline_expired()
        return end(
            *(database, row, "failed", late),
            repeatable=nothing_ran(database, row.id),
            retention_ms=retention_ms,
        )
    lapsed = lapse(database, row, retention_ms=retention_ms)
    if lapsed is None:
        question = open_of(database, row.id) if row.state == "input-required" else None
        times = [time for time in (row.deadline, question and question.expires) if time]
        _postpone(database, row, min(times) if times else None)
    return lapsed


def _postpone(database: Database, row: Row, due: int | None) -> None:
    database.execute("UPDATE tasks SET due = ? WHERE id = ?", (due, row.id))


class Timer:
    """Sleeps until something falls due.

    Args:
        settle: settles what has, and returns in how many milliseconds the next does.
    """

    def __init__(self, settle: Callable[[], Awaitable[int | None]]) -> None:
        self._settle = settle
        self._woken = anyio.Event()

    def wake(self) -> None:
        """Something may fall due sooner than was known."""
        self._woken.set()

    async def run(self) -> None:
        """Do so for ever."""
        while True:
            wait = await self._settle()
            # A millisecond more: the clock of the database has then passed the instant.
            seconds = _LONGEST_S if wait is None else min((wait + 1) / 1000, _LONGEST_S)
            with anyio.move_on_after(seconds):
                await self._woken.wait()
            self._woken = anyio.Event()

"""Waiters: turns of conversations that wait for tasks, and tasks that wait for tasks or for events,
such as the outcome of a turn or the answer of a peer.

They wait as rows. The commit that ends a task, or that records an event, wakes its waiters, on
whichever instance it happens. Functions take the `Database` of one operation.
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal

from component.store.database import Database

CHANNEL: Final = "waiters"
"""The channel notified when a task that a turn waits for has ended."""

ENDED: Final = 0
"""A waiter with this value of `eager` waits until all of its tasks have ended."""
FAILURE: Final = 1
"""It waits no longer when one has ended without success."""
SUCCESS: Final = 2
"""It waits no longer when one has ended with success."""
FIRST: Final = 3
"""It waits no longer when one has ended, however."""
Eager = Literal[0, 1, 2, 3]

_ENDED: Final = "('completed', 'failed', 'rejected', 'cancelled')"


def wait_for(
    database: Database, waiter: str, tasks: Sequence[str], home: str | None, eager: Eager = ENDED
) -> int:
    """Set the tasks that a waiter waits for; return how many of them have not ended.

    `home` is the id of the data directory of the turn; None for a task. `eager` says whether the
    end of one task is enough. A task that is no longer stored has ended.
    """
    forget(database, waiter)
    _lock(database, tasks)
    _insert(database, waiter, tasks, home, eager)
    return _count(database, waiter, ended=False)


def _insert(
    database: Database, waiter: str, tasks: Sequence[str], home: str | None, eager: Eager
) -> None:
    for task in dict.fromkeys(tasks):
        database.execute(
            "INSERT INTO waiters (task, waiter, home, eager, ended) VALUES (?, ?, ?, ?,"  # noqa: S608
            f" CASE WHEN EXISTS (SELECT 1 FROM tasks WHERE id = ? AND state NOT IN {_ENDED})"
            " THEN 0 ELSE 1 END)",
            (task, waiter, home, eager, task),
        )


def _count(database: Database, waiter: str, *, ended: bool) -> int:
    (count,) = database.execute(
        "SELECT count(*) FROM waiters WHERE waiter = ? AND ended = ?", (waiter, int(ended))
    ).fetchone() or (0,)
    return int(count)


def _lock(database: Database, tasks: Sequence[str]) -> None:
    """Prevent the tasks from ending before this transaction, which would miss the waiter."""
    if database.dialect == "postgresql" and tasks:
        marks = ", ".join("?" * len(tasks))
        database.execute(
            f"SELECT id FROM tasks WHERE id IN ({marks}) ORDER BY id FOR SHARE",  # noqa: S608 - marks
            tuple(tasks),
        )


def wait_for_event(
    database: Database,
    waiter: str,
    event: str,
    is_pending: Callable[[Database], bool],
    tasks: Sequence[str] = (),
) -> int:
    """Set that a task waits for an event or for the end of one of these tasks, whichever is first;
    return 1, or 0 if one of them has happened.

    `is_pending` locks what the commit of the event changes, so that no waiter is missed.
    """
    forget(database, waiter)
    if not is_pending(database):
        return 0
    database.execute(
        "INSERT INTO waiters (task, waiter, home, eager, ended) VALUES (?, ?, NULL, 0, 0)",
        (event, waiter),
    )
    if not tasks:
        return 1
    _lock(database, tasks)
    _insert(database, waiter, tasks, None, ENDED)
    return 0 if _count(database, waiter, ended=True) else 1


def is_turn_pending(database: Database, turn: str) -> bool:
    """Return whether a turn is stored and its outcome is not recorded."""
    lock_turn(database, turn)
    found = database.execute(
        "SELECT 1 FROM turns WHERE id = ?"
        " AND NOT EXISTS (SELECT 1 FROM turn_outcomes WHERE turn = turns.id)",
        (turn,),
    ).fetchone()
    return found is not None


def lock_turn(database: Database, turn: str) -> None:
    """Let the transactions that wait for a turn and the one that records its outcome take turns,
    so that no waiter is missed.
    """
    if database.dialect == "postgresql":
        database.execute("SELECT id FROM turns WHERE id = ? FOR UPDATE", (turn,))


_NONE_WAIT: Final = "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM waiters WHERE task = ? AND ended = 0)"


def wake_tasks(
    database: Database, ended: str, *, success: bool = True, expected: bool = False
) -> tuple[str, ...]:
    """Note that a task has ended or an event has happened, notify waiting turns, and let those
    tasks continue that wait for nothing else. Returns the shares of these tasks.

    `expected` says that somebody probably waits, for which this function takes less time then.

    Several may end at once in transactions that do not see each other, so they count down in the
    row of the task that waits, which one transaction changes at a time.
    """
    principals: list[str] = []
    if not expected and database.expect(_NONE_WAIT, (ended,)):
        return ()
    for waiter, eager in _note_ended(database, ended):
        at_once = eager in (FIRST, SUCCESS if success else FAILURE)
        found = database.execute(
            "UPDATE tasks SET waits = (waits - 1) * ? WHERE id = ? AND waits > 0"
            " RETURNING waits, share",
            (int(not at_once), waiter),
        ).fetchone()
        if found is not None and not found[0]:
            principals.append(str(found[1]))
    return tuple(principals)


def _note_ended(database: Database, task: str) -> list[tuple[str, int]]:
    """The tasks that waited for a task or an event, and how eager each is."""
    found = database.execute(
        "UPDATE waiters SET ended = 1 WHERE task = ? AND ended = 0 RETURNING waiter, home, eager",
        (task,),
    ).fetchall()
    if any(home is not None for _, home, _ in found):
        database.notify(CHANNEL)
    return sorted((waiter, eager) for waiter, home, eager in found if home is None)


def ended_tasks(database: Database, home: str) -> list[str]:
    """The ended tasks that waiters of a home wait for."""
    found = database.execute(
        "SELECT DISTINCT task FROM waiters WHERE home = ? AND ended = 1", (home,)
    ).fetchall()
    return [task for (task,) in found]


def forget(database: Database, waiter: str) -> None:
    """Delete the rows of a waiter."""
    database.execute("DELETE FROM waiters WHERE waiter = ?", (waiter,))

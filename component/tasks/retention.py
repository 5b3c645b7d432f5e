"""What is forgotten: tasks past their time, and records of repetition past theirs."""

from typing import Final

import anyio
import structlog

from component.storage import Storage, StorageError
from component.storage.database import Database
from component.tasks import recent
from component.tasks.states import TERMINAL

_log = structlog.get_logger("component.tasks")

EVERY_S: Final = 600.0
_PORTION: Final = 100
"""Tasks in one operation: each may bring hundreds of events, and everybody's writes wait for it."""

_ENDED: Final = ", ".join(f"'{state}'" for state in sorted(TERMINAL))


def forget(database: Database, limit: int = 500) -> int:
    """Delete up to `limit` tasks, and as many replay records, that need not be kept any more.

    A task goes when it has ended, its `retain_until` has passed and its replay record has expired,
    with its record and all its children. A record never goes before its task (RPL-016), nor a task
    before its record, which would promise a task that is not there.

    Returns how many were deleted; with 0 nothing is left to do.
    """
    # Two instances at it at once pass by each other instead of waiting, or of blocking each other.
    skip = " FOR UPDATE SKIP LOCKED" if database.dialect == "postgresql" else ""
    tasks = database.execute(
        f"SELECT id FROM tasks WHERE retain_until < ? AND state IN ({_ENDED}) AND NOT EXISTS"  # noqa: S608
        " (SELECT 1 FROM replay WHERE replay.task = tasks.id AND replay.expires >= ?)"
        f" ORDER BY retain_until LIMIT ?{skip}",
        (database.now, database.now, limit),
    ).fetchall()
    for (task,) in tasks:
        database.execute("DELETE FROM replay WHERE task = ?", (task,))
        database.execute("DELETE FROM tasks WHERE id = ?", (task,))
    recent.forget(database)
    records = database.execute(
        "SELECT key FROM replay WHERE expires < ? AND (task IS NULL OR NOT EXISTS"  # noqa: S608
        f" (SELECT 1 FROM tasks WHERE tasks.id = replay.task)) LIMIT ?{skip}",
        (database.now, limit),
    ).fetchall()
    for (key,) in records:
        database.execute("DELETE FROM replay WHERE key = ?", (key,))
    return len(tasks) + len(records)


async def keep(storage: Storage, every_s: float = EVERY_S) -> None:
    """Forget at once and every `every_s` seconds, until cancelled.

    A round that the database refuses is logged; the next one goes on where it ended.
    """
    while True:
        try:
            while await storage.write(lambda database: forget(database, _PORTION)):
                pass  # each portion is on disk by itself, and others have their turn in between
        except StorageError as error:
            _log.warning("could not delete what is past its time", reason=str(error))
        await anyio.sleep(every_s)

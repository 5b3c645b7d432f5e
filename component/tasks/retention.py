"""Deletes expired tasks and replay records, and the oldest ones above the limits of a principal.

An ended task is retained until its `retain_until`, which is days away, so a principal that sends
large requests as fast as it can would fill the disk within minutes. Therefore the number and the
size of its ended tasks are limited, and so is the size of the answers in its replay records. Above
a limit the oldest are deleted. A record itself stays for its replay window, so no request runs
twice because of this.

The size of a task is stored in its row (`tasks.bytes`), and the queries here use partial indexes
that contain it, so they do not read the tasks. They do not run at each end of a task either, but
only when a principal has added a tenth of its limit since the last time.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

import anyio
import msgspec
import structlog
from cachebox import LRUCache

from component.storage.database import Database
from component.storage.errors import StorageError
from component.storage.storage import Storage
from component.tasks import recent
from component.tasks.rows import weigh
from component.tasks.states import TERMINAL
from xep.fluux_agent import errors

_log = structlog.get_logger("component.tasks")

EVERY_S: Final = 600.0
_FOLDING: Final = 0x666F6C64  # "fold" in ASCII: the advisory lock for folding
_PORTION: Final = 100
"""Tasks in one operation: each may have hundreds of events, and all other writes wait for it."""

_ENDED: Final = ", ".join(f"'{state}'" for state in sorted(TERMINAL))


class DeletedTask(msgspec.Struct, frozen=True):
    """A task that its principal could see and that was deleted: its id, the bare JID of the
    principal, and the address at which it was accepted.
    """

    id: str
    principal: str
    target: str


def forget(database: Database, limit: int = 500, deleted: list[DeletedTask] | None = None) -> int:
    """Delete up to `limit` tasks, and as many replay records, that need not be kept any more.

    A task is deleted, with its record and all its children, when it has ended, its `retain_until`
    has passed and its replay record has expired. The record of a named request is never deleted
    before its task (RPL-016), nor a task before its record, which would refer to a task that no
    longer exists.

    All these times are those of the steady clock: a jump of the wall clock deletes nothing.

    Returns how many were deleted; with 0 nothing is left to do. The tasks among them that their
    principals could see are added to `deleted`.
    """
    # Two instances that do this at once skip each other's rows instead of waiting or deadlocking.
    skip = " FOR UPDATE SKIP LOCKED" if database.dialect == "postgresql" else ""
    tasks = database.execute(
        f"SELECT id FROM tasks WHERE retain_until < ? AND state IN ({_ENDED}) AND NOT EXISTS"  # noqa: S608
        " (SELECT 1 FROM replay WHERE replay.task = tasks.id AND replay.expires >= ?)"
        f" ORDER BY retain_until LIMIT ?{skip}",
        (database.steady, database.steady, limit),
    ).fetchall()
    for (task,) in tasks:
        database.execute("DELETE FROM replay WHERE task = ?", (task,))
        found = _delete(database, task)
        if found is not None and deleted is not None:
            deleted.append(found)
    recent.forget(database)
    records = database.execute(
        "SELECT key FROM replay WHERE expires < ? AND (named = 0 OR task IS NULL OR NOT EXISTS"  # noqa: S608
        f" (SELECT 1 FROM tasks WHERE tasks.id = replay.task)) LIMIT ?{skip}",
        (database.steady, limit),
    ).fetchall()
    for (key,) in records:
        database.execute("DELETE FROM replay WHERE key = ?", (key,))
    return len(tasks) + len(records)


def _delete(database: Database, task: str) -> DeletedTask | None:
    """Delete a task, with its children and what they waited for. Returns it if its principal could
    see it.
    """
    database.execute(
        "WITH RECURSIVE family(id) AS (SELECT CAST(? AS TEXT) UNION"
        " SELECT tasks.id FROM tasks JOIN family ON tasks.parent = family.id)"
        " DELETE FROM waiters WHERE waiter IN (SELECT id FROM family)",
        (task,),
    )
    found = database.execute(
        "DELETE FROM tasks WHERE id = ? RETURNING principal, target, visible", (task,)
    ).fetchone()
    return DeletedTask(task, found[0], found[1]) if found is not None and found[2] else None


def fold(database: Database) -> None:
    """Merge the rows of closed connections into the remaining ones, so that there are few rows.

    On PostgreSQL each connection that changes tasks has its own counter rows.
    """
    if database.dialect == "sqlite":
        return
    (mine,) = database.execute("SELECT pg_try_advisory_xact_lock(?)", (_FOLDING,)).fetchone() or (
        False,
    )
    if not mine:
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


async def keep(
    storage: Storage,
    every_s: float = EVERY_S,
    on_deleted: Callable[[DeletedTask], None] = lambda _: None,
) -> None:
    """Forget at once and every `every_s` seconds, until cancelled.

    A round that the database refuses is logged; the next one goes on where it ended. `on_deleted`
    is called with each deleted task that its principal could see.
    """

    def op(database: Database) -> tuple[int, list[DeletedTask]]:
        deleted: list[DeletedTask] = []
        return forget(database, _PORTION, deleted), deleted

    while True:
        try:
            count = 1
            while count:  # each portion is on disk by itself, and others have their turn in between
                count, deleted = await storage.write(op)
                for each in deleted:
                    on_deleted(each)
            await storage.write(fold)
        except StorageError as error:
            _log.warning("could not delete expired rows", reason=str(error))
        await anyio.sleep(every_s)


_PRINCIPALS: Final = 10_000
"""Number of principals whose additions are counted; a principal that was dropped is
checked sooner.
"""
_FULL: Final = 0.9
"""The part of a limit that is left after removing, so that it is not done at each end."""
_LOOK: Final = 0.1
"""The part of a limit that may be added before the next check. Several instances on one database
may each add so much unseen by the others.
"""

_AGAIN_S: Final = 2.0
"""Seconds until the next try if nothing could be deleted, because no final event had been
sent yet.
"""

ENDED: Final = "state IN ('completed', 'failed', 'rejected', 'cancelled')"
"""Same condition as in the index `tasks_kept`."""


class Bounds(msgspec.Struct, frozen=True):
    """The maximum number of ended tasks that are retained for one principal, and their maximum
    size.
    """

    tasks: int = 1_000
    bytes: int = 16_000_000

    @property
    def most_tasks(self) -> int:
        """The maximum that ever exists: up to a tenth more exist until the excess is noticed."""
        return self.tasks + self.tasks // 10 + 1

    def exceeded(self, tasks: int, size: int) -> bool:
        """Return whether this exceeds the limits."""
        return tasks > self.tasks or size > self.bytes


DEFAULT_BOUNDS: Final = Bounds()


class Removed(msgspec.Struct, frozen=True):
    """What one transaction has removed, and what is left; `more` says that it is still too much.

    `deleted` are the removed tasks that their principal could see.
    """

    tasks: int = 0
    bytes: int = 0
    answers: int = 0
    left_tasks: int = 0
    left_bytes: int = 0
    more: bool = False
    deleted: tuple[DeletedTask, ...] = ()


def kept_of(database: Database, principal: str, most: int | None = None) -> tuple[int, int]:
    """Return the number of retained ended tasks of a principal, and their size; of the oldest
    `most` of them, if there are more.
    """
    limit = "" if most is None else f" ORDER BY updated, id LIMIT {most:d}"
    count, size = database.execute(
        "SELECT count(*), coalesce(sum(bytes), 0) FROM"  # noqa: S608 - constant text
        f" (SELECT bytes FROM tasks WHERE principal = ? AND {ENDED}{limit}) AS kept",
        (principal,),
    ).fetchone() or (0, 0)
    return int(count), int(size)


def weigh_unknown(database: Database) -> int:
    """Store the size of up to 100 ended tasks that an older release did not measure; return how
    many.
    """
    skip = " FOR UPDATE SKIP LOCKED" if database.dialect == "postgresql" else ""
    found = database.execute(
        "SELECT id FROM tasks WHERE bytes IS NULL"  # noqa: S608 - constant texts
        f" AND {ENDED} ORDER BY id LIMIT {_PORTION}{skip}"
    ).fetchall()
    for (task,) in found:
        weigh(database, task)
    return len(found)


def principals_over_limits(database: Database, bounds: Bounds) -> list[str]:
    """Return the principals that exceed the limits."""
    tasks = database.execute(
        f"SELECT principal FROM tasks WHERE {ENDED} GROUP BY principal"  # noqa: S608 - constant text
        " HAVING count(*) > ? OR sum(bytes) > ?",
        (bounds.tasks, bounds.bytes),
    ).fetchall()
    answers = database.execute(
        "SELECT principal FROM replay WHERE bytes > 0 AND principal IS NOT NULL"
        " GROUP BY principal HAVING sum(bytes) > ?",
        (bounds.bytes,),
    ).fetchall()
    return sorted({principal for (principal,) in (*tasks, *answers)})


def remove(database: Database, principal: str, bounds: Bounds, replay_ms: int) -> Removed:
    """Remove the tasks of a principal that ended first, and its oldest answers, if there are too
    many.

    At most 100 of each. A task that has not ended, or whose end has not been sent, stays. The
    replay record continues to name the removed task: for at least `replay_ms` from admission, and
    at most `replay_ms` from the end, by the steady clock.
    """
    skip = " FOR UPDATE SKIP LOCKED" if database.dialect == "postgresql" else ""
    answers, more = _drop_answers(database, principal, bounds, skip)
    count, size = kept_of(database, principal)
    if not bounds.exceeded(count, size):
        return Removed(answers=answers, left_tasks=count, left_bytes=size, more=more)
    found = database.execute(
        "SELECT id, bytes, updated - coalesce(promised - retain_until, 0)"  # noqa: S608 - constant texts
        f" FROM tasks WHERE principal = ? AND {ENDED}"
        f" AND untold IS NULL ORDER BY updated, id LIMIT {_PORTION}{skip}",
        (principal,),
    ).fetchall()
    lower = Bounds(int(bounds.tasks * _FULL), int(bounds.bytes * _FULL))
    tasks = gone = 0
    deleted = list[DeletedTask]()
    for task, weight, ended in found:  # `weight` is None if nobody has weighed it yet
        if not lower.exceeded(count - tasks, size - gone):
            break
        expires = ended + replay_ms
        database.execute(
            "UPDATE replay SET expires = ? WHERE task = ? AND expires > ?", (expires, task, expires)
        )
        if (shown := _delete(database, task)) is not None:
            deleted.append(shown)
        tasks, gone = tasks + 1, gone + (weight or 0)
    count, size = count - tasks, size - gone
    more = more or (tasks > 0 and bounds.exceeded(count, size))
    return Removed(tasks, gone, answers, count, size, more, tuple(deleted))


def _drop_answers(
    database: Database, principal: str, bounds: Bounds, skip: str
) -> tuple[int, bool]:
    """Remove the answers from the oldest replay records; return how many, and whether there are
    more.
    """
    (size,) = database.execute(
        "SELECT coalesce(sum(bytes), 0) FROM replay WHERE principal = ? AND bytes > 0",
        (principal,),
    ).fetchone() or (0,)
    if size <= bounds.bytes:
        return 0, False
    found = database.execute(
        "SELECT key, bytes FROM replay WHERE principal = ? AND bytes > 0"  # noqa: S608 - constant texts
        f" ORDER BY expires, key LIMIT {_PORTION}{skip}",
        (principal,),
    ).fetchall()
    dropped = 0
    for key, weight in found:
        if size <= bounds.bytes * _FULL:
            break
        database.execute(
            "UPDATE replay SET answer = ?, bytes = 0 WHERE key = ?",
            (errors.answer_not_kept().encode(), key),
        )
        dropped, size = dropped + 1, size - weight
    return dropped, dropped > 0 and size > bounds.bytes


class EndedTasks:
    """Ensures that the retained tasks of each principal stay within the limits.

    Args:
        storage: reads and writes the rows.
        bounds: the limits.
        replay_ms: the replay window, in milliseconds.
        on_deleted: is called with each deleted task that its principal could see. Never waits.
    """

    def __init__(
        self,
        storage: Storage,
        bounds: Bounds,
        replay_ms: int,
        on_deleted: Callable[[DeletedTask], None] = lambda _: None,
    ) -> None:
        self._on_deleted = on_deleted
        self._storage = storage
        self._bounds = bounds
        self._replay_ms = replay_ms
        self._left: LRUCache[str, tuple[int, int]] = LRUCache(_PRINCIPALS)
        """Tasks and bytes that a principal may add before it is checked."""
        self._due: dict[str, None] = {}
        self._work = anyio.Event()

    def add(self, principal: str, size: int) -> None:
        """Count an ended task of about `size` bytes of a principal. Never waits."""
        left = self._left.get(principal, self._share())
        left = self._left[principal] = (left[0] - 1, left[1] - size)
        if min(left) < 0:
            self._due[principal] = None
            self._work.set()

    async def run(self) -> None:
        """Remove what exceeds the limits, at once and whenever a check is due, until cancelled.

        A write that the database refuses is logged, and tried again when the next task ends.
        """
        try:
            while await self._storage.write(weigh_unknown):
                pass
            for principal in await self._storage.read(
                partial(principals_over_limits, bounds=self._bounds)
            ):
                self._due[principal] = None
        except StorageError as error:
            _log.warning("could not count the stored ended tasks", reason=str(error))
        while True:
            again: dict[str, None] = {}
            while self._due:
                principal = next(iter(self._due))
                del self._due[principal]
                if not await self._look(principal):
                    again[principal] = None
            with anyio.move_on_after(_AGAIN_S if again else None):
                await self._work.wait()
            self._work = anyio.Event()
            self._due |= again

    async def _look(self, principal: str) -> bool:
        """Remove what exceeds the limits; return whether the principal is within the limits."""
        op = partial(remove, principal=principal, bounds=self._bounds, replay_ms=self._replay_ms)
        tasks = size = answers = 0
        try:
            while True:
                removed = await self._storage.write(op)
                tasks, size = tasks + removed.tasks, size + removed.bytes
                answers += removed.answers
                for each in removed.deleted:
                    self._on_deleted(each)
                if not removed.more:
                    break
        except StorageError as error:
            _log.warning("could not remove ended tasks", principal=principal, reason=str(error))
            return True
        most = self._share()
        self._left[principal] = (
            min(most[0], self._bounds.tasks - removed.left_tasks),
            min(most[1], self._bounds.bytes - removed.left_bytes),
        )
        if tasks or answers:
            _log.info(
                "removed the oldest ended tasks of a principal that exceeds its limits",
                principal=principal,
                tasks=tasks,
                bytes=size,
                answers=answers,
            )
        return not self._bounds.exceeded(removed.left_tasks, removed.left_bytes)

    def _share(self) -> tuple[int, int]:
        return int(self._bounds.tasks * _LOOK), int(self._bounds.bytes * _LOOK)

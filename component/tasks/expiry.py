"""What the passing of time causes: deadlines, questions that expire, and what is kept no longer.

An ended task is retained until its `retain_until`, which is days away, so a principal that sends
large requests as fast as it can would fill the disk within minutes. Therefore the number and the
size of its ended tasks are limited, and so is the size of the answers in its replay records. Above
a limit the oldest are deleted. A record itself stays for its replay window, so no request runs
twice because of this. The limits are not checked at each end of a task, but only when a principal
has added a tenth of its limit since the last time.
"""

import math
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import msgspec
import structlog

from component.caches import LRUCache
from component.store.clock import GRACE_MS
from component.store.database import Database
from component.store.errors import StorageError
from component.store.outages import log_failure
from component.store.storage import Storage
from component.tasks import changes, question_rows, replay, rows, standing_rows
from component.tasks.changes import Change, Transaction
from component.tasks.journal import nothing_ran
from component.tasks.protocol import Bounds, DeletedTask, TaskLimits
from component.tasks.questions import lapse
from component.tasks.rows import TERMINAL, Row
from xep.fluux_agent import errors

_log = structlog.get_logger("component.tasks")

# Deadlines and questions.

_AT_ONCE: Final = 100
_LOOK_S: Final = 60.0
"""The maximum delay until a change of the wall clock is noticed."""
_AGAIN_MS: Final = 5_000
"""When to check a deadline again that has passed by a clock that was just set."""


def expire_due(tx: Transaction, skew: int | None) -> tuple[int | None, int | None]:
    """Settle deadlines and questions that have expired (EXE-027, CNF-038, INP-013). Return the
    milliseconds until the next timer, if one is set, and how far the wall clock is ahead of the
    steady clock.

    `skew` is that of the last call; None at the start. If it has changed, the wall clock was set,
    and deadlines may have passed that were not due yet.
    """
    left = count_downtime(tx)
    seen: int | None = tx.now - tx.steady
    due = _settle_all(tx, "wake_at <= ? ORDER BY wake_at", tx.steady)
    if seen != skew:
        late = _settle_all(tx, "wake_at IS NOT NULL AND deadline <= ? ORDER BY deadline", tx.now)
        if _AT_ONCE in (due, late):
            seen = skew  # there may be more of them
    (first,) = rows.column(tx, "SELECT min(wake_at) FROM tasks WHERE wake_at IS NOT NULL")
    waits = [] if first is None else [max(0, first - tx.steady)]
    if left is not None:
        waits.append(left)
    return min(waits, default=None), seen


def count_downtime(database: Database) -> int | None:
    """Count the downtime of the service towards the expiry of questions, once it is known well
    enough.

    Only the machine's clock tells how long it was down, and it may have been wrong at startup. So
    the steady clock stopped, and people would have longer to answer than they were told. Some
    minutes after the start the clock is assumed to be right. Returns the milliseconds until then.
    """
    row = database.execute("SELECT downtime, back_at FROM clock WHERE downtime > 0").fetchone()
    if row is None:
        return None
    if database.steady < row[1] + GRACE_MS:
        return int(row[1]) + GRACE_MS - database.steady
    downtime, back_at = row
    made = database.execute("UPDATE clock SET downtime = 0 WHERE downtime = ?", (downtime,))
    if made.rowcount:  # otherwise another instance was first
        question_rows.expire_sooner(database, downtime, back_at)
    return None


def _settle_all(tx: Transaction, condition: str, time: int) -> int:
    """Settle the first tasks that match; return how many."""
    found = rows.select(tx, f"WHERE {condition} LIMIT {_AT_ONCE:d}", (time,), rows.SKIP)
    made = [change for row in found if (change := _settle(tx, row)) is not None]
    ready = {row.share for row in found if rows.is_queued(row)}
    tx.publish(*made)
    if ready:
        tx.ready |= ready
        tx.wake_others()
    return len(found)


def _settle(tx: Transaction, row: Row) -> Change | None:
    if row.state in TERMINAL:
        row.wake_at = None
        rows.update(tx, row)
        return None
    lapsed = lapse(tx, row)
    if lapsed is not None:
        return lapsed
    if rows.is_late(tx, row):
        repeatable = nothing_ran(tx, row.id)
        return changes.end(tx, row, "failed", errors.deadline_expired(), repeatable=repeatable)
    question = question_rows.open_of(tx, row.id) if row.state == "input-required" else None
    if row.not_before is not None and row.not_before <= tx.steady:
        row.not_before = None
    due = rows.next_due(tx, row, None if question is None else question.expires)
    if due is not None and due <= tx.steady:
        due = tx.steady + _AGAIN_MS  # a deadline, which follows the wall clock
    row.wake_at = due
    rows.update(tx, row)
    return None


class Timer:
    """Sleeps until the next timer is due.

    Args:
        settle: settles what is due; returns the milliseconds until the next timer.
        rest: waits until an event is set, or for so many seconds; looks at the clock after as many
            as the last argument says.
    """

    def __init__(
        self,
        settle: Callable[[], Awaitable[int | None]],
        rest: Callable[[anyio.Event, float, float], Awaitable[None]],
    ) -> None:
        self._settle, self._rest = settle, rest
        self._woken = anyio.Event()

    def wake(self) -> None:
        """Check the timers again, because one may be due sooner."""
        self._woken.set()

    async def run(self) -> None:
        """Settle timers until cancelled."""
        while True:
            wait = await self._settle()
            # One millisecond more, so that the clock of the database has passed the time.
            seconds = math.inf if wait is None else (wait + 1) / 1000
            await self._rest(self._woken, seconds, _LOOK_S)
            self._woken = anyio.Event()


# Retention.

EVERY_S: Final = 600.0
_PORTION: Final = 100
"""Tasks in one operation: each may have hundreds of events, and all other writes wait for it."""


def forget(database: Database, limit: int = 500, deleted: list[DeletedTask] | None = None) -> int:
    """Delete up to `limit` tasks, and as many replay records, that need not be kept any more.

    A task is deleted, with its record and all its children, when it has ended, its `retain_until`
    has passed and its replay record has expired. The record of a named request is never deleted
    before its task (RPL-016), nor a task before its record, which would refer to a task that no
    longer exists. All these times are those of the steady clock: a jump of the wall clock deletes
    nothing.

    Returns how many were deleted; with 0 nothing is left to do. The tasks among them that their
    principals could see are added to `deleted`.
    """
    skip = rows.SKIP if database.dialect == "postgresql" else ""
    tasks = rows.column(
        database,
        f"SELECT id FROM tasks WHERE retain_until < ? AND {rows.ENDED} AND NOT EXISTS"  # noqa: S608
        " (SELECT 1 FROM replay WHERE replay.task = tasks.id AND replay.expires >= ?)"
        f" ORDER BY retain_until LIMIT ?{skip}",
        *(database.steady, database.steady, limit),
    )
    if tasks:
        replay.delete_of(database, tasks)
        found = rows.delete(database, tasks)
        if deleted is not None:
            deleted += found
    question_rows.forget(database)
    standing_rows.forget_old(database)
    return len(tasks) + replay.delete_expired(database, limit)


async def keep(
    storage: Storage,
    every_s: float = EVERY_S,
    on_deleted: Callable[[DeletedTask], None] = lambda _: None,
) -> None:
    """Forget at once and every `every_s` seconds, until cancelled; a refused round goes on later.
    `on_deleted` is called with each deleted task that its principal could see.
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
            await storage.write(rows.fold_counts)
        except StorageError as error:
            log_failure(_log, "could not delete expired rows", error)
        await anyio.sleep(every_s)


# The limits of principals.

_PRINCIPALS: Final = 10_000
"""Principals whose additions are counted; one that was dropped is checked sooner."""
_FULL: Final = 0.9
"""The part of a limit that is left after removing, so that it is not done at each end."""
_LOOK: Final = 0.1
"""The part of a limit that may be added before the next check. Several instances on one database
may each add so much unseen by the others.
"""
_AGAIN_S: Final = 2.0
"""Seconds until the next try if no final event had been sent, so that nothing was deleted."""


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


def principals_over_limits(database: Database, bounds: Bounds) -> list[str]:
    """Return the principals that exceed the limits."""
    tasks = rows.column(
        database,
        f"SELECT principal FROM tasks WHERE {rows.ENDED} GROUP BY principal"  # noqa: S608
        " HAVING count(*) > ? OR sum(bytes) > ?",
        *(bounds.tasks, bounds.bytes),
    )
    return sorted({*tasks, *replay.principals_over(database, bounds.bytes)})


def remove(database: Database, principal: str, bounds: Bounds, replay_ms: int) -> Removed:
    """Remove the tasks of a principal that ended first, and its oldest answers, if there are too
    many; at most 100 of each.

    A task that has not ended, or whose end has not been sent, stays. The
    replay record continues to name the removed task: for at least `replay_ms` from admission, and
    at most `replay_ms` from the end, by the steady clock.
    """
    answers, more = _drop_answers(database, principal, bounds)
    count, size = rows.kept_of(database, principal)
    if not bounds.exceeded(count, size):
        return Removed(answers=answers, left_tasks=count, left_bytes=size, more=more)
    lower = Bounds(int(bounds.tasks * _FULL), int(bounds.bytes * _FULL))
    oldest: dict[str, int] = {}
    gone = 0
    for task, weight, ended in _oldest_ended(database, principal):
        if not lower.exceeded(count - len(oldest), size - gone):
            break
        oldest[task] = ended + replay_ms
        gone += weight
    deleted: tuple[DeletedTask, ...] = ()
    if oldest:
        replay.shorten_records(database, oldest)
        deleted = tuple(rows.delete(database, list(oldest)))
    count, size = count - len(oldest), size - gone
    more = more or (bool(oldest) and bounds.exceeded(count, size))
    return Removed(len(oldest), gone, answers, count, size, more, deleted)


def _oldest_ended(database: Database, principal: str) -> list[tuple[str, int, int]]:
    """Return id, size and time of the end of the first ended tasks whose end was sent."""
    skip = rows.SKIP if database.dialect == "postgresql" else ""
    return database.execute(
        "SELECT id, coalesce(bytes, 0), updated - coalesce(promised - retain_until, 0)"  # noqa: S608 - constant texts
        f" FROM tasks WHERE principal = ? AND {rows.ENDED}"
        f" AND unsent_revision IS NULL ORDER BY updated, id LIMIT {_PORTION:d}{skip}",
        (principal,),
    ).fetchall()


def _drop_answers(database: Database, principal: str, bounds: Bounds) -> tuple[int, bool]:
    """Remove the oldest recorded answers; return how many, and whether there are more."""
    size = replay.answer_bytes(database, principal)
    if size <= bounds.bytes:
        return 0, False
    dropped = 0
    for key, weight in replay.oldest_answers(database, principal, _PORTION):
        if size <= bounds.bytes * _FULL:
            break
        replay.drop_answer(database, key)
        dropped, size = dropped + 1, size - weight
    return dropped, dropped > 0 and size > bounds.bytes


class EndedTasks:
    """Ensures that the retained tasks of each principal stay within the limits; `on_deleted` is
    called with each deleted task that its principal could see.
    """

    def __init__(
        self, storage: Storage, limits: TaskLimits, on_deleted: Callable[[DeletedTask], None]
    ) -> None:
        self._on_deleted = on_deleted
        self._storage = storage
        self._bounds = limits.kept
        self._replay_ms = limits.replay_ms
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
            over = await self._storage.read(lambda db: principals_over_limits(db, self._bounds))
            self._due |= dict.fromkeys(over)
        except StorageError as error:
            log_failure(_log, "could not count the stored ended tasks", error)
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

        def op(database: Database) -> Removed:
            return remove(database, principal, self._bounds, self._replay_ms)

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
            log_failure(_log, "could not remove ended tasks", error, principal=principal)
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

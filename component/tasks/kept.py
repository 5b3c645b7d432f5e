"""How much of what has ended is kept for one principal, and what goes first when it is too much.

An ended task is kept until its `retain_until`, which is days away, so a principal that sends large
requests as fast as it can fills the disk within minutes. Therefore there is a bound on the number
and the bytes of its ended tasks, and on the bytes of the answers that replay records hold. Beyond a
bound the oldest go. A record itself stays for its replay window: no request runs twice for it.

The bytes of a task are in its row (`tasks.bytes`), and what is asked here is in partial indexes
that hold them, so it reads nothing of the tasks. It is not asked at each end either: only when a
principal has added a tenth of its bound since it was asked last.
"""

from collections import OrderedDict
from functools import partial
from typing import Final

import anyio
import msgspec
import structlog

from component.storage.database import Database
from component.storage.errors import StorageError
from component.tasks.storing import Storage
from xep.fluux_agent import errors

_log = structlog.get_logger("component.tasks")

_PORTION: Final = 100
"""Tasks, or answers, that one transaction removes; others have their turn in between."""
_PRINCIPALS: Final = 10_000
"""Principals whose additions are counted; one that was dropped is looked at a little sooner."""
_FULL: Final = 0.9
"""Of a bound, how much is left after removing, so that it is not done at each end."""
_LOOK: Final = 0.1
"""Of a bound, how much is added before it is asked what there is. With several instances on one
database each adds as much unseen by the others."""

_AGAIN_S: Final = 2.0
"""Seconds after which it is tried again where nothing could go, since no end had been sent yet."""

ENDED: Final = "state IN ('completed', 'failed', 'rejected', 'cancelled')"
"""As the index `tasks_kept` has it."""


class Bounds(msgspec.Struct, frozen=True):
    """The most ended tasks that are kept for one principal, and the most bytes of them."""

    tasks: int = 1_000
    bytes: int = 16_000_000

    def exceeded(self, tasks: int, size: int) -> bool:
        """Whether so much is too much."""
        return tasks > self.tasks or size > self.bytes


class Removed(msgspec.Struct, frozen=True):
    """What one transaction has removed, and what is left; `more` says that it is still too much."""

    tasks: int = 0
    bytes: int = 0
    answers: int = 0
    left_tasks: int = 0
    left_bytes: int = 0
    more: bool = False


def kept_of(database: Database, principal: str) -> tuple[int, int]:
    """The number of ended tasks that are kept for a principal, and their bytes."""
    count, size = database.execute(
        f"SELECT count(*), coalesce(sum(bytes), 0) FROM tasks WHERE principal = ? AND {ENDED}",  # noqa: S608 - text of ours
        (principal,),
    ).fetchone() or (0, 0)
    return int(count), int(size)


def beyond(database: Database, bounds: Bounds) -> list[str]:
    """The principals for whom more is kept than the bounds allow."""
    tasks = database.execute(
        f"SELECT principal FROM tasks WHERE {ENDED} GROUP BY principal"  # noqa: S608 - text of ours
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
    """Remove the tasks of a principal that ended first, if there are too many; answers likewise.

    Up to 100 of each. Neither a task that is not ended goes, nor one whose end has not been sent.
    Its replay record stays for `replay_ms` from admission on, and goes on to name the task.
    """
    skip = " FOR UPDATE SKIP LOCKED" if database.dialect == "postgresql" else ""
    answers, more = _drop_answers(database, principal, bounds, skip)
    count, size = kept_of(database, principal)
    if not bounds.exceeded(count, size):
        return Removed(answers=answers, left_tasks=count, left_bytes=size, more=more)
    found = database.execute(
        f"SELECT id, bytes, created FROM tasks WHERE principal = ? AND {ENDED}"  # noqa: S608 - texts of ours
        f" AND untold IS NULL ORDER BY updated, id LIMIT {_PORTION}{skip}",
        (principal,),
    ).fetchall()
    lower = Bounds(int(bounds.tasks * _FULL), int(bounds.bytes * _FULL))
    tasks = gone = 0
    for task, weight, created in found:
        if not lower.exceeded(count - tasks, size - gone):
            break
        database.execute(
            "UPDATE replay SET expires = ? WHERE task = ?", (created + replay_ms, task)
        )
        database.execute("DELETE FROM tasks WHERE id = ?", (task,))
        tasks, gone = tasks + 1, gone + weight
    count, size = count - tasks, size - gone
    more = more or (tasks > 0 and bounds.exceeded(count, size))
    return Removed(tasks, gone, answers, count, size, more)


def _drop_answers(
    database: Database, principal: str, bounds: Bounds, skip: str
) -> tuple[int, bool]:
    """Take the answers out of the oldest replay records; how many, and whether there are more."""
    (size,) = database.execute(
        "SELECT coalesce(sum(bytes), 0) FROM replay WHERE principal = ? AND bytes > 0",
        (principal,),
    ).fetchone() or (0,)
    if size <= bounds.bytes:
        return 0, False
    found = database.execute(
        "SELECT key, bytes FROM replay WHERE principal = ? AND bytes > 0"  # noqa: S608 - texts of ours
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
    """Sees to it that what is kept for each principal stays within the bounds.

    Args:
        storage: where the rows are.
        bounds: what is kept at most.
        replay_ms: the replay window, in milliseconds.
    """

    def __init__(self, storage: Storage, bounds: Bounds, replay_ms: int) -> None:
        self._storage = storage
        self._bounds = bounds
        self._replay_ms = replay_ms
        self._left: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """Tasks and bytes that a principal may add before it is looked at."""
        self._due: dict[str, None] = {}
        self._work = anyio.Event()

    def add(self, principal: str, size: int) -> None:
        """Something of about `size` bytes is kept for a principal from now on. Never waits."""
        left = self._left.pop(principal, None) or self._share()
        left = self._left[principal] = (left[0] - 1, left[1] - size)
        if len(self._left) > _PRINCIPALS:
            self._left.popitem(last=False)
        if min(left) < 0:
            self._due[principal] = None
            self._work.set()

    async def run(self) -> None:
        """Remove what is too much, at once and whenever there is reason to look, until cancelled.

        What the database refuses is logged, and tried again with the next end.
        """
        try:
            for principal in await self._storage.read(partial(beyond, bounds=self._bounds)):
                self._due[principal] = None
        except StorageError as error:
            _log.warning("could not count what is kept of ended tasks", reason=str(error))
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
        """Remove what is too much; whether nothing is any more."""
        op = partial(remove, principal=principal, bounds=self._bounds, replay_ms=self._replay_ms)
        tasks = size = answers = 0
        try:
            while True:
                removed = await self._storage.write(op)
                tasks, size = tasks + removed.tasks, size + removed.bytes
                answers += removed.answers
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
                "removed the oldest ended tasks of a principal that exceeds its bounds",
                principal=principal,
                tasks=tasks,
                bytes=size,
                answers=answers,
            )
        return not self._bounds.exceeded(removed.left_tasks, removed.left_bytes)

    def _share(self) -> tuple[int, int]:
        return int(self._bounds.tasks * _LOOK), int(self._bounds.bytes * _LOOK)

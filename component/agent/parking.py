"""Turns that wait, for a task or a time: as rows, so that they outlive us, and how they go on."""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

import anyio
import structlog
from anyio.abc import TaskGroup

from component.agent import turns
from component.agent.lanes import Turn
from component.agent.turns import Wait, key_of
from component.memory.lines import SessionKey
from component.storage import Storage, StorageError

_log = structlog.get_logger("component.agent")

FIRST_WAIT_S: Final = 1.0
"""Seconds until a turn is tried again when the disk refuses; twice as long each time."""
LONGEST_WAIT_S: Final = 60.0


class Parking:
    """Turns that wait for tasks, or for the time to say an answer.

    Args:
        storage: has the table `turns`.
        home: names this data directory among those that share a database.
        clock: milliseconds since 1970, UTC.
        go_on: takes a turn that waits no more.
    """

    def __init__(
        self,
        storage: Storage,
        home: str,
        clock: Callable[[], int],
        go_on: Callable[[Turn], None],
    ) -> None:
        self._storage = storage
        self._home = home
        self._clock = clock
        self._go_on = go_on
        self._group: TaskGroup | None = None
        self._turns: dict[str, tuple[SessionKey, tuple[str, ...]]] = {}
        self._tasks: dict[str, str] = {}
        self._sessions: dict[SessionKey, list[str]] = {}

    def open(self, group: TaskGroup | None) -> None:
        """Wake turns in a task group from now on; without one none is woken by its time."""
        self._group = group

    # What waits.

    async def until_ended(self, turn: Turn, key: SessionKey, tasks: Sequence[str]) -> None:
        """Let a turn wait for tasks. Raises StorageError."""
        wait = Wait(tasks=tuple(tasks))
        if turn.wait != wait:
            await self._storage.write(partial(turns.wait, turns=(turn.incoming.id,), wait=wait))
        self._add(turn.incoming.id, key, tasks)

    async def until(self, turn: Turn, until: int) -> None:
        """Let a turn wait for a time, in milliseconds since 1970. Raises StorageError."""
        wait = Wait(until=until)
        await self._storage.write(partial(turns.wait, turns=(turn.incoming.id,), wait=wait))
        self.add_until(turn, until)

    def add_until(self, turn: Turn, until: int) -> None:
        """A turn waits for a time, as its row says already."""
        self._add(turn.incoming.id, key_of(turn.incoming), ())
        self._soon(self._later, turn.incoming.id, until)

    def waiting_for(self, task: str) -> str | None:
        """The turn that waits for a task."""
        return self._tasks.get(task)

    def of(self, key: SessionKey) -> tuple[str, ...]:
        """Those of a session, the first one first."""
        return tuple(self._sessions.get(key, ()))

    def keys(self) -> set[SessionKey]:
        """The sessions that have any."""
        return set(self._sessions)

    # How it goes on.

    async def take(self, turn: str) -> Turn | None:
        """End the waiting of a turn; None if it did not wait or has no row. Raises StorageError."""
        rows = await self._storage.read(partial(turns.of_turn, home=self._home, turn=turn))
        if not self._remove(turn):
            return None
        mine = next((row for row in rows if row.incoming.id == turn), None)
        if mine is None:
            return None
        return Turn(
            mine.incoming,
            stored=True,
            resumed=True,
            joined=[row.incoming for row in rows if row is not mine],
            wait=mine.wait,
            due=mine.wait is not None and mine.wait.until is not None,
        )

    async def wake(self, turn: str) -> None:
        """Go on with a turn. Raises StorageError, and then it still waits."""
        found = await self.take(turn)
        if found is not None:
            self._go_on(found)

    def wake_soon(self, turn: str) -> None:
        """Go on with a turn, however long the disk refuses."""
        self._soon(self._keep_waking, turn)

    async def _later(self, turn: str, until: int) -> None:
        await anyio.sleep(max(0, until - self._clock()) / 1000)
        await self._keep_waking(turn)

    async def _keep_waking(self, turn: str) -> None:
        wait = FIRST_WAIT_S
        while True:
            try:
                return await self.wake(turn)
            except StorageError as error:
                _log.warning("a turn has to wait", turn=turn, reason=str(error), seconds=wait)
            await anyio.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT_S)

    def _soon(self, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        if self._group is not None:
            self._group.start_soon(work, *args)

    # Who it is.

    def _add(self, turn: str, key: SessionKey, tasks: Sequence[str]) -> None:
        self._turns[turn] = (key, tuple(tasks))
        self._tasks.update(dict.fromkeys(tasks, turn))
        self._sessions.setdefault(key, []).append(turn)

    def _remove(self, turn: str) -> bool:
        """It does not wait any more; False if it did not."""
        found = self._turns.pop(turn, None)
        if found is None:
            return False
        key, tasks = found
        for task in tasks:
            self._tasks.pop(task, None)
        left = self._sessions[key]
        left.remove(turn)
        if not left:
            del self._sessions[key]
        return True

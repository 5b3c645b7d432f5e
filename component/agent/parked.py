"""The parked turns of a conversation, which wait for tasks or for the time of their answer.

They wait as rows, so they survive a restart of the process, and continue on the instance that has
the conversation when the task ends.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import structlog

from component.agent import rows
from component.agent.completions import LONGEST_DELAY_S
from component.agent.requests import Resumption, Turn
from component.agent.rows import Wait
from component.store import StorageError, waiters
from component.store.database import Database

if TYPE_CHECKING:
    from component.agent.conversation import Shared

_log = structlog.get_logger("component.agent")

FIRST_WAIT_S: Final = 1.0
"""Seconds until an operation is retried after a storage failure; they double each time."""
LONGEST_WAIT_S: Final = 60.0


class ParkedTurns:
    """The parked turns of one conversation.

    Args:
        shared: the objects that all conversations share.
        resume: is called with a turn that has stopped waiting.
        changed: is called when the row of a turn no longer exists.
    """

    def __init__(
        self, shared: "Shared", resume: Callable[[Turn], None], changed: Callable[[], None]
    ) -> None:
        self._shared = shared
        self._resume = resume
        self._changed = changed
        self._turns: dict[str, tuple[str, ...]] = {}
        self._writing: Sequence[str] = ()
        """The tasks that the running turn will wait for, while its row is being written."""
        self._missed = False
        """Whether one of them has ended in the meantime."""

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the turns, the one that has waited longest first."""
        return tuple(self._turns)

    async def until_ended(self, turn: str, tasks: tuple[str, ...]) -> bool:
        """Park a turn until one of these tasks ends; False if one has already ended, and the turn
        continues immediately. Raises StorageError.
        """
        shared, left = self._shared, None

        def op(database: Database) -> int:
            rows.wait(database, (turn,), Wait(tasks=tasks))
            return waiters.wait_for(database, turn, tasks, shared.home)

        # Set before the row is written, so that the end of a task is not missed.
        self._writing, self._missed = tasks, False
        shared.awaited.update(dict.fromkeys(tasks, self))
        try:
            left = await shared.storage.write(op)
        finally:
            self._writing = ()
            if left is None:
                self._await_no_longer(tasks)
        self._turns[turn] = tasks
        waits = not self._missed and left == len(set(tasks))
        if not waits:
            shared.spawn(self._wake, turn)
        return waits

    async def until(self, turn: str, until: int) -> None:
        """Park a turn until a time, in milliseconds since 1970. Raises StorageError."""
        write = partial(rows.wait, turns=(turn,), wait=Wait(until=until))
        await self._shared.storage.write(write)
        self.add_until(turn, until)

    def add_until(self, turn: str, until: int) -> None:
        """Park a turn whose row already has the time."""
        self._turns[turn] = ()
        self._shared.spawn(self._wake_at, turn, until)

    def task_ended(self, task: str) -> None:
        """Continue the turns that wait for a task."""
        if task in self._writing:
            self._missed = True
        for turn in [one for one, tasks in self._turns.items() if task in tasks]:
            self._shared.spawn(self._wake, turn)

    async def take(self, turn: str) -> Turn | None:
        """Remove and return a parked turn; None if it is not parked. Raises StorageError."""
        shared = self._shared
        found = await shared.storage.read(partial(rows.of_turn, home=shared.home, turn=turn))
        tasks = self._turns.pop(turn, None)
        if tasks is None:
            return None
        self._await_no_longer(tasks)
        mine = next((row for row in found if row.request.id == turn), None)
        if mine is None:
            self._changed()
            return None
        is_due = mine.wait is not None and mine.wait.until is not None
        return Turn(
            mine.request,
            stored=True,
            resumption=Resumption("time" if is_due else "task"),
            joined=[row.request for row in found if row is not mine],
        )

    async def _wake_at(self, turn: str, until: int) -> None:
        # If the clock was set back, the answer is still not later than the maximum delay.
        left_s = (until - self._shared.clock()) / 1000
        await anyio.sleep(min(max(0.0, left_s), LONGEST_DELAY_S))
        await self._wake(turn)

    async def _wake(self, turn: str) -> None:
        """Continue a turn as soon as its rows can be read."""
        wait = FIRST_WAIT_S
        while True:
            try:
                found = await self.take(turn)
            except StorageError as error:
                _log.warning("a turn has to wait", turn=turn, reason=str(error), seconds=wait)
            else:
                return None if found is None else self._resume(found)
            await anyio.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT_S)

    def _await_no_longer(self, tasks: Sequence[str]) -> None:
        for task in tasks:
            if self._shared.awaited.get(task) is self:
                del self._shared.awaited[task]

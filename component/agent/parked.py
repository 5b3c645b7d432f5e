"""The parked turns of a conversation, which wait for tasks or for the time of their answer.

They wait as rows, so they survive a restart of the process, and continue on the instance that has
the conversation when the task ends.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import anyio
import msgspec
import structlog

from component.agent import turns
from component.agent.directives import LONGEST_DELAY_S
from component.agent.requests import Resumption
from component.agent.turn import Turn
from component.agent.turns import Wait
from component.storage import Storage, StorageError, waiters
from component.storage.database import Database

_log = structlog.get_logger("component.agent")

FIRST_WAIT_S: Final = 1.0
"""Seconds until an operation is retried after a storage failure; they double each time."""
LONGEST_WAIT_S: Final = 60.0


class Parking(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that the parked turns of all conversations share.

    `storage` has the tables `turns` and `waiters`, `home` identifies this data directory among
    those that share a database. `clock` returns milliseconds since 1970, UTC. `spawn` starts work
    in the background. `awaited` maps each task that a turn waits for to the parked turns of its
    conversation.
    """

    storage: Storage
    home: str
    clock: Callable[[], int]
    spawn: Callable[..., None]
    awaited: "dict[str, ParkedTurns]" = msgspec.field(default_factory=dict)


class ParkedTurns:
    """The parked turns of one conversation.

    Args:
        parking: the objects that all conversations share.
        resume: is called with a turn that has stopped waiting.
        changed: is called when the row of a turn no longer exists.
    """

    def __init__(
        self, parking: Parking, resume: Callable[[Turn], None], changed: Callable[[], None]
    ) -> None:
        self._parking = parking
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
        parking, left = self._parking, None

        def op(database: Database) -> int:
            turns.wait(database, (turn,), Wait(tasks=tasks))
            return waiters.wait_for(database, turn, tasks, parking.home)

        # Set before the row is written, so that the end of a task is not missed.
        self._writing, self._missed = tasks, False
        parking.awaited.update(dict.fromkeys(tasks, self))
        try:
            left = await parking.storage.write(op)
        finally:
            self._writing = ()
            if left is None:
                self._await_no_longer(tasks)
        self._turns[turn] = tasks
        waits = not self._missed and left == len(set(tasks))
        if not waits:
            parking.spawn(self._wake, turn)
        return waits

    async def until(self, turn: str, until: int) -> None:
        """Park a turn until a time, in milliseconds since 1970. Raises StorageError."""
        write = partial(turns.wait, turns=(turn,), wait=Wait(until=until))
        await self._parking.storage.write(write)
        self.add_until(turn, until)

    def add_until(self, turn: str, until: int) -> None:
        """Park a turn whose row already has the time."""
        self._turns[turn] = ()
        self._parking.spawn(self._wake_at, turn, until)

    def task_ended(self, task: str) -> None:
        """Continue the turns that wait for a task."""
        if task in self._writing:
            self._missed = True
        for turn in [one for one, tasks in self._turns.items() if task in tasks]:
            self._parking.spawn(self._wake, turn)

    async def take(self, turn: str) -> Turn | None:
        """Remove and return a parked turn; None if it is not parked. Raises StorageError."""
        parking = self._parking
        rows = await parking.storage.read(partial(turns.of_turn, home=parking.home, turn=turn))
        tasks = self._turns.pop(turn, None)
        if tasks is None:
            return None
        self._await_no_longer(tasks)
        mine = next((row for row in rows if row.request.id == turn), None)
        if mine is None:
            self._changed()
            return None
        is_due = mine.wait is not None and mine.wait.until is not None
        return Turn(
            mine.request,
            stored=True,
            resumption=Resumption("time" if is_due else "task"),
            joined=[row.request for row in rows if row is not mine],
        )

    async def _wake_at(self, turn: str, until: int) -> None:
        # If the clock was set back, the answer is still not later than the maximum delay.
        left_s = (until - self._parking.clock()) / 1000
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
            if self._parking.awaited.get(task) is self:
                del self._parking.awaited[task]

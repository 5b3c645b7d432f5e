"""Limits work that blocks the event loop for a millisecond or more to one piece in each iteration.

Without this, sixty-four requests of 200 KB that arrive together would all be decoded, compared and
encoded in one iteration of the event loop, during which nothing else is served. So work on large
data waits for its turn: one piece runs in each iteration, and everything else runs in between. A
worker thread would not help, because the work holds the interpreter's lock.
"""

from collections import OrderedDict, deque
from types import TracebackType
from typing import Final

import anyio
import anyio.lowlevel

SMALL: Final = 8192
"""Data of at most this size, in bytes, is processed without waiting for a turn."""


class Pacer:
    """Gives turns to the principals in rotation. The work of a turn does not wait."""

    def __init__(self) -> None:
        self._busy = False
        self._waiting: OrderedDict[str, deque[anyio.Event]] = OrderedDict()

    def turn(self, principal: str, size: int) -> "PacerTurn":
        """Return a turn to process `size` bytes of a principal: `async with pacer.turn(who, size):
        ...`.

        Small data does not wait.
        """
        return PacerTurn(None if size < SMALL else self, principal)

    async def enter(self, principal: str) -> None:
        """Wait for a turn."""
        if not self._busy:
            self._busy = True
            try:
                await anyio.lowlevel.checkpoint()
            except BaseException:
                self.leave()
                raise
            return
        mine = anyio.Event()
        self._waiting.setdefault(principal, deque()).append(mine)
        try:
            await mine.wait()
        except BaseException:
            if mine.is_set():
                self.leave()
            else:
                self._remove(principal, mine)
            raise

    def leave(self) -> None:
        """End a turn. The next one begins in the next iteration of the event loop."""
        if not self._waiting:
            self._busy = False
            return
        principal, events = next(iter(self._waiting.items()))
        events.popleft().set()
        if events:
            self._waiting.move_to_end(principal)
        else:
            del self._waiting[principal]

    def _remove(self, principal: str, event: anyio.Event) -> None:
        events = self._waiting[principal]
        events.remove(event)
        if not events:
            del self._waiting[principal]


class PacerTurn:
    """The context of one turn."""

    __slots__ = ("_pacer", "_principal")

    def __init__(self, pacer: Pacer | None, principal: str) -> None:
        self._pacer = pacer
        self._principal = principal

    async def __aenter__(self) -> None:
        """Wait for the turn."""
        if self._pacer is not None:
            await self._pacer.enter(self._principal)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the turn."""
        if self._pacer is not None:
            self._pacer.leave()

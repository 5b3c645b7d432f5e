"""Pieces of work that take the event loop for a millisecond or more, one at a time.

Sixty-four requests of 200 KB that arrive together would all be decoded, compared and encoded in one
pass of the event loop, in which nobody else is served. So a piece of work on something large waits
for its turn: there is one piece in each pass, and everybody else in between. In a worker thread it
would hold up the loop all the same, as it holds the interpreter's lock.
"""

from collections import OrderedDict, deque
from types import TracebackType
from typing import Final

import anyio
import anyio.lowlevel

_SMALL: Final = 8192
"""Bytes of something that takes so little time that nothing has to wait for it."""


class Pacer:
    """Gives turns, to the principals in rotation. A turn is for work that does not wait."""

    def __init__(self) -> None:
        self._busy = False
        self._waiting: OrderedDict[str, deque[anyio.Event]] = OrderedDict()

    def turn(self, principal: str, size: int) -> "Turn":
        """A turn to work on so many bytes of a principal: `async with pacer.turn(who, size): ...`.

        For little it is there at once.
        """
        return Turn(None if size < _SMALL else self, principal)

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
        """End a turn. The next one begins in the next pass of the event loop."""
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


class Turn:
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
        """End it."""
        if self._pacer is not None:
            self._pacer.leave()

"""A turn that is under way, as those outside see it: what else was said, and how to stop it."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import anyio

from component.agent.lanes import Lane, Lanes, Turn
from component.agent.protocol import Incoming

RESTARTS: Final = 3
"""How often in a turn a call of the model is dropped because more was said."""


class Live:
    """The attention of one turn.

    Messages join it if they belong to the same exchange: same thread, same kind, same address of
    ours. They do so in order, before a call of the model; a call that is under way is dropped for
    them, a few times.

    Attributes:
        scope: all of the turn.
        stopped: whether it was cancelled because somebody wants it to stop.
        done: set when it is over.
        ended: tasks that have ended meanwhile.
    """

    def __init__(
        self,
        lanes: Lanes,
        lane: Lane,
        turn: Turn,
        join: Callable[[Sequence[str], str], Awaitable[None]],
    ) -> None:
        self.turn = turn
        self.scope = anyio.CancelScope()
        self.stopped = False
        self.done = anyio.Event()
        self.ended: set[str] = set()
        self._lanes = lanes
        self._lane = lane
        self._join = join
        self._thinking: anyio.CancelScope | None = None
        self._restarts = 0

    @contextmanager
    def thinking(self) -> Iterator[anyio.CancelScope]:
        """A scope for a call of the model. Messages that came before it began cancel it at once."""
        with anyio.CancelScope() as scope:
            self._thinking = scope
            try:
                self.said_more()
                yield scope
            finally:
                self._thinking = None

    def said_more(self) -> None:
        """Something may have been said that this turn can answer too."""
        scope = self._thinking
        if scope is None or scope.cancel_called or self._restarts >= RESTARTS:
            return
        if self.more():
            self._restarts += 1
            scope.cancel()

    def more(self) -> bool:
        """Whether there are messages to join."""
        waiting = self._lane.waiting
        return bool(waiting) and self._joins(waiting[0])

    async def take(self) -> Sequence[Incoming]:
        """Let them join. Raises StorageError."""
        joining: list[Turn] = []
        for one in self._lane.waiting:
            if not self._joins(one):
                break
            joining.append(one)
        await self._join([one.incoming.id for one in joining], self.turn.incoming.id)
        for one in joining:
            self._lanes.remove(self._lane, one)
            self.turn.joined.append(one.incoming)
        return [one.incoming for one in joining]

    def stop(self) -> None:
        """Cancel it, for good."""
        self.stopped = True
        self.scope.cancel()

    def _joins(self, other: Turn) -> bool:
        mine, its = self.turn.incoming, other.incoming
        return (
            other.ready
            and not other.resumed
            and (mine.thread, mine.type, mine.target) == (its.thread, its.type, its.target)
        )

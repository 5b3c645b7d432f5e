"""Queues that take turns: entries of one key keep their order, and no key holds up the others."""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Final, Generic, NamedTuple, TypeVar

import anyio
import msgspec
import structlog

_log = structlog.get_logger("component.pubsub")

MOST_ENTRIES: Final = 10_000
MOST_BYTES: Final = 64 * 1024 * 1024

T = TypeVar("T")


class _Queue(msgspec.Struct, Generic[T], eq=False):
    key: object
    entries: deque[tuple[T, int]] = msgspec.field(default_factory=deque)
    bytes: int = 0
    has_turn: bool = False
    drops: bool = False


class QueueTurn(NamedTuple, Generic[T]):
    """The oldest entry of a key, whose turn it is."""

    entry: T
    queue: _Queue[T]
    time: float


class Turns(Generic[T]):
    """A queue for each key. The key that has been served least is next, and has one turn at a time.

    All queues together hold a limited number of entries and bytes. A key may use as much as is
    still free; beyond that its own oldest entries are dropped. `what` says who waits for the
    entries, for the log.
    """

    def __init__(
        self, what: str, most_entries: int = MOST_ENTRIES, most_bytes: int = MOST_BYTES
    ) -> None:
        self._what = what
        self._free = most_entries
        self._free_bytes = most_bytes
        self._queues: dict[object, _Queue[T]] = {}
        # Start-time fair queueing: (virtual time, place, queue) of all that wait for a turn.
        self._heap: list[tuple[float, int, _Queue[T]]] = []
        self._now = 0.0
        self._place: Callable[[], int] = count().__next__
        self._wake = anyio.Event()

    def put(self, key: object, entry: T, bytes_: int = 0) -> None:
        """Add an entry of this size to the queue of a key. Never waits."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(key)
            heappush(self._heap, (self._now, self._place(), queue))
            self._wake.set()
        queue.entries.append((entry, bytes_))
        queue.bytes += bytes_
        self._free -= 1
        self._free_bytes -= bytes_
        # The entry that has its turn stays, and so does the new one.
        while len(queue.entries) > 1 + queue.has_turn and (
            len(queue.entries) > self._free or queue.bytes > self._free_bytes
        ):
            self._remove(queue, int(queue.has_turn))
            if not queue.drops:
                queue.drops = True
                _log.warning(
                    "too much waits; the oldest entries are dropped",
                    waiting_for=self._what,
                    queue=str(key),
                )

    async def next(self) -> QueueTurn[T]:
        """Wait for the next turn. Its key has no other one until `done` is called."""
        while not self._heap:
            if self._wake.is_set():
                self._wake = anyio.Event()
            await self._wake.wait()
        time, _, queue = heappop(self._heap)
        self._now = max(self._now, time)
        queue.has_turn = True
        return QueueTurn(queue.entries[0][0], queue, time)

    def done(self, turn: QueueTurn[T], cost: float, *, finished: bool = True) -> None:
        """End a turn, which has cost this much. The entry keeps its place unless it is finished."""
        queue = turn.queue
        queue.has_turn = False
        if finished:
            self._remove(queue, 0)
        if queue.entries:
            heappush(self._heap, (turn.time + cost, self._place(), queue))
            self._wake.set()
        else:
            del self._queues[queue.key]

    def _remove(self, queue: _Queue[T], place: int) -> None:
        size = queue.entries[place][1]
        del queue.entries[place]
        queue.bytes -= size
        self._free += 1
        self._free_bytes += size

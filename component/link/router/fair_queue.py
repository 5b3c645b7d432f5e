"""Stanzas that wait to be handled: a queue for each principal; they share processor time fairly."""

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush, heapreplace
from itertools import count
from operator import attrgetter
from typing import Final, TypeAlias

from xep.stanza_stream import StanzaReceived
from xep.stream import StanzaSkipped

StanzaEvent: TypeAlias = StanzaReceived | StanzaSkipped

MOST_STANZAS: Final = 4096
"""The maximum number of waiting stanzas of all principals."""
MOST_BYTES: Final = 32 * 1024 * 1024
"""The maximum size of waiting stanzas in bytes, as received."""

_HEAD_BYTES: Final = 512
SMALL_BYTES: Final = 16_384
"""Smaller stanzas are expected to need about the same, short time to handle."""
_LAST: Final = MOST_BYTES
"""A rank after those of all sizes."""

_size = attrgetter("stanza.size")


class _Line:
    """The stanzas of one principal, and their size in bytes."""

    __slots__ = ("bytes", "events", "principal")

    def __init__(self, principal: str) -> None:
        self.principal = principal
        self.events: deque[StanzaEvent] = deque()
        self.bytes = 0


class FairQueue:
    """Orders stanzas so that each principal (a bare address) gets the same share of the time.

    Stanzas of one principal keep their order. Of several principals, the one that has been served
    for the least time is next (start-time fair queueing, with measured times). A principal that had
    nothing waiting starts at the virtual time of the queue: it has the next turn, but cannot save
    up time while it is idle. So however long the stanzas of one principal take, another principal
    waits for at most one of them.

    The queue is limited in number and bytes. A principal may use as much as is still free, so there
    is room for a principal that has nothing waiting, however much the others send.

    Args:
        stanzas: the maximum number of waiting stanzas.
        bytes_: their maximum size in bytes.

    Attributes:
        waiting: the number of waiting stanzas.
    """

    def __init__(self, stanzas: int = MOST_STANZAS, bytes_: int = MOST_BYTES) -> None:
        self.waiting = 0
        self._stanzas = stanzas
        self._free_bytes = bytes_
        self._lines: dict[str, _Line] = {}
        # Each entry is (virtual time, rank, place, line). The virtual time is the number of seconds
        # for which the line has been served. Among equal times, a line that has not been served yet
        # comes before the others, and the smaller its first stanza the earlier. The place decides
        # the rest: the line that has waited longest comes first.
        self._heap: list[tuple[float, int, int, _Line]] = []
        self._now = 0.0  # virtual: the time of the line that was served last
        self._served: dict[str, float] = {}  # of principals with nothing waiting, if later than now
        self._place = count().__next__

    def add(self, events: Sequence[StanzaEvent]) -> list[StanzaEvent]:
        """Queue the stanzas of one read. Return those for which their principal has no room."""
        refused = []
        lines = self._lines
        free, free_bytes = self._stanzas - self.waiting, self._free_bytes
        for event in events:
            if isinstance(event, StanzaReceived):
                stanza = event.stanza
                sender, size = stanza.sender, stanza.size
            else:
                sender, size = event.from_, _HEAD_BYTES
            principal = (sender or "").partition("/")[0]
            line = lines.get(principal)
            if line is None:
                if not free or size > free_bytes:
                    refused.append(event)
                    continue
                line = self._new_line(principal, size)
            elif len(line.events) >= free or line.bytes + size > free_bytes:
                refused.append(event)
                continue
            line.events.append(event)
            line.bytes += size
            free_bytes -= size
            free -= 1
        self.waiting, self._free_bytes = self._stanzas - free, free_bytes
        return refused

    def take(self) -> StanzaEvent:
        """Return the next stanza. Call `charge` with the time that it took before calling anything
        else.
        """
        self._now, _, _, line = self._heap[0]
        event = line.events.popleft()
        size = event.stanza.size if isinstance(event, StanzaReceived) else _HEAD_BYTES
        line.bytes -= size
        self._free_bytes += size
        self.waiting -= 1
        return event

    def charge(self, seconds: float) -> bool:
        """Charge the processor time that the last stanza took to its principal; return whether
        nothing of that waits any more.
        """
        heap = self._heap
        time, _, _, line = heap[0]
        time += seconds
        if line.events:
            heapreplace(heap, (time, _LAST, self._place(), line))
            return False
        heappop(heap)
        del self._lines[line.principal]
        if heap:
            self._served[line.principal] = time
        else:  # nobody else waits, so the time need not be shared
            self._now = time
            self._served.clear()
        return True

    def _new_line(self, principal: str, size: int) -> _Line:
        time = max(self._now, self._served.pop(principal, 0.0))
        line = self._lines[principal] = _Line(principal)
        heappush(self._heap, (time, size // SMALL_BYTES, self._place(), line))
        return line


def are_small(events: Sequence[StanzaEvent], most_bytes: int = SMALL_BYTES) -> bool:
    """Return whether no stanza has more bytes, and none was skipped."""
    try:
        return bool(max(map(_size, events), default=0) <= most_bytes)
    except AttributeError:  # a skipped one has no stanza
        return False

"""Stanzas that wait to be handled: a queue for each principal, and the time shared among them."""

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush, heapreplace
from itertools import count
from operator import attrgetter
from typing import Final, TypeAlias

from xep.component_stream import StanzaReceived
from xep.stream import StanzaSkipped

Event: TypeAlias = StanzaReceived | StanzaSkipped

MOST_STANZAS: Final = 4096
"""Stanzas of everybody that wait at a time."""
MOST_BYTES: Final = 32 * 1024 * 1024
"""Bytes of them, as received."""

_HEAD_BYTES: Final = 512
_SMALL_BYTES: Final = 16_384
"""Stanzas of fewer bytes take about the same time, as far as that is known before."""
_LAST: Final = MOST_BYTES
"""A rank behind those of all sizes."""

_sender = attrgetter("stanza.sender")
_size = attrgetter("stanza.size")


class _Line:
    """The stanzas of one principal, and how many bytes they have."""

    __slots__ = ("bytes", "events", "principal")

    def __init__(self, principal: str) -> None:
        self.principal = principal
        self.events: deque[Event] = deque()
        self.bytes = 0


class FairQueue:
    """Orders stanzas so that each principal (a bare address) gets the same share of the time.

    Stanzas of one principal keep their order. Of several principals, the one that has been served
    for the least time is next (start-time fair queueing, with the time measured and not guessed).
    One that comes after it had nothing waiting starts at the virtual time of the queue: it has the
    next turn, but cannot save up time while it is idle. So whatever the stanzas of one principal
    cost, somebody else waits for one of them at most.

    What waits is bounded in number and bytes. A principal may hold as much as is still free, so
    that there is room for a principal that has nothing waiting, however much the others send.

    Args:
        stanzas: how many may wait.
        bytes_: how many bytes they may have.
    """

    def __init__(self, stanzas: int = MOST_STANZAS, bytes_: int = MOST_BYTES) -> None:
        self._stanzas = self._free_stanzas = stanzas
        self._free_bytes = bytes_
        self._lines: dict[str, _Line] = {}
        # With the virtual time at which a line has its turn: seconds that it has been served. Of
        # several with the same time, those are first that have not been served and begin with a
        # small stanza: the others lose nothing by it. Of these it is the one that has waited
        # longest, by a number.
        self._heap: list[tuple[float, int, int, _Line]] = []
        self._now = 0.0  # virtual: the time of the line that was served last
        self._served: dict[str, float] = {}  # of principals with nothing waiting, where after now
        self._place = count().__next__

    @property
    def waiting(self) -> int:
        """How many stanzas wait."""
        return self._stanzas - self._free_stanzas

    @property
    def principals(self) -> int:
        """How many principals have something waiting."""
        return len(self._heap)

    def add(self, events: Sequence[Event]) -> list[Event]:
        """Queue what one read brought. Returns those for which their principal has no room."""
        refused = []
        lines = self._lines
        free, free_bytes = self._free_stanzas, self._free_bytes
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
        self._free_stanzas, self._free_bytes = free, free_bytes
        return refused

    def take(self) -> Event:
        """The next stanza. Say by `charge` how long it took before anything else is done here."""
        self._now, _, _, line = self._heap[0]
        event = line.events.popleft()
        size = event.stanza.size if isinstance(event, StanzaReceived) else _HEAD_BYTES
        line.bytes -= size
        self._free_bytes += size
        self._free_stanzas += 1
        return event

    def charge(self, seconds: float) -> None:
        """The stanza that was taken last took so long."""
        heap = self._heap
        time, _, _, line = heap[0]
        time += seconds
        if line.events:
            heapreplace(heap, (time, _LAST, self._place(), line))
            return
        heappop(heap)
        del self._lines[line.principal]
        if heap:
            self._served[line.principal] = time
        else:  # nobody waits, so nobody has had less than somebody else
            self._now = time
            self._served.clear()

    def _new_line(self, principal: str, size: int) -> _Line:
        time = max(self._now, self._served.pop(principal, 0.0))
        line = self._lines[principal] = _Line(principal)
        heappush(self._heap, (time, size // _SMALL_BYTES, self._place(), line))
        return line


def are_small(events: Sequence[Event], most: int) -> bool:
    """Whether they have at most so many bytes together, and none was skipped."""
    try:
        return bool(sum(map(_size, events)) <= most)
    except AttributeError:  # a skipped one has no stanza
        return False


def of_one_sender(events: Sequence[Event]) -> bool:
    """Whether one address sent all of them, none of which was skipped: then there is nobody to take
    turns with.
    """
    try:
        senders = set(map(_sender, events))
    except AttributeError:  # a skipped one has no stanza
        return False
    return len(senders) <= 1 and None not in senders

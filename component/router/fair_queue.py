"""Stanzas that wait to be handled: a queue for each principal, and the time shared among them."""

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush, heapreplace
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

_sender = attrgetter("stanza.sender")


class _Line:
    """The stanzas of one principal.

    Attributes:
        time: the virtual time at which it has its turn: seconds that it has been served.
        place: orders lines of the same time; the one that waited longest is first.
    """

    __slots__ = ("bytes", "events", "place", "principal", "time")

    def __init__(self, principal: str, time: float, place: int) -> None:
        self.principal = principal
        self.time = time
        self.place = place
        self.events: deque[Event] = deque()
        self.bytes = 0

    def __lt__(self, other: "_Line") -> bool:
        return (self.time, self.place) < (other.time, other.place)


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

    Attributes:
        waiting: how many stanzas wait.
    """

    def __init__(self, stanzas: int = MOST_STANZAS, bytes_: int = MOST_BYTES) -> None:
        self.waiting = 0
        self._free_stanzas = stanzas
        self._free_bytes = bytes_
        self._lines: dict[str, _Line] = {}
        self._heap: list[_Line] = []
        self._now = 0.0  # virtual: the time of the line that was served last
        self._served: dict[str, float] = {}  # of principals with nothing waiting, where after now
        self._places = 0

    @property
    def principals(self) -> int:
        """How many principals have something waiting."""
        return len(self._heap)

    def add(self, events: Sequence[Event]) -> list[Event]:
        """Queue what one read brought. Returns those for which their principal has no room."""
        refused = []
        for event in events:
            size = size_of(event)
            principal = _principal(event)
            line = self._lines.get(principal)
            held, held_bytes = (0, 0) if line is None else (len(line.events), line.bytes)
            if held >= self._free_stanzas or held_bytes + size > self._free_bytes:
                refused.append(event)
                continue
            if line is None:
                line = self._new_line(principal)
            line.events.append(event)
            line.bytes += size
            self._free_bytes -= size
            self._free_stanzas -= 1
            self.waiting += 1
        return refused

    def take(self) -> Event:
        """The next stanza. Say by `charge` how long it took before anything else is done here."""
        line = self._heap[0]
        self._now = line.time
        event = line.events.popleft()
        size = size_of(event)
        line.bytes -= size
        self._free_bytes += size
        self._free_stanzas += 1
        self.waiting -= 1
        return event

    def charge(self, seconds: float) -> None:
        """The stanza that was taken last took so long."""
        heap = self._heap
        line = heap[0]
        line.time += seconds
        if line.events:
            if len(heap) > 1:
                self._places += 1
                line.place = self._places
                heapreplace(heap, line)
            return
        heappop(heap)
        del self._lines[line.principal]
        if heap:
            self._served[line.principal] = line.time
        else:  # nobody waits, so nobody has had less than somebody else
            self._now = line.time
            self._served.clear()

    def _new_line(self, principal: str) -> _Line:
        self._places += 1
        time = max(self._now, self._served.pop(principal, 0.0))
        line = self._lines[principal] = _Line(principal, time, self._places)
        heappush(self._heap, line)
        return line


def size_of(event: Event) -> int:
    """Bytes of a stanza; of a skipped one those that are kept, about."""
    return _HEAD_BYTES if isinstance(event, StanzaSkipped) else event.stanza.size


def of_one_sender(events: Sequence[Event]) -> bool:
    """Whether one address sent all of them, none of which was skipped: then there is nobody to take
    turns with.
    """
    try:
        senders = set(map(_sender, events))
    except AttributeError:  # a skipped one has no stanza
        return False
    return len(senders) <= 1 and None not in senders


def _principal(event: Event) -> str:
    sender = event.from_ if isinstance(event, StanzaSkipped) else event.stanza.sender
    return (sender or "").partition("/")[0]

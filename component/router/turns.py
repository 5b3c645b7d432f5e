"""What waits to be handled: a queue for each principal, of which each has its turn."""

from collections import deque
from collections.abc import Sequence
from operator import attrgetter
from typing import TypeAlias

from xep.component_stream import StanzaReceived
from xep.stream import StanzaSkipped

Event: TypeAlias = StanzaReceived | StanzaSkipped

_sender = attrgetter("stanza.sender")


class Turns:
    """Stanzas in the order in which they are to be handled.

    Those of one principal (a bare address) keep their order. Of several principals the next one is
    whoever has waited longest for a turn, however much the others have brought meanwhile.

    Attributes:
        waiting: how many stanzas wait.
    """

    def __init__(self) -> None:
        self.waiting = 0
        self._queues: dict[str, deque[Event]] = {}
        self._ring: deque[deque[Event]] = deque()  # the same queues, the next one first

    @property
    def principals(self) -> int:
        """How many principals have something waiting."""
        return len(self._ring)

    def add(self, events: Sequence[Event]) -> None:
        """Queue what one read brought."""
        queues = self._queues
        for event in events:
            principal = _principal(event)
            queue = queues.get(principal)
            if queue is None:
                queues[principal] = queue = deque()
                self._ring.append(queue)
            queue.append(event)
        self.waiting += len(events)

    def round(self, most: int) -> list[Event]:
        """Take what is next: one stanza of each principal, or some of the only one there is; at
        most ``most`` of them.
        """
        ring = self._ring
        if len(ring) == 1:
            queue = ring[0]
            taken = [queue.popleft() for _ in range(min(len(queue), most))]
            if not queue:
                ring.clear()
                self._queues.clear()
        else:
            taken = []
            for _ in range(min(len(ring), most)):
                queue = ring.popleft()
                event = queue.popleft()
                taken.append(event)
                if queue:
                    ring.append(queue)
                else:
                    del self._queues[_principal(event)]
        self.waiting -= len(taken)
        return taken


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

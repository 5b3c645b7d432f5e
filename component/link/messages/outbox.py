"""The stanzas that wait to be sent: whole, limited in size, kept across reconnects."""

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import Final

import anyio
import msgspec
import structlog

from component.link.messages.delivery import Delivery, DeliveryOutcome

_log = structlog.get_logger("component.connection")

_CHUNK: Final = 65536
_PART: Final = 64
"""When stanzas are dropped, this part of the bound is freed."""
_FEW: Final = 64


class OutputStream:
    """The stream that sends what waits in an outbox. This one sends nothing."""

    def wake(self) -> None:
        """Note that something was put."""

    def flush(self) -> None:
        """Send as much as the kernel accepts now."""

    def relieve(self) -> None:
        """Make room: twice the limit of the outbox is exceeded."""


class _Line:
    """The stanzas that wait for one recipient, in order.

    Attributes:
        to: the bare address.
        entries: the stanzas.
        bytes: their size.
        kept: how many of the first ones are not dropped.
        spared_bytes: the size of those that were spared.
    """

    __slots__ = ("bytes", "entries", "kept", "spared_bytes", "to")

    def __init__(self, to: str) -> None:
        self.to = to
        self.entries: deque[Entry] = deque()
        self.bytes = 0
        self.kept = 0
        self.spared_bytes = 0


class Entry(msgspec.Struct, eq=False):
    """A stanza that waits.

    Attributes:
        data: the stanza; empty if it was withdrawn.
        to: the address of its recipient.
        outbox: where it waits.
        delivery: the delivery that follows its state.
        line: the line in which it waits; None if it waits in no line.
        is_spared: whether it was kept when stanzas were dropped.
        is_offered: whether the stream may have begun to send it.
    """

    data: bytes
    to: str
    outbox: "Outbox"
    delivery: Delivery | None
    line: _Line | None = None
    is_spared: bool = False
    is_offered: bool = False

    def withdraw(self) -> bool:
        """Withdraw the stanza; return False if it was partly sent, or is not waiting any more."""
        return self.outbox.withdraw(self)


class Outbox:
    """Stanzas to the server. Those for one recipient (a bare address) keep their order.

    While the kernel accepts everything, stanzas are sent in the order of their arrival. What it
    does not accept waits in one line for each recipient, and the lines share the stream by bytes
    (start-time fair queueing): however much waits for others, the first stanza for a recipient is
    sent before all larger ones that have not begun to be sent.

    A stanza that the kernel has accepted as a whole is never sent again; one that was accepted in
    part when its stream ended is sent as a whole on the next. XEP-0114 cannot tell whether the
    server received what the kernel accepted.

    Normally up to ``limit_bytes`` wait. Above it the outbox is ``congested``, and new work of those
    for whom much waits should be refused (`refuses`). Above twice as much, stanzas are dropped and
    counted: the oldest for the recipient with the most. Stanzas that must arrive are kept, up to
    ``limit_bytes`` of them, in their order.

    Args:
        limit_bytes: when congestion begins; memory is limited to three times that.

    Attributes:
        waiting_bytes: bytes that the kernel has not accepted yet.
        taken: the number of stanzas put in so far.
        dropped: stanzas dropped so far because too much waited.
        congested: more waits than should.
        stopped: no stream accepts output now; stanzas wait for the next `start`.
        held: the caller of `put` also sends, so the stream is not woken.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._bound_bytes = 2 * limit_bytes
        self.held = False
        self.waiting_bytes = 0
        self.congested = False
        self.taken = 0
        self.dropped = 0
        self._stream = OutputStream()
        self._reported = 0  # how many of the dropped stanzas were reported
        self._arrived: deque[Entry] = deque()  # in no line yet
        self._lines: dict[str, _Line] = {}
        # Each entry is (virtual time, place, line): when the first stanza of the line would have
        # been sent if each line had its share of the stream, in bytes.
        self._heap: list[tuple[int, int, _Line]] = []
        self._now = 0  # virtual: when the stanza that was sent last would have begun
        self._served: dict[str, int] = {}  # recipients without a line, if their time is later
        self._place = count().__next__
        self._batch: deque[Entry] = deque()  # what is sent next, in this order
        self._offset = 0  # bytes of the first entry of it that the current stream's kernel has
        self._tracked = 0  # entries that have a delivery
        self._count = 0  # entries, also those that were withdrawn
        self._withdrawn = 0
        self._spared_bytes = 0
        self._room: anyio.Event | None = None
        self.stopped = True

    @property
    def over_bound(self) -> bool:
        """Whether more waits than is ever allowed."""
        return self.waiting_bytes - self._spared_bytes > self._bound_bytes

    def refuses(self, principal: str) -> bool:
        """Return whether so much waits for a bare address that no new work of it should be
        accepted.

        While the outbox is congested, as much may wait for each as is still free.
        """
        if not self.congested:
            return False
        line = self._lines.get(principal)
        free = self._bound_bytes - self.waiting_bytes
        return free <= 0 if line is None else line.bytes > free

    def put(self, xml: str, delivery: Delivery | None = None, to: str = "") -> None:
        """Queue one whole stanza. Never blocks; the next flush sends it.

        ``delivery`` follows its state. ``to`` is the address of its recipient; stanzas for the
        server itself have none.
        """
        data = xml.encode()
        entry = Entry(data, to, self, delivery)
        if delivery is not None:
            self._tracked += 1
            delivery.add(entry)
        self._arrived.append(entry)
        self._count += 1
        self.taken += 1
        self.waiting_bytes = waiting = self.waiting_bytes + len(data)
        if waiting > self.limit_bytes:
            self._much()
        if not self.held:
            self._stream.wake()

    def start(self, stream: OutputStream) -> None:
        """Note that a new stream is established: a partly sent stanza is sent again as a whole."""
        self._stream = stream
        self._take_back()
        self.congested = self.waiting_bytes > self.limit_bytes
        self.stopped = False
        if self._room is not None:
            self._tell_room()

    async def ready(self) -> None:
        """Wait until there is a stream and the outbox is not congested."""
        while self.stopped or self.congested:
            if self._room is None:
                self._room = anyio.Event()
            await self._room.wait()

    def stop(self) -> None:
        """Stop output: stanzas put from now on wait for the next `start`."""
        self.stopped = True

    def end(self) -> None:
        """Note that the stream has ended."""
        self.stop()
        self.held = False
        self._stream = OutputStream()

    def send_now(self) -> None:
        """Send as far as the kernel accepts now. Does nothing without a stream."""
        self._stream.flush()

    def newly_dropped(self) -> int:
        """Return how many stanzas were dropped since the last call."""
        count_, self._reported = self.dropped - self._reported, self.dropped
        return count_

    def flush(self, try_send: Callable[[bytes | memoryview], int]) -> bool:
        """Send until nothing waits or the kernel accepts no more; return True if nothing waits.

        ``try_send`` sends as many bytes as the kernel accepts at once, and returns their number.
        What it raises is passed on, and no stanza is lost.
        """
        while self.waiting_bytes and not self.stopped:
            if not self._batch:
                self._choose()
            chunk = self._chunk()
            sent = try_send(chunk)
            self._accepted(sent)
            if sent < len(chunk):
                # TLS may have encrypted all of it, and will send exactly that.
                for entry in self._batch:
                    entry.is_offered = True
                return False
        return not self.waiting_bytes

    def withdraw(self, entry: Entry) -> bool:
        """Withdraw a stanza; return False if the stream may have begun to send it, or it is not
        waiting any more.
        """
        if self.stopped:
            self._take_back()
        if not entry.data or entry.is_offered:
            return False
        size = len(entry.data)
        self._settle(entry, "withdrawn")
        entry.data = b""
        if entry.line is not None:
            entry.line.bytes -= size
        self._withdrawn += 1
        self.waiting_bytes -= size
        self.congested = self.waiting_bytes > self.limit_bytes
        # Each removal moves an entry at most once.
        if 2 * self._withdrawn > self._count:
            self._purge()
        return True

    def _settle(self, entry: Entry, outcome: DeliveryOutcome) -> None:
        if entry.is_spared:
            self._count_spared(entry, -1)
            entry.is_spared = False
        if entry.delivery is not None:
            self._tracked -= 1
            entry.delivery.settle(entry, outcome)

    def _count_spared(self, entry: Entry, sign: int) -> None:
        self._spared_bytes += sign * len(entry.data)
        if entry.line is not None:
            entry.line.spared_bytes += sign * len(entry.data)

    def _tell_room(self) -> None:
        if self._room is not None and not self.congested:
            self._room.set()
            self._room = None

    # -- what is sent next -----------------------------------------------------------------------

    def _choose(self) -> None:
        """Choose what is sent next: up to a chunk of stanzas, or a larger one."""
        if not self._lines and self.waiting_bytes <= _CHUNK:
            self._batch, self._arrived = self._arrived, self._batch
            return
        self._line_up()
        size = 0
        while self._heap:
            line = self._heap[0][2]
            if not line.entries:
                heappop(self._heap)
                continue
            more = len(line.entries[0].data)
            if size and size + more > _CHUNK:
                break
            size += more
            self._batch.append(self._next(line))

    def _chunk(self) -> bytes | memoryview:
        batch = self._batch
        data = batch[0].data if len(batch) == 1 else b"".join([entry.data for entry in batch])
        if not self._offset and len(data) <= _CHUNK:
            return data
        return memoryview(data)[self._offset : self._offset + _CHUNK]

    def _accepted(self, count_: int) -> None:
        """Note that the kernel has accepted so many bytes."""
        self.waiting_bytes -= count_
        self.congested = self.waiting_bytes > self.limit_bytes
        if self._room is not None:
            self._tell_room()
        batch = self._batch
        count_ += self._offset
        if not self._tracked and not self.waiting_bytes:
            self._count -= len(batch)
            batch.clear()
            self._offset = 0
            if self._withdrawn:
                self._purge()
            return
        while batch and count_ >= len(batch[0].data):
            entry = batch.popleft()
            count_ -= len(entry.data)
            self._count -= 1
            if not entry.data:
                self._withdrawn -= 1
            else:
                self._settle(entry, "written")
        self._offset = count_

    def _take_back(self) -> None:
        """Let what was to be sent next wait again, in front: its stream has ended."""
        self.waiting_bytes += self._offset
        self._offset = 0
        for entry in reversed(self._batch):
            entry.is_offered = False
            if self._lines:
                self._join(entry, first=True)
            else:
                self._arrived.appendleft(entry)
        self._batch.clear()

    # -- lines -----------------------------------------------------------------------------------

    def _line_up(self) -> None:
        """Put what has arrived into the lines."""
        for entry in self._arrived:
            self._join(entry)
        self._arrived.clear()

    def _join(self, entry: Entry, *, first: bool = False) -> None:
        """Put an entry at the end of its line, or in front of it."""
        principal = entry.to.partition("/")[0]
        line = self._lines.get(principal)
        if line is None:
            line = self._lines[principal] = _Line(principal)
            begin = max(self._now, self._served.pop(principal, 0))
            heappush(self._heap, (begin + len(entry.data), self._place(), line))
        if first:
            line.entries.appendleft(entry)
            # What is in front of a spared one is kept, too.
            line.kept += 1 if line.kept or entry.is_spared else 0
        else:
            line.entries.append(entry)
            line.kept += entry.is_spared
        line.bytes += len(entry.data)
        entry.line = line
        if entry.is_spared:
            line.spared_bytes += len(entry.data)

    def _next(self, line: _Line) -> Entry:
        """Take the first entry of the line that is next."""
        time = self._heap[0][0]
        entry = line.entries[0]
        self._now = max(self._now, time - len(entry.data))
        self._remove(entry, line, 0)
        if line.entries:
            heapreplace(self._heap, (time + len(line.entries[0].data), self._place(), line))
            return entry
        heappop(self._heap)
        self._served[line.to] = time
        if not self._lines:  # nobody else waits, so the stream need not be shared
            self._now = 0
            self._served.clear()
        elif len(self._served) > 2 * len(self._lines) + _FEW:
            self._served = {to: end for to, end in self._served.items() if end > self._now}
        return entry

    def _remove(self, entry: Entry, line: _Line, place: int) -> None:
        del line.entries[place]
        line.kept -= place < line.kept
        line.bytes -= len(entry.data)
        if entry.is_spared:
            line.spared_bytes -= len(entry.data)
        entry.line = None
        if not line.entries:
            del self._lines[line.to]

    def _purge(self) -> None:
        """Remove withdrawn entries from what waits."""
        self._arrived = deque([entry for entry in self._arrived if entry.data])
        for line in list(self._lines.values()):
            line.entries = deque([entry for entry in line.entries if entry.data])
            line.kept = sum(entry.is_spared for entry in line.entries)
            if not line.entries:
                del self._lines[line.to]
        self._remove_empty_lines()
        self._withdrawn = sum(not entry.data for entry in self._batch)
        waiting = len(self._arrived) + sum(len(line.entries) for line in self._lines.values())
        self._count = len(self._batch) + waiting

    def _remove_empty_lines(self) -> None:
        """Remove lines from the heap that were emptied other than by sending."""
        self._heap = [each for each in self._heap if each[2].entries]
        heapify(self._heap)

    # -- what is dropped -------------------------------------------------------------------------

    def _much(self) -> None:
        if self.over_bound:
            self._stream.relieve()
            if self.over_bound and self.dropped == self._reported:
                _log.warning(
                    "too many bytes are waiting to be sent: the oldest stanzas are dropped",
                    waiting_bytes=self.waiting_bytes,
                )
            self._drop()
        self._line_up()
        self.congested = self.waiting_bytes > self.limit_bytes

    def _drop(self) -> None:
        """Drop the oldest of the longest lines, a little more than necessary: finding the longest
        takes its time.
        """
        if not self.over_bound:
            return
        if self.stopped:
            self._take_back()
        self._line_up()
        longest = [(-_droppable(line), self._place(), line) for line in self._lines.values()]
        heapify(longest)
        most = self._bound_bytes - self._bound_bytes // _PART
        while self.waiting_bytes - self._spared_bytes > most and longest and longest[0][0]:
            line = longest[0][2]
            self._drop_or_spare(line)
            heapreplace(longest, (-_droppable(line), self._place(), line))
        if len(self._heap) > 2 * len(self._lines):
            self._remove_empty_lines()

    def _drop_or_spare(self, line: _Line) -> None:
        """Drop the oldest entry of a line that may be dropped, or spare it."""
        entry = line.entries[line.kept]
        room = self.limit_bytes - self._spared_bytes
        if entry.delivery is not None and entry.delivery.must_arrive and len(entry.data) <= room:
            line.kept += 1
            if entry.data:
                entry.is_spared = True
                self._count_spared(entry, 1)
            return
        self._remove(entry, line, line.kept)
        self._count -= 1
        if not entry.data:
            self._withdrawn -= 1
            return
        self.waiting_bytes -= len(entry.data)
        self.dropped += 1
        self._settle(entry, "dropped")


def _droppable(line: _Line) -> int:
    """Return how many bytes of a line may be dropped."""
    return line.bytes - line.spared_bytes if len(line.entries) > line.kept else 0

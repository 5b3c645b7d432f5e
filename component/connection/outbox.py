"""The stanzas that wait to be sent: whole, limited in size, kept across reconnects."""

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

import anyio

from component.messages.delivery import Delivery, DeliveryOutcome

_CHUNK: Final = 65536


class Sends(Protocol):
    """The methods of a transport that an outbox uses."""

    def try_send(self, data: bytes | memoryview) -> int:
        """Send as many bytes as the kernel accepts at once, and return their number."""


def _nothing() -> None:
    pass


class _Tracked(bytes):
    """A stanza whose sender has a delivery."""

    delivery: Delivery
    outbox: "Outbox"
    withdrawn = False
    spared = False
    """Whether it was kept when the oldest were dropped."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def withdraw(self) -> bool:
        """Withdraw the stanza; return False if it was partly sent, or is not waiting any more."""
        return self.outbox.withdraw(self)


class Outbox:
    """Stanzas to the server, in order.

    A stanza that the kernel has accepted as a whole is never sent again; one that was accepted in
    part when its stream ended is sent as a whole on the next. XEP-0114 cannot tell whether the
    server received what the kernel accepted.

    Normally up to ``limit_bytes`` wait. Above it the outbox is ``congested`` and new work should be
    refused; above twice as much the oldest stanzas are dropped and counted. Stanzas that must
    arrive are kept, up to ``limit_bytes`` of them, in their order.

    Args:
        limit_bytes: when congestion begins; memory is limited to three times that.

    Attributes:
        waiting_bytes: bytes that the kernel has not accepted yet.
        dropped: stanzas dropped so far because too much waited.
        congested: more waits than should; refuse new work until the server has caught up.
        stopped: no stream accepts output now; stanzas wait for the next `start`.
        on_put: called after each `put`; set by the connection.
        held: the caller of `put` also sends, so `on_put` is not called.
        on_full: called when twice ``limit_bytes`` is exceeded, before anything is dropped: the
            last chance to make room.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._bound_bytes = 2 * limit_bytes
        self.held = False
        self.waiting_bytes = 0
        self.congested = False
        self.dropped = 0
        self.on_put: Callable[[], None] = _nothing
        self.on_full: Callable[[], None] = _nothing
        self._gone = 0  # entries that are not in the queue any more
        self._entries: deque[bytes] = deque()
        self._offset = 0  # bytes of the first entry that the current stream's kernel has taken
        self._tracked = 0  # entries that have a delivery
        self._withdrawn = 0  # entries that are still in the queue and will not be sent
        self._spared = 0  # entries at the front, behind one that is half sent
        self._spared_bytes = 0
        self._room: anyio.Event | None = None
        self.stopped = True

    @property
    def taken(self) -> int:
        """The number of stanzas put in so far."""
        return self._gone + len(self._entries)

    @property
    def over_bound(self) -> bool:
        """Whether more waits than is ever allowed."""
        return self.waiting_bytes - self._spared_bytes > self._bound_bytes

    def put(self, xml: str, delivery: Delivery | None = None) -> None:
        """Queue one whole stanza. Never blocks; the next flush sends it.

        ``delivery`` follows its state.
        """
        data = xml.encode()
        if delivery is not None:
            data = self._track(data, delivery)
        self._entries.append(data)
        self.waiting_bytes = waiting = self.waiting_bytes + len(data)
        if waiting > self.limit_bytes:
            self._much()
        if not self.held:
            self.on_put()

    def start(self) -> None:
        """Note that a new stream is established: a partly sent stanza is sent again as a whole."""
        self._forget_half()
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

    def flush(self, transport: Sends) -> bool:
        """Send until nothing waits or the kernel accepts no more; return True if nothing waits.

        Raises:
            ConnectionFailed: raised by ``transport.try_send``; no stanza is lost.
        """
        if self._withdrawn:
            self._purge()
        while self._entries and not self.stopped:
            chunk = self._chunk()
            sent = transport.try_send(chunk)
            self._taken(sent)
            if sent < len(chunk):
                return False
        return not self._entries

    def withdraw(self, entry: _Tracked) -> bool:
        """Withdraw a stanza; return False if it was partly sent, or is not waiting any more."""
        if self.stopped:
            self._forget_half()
        if entry.withdrawn or (self._offset and entry is self._entries[0]):
            return False
        entry.withdrawn = True
        self._withdrawn += 1
        self.waiting_bytes -= len(entry)
        self.congested = self.waiting_bytes > self.limit_bytes
        self._settle(entry, "withdrawn")
        # Each removal moves an entry at most once.
        if 2 * self._withdrawn > len(self._entries):
            self._purge()
        return True

    def _track(self, data: bytes, delivery: Delivery) -> bytes:
        tracked = _Tracked(data)
        tracked.delivery = delivery
        tracked.outbox = self
        self._tracked += 1
        delivery.add(tracked)
        return tracked

    def _settle(self, entry: _Tracked, outcome: DeliveryOutcome) -> None:
        self._tracked -= 1
        if entry.spared:
            entry.spared = False
            self._spared -= 1
            self._spared_bytes -= len(entry)
        entry.delivery.settle(entry, outcome)

    def _tell_room(self) -> None:
        if self._room is not None and not self.congested:
            self._room.set()
            self._room = None

    def _forget_half(self) -> None:
        """Forget how much of the first entry was sent: its stream has ended."""
        self.waiting_bytes += self._offset
        self._offset = 0

    def _purge(self) -> None:
        """Remove withdrawn entries from the queue."""
        self._entries = deque(
            [each for each in self._entries if type(each) is bytes or not _is_withdrawn(each)]
        )
        self._gone += self._withdrawn
        self._withdrawn = 0

    def _chunk(self) -> bytes | memoryview:
        entries = self._entries
        first = entries[0]
        if not self._offset and self.waiting_bytes <= _CHUNK:
            return first if len(entries) == 1 else b"".join(entries)
        size = len(first) - self._offset
        if size >= _CHUNK:
            return memoryview(first)[self._offset : self._offset + _CHUNK]
        parts: list[bytes] = []
        for entry in entries:
            if parts:
                size += len(entry)
                if size > _CHUNK:
                    break
            parts.append(entry)
        joined = b"".join(parts)
        return memoryview(joined)[self._offset :] if self._offset else joined

    def _taken(self, count: int) -> None:
        self.waiting_bytes -= count
        self.congested = self.waiting_bytes > self.limit_bytes
        if self._room is not None:
            self._tell_room()
        entries = self._entries
        if not self.waiting_bytes and not self._tracked:
            self._gone += len(entries)
            entries.clear()
            self._offset = 0
            return
        count += self._offset
        while entries and count >= len(entries[0]):
            entry = entries.popleft()
            self._gone += 1
            count -= len(entry)
            if type(entry) is _Tracked:
                self._settle(entry, "written")
        self._offset = count

    def _much(self) -> None:
        if self.over_bound:
            self.on_full()
            self._drop_oldest()
        self.congested = self.waiting_bytes > self.limit_bytes

    def _drop_oldest(self) -> None:
        if self.stopped:
            self._forget_half()
        if self._withdrawn:
            self._purge()
        entries = self._entries
        while self.over_bound and (oldest := self._oldest()) < len(entries):
            entry = entries[oldest]
            if type(entry) is _Tracked and self._may_spare(entry):
                entry.spared = True
                self._spared += 1
                self._spared_bytes += len(entry)
                continue
            self.waiting_bytes -= len(entry)
            del entries[oldest]
            self._gone += 1
            self.dropped += 1
            if type(entry) is _Tracked:
                self._settle(entry, "dropped")

    def _oldest(self) -> int:
        """Return the position of the oldest entry that may be dropped."""
        first = self._entries[0] if self._entries else b""
        if type(first) is _Tracked and first.spared:
            return self._spared
        # An entry that was partly sent on a living stream stays: without its rest the stream
        # breaks.
        return 1 + self._spared if self._offset else 0

    def _may_spare(self, entry: _Tracked) -> bool:
        room = self.limit_bytes - self._spared_bytes
        return entry.delivery.must_arrive and len(entry) <= room


def _is_withdrawn(entry: bytes) -> bool:
    return isinstance(entry, _Tracked) and entry.withdrawn

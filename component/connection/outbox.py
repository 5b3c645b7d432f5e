"""What waits to be sent: whole stanzas, bounded, kept over a reconnect."""

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

import anyio

_CHUNK: Final = 65536


class Sends(Protocol):
    """The side of a transport that an outbox needs."""

    def try_send(self, data: bytes | memoryview) -> int:
        """Hand over what can be taken at once; how many bytes that was."""


def _nothing() -> None:
    pass


class Outbox:
    """Stanzas on their way to the server, in order.

    A stanza that was handed to the kernel whole is never sent again; one of which only a part was
    handed over when its stream died is sent whole on the next. Whether the server received what
    the kernel took, XEP-0114 cannot tell.

    Up to ``limit_bytes`` may wait in good health. Above it the outbox is ``congested`` and new
    work should be refused; above twice as much the oldest stanzas are dropped and counted.

    Args:
        limit_bytes: when congestion begins; memory is bounded by twice that.

    Attributes:
        waiting_bytes: what the kernel has not taken yet.
        dropped: stanzas dropped so far because too much waited.
        congested: more waits than should; refuse new work until the server has caught up.
        stopped: no stream takes anything now; what is put waits for the next `start`.
        on_put: called after each `put`; the connection hooks in here.
        held: whoever puts now sends it, too, so `on_put` is not called.
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
        self._gone = 0  # that wait no more: sent or dropped
        self.on_put: Callable[[], None] = _nothing
        self.on_full: Callable[[], None] = _nothing
        self._entries: deque[bytes] = deque()
        self._offset = 0  # bytes of the first entry that the current stream's kernel has taken
        self._going: anyio.Event | None = None  # somebody waits for stanzas to go
        self.stopped = True

    @property
    def taken(self) -> int:
        """Stanzas put in so far."""
        return self._gone + len(self._entries)

    @property
    def waits(self) -> bool:
        """Something was put that the kernel has not taken."""
        return bool(self._entries)

    async def flushed(self) -> None:
        """Wait until the kernel has taken all that was put so far: then it outlives this process.

        What has to be dropped meanwhile is not waited for.
        """
        put = self.taken
        while self._gone < put:
            if self._going is None:
                self._going = anyio.Event()
            await self._going.wait()

    @property
    def over_bound(self) -> bool:
        """More waits than may ever."""
        return self.waiting_bytes > self._bound_bytes

    def put(self, xml: str) -> None:
        """Queue one whole stanza. Never blocks; sent by the next flush."""
        data = xml.encode()
        self._entries.append(data)
        self.waiting_bytes = waiting = self.waiting_bytes + len(data)
        if waiting > self.limit_bytes:
            self._much()
        if not self.held:
            self.on_put()

    def start(self) -> None:
        """A new stream is established: what was cut off is to be sent whole."""
        self.waiting_bytes += self._offset
        self._offset = 0
        self.congested = self.waiting_bytes > self.limit_bytes
        self.stopped = False

    def stop(self) -> None:
        """The stream takes nothing more; what is put from now on waits for the next `start`."""
        self.stopped = True

    def flush(self, transport: Sends) -> bool:
        """Send until nothing waits or the kernel takes no more; True if nothing waits.

        Raises:
            ConnectionFailed: what ``transport.try_send`` raises; nothing is lost by it.
        """
        while self._entries and not self.stopped:
            chunk = self._chunk()
            sent = transport.try_send(chunk)
            self._taken(sent)
            if sent < len(chunk):
                return False
        return not self._entries

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
        entries = self._entries
        if not self.waiting_bytes:
            self._gone += len(entries)
            entries.clear()
            self._offset = 0
            self._went()
            return
        count += self._offset
        while entries and count >= len(entries[0]):
            count -= len(entries.popleft())
            self._gone += 1
        self._offset = count
        self._went()

    def _went(self) -> None:
        if self._going is not None:
            self._going.set()
            self._going = None

    def _much(self) -> None:
        if self.waiting_bytes > self._bound_bytes:
            self.on_full()
            self._drop_oldest()
        self.congested = self.waiting_bytes > self.limit_bytes

    def _drop_oldest(self) -> None:
        entries = self._entries
        if self.stopped and self._offset:
            self.waiting_bytes += self._offset
            self._offset = 0
        # An entry of which half is on a living stream stays: without its rest the stream breaks.
        oldest = 1 if self._offset else 0
        while len(entries) > oldest and self.over_bound:
            self.waiting_bytes -= len(entries[oldest])
            del entries[oldest]
            self._gone += 1
            self.dropped += 1
        self._went()

"""One stream whose handshake was accepted, until it ends."""

import contextlib
from collections.abc import Sequence
from time import perf_counter
from typing import Final, Protocol, TypeAlias, cast

import anyio
import anyio.lowlevel

from component.connection import failure
from component.connection.failure import ConnectionFailed
from component.connection.handshake import ended_by
from component.connection.options import ConnectionOptions
from component.connection.outbox import Outbox
from component.connection.probe import REPEATS, Probes
from component.connection.transport import Transport
from xep.component_states import State
from xep.component_stream import ComponentStream, StanzaReceived, StreamFailed
from xep.component_stream import Event as StreamEvent
from xep.stream import StanzaSkipped

Event: TypeAlias = StanzaReceived | StanzaSkipped

_STANZAS: Final = (StanzaReceived, StanzaSkipped)
_GRACE_S: Final = 1.0
_SPACE: Final = " "
_SLICE_S: Final = 0.001
"""Seconds that are spent on reading ahead, at a time, while stanzas wait."""
_LONGEST_S: Final = 0.004
"""Seconds until other tasks run, while stanzas wait and are handled."""
_AHEAD_BYTES: Final = 16_384
"""Most bytes that are read ahead at a time: they are parsed at once, while somebody may wait."""
_MOST_WAITING: Final = 8192
"""Stanzas that wait; while there are more, nothing is read, so that memory is bounded. Receivers
bound by themselves what they keep of one sender, so that it is not reached.
"""


class Receiver(Protocol):
    """What takes in what the connection brings. None of its methods may wait, or raise."""

    def connected(self) -> None:
        """A stream is established: stanzas put into the outbox are sent from now on."""

    def received(self, events: Sequence[Event]) -> int | None:
        """All that one read of the socket completed, in order.

        It may leave some of it for later and return how many stanzas wait. Then it is called again
        soon, with what has arrived by then, if anything; when nothing waits any more, what was put
        into the outbox is sent.
        """

    def disconnected(self, reason: str) -> None:
        """The stream is gone; ``reason`` is a sentence. Another is being made, unless closed."""


class LiveStream:
    """Reads, writes and watches one established stream.

    Three tasks live inside `run`: one reads and hands over what it decoded, one sends what the
    kernel would not take at once, one wakes when a keepalive or a probe is due.

    Args:
        transport: the open connection; closing it is the caller's.
        stream: the state machine after its handshake.
        options: how patient to be.
        outbox: what to send; started here, stopped when the stream ends.
        receiver: takes what arrives.
        probes: where probes come from.
    """

    def __init__(
        self,
        transport: Transport,
        stream: ComponentStream,
        options: ConnectionOptions,
        outbox: Outbox,
        receiver: Receiver,
        probes: Probes,
    ) -> None:
        self._transport = transport
        self._stream = stream
        self._options = options
        self._outbox = outbox
        self._receiver = receiver
        self._probes = probes
        self._scope = anyio.CancelScope()
        self._wake = anyio.Event()
        self._waiting = 0  # stanzas that the receiver has yet to handle
        self._closing = False
        self._failure: ConnectionFailed | None = None
        self._send_failure: ConnectionFailed | None = None
        self._last_read = self._last_sent = anyio.current_time()
        self._probed_at: float | None = None

    async def run(self, first: list[StreamEvent]) -> ConnectionFailed:
        """Serve the stream until it ends, beginning with events that are already here.

        Returns why it ended. An exception of the receiver is passed on.
        """
        self._outbox.start()
        self._outbox.on_put = self._put
        try:
            async with anyio.create_task_group() as tasks:
                self._scope = tasks.cancel_scope
                self._outbox.held = True
                self._receiver.connected()
                self._outbox.held = False
                self.flush()
                self._hand_over(first)
                tasks.start_soon(self._write)
                tasks.start_soon(self._watch)
                await self._read()
                tasks.cancel_scope.cancel()
        finally:
            self._outbox.held = False  # the receiver may have failed meanwhile
            self._outbox.on_put = _nothing
            self._outbox.stop()
        assert self._failure is not None
        return self._failure

    def flush(self) -> None:
        """Send now what the kernel takes now; the rest follows by itself."""
        self._flush(anyio.current_time())

    def relieve(self) -> None:
        """Too much waits: send what the kernel takes, and give the stream up if too much stays."""
        self.flush()
        if self._outbox.over_bound:
            self._outbox.stop()
            self._end(failure.not_reading(self._options, 2 * self._outbox.limit_bytes))

    def close(self) -> None:
        """Send what waits, close the stream, and let `run` end when the server has closed too."""
        self._closing = True
        self._wake.set()

    # -- reading ---------------------------------------------------------------------------------

    async def _read(self) -> None:
        transport, stream, size = self._transport, self._stream, self._options.read_bytes
        ran = 0.0  # when other tasks had the chance to run
        try:
            while self._failure is None:
                if self._waiting:
                    if perf_counter() - ran > _LONGEST_S:
                        self.flush()
                        await anyio.lowlevel.checkpoint()
                        ran = perf_counter()
                    self._read_ahead()
                elif data := await transport.receive(size):
                    ran = perf_counter()
                    self._last_read = anyio.current_time()
                    self._probed_at = None
                    self._hand_over(stream.receive(data))
                else:
                    self._end(failure.closed(self._options, established=True))
        except ConnectionFailed as error:
            self._end(error)
        finally:
            self._finish()

    def _read_ahead(self) -> None:
        """Read for a moment what has come, and let some of what waits be handled.

        What waits in the sockets waits in one line: a principal with nothing to wait for stands in
        it behind all that others have sent. So reading has its share of the time.
        """
        events: list[StreamEvent] = []
        size = min(self._options.read_bytes, _AHEAD_BYTES)
        closed = False
        over = perf_counter() + _SLICE_S
        while self._waiting < _MOST_WAITING:
            data = self._transport.receive_now(size)
            if data:
                self._last_read = anyio.current_time()
                self._probed_at = None
                events += self._stream.receive(data)
            closed = data == b""
            if not data or perf_counter() > over or (events and not _is_stanza(events[-1])):
                break
        self._hand_over(events)
        if closed:
            self._end(failure.closed(self._options, established=True))

    def _hand_over(self, events: list[StreamEvent]) -> None:
        # Nothing but the end of the stream can follow the end of the stream: only the last event
        # has to be looked at.
        ended = bool(events) and not isinstance(events[-1], _STANZAS)
        if ended or self._probes.used:
            stanzas = [
                event
                for event in events
                if isinstance(event, _STANZAS) and not self._probes.is_one(event)
            ]
        else:
            stanzas = cast("list[Event]", events)
        if stanzas or self._waiting:
            # What is put meanwhile is sent when that is done, without a task.
            self._outbox.held = True
            self._waiting = self._receiver.received(stanzas) or 0
            self._outbox.held = False
            if not self._waiting:
                self._flush(self._last_read)
        if ended:
            self._finish()
            self._answer_end(next(event for event in events if not isinstance(event, _STANZAS)))

    def _finish(self) -> None:
        """Let everything be handled that has arrived: it is not to be lost with the stream."""
        while self._waiting:
            self._hand_over([])

    def _answer_end(self, event: StreamEvent) -> None:
        reply = b""
        if isinstance(event, StreamFailed):
            reply = event.error.reply
        elif self._stream.state is not State.CLOSED:
            reply = self._stream.close()
        # Half a stanza in the way leaves no room for good manners.
        if reply and not self._outbox.waiting_bytes:
            with contextlib.suppress(ConnectionFailed):  # why it ended is known already
                self._transport.try_send(reply)
        self._end(ended_by(event, self._options, established=True))

    def _end(self, reason: ConnectionFailed) -> None:
        self._failure = self._failure or reason
        self._scope.cancel()

    # -- writing ---------------------------------------------------------------------------------

    def _put(self) -> None:
        self._wake.set()

    def _flush(self, now: float) -> None:
        if not self._outbox.waiting_bytes or self._outbox.stopped:
            return
        try:
            if not self._outbox.flush(self._transport):
                self._wake.set()
        except ConnectionFailed as error:
            self._outbox.stop()
            self._send_failure = error
            self._wake.set()
        self._last_sent = now

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            self.flush()
            while self._outbox.waiting_bytes and not self._outbox.stopped:
                await self._transport.wait_sendable()
                self.flush()
            if self._send_failure is not None:
                # The reader learns more of why: what the server said before it closed is still
                # to be read.
                await anyio.sleep(_GRACE_S)
                self._end(self._send_failure)
            elif self._closing and not self._outbox.stopped:
                self._outbox.stop()
                await self._send_close()

    async def _send_close(self) -> None:
        if self._failure is None:
            try:
                await self._transport.send(self._stream.close())
            except ConnectionFailed as error:
                self._end(error)

    # -- watching --------------------------------------------------------------------------------

    async def _watch(self) -> None:
        options, outbox = self._options, self._outbox
        next_probe = 0.0
        while True:
            now = anyio.current_time()
            if self._probed_at is None and now >= self._last_read + options.read_timeout_s:
                self._probed_at = now
                next_probe = 0.0
            if self._probed_at is None:
                due = self._last_read + options.read_timeout_s
            else:
                if now >= self._probed_at + options.probe_timeout_s:
                    self._end(failure.silent(options))
                    return
                if now >= next_probe:
                    next_probe = now + options.probe_timeout_s / REPEATS
                    outbox.put(self._probes.make())
                due = min(next_probe, self._probed_at + options.probe_timeout_s)
            # While something waits the connection is not idle but full.
            if now >= self._last_sent + options.keepalive_s:
                self._last_sent = now
                if not outbox.waiting_bytes:
                    outbox.put(_SPACE)
            # What is read meanwhile can only make a probe due later than this.
            due = min(due, now + options.read_timeout_s, self._last_sent + options.keepalive_s)
            await anyio.sleep_until(due)


def _is_stanza(event: StreamEvent) -> bool:
    return isinstance(event, _STANZAS)


def _nothing() -> None:
    pass

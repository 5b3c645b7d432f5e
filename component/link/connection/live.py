"""One stream whose handshake was accepted, until it ends."""

import contextlib
from collections.abc import Sequence
from typing import Final, TypeAlias

import anyio
import anyio.lowlevel

from component.config.server import Server
from component.link.connection import failure
from component.link.connection.failure import ConnectionFailed
from component.link.connection.probe import REPEATS, Probes
from component.link.connection.stream import Opened, StreamEvent, ended_by
from component.link.connection.transport import READ_BYTES, Transport
from component.link.messages.outbox import Outbox, OutputStream
from component.system import perf_counter
from xep.stanza_stream import StanzaReceived, StreamFailed
from xep.stream import StanzaSkipped

StanzaEvent: TypeAlias = StanzaReceived | StanzaSkipped

_STANZAS: Final = (StanzaReceived, StanzaSkipped)
_GRACE_S: Final = 1.0
_SPACE: Final = " "
_SLICE_S: Final = 0.001
"""Seconds of reading ahead at a time, while stanzas wait."""
_LONGEST_S: Final = 0.004
"""Seconds until other tasks run, while waiting stanzas are handled."""
_AHEAD_BYTES: Final = 16_384
"""The maximum number of bytes that are read ahead at a time: they are parsed at once, while stanzas
may wait.
"""
_MOST_WAITING: Final = 8192
"""The maximum number of waiting stanzas; while there are more, nothing is read, so that memory is
limited. Receivers limit the stanzas of each sender, so this is normally not reached.
"""


class Receiver:
    """Receives the events of the connection. None of its methods may wait or raise.

    Attributes:
        tag: identifies this instance at the beginning of the ids of IQs; empty if it is the only
            one.
    """

    tag: str = ""

    def connected(self) -> None:
        """Note that a session has begun: stanzas in the outbox are sent from now on.

        It is not called again when the session is resumed on a new stream.
        """

    def received(self, events: Sequence[StanzaEvent]) -> int:
        """Handle the events that one read of the socket completed, in order.

        It may leave some of them for later and return how many stanzas wait. Then it is called
        again soon, with events that have arrived by then, if any; when no stanza waits any more,
        the outbox is sent.
        """
        raise NotImplementedError

    def disconnected(self, reason: str) -> None:
        """Note that the session is over; ``reason`` is a sentence. A new one follows, unless
        closed.
        """

    def undelivered(self, stanzas: Sequence[bytes], *, certain: bool) -> None:
        """Note that the server did not acknowledge these stanzas, and that the session that they
        were sent in cannot be resumed. If it is ``certain``, none was taken; otherwise some may
        have been.
        """


class LiveStream(OutputStream):
    """Reads, writes and monitors one established stream.

    `run` has three tasks: one reads and passes on the decoded events, one sends what the kernel did
    not accept at once, one wakes when a keepalive or a probe is due.

    Args:
        transport: the open connection; the caller closes it.
        outbox: the stanzas to send; started here, stopped when the stream ends.
    """

    def __init__(
        self,
        transport: Transport,
        opened: Opened,
        server: Server,
        outbox: Outbox,
        receiver: Receiver,
        probes: Probes,
    ) -> None:
        self._transport = transport
        self._session = opened.session
        self._resumed = opened.resumed
        self._server = server
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
        # A connection among which stanzas are balanced may have got no share of them.
        self._probed_at = self._last_read if probes.at_once > 1 else None
        self._confirming = anyio.Lock()
        self._confirmations = 0  # how often it was confirmed that the server has handled our output

    async def run(self, first: Sequence[StreamEvent]) -> ConnectionFailed:
        """Serve the stream until it ends, starting with events that were already received.

        Returns why it ended. An exception of the receiver is passed on.
        """
        self._outbox.start(self)
        try:
            async with anyio.create_task_group() as tasks:
                self._scope = tasks.cancel_scope
                self._outbox.held = True
                if not self._resumed:
                    self._receiver.connected()
                self._outbox.held = False
                self.flush()
                self._hand_over(first)
                tasks.start_soon(self._write)
                tasks.start_soon(self._watch)
                await self._read()
                tasks.cancel_scope.cancel()
        finally:
            self._outbox.end()
        assert self._failure is not None
        return self._failure

    def wake(self) -> None:
        """Send what was put as soon as other tasks run."""
        self._wake.set()

    def flush(self) -> None:
        """Send as much as the kernel accepts now; the rest follows automatically."""
        self._flush(anyio.current_time())

    def relieve(self) -> None:
        """Relieve a full outbox: send what the kernel accepts, and end the stream if too much
        stays.
        """
        self.flush()
        if self._outbox.over_bound:
            self._outbox.stop()
            self._end(failure.not_reading(self._server, 2 * self._outbox.limit_bytes))

    async def hand_over(self, stanzas: Sequence[StanzaEvent]) -> None:
        """Handle stanzas that another instance has received for this one."""
        self._hand_over(stanzas)
        while self._waiting:
            await anyio.lowlevel.checkpoint()
            self._hand_over([])

    async def handled(self) -> bool:
        """Wait until the server has handled everything that was written so far; return False if the
        stream ended before that.

        A server handles the stanzas of a stream in order, so a ping to ourselves comes back after
        what was sent before it. Those who wait at the same time share one. A server that does not
        send it back in time has handled it, as far as we can know.
        """
        wanted = self._confirmations + 1
        if self._confirming.locked():
            wanted += 1  # the ping under way may have been sent before
        while self._confirmations < wanted:
            async with self._confirming:
                if self._confirmations < wanted:
                    if not await self._round_trip():
                        return False
                    self._confirmations += 1
        return True

    async def _round_trip(self) -> bool:
        first = self._probes.made + 1
        for _ in range(REPEATS):
            if self._failure is not None:
                return False
            self._outbox.put(self._probes.make())
            with anyio.move_on_after(self._server.probe_timeout_s / REPEATS):
                while self._failure is None and self._probes.returned < first:
                    await self._probes.changed.wait()
            if self._probes.returned >= first:
                return True
        return self._failure is None

    def close(self) -> None:
        """Send what waits, close the stream, and let `run` end when the server has closed
        it too.
        """
        self._closing = True
        self._wake.set()

    # -- reading ---------------------------------------------------------------------------------

    async def _read(self) -> None:
        transport, session, size = self._transport, self._session, READ_BYTES
        due = 0.0  # when other tasks have to run; 0 if they have just run
        try:
            while self._failure is None:
                if self._waiting:
                    now = perf_counter()
                    due = due or now + _LONGEST_S
                    if now > due:
                        self.flush()
                        await anyio.lowlevel.checkpoint()
                        due = 0.0
                    self._read_ahead()
                elif data := await transport.receive(size):
                    due = 0.0
                    self._last_read = anyio.current_time()
                    self._probed_at = None
                    self._hand_over(session.receive(data))
                else:
                    self._end(failure.closed(self._server, established=True))
        except ConnectionFailed as error:
            self._end(error)
        finally:
            self._finish()

    def _read_ahead(self) -> None:
        """Read the socket for a moment, and let some of the waiting stanzas be handled.

        Input in the sockets waits in one queue: a principal without waiting stanzas waits there
        behind the stanzas of all others. So reading gets its share of the time.
        """
        events: list[StreamEvent] = []
        size = _AHEAD_BYTES
        closed = False
        over = perf_counter() + _SLICE_S
        while self._waiting < _MOST_WAITING:
            data = self._transport.receive_now(size)
            if data:
                self._last_read = anyio.current_time()
                self._probed_at = None
                events += self._session.receive(data)
            closed = data == b""
            if not data or perf_counter() > over or (events and not _is_stanza(events[-1])):
                break
        self._hand_over(events)
        if closed:
            self._end(failure.closed(self._server, established=True))

    def _hand_over(self, events: Sequence[StreamEvent]) -> None:
        # Only the end of the stream can follow the end of the stream, so checking the last event is
        # enough.
        ended = bool(events) and not isinstance(events[-1], _STANZAS)
        stanzas: Sequence[StanzaEvent] = events  # type: ignore[assignment] # as it has not ended
        if ended or self._probes.used:
            stanzas = [
                event
                for event in events
                if isinstance(event, _STANZAS) and not self._probes.is_one(event)
            ]
        if stanzas or self._waiting or self._session.pending:
            # Output that is put in the meantime is sent afterwards, without a task.
            self._outbox.held = True
            self._waiting = self._receiver.received(stanzas)
            self._outbox.held = False
            if not self._waiting:
                self._flush(self._last_read)
        if ended:
            self._finish()
            self._answer_end(next(event for event in events if not isinstance(event, _STANZAS)))

    def _finish(self) -> None:
        """Let all received stanzas be handled, so that they are not lost with the stream."""
        while self._waiting:
            self._hand_over([])

    def _answer_end(self, event: StreamEvent) -> None:
        reply = b""
        if isinstance(event, StreamFailed):
            reply = event.error.reply
        elif not self._session.closed:
            reply = self._session.close()
        # A partly sent stanza prevents a proper close.
        if reply and not self._outbox.waiting_bytes and not self._session.pending:
            with contextlib.suppress(ConnectionFailed):  # why the stream ended is already known
                self._transport.try_send(reply)
        self._end(ended_by(event, self._server, established=True))

    def _end(self, reason: ConnectionFailed) -> None:
        self._failure = self._failure or reason
        self._probes.change()
        self._scope.cancel()

    # -- writing ---------------------------------------------------------------------------------

    def _flush(self, now: float) -> bool:
        """Send as much as the kernel accepts; return whether some waits that may be sent later."""
        outbox, session = self._outbox, self._session
        if outbox.stopped or not (outbox.waiting_bytes or session.pending):
            return False
        waits = False
        try:
            if session.pending:
                session.push()
            waits = not outbox.flush(session.try_send) or session.pending
        except ConnectionFailed as error:
            outbox.stop()
            self._send_failure = error
        if waits or self._send_failure is not None:
            self._wake.set()
        self._last_sent = now
        return waits

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            while self._flush(anyio.current_time()):
                await self._session.wait_sendable()
            if self._send_failure is not None:
                # The reader finds out more: the server may have sent a reason before it closed.
                await anyio.sleep(_GRACE_S)
                self._end(self._send_failure)
            elif self._closing and not self._outbox.stopped:
                self._outbox.stop()
                await self._send_close()

    async def _send_close(self) -> None:
        if self._failure is None:
            try:
                await self._transport.send(self._session.close())
            except ConnectionFailed as error:
                self._end(error)

    # -- monitoring ------------------------------------------------------------------------------

    async def _watch(self) -> None:
        server, outbox = self._server, self._outbox
        next_probe = 0.0
        while True:
            now = anyio.current_time()
            if self._probed_at is None and now >= self._last_read + server.read_timeout_s:
                self._probed_at = now
                next_probe = 0.0
            if self._probed_at is None:
                due = self._last_read + server.read_timeout_s
            else:
                if now >= self._probed_at + server.probe_timeout_s:
                    self._end(failure.silent(server))
                    return
                if now >= next_probe:
                    next_probe = now + server.probe_timeout_s / REPEATS
                    for _ in range(self._probes.at_once):
                        outbox.put(self._probes.make())
                due = min(next_probe, self._probed_at + server.probe_timeout_s)
            # While output waits the connection is not idle but full.
            if now >= self._last_sent + server.keepalive_s:
                self._last_sent = now
                if not outbox.waiting_bytes:
                    outbox.put(_SPACE)
            # Input in the meantime can only make a probe due later.
            due = min(due, now + server.read_timeout_s, self._last_sent + server.keepalive_s)
            await anyio.sleep_until(due)


def _is_stanza(event: StreamEvent) -> bool:
    return isinstance(event, _STANZAS)

"""The connection to the server, for ever: connect, serve, back off, connect again."""

import random
from collections.abc import Callable
from typing import Final

import anyio
import structlog

from component.connection.backoff import BackOff
from component.connection.failure import ConnectionFailed
from component.connection.handshake import open_stream
from component.connection.live import LiveStream, Receiver
from component.connection.options import ConnectionOptions
from component.connection.outbox import Outbox
from component.connection.probe import Probes
from component.connection.transport import connect
from xep.component_stream import Event

_log = structlog.get_logger("component.connection")

_RESET: Final = ("silent", "not-reading")
_STANDBY_S: Final = 5.0
"""Longest pause while another process has our place: it is free the moment that one dies."""
_STOPPED: Final = "The service stops."


class ComponentConnection:
    """Keeps one component connected (XEP-0114).

    Args:
        options: where, as whom, how patiently.
        outbox: what to send. It is kept over a reconnect: an answer made during an outage still
            reaches who asked.
        receiver: takes what arrives.
        draw: a number in [0, 1) for each pause before connecting again.
    """

    def __init__(
        self,
        options: ConnectionOptions,
        outbox: Outbox,
        receiver: Receiver,
        *,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._options = options
        self._outbox = outbox
        self._receiver = receiver
        shortest, longest = options.reconnect_min_s, options.reconnect_max_s
        self._back_off = BackOff(shortest, longest, draw)
        self._standby = BackOff(shortest, min(longest, _STANDBY_S), draw)
        self._probes = Probes(options.domain)
        self._log = _log.bind(domain=options.domain)
        self._live: LiveStream | None = None
        self._scope = anyio.CancelScope()
        self._over: anyio.Event | None = None
        self._closing = False
        self._reason = ""
        self._attempts = 0
        self._down_since: float | None = None
        self._dropped = 0
        outbox.on_full = self._full

    @property
    def established(self) -> bool:
        """Whether there is a stream whose handshake was accepted."""
        return self._live is not None

    async def run(self) -> None:
        """Connect, and whenever the connection is lost connect again, until closed or cancelled.

        Nothing that a server or a network does ends it. It can be run once.
        """
        over = self._over = anyio.Event()
        try:
            with self._scope:
                while not self._closing:
                    reason = await self._serve_once()
                    if not self._closing:
                        waits = self._standby if reason.code == "conflict" else self._back_off
                        pause = waits.pause()
                        self._report_down(reason, pause)
                        await anyio.sleep(pause)
        finally:
            over.set()

    def flush(self) -> None:
        """Send what waits in the outbox as far as the kernel takes it now. Without a stream, and
        when nothing waits, it does nothing.
        """
        if self._live is not None:
            self._live.flush()

    async def close(self, timeout_s: float) -> None:
        """End `run`: send everything that waits, close the stream, wait for the server's close.

        What is not done after ``timeout_s`` seconds is given up. Without a stream it ends at
        once; what waits is then lost.
        """
        self._closing = True
        if self._over is None:
            return
        if self._live is not None:
            self._live.close()
            with anyio.move_on_after(timeout_s):
                await self._over.wait()
        self._scope.cancel()
        await self._over.wait()

    async def _serve_once(self) -> ConnectionFailed:
        """One connection from its first packet to its last; why it ended."""
        try:
            transport = await connect(self._options)
        except ConnectionFailed as error:
            return error
        reason: ConnectionFailed | None = None
        try:
            stream, events = await open_stream(transport, self._options)
            live = LiveStream(
                transport, stream, self._options, self._outbox, self._receiver, self._probes
            )
            reason = await self._live_through(live, events)
        except ConnectionFailed as error:
            reason = error
        finally:
            if reason is not None and reason.code in _RESET:
                transport.abort()
            else:
                transport.close()
        return reason

    async def _live_through(self, live: LiveStream, events: list[Event]) -> ConnectionFailed:
        since = anyio.current_time()
        self._report_up(since)
        self._live = live
        reason: ConnectionFailed | None = None
        try:
            reason = await live.run(events)
        finally:
            self._live = None
            self._down_since = anyio.current_time()
            if self._down_since - since >= self._options.settled_s:
                self._back_off.reset()
                self._standby.reset()
            gone = _STOPPED if self._closing or reason is None else str(reason)
            self._receiver.disconnected(gone)
        return reason

    # -- what the log says -----------------------------------------------------------------------

    def _report_up(self, now: float) -> None:
        facts: dict[str, object] = {}
        if self._attempts and self._down_since is not None:
            facts = {"down_s": round(now - self._down_since, 3), "attempts": self._attempts}
        if self._outbox.dropped > self._dropped:
            facts["dropped_stanzas"] = self._outbox.dropped - self._dropped
        self._log.info("connected", host=self._options.host, port=self._options.port, **facts)
        self._dropped = self._outbox.dropped
        self._attempts = 0
        self._reason = ""

    def _report_down(self, error: ConnectionFailed, pause: float) -> None:
        if self._down_since is None:
            self._down_since = anyio.current_time()
        self._attempts += 1
        reason = str(error)
        facts = {"code": error.code, "retry_s": round(pause, 3)}
        if reason == self._reason:
            self._log.debug("still not connected", attempts=self._attempts, **facts)
        else:
            self._reason = reason
            self._log.warning("not connected", reason=reason, **facts)

    def _full(self) -> None:
        """More waits than may: the server does not read, or has been away for too long."""
        if self._live is not None:
            self._live.relieve()
        if self._outbox.over_bound and self._outbox.dropped == self._dropped:
            self._log.warning(
                "too much waits to be sent: the oldest stanzas are dropped",
                waiting_bytes=self._outbox.waiting_bytes,
            )

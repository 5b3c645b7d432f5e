"""Keeps the connection to the server: connect, serve, back off, connect again."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

import anyio
import structlog

from component import system
from component.config.server import Server
from component.link.connection.failure import ConnectionFailed
from component.link.connection.live import LiveStream, Receiver, StanzaEvent
from component.link.connection.probe import Probes
from component.link.connection.stream import Opened, link_for
from component.link.connection.transport import Transport, connect
from component.link.messages.outbox import Outbox


class BackOff:
    """Exponential back-off with full jitter above a minimum.

    Full jitter keeps many components that lost the same server from coming back in step; the
    minimum keeps one from spinning. Pauses are drawn between ``min_s`` and a ceiling that starts
    at twice ``min_s`` and doubles with every pause up to ``max_s``.

    Args:
        draw: a number in [0, 1); the tests bring their own.
    """

    def __init__(
        self, min_s: float, max_s: float, draw: Callable[[], float] = system.random
    ) -> None:
        self._min = min_s
        self._max = max(min_s, max_s)
        self._draw = draw
        self._ceiling = min_s

    def pause(self) -> float:
        """Return the next pause, in seconds."""
        self._ceiling = min(self._ceiling * 2, self._max)
        return self._min + self._draw() * (self._ceiling - self._min)

    def reset(self) -> None:
        """Start with the shortest pauses again."""
        self._ceiling = self._min


_log = structlog.get_logger("component.connection")

Connect: TypeAlias = Callable[[Server], Awaitable[Transport]]
"""Opens a connection to the server; see `component.link.connection.transport.connect`."""

_PROBES_BYTES: Final = 65_536
"""The size of probes that may wait."""
_RESET: Final = ("silent", "not-reading")
_STANDBY_S: Final = 5.0
"""The longest pause while another process is connected, because we can connect as soon as
it ends.
"""
_SETTLED_S: Final = 30.0
"""After a stream of this duration the pauses start from the shortest again."""
_STOPPED: Final = "The service is stopping."


class Connection:
    """Keeps one component (XEP-0114) or one client (RFC 6120) connected.

    Args:
        server: the server, the address to connect as, and time-outs.
        outbox: the stanzas to send. They are kept across a reconnect, so an answer made during an
        outage still reaches the requester.
        draw: a number in [0, 1) for each pause before connecting again.
    """

    def __init__(
        self,
        server: Server,
        outbox: Outbox,
        receiver: Receiver,
        *,
        draw: Callable[[], float] = system.random,
        connect: Connect = connect,
    ) -> None:
        self._server = server
        self._outbox = outbox
        self._receiver = receiver
        self._connect = connect
        shortest, longest = server.reconnect_min_s, server.reconnect_max_s
        self._back_off = BackOff(shortest, longest, draw)
        self._standby = BackOff(shortest, min(longest, _STANDBY_S), draw)
        self._link = link_for(server)
        self._probes = Probes(server.address, receiver.tag, server.component_number)
        kind = "domain" if server.mode == "component" else "account"
        self._log = _log.bind(**{kind: server.address})
        self._in_session = False  # what the receiver was told last
        self._live: LiveStream | None = None
        self._scope = anyio.CancelScope()
        self._over: anyio.Event | None = None
        self._closing = False
        self._reason = ""
        self._attempts = 0
        self._down_since: float | None = None

    @property
    def established(self) -> bool:
        """Whether there is a stream whose handshake was accepted."""
        return self._live is not None

    @property
    def address(self) -> str:
        """The address that the server knows us by: the component's domain, or the full address of
        the client, once it is connected.
        """
        return self._probes.address

    async def run(self) -> None:
        """Connect, and reconnect whenever the connection is lost, until closed or cancelled.

        No failure of a server or a network ends it. It can be run once.
        """
        over = self._over = anyio.Event()
        try:
            with self._scope:
                while not self._closing:
                    reason = await self._serve_once()
                    if not self._closing:
                        self._give_up_session(reason)
                        waits = self._standby if reason.code == "conflict" else self._back_off
                        pause = waits.pause()
                        self._report_down(reason, pause)
                        await anyio.sleep(pause)
        finally:
            over.set()

    async def close(self, timeout_s: float) -> None:
        """End `run`: send everything that waits, close the stream, wait for the server to close it.

        After ``timeout_s`` seconds it stops waiting. Without a stream it ends at once, and the
        contents of the outbox are lost.
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

    async def handled(self) -> bool:
        """Wait until the server has handled everything that was sent so far; return False if the
        connection was lost before that, so that some of it may be lost.
        """
        if await self._link.acknowledged():
            return True
        live = self._live
        return live is not None and await live.handled()

    def one_more(self, receiver: Receiver) -> "Connection":
        """Return one more connection of this instance, which only receives."""
        more = Connection(self._server, Outbox(_PROBES_BYTES), receiver, connect=self._connect)
        more._log = self._log.bind(use="receiving")
        return more

    def is_probe(self, event: StanzaEvent) -> bool:
        """Note a probe that was sent on this connection, and has returned on another one of this
        instance; return False if it is none.
        """
        return self._probes.is_one(event)

    async def hand_over(self, stanzas: Sequence[StanzaEvent]) -> None:
        """Handle stanzas that another instance has received for this one; without a stream nobody
        waits for them any more.
        """
        if self._live is not None:
            await self._live.hand_over(stanzas)

    async def _serve_once(self) -> ConnectionFailed:
        """Run one connection until it ends; return why it ended."""
        try:
            transport = await self._connect(self._server)
        except ConnectionFailed as error:
            return error
        reason: ConnectionFailed | None = None
        try:
            opened = await self._link.open(transport)
            reason = await self._live_through(transport, opened)
        except ConnectionFailed as error:
            reason = error
        finally:
            if reason is not None and reason.code in _RESET:
                transport.abort()
            else:
                transport.close()
        return reason

    async def _live_through(self, transport: Transport, opened: Opened) -> ConnectionFailed:
        since = anyio.current_time()
        if not opened.resumed:
            self._end_session(self._reason or "The session could not be resumed.")
        self._report_up(since, resumed=opened.resumed)
        if opened.lost:
            self._report_lost(opened)
        self._probes.address = opened.address
        live = LiveStream(
            transport, opened, self._server, self._outbox, self._receiver, self._probes
        )
        self._live = live
        self._in_session = True
        reason: ConnectionFailed | None = None
        try:
            reason = await live.run(opened.events)
        finally:
            self._live = None
            self._down_since = anyio.current_time()
            if self._down_since - since >= _SETTLED_S:
                self._back_off.reset()
                self._standby.reset()
            if opened.session.closed:
                self._link.closed()
            if self._closing or reason is None:
                self._end_session(_STOPPED)
            elif not self._link.resumable_s:
                self._end_session(str(reason))
        return reason

    def _end_session(self, reason: str) -> None:
        """Report to the receiver that the session is over, once."""
        if self._in_session:
            self._in_session = False
            self._receiver.disconnected(reason)

    def _give_up_session(self, reason: ConnectionFailed) -> None:
        """Wait for the session no longer than the server keeps it."""
        since = self._down_since
        if since is not None and anyio.current_time() - since > self._link.resumable_s:
            self._end_session(str(reason))

    def _report_lost(self, opened: Opened) -> None:
        self._log.warning(
            "the server did not acknowledge what was sent before the connection broke",
            stanzas=len(opened.lost),
            taken="none" if opened.lost_for_certain else "unknown",
        )
        self._receiver.undelivered(opened.lost, certain=opened.lost_for_certain)

    # -- logging ---------------------------------------------------------------------------------

    def _report_up(self, now: float, *, resumed: bool) -> None:
        facts: dict[str, object] = {}
        if self._attempts and self._down_since is not None:
            facts = {"down_s": round(now - self._down_since, 3), "attempts": self._attempts}
        if dropped := self._outbox.newly_dropped():
            facts["dropped_stanzas"] = dropped
        if resumed:
            facts["resumed"] = True
        self._log.info("connected", host=self._server.host, port=self._server.port, **facts)
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

"""A connection of XEP-0114, on either side: bytes in, stanzas out, and back."""

import contextlib
from collections.abc import AsyncIterator, Callable
from xml.sax.saxutils import quoteattr

import anyio
from anyio.abc import ByteStream

from conformance.drivers import Deliver, DriverError, Part
from xep.component_states import State
from xep.component_stream import AcceptorStream, ComponentStream, ComponentStreamEvent
from xep.disco import INFO, ITEMS
from xep.stanza import Incoming
from xep.stanza_stream import StanzaReceived, StreamErrorReceived, StreamFailed
from xep.stream import StanzaSkipped, StreamClosed, StreamError, StreamLimits

LIMITS = StreamLimits(bytes=16 * 1024 * 1024, elements=100_000)
"""Our limits; they are large, so that a target that sends more than it announces is noticed."""
HANDSHAKE = 60.0
"""Seconds until the stream has to be ready."""

_STANZAS = "urn:ietf:params:xml:ns:xmpp-stanzas"
_BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


class Link:
    """One stream.

    Args:
        stream: the connection.
        wire: the state machine of our side.
        opening: returns the bytes to answer an event of the handshake, and may raise DriverError to
            give up.
        home: the domain whose stanzas to itself we loop back, like a server; None for none.
    """

    def __init__(
        self,
        stream: ByteStream,
        wire: AcceptorStream | ComponentStream,
        opening: Callable[[ComponentStreamEvent], bytes],
        home: str | None,
    ) -> None:
        self.why = ""
        self.condition: str | None = None
        """That of the error with which the other side ended the stream."""
        self._stream = stream
        self._wire = wire
        self._opening = opening
        self._home = home
        self._parts: dict[str, list[Part]] = {}
        self._ready = anyio.Event()
        self._turn = anyio.Lock()

    @contextlib.asynccontextmanager
    async def running(self, deliver: Deliver) -> AsyncIterator[None]:
        """Serve the stream from its handshake on, within the block.

        Raises:
            DriverError: the handshake failed.
        """
        async with anyio.create_task_group() as group:
            group.start_soon(self._read, deliver)
            with anyio.move_on_after(HANDSHAKE):
                await self._ready.wait()
            ready = self._wire.state is State.READY
            try:
                if ready:
                    yield
            finally:
                group.cancel_scope.cancel()
                await self._close()
        if not ready:  # raised outside of the group, which would wrap it
            raise DriverError(self.why or f"The handshake took more than {HANDSHAKE:g} s.")

    async def _close(self) -> None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(2):
            with contextlib.suppress(*_BROKEN):
                if self._wire.state is State.READY:
                    await self._stream.send(self._wire.close())
            await self._stream.aclose()

    def play(self, address: str, part: Part) -> None:
        """Answer IQs to ``address`` and its bare JID with ``part``."""
        for name in {address, address.partition("/")[0]}:
            self._parts.setdefault(name, []).append(part)

    def stop(self, address: str, part: Part) -> None:
        """Undo a `play`; the previous ``part`` of the address continues."""
        for name in {address, address.partition("/")[0]}:
            self._parts[name].remove(part)

    async def send(self, xml: str) -> None:
        """Send one stanza.

        Raises:
            DriverError: the stream has ended.
        """
        async with self._turn:
            if self._wire.state is not State.READY:
                raise DriverError(self.why or "The stream is closed.")
            try:
                await self._stream.send(self._wire.send(xml.encode()))
            except _BROKEN:
                self.why = self.why or "The connection broke."
                raise DriverError(self.why) from None

    async def _read(self, deliver: Deliver) -> None:
        try:
            while True:
                for event in self._wire.receive(await self._stream.receive()):
                    await self._take(event, deliver)
        except _BROKEN:
            self.why = self.why or "The other side closed the connection."
        finally:
            self._ready.set()

    async def _take(self, event: ComponentStreamEvent, deliver: Deliver) -> None:
        match event:
            case StanzaReceived(stanza=stanza):
                await self._stanza(stanza, deliver)
            case StreamFailed(error=broken):
                self.why = f"The other side broke the rules of streams: {broken}"
                await self._say(broken.reply)
            case StanzaSkipped(error=StreamError() as error):
                # A service has to tolerate it; a kit has to report it.
                self.why = f"The other side sent a stanza that cannot be parsed: {error}"
                async with self._turn:
                    await self._stream.send(self._wire.fail(error.condition, error.text))
            case StreamErrorReceived(error=error):
                self.why = f"The other side ended the stream: {error}"
                self.condition = error.condition
            case StreamClosed():
                self.why = self.why or "The other side closed the stream."
            case _:
                try:
                    data = self._opening(event)
                except DriverError as error:
                    self.why = str(error)
                    data = self._wire.fail("not-authorized")
                if data:
                    await self._say(data)
        if self._wire.state is State.READY:
            self._ready.set()

    async def _say(self, data: bytes) -> None:
        """Send data that is not a stanza, but not within one that is being sent."""
        async with self._turn:
            await self._stream.send(data)

    async def _stanza(self, stanza: Incoming, deliver: Deliver) -> None:
        to = (stanza.to or "").partition("/")[0].rpartition("@")[2]
        back = ""
        if self._home is not None and to == self._home:
            back = stanza.forward()  # a target that probes its connection writes to itself
        elif stanza.kind == "iq" and stanza.type in ("get", "set"):
            back = (self._parts.get(stanza.to or "") or [as_a_client])[-1](stanza)
        if not back:
            deliver(stanza)
            return
        with contextlib.suppress(DriverError):
            await self.send(back)


def as_a_client(stanza: Incoming) -> str:
    """Answer an IQ to one of our users like an ordinary client, or its server."""
    head = (
        f"<iq from={quoteattr(stanza.to or '')} to={quoteattr(stanza.sender or '')}"
        f" id={quoteattr(stanza.id or '')}"
    )
    if stanza.type == "get" and stanza.sole_child == f"{{{INFO}}}query":
        full = "/" in (stanza.to or "")
        category, type_ = ("client", "pc") if full else ("account", "registered")
        return (
            f"{head} type='result'><query xmlns='{INFO}'>"
            f"<identity category='{category}' type='{type_}'/>"
            f"<feature var='{INFO}'/></query></iq>"
        )
    if stanza.type == "get" and stanza.sole_child == f"{{{ITEMS}}}query":
        return f"{head} type='result'><query xmlns='{ITEMS}'/></iq>"
    return (
        f"{head} type='error'><error type='cancel'>"
        f"<service-unavailable xmlns='{_STANZAS}'/></error></iq>"
    )

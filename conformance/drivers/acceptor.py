"""Accepts the target as a component (XEP-0114): the driver is its server, and all the server's
users.

Only this driver can send malformed IQs, which a real server answers itself or drops.
"""

import contextlib
import secrets
from collections.abc import AsyncIterator

import anyio
from anyio.abc import ByteStream, SocketAttribute

from conformance.drivers import Cast, Deliver, DriverError, Part
from conformance.drivers.link import HANDSHAKE, LIMITS, Link
from conformance.model import Ability
from xep.component_stream import AcceptorStream, ComponentStreamEvent, HandshakeReceived
from xep.stream import StreamOpened


class AcceptorDriver:
    """Waits for the target on a port, or uses an existing stream.

    Args:
        domain: the target's domain, which it names in its stream header.
        secret: the secret that the target must prove.
        caller: the bare JID of the sender of most requests.
        stranger: the bare JID of another principal.
        refused: the bare JID of a principal that the target refuses, if one is known.
        peer: the bare JID of an agent that the kit plays; at the caller's domain unless given.
        host: the address to listen on.
        port: the port to listen on; 0 selects a free one.
        stream: a connection to the target, instead of listening for one.
        hostile: whether the target may be attacked.
    """

    lanes = 16
    ordered = 16

    def __init__(
        self,
        domain: str,
        secret: str,
        *,
        caller: str,
        stranger: str,
        refused: str | None = None,
        peer: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        stream: ByteStream | None = None,
        hostile: bool = False,
    ) -> None:
        self.name = f"acceptor for the component {domain}"
        self.domain = domain
        self.host = host
        self.port = port
        self._secret = secret
        self._people = (caller, stranger, refused)
        self._peer = peer or f"peer@{caller.rpartition('@')[2]}"
        self._stream = stream
        self._came = anyio.Event()
        self._listens = False
        self._wire = AcceptorStream(LIMITS)
        self._link: Link | None = None
        abilities = {
            Ability.RAW,
            Ability.STRANGER,
            Ability.RESOURCE,
            Ability.ORIGIN,
            Ability.STAMPED,
            Ability.PEER,
        }
        abilities |= {Ability.REFUSED} if refused is not None else set()
        abilities |= {Ability.HOSTILE} if hostile else set()
        self.abilities = frozenset(abilities)

    def cast(self, lane: str, *, ordered: bool = False) -> Cast:
        """Return addresses with a separate resource for each check."""
        caller, stranger, refused = self._people
        return Cast(
            caller=f"{caller}/{lane}",
            other=f"{caller}/{lane}-other",
            stranger=f"{stranger}/{lane}",
            refused=None if refused is None else f"{refused}/{lane}",
            peer=f"{self._peer}/{lane}",
        )

    def streams(self, cast: Cast) -> tuple[str, ...]:
        """Return the caller alone: all stanzas use one stream, which no server limits."""
        return (cast.caller,)

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Accept one connection on the port, within the block.

        `open` does it too; this is for callers that need the port before the target is started.

        Raises:
            DriverError: the port is not available.
        """
        try:
            listener = await anyio.create_tcp_listener(local_host=self.host, local_port=self.port)
        except OSError as error:
            raise DriverError(
                f"Cannot listen on {self.host}:{self.port} ({error}): name a free port, and an"
                " address of this machine, with --acceptor."
            ) from None
        self.port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - no Django here
        self._listens = True
        over = anyio.Event()

        async def first(stream: ByteStream) -> None:
            if self._came.is_set():
                await stream.aclose()  # one target at a time
                return
            self._stream = stream
            self._came.set()
            await over.wait()

        async with listener, anyio.create_task_group() as group:
            group.start_soon(listener.serve, first)
            try:
                yield
            finally:
                over.set()
                group.cancel_scope.cancel()

    def done(self, lane: str) -> None:
        """Do nothing: resources are unlimited."""

    @contextlib.asynccontextmanager
    async def open(self, deliver: Deliver) -> AsyncIterator[None]:
        """Wait for the target; serve it until the block ends.

        Raises:
            DriverError: it did not connect, or does not know the secret.
        """
        async with contextlib.AsyncExitStack() as stack:
            if self._stream is None and not self._listens:
                await stack.enter_async_context(self.listening())
            if self._stream is None:
                with anyio.move_on_after(HANDSHAKE):
                    await self._came.wait()
            if self._stream is None:
                raise DriverError(
                    f"Nobody connected to {self.host}:{self.port} within {HANDSHAKE:g} s."
                    " Point the target's component connection there, or name another place with"
                    " --acceptor."
                )
            self._link = Link(self._stream, self._wire, self._opening, self.domain)
            await stack.enter_async_context(self._link.running(deliver))
            yield

    def play(self, address: str, part: Part) -> None:
        """Let ``part`` answer for an address of the component."""
        assert self._link is not None, "open() comes first"
        self._link.play(address, part)

    def stop(self, address: str, part: Part) -> None:
        """Stop ``part`` from answering."""
        assert self._link is not None, "open() comes first"
        self._link.stop(address, part)

    async def send(self, sender: str, xml: str) -> None:
        """Send a stanza to the target; it trusts any ``sender``."""
        assert self._link is not None, "open() comes first"
        await self._link.send(xml)

    def _opening(self, event: ComponentStreamEvent) -> bytes:
        match event:
            case StreamOpened(to=to) if to != self.domain:
                raise DriverError(
                    f"The target wants to be {to}, not {self.domain}: name that as the TARGET."
                )
            case StreamOpened():
                return self._wire.open(secrets.token_hex(8), self._secret)
            case HandshakeReceived(valid=True):
                return self._wire.accept()
            case HandshakeReceived():
                raise DriverError(
                    "The target does not prove the secret: give it the one in the variable that"
                    " --secret-env names."
                )
            case _:
                return b""

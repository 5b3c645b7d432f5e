"""Connects as a component (XEP-0114) to a server, and plays all the users of its domain."""

import contextlib
import ssl
from collections.abc import AsyncIterator

import anyio
from anyio.abc import ByteStream

from conformance.drivers import Cast, Deliver, DriverError, Part
from conformance.drivers.failures import ended, no_answer, no_connection, not_xmpp
from conformance.drivers.link import HANDSHAKE, LIMITS, Link
from conformance.model import Ability
from xep.component_states import State
from xep.component_stream import ComponentStream, ComponentStreamEvent
from xep.stream import StreamOpened


class ComponentDriver:
    """Connects to a server as the component ``domain``.

    The target has to admit the users of that domain. Stanzas that the server answers or drops
    itself, such as IQs without an id, never reach the target.

    Args:
        domain: our domain, as in the server's configuration.
        secret: the secret shared with the server.
        host: the server's address for components.
        port: the port.
        peer: the bare JID of an agent that the kit plays, also admitted; peer at our domain unless
            given.
        refused: the bare JID of a user of this domain whom the target refuses, if one is known.
        tls: how to verify the server if TLS is used from the first byte; None for no TLS.
        hostile: whether the target may be attacked.
    """

    lanes = 16
    ordered = 16

    def __init__(
        self,
        domain: str,
        secret: str,
        *,
        host: str,
        port: int,
        refused: str | None = None,
        peer: str | None = None,
        tls: ssl.SSLContext | None = None,
        hostile: bool = False,
    ) -> None:
        self.name = f"component {domain} of {host}:{port}"
        self._domain = domain
        self._host = host
        self._port = port
        self._tls = tls
        self._refused = refused
        self._peer = peer or f"peer@{domain}"
        self._wire = ComponentStream(domain, secret, LIMITS)
        self._link: Link | None = None
        self._opened = False  # whether the server has opened its stream
        abilities = {Ability.STRANGER, Ability.RESOURCE, Ability.ORIGIN, Ability.STAMPED}
        abilities.add(Ability.PEER)
        abilities |= {Ability.REFUSED} if refused is not None else set()
        abilities |= {Ability.HOSTILE} if hostile else set()
        self.abilities = frozenset(abilities)

    def cast(self, lane: str, *, ordered: bool = False) -> Cast:
        """Return addresses with a separate resource for each check."""
        return Cast(
            caller=f"juliet@{self._domain}/{lane}",
            other=f"juliet@{self._domain}/{lane}-other",
            stranger=f"romeo@{self._domain}/{lane}",
            refused=None if self._refused is None else f"{self._refused}/{lane}",
            peer=f"{self._peer}/{lane}",
        )

    def done(self, lane: str) -> None:
        """Do nothing: resources are unlimited."""

    def streams(self, cast: Cast) -> tuple[str, ...]:
        """Return the caller alone: all stanzas use one stream, which no server limits."""
        return (cast.caller,)

    @contextlib.asynccontextmanager
    async def open(self, deliver: Deliver) -> AsyncIterator[None]:
        """Connect and prove the secret.

        Raises:
            DriverError: nothing listens there, or the server refuses us.
        """
        peer = f"{self._host}:{self._port}"
        try:
            with anyio.fail_after(HANDSHAKE):
                stream: ByteStream
                if self._tls is None:
                    stream = await anyio.connect_tcp(self._host, self._port)
                else:
                    stream = await anyio.connect_tcp(
                        self._host, self._port, ssl_context=self._tls, tls_standard_compatible=False
                    )
        except TimeoutError:
            raise no_answer(peer, HANDSHAKE) from None
        except (OSError, UnicodeError) as error:  # the latter of a name with an empty label
            raise no_connection(peer, error.__cause__ or error) from None
        await stream.send(self._wire.open())
        self._link = Link(stream, self._wire, self._opening, None)
        is_ready = False
        try:
            async with self._link.running(deliver):
                is_ready = True
                yield
        except DriverError:
            if is_ready:
                raise
            raise self._not_ready(peer, self._link) from None

    def _not_ready(self, peer: str, link: Link) -> DriverError:
        """Return the error if the handshake failed."""
        if link.condition == "not-authorized":
            return DriverError(
                f"{peer} does not accept our secret for {self._domain} (not-authorized): correct"
                " the variable that --secret-env names, or --component."
            )
        if link.condition is not None:
            return ended(peer, link.condition, "--component")
        return ended(peer, "", "--component") if self._opened else not_xmpp(peer, "components")

    def play(self, address: str, part: Part) -> None:
        """Let ``part`` answer for an address of the component."""
        assert self._link is not None, "open() comes first"
        self._link.play(address, part)

    def stop(self, address: str, part: Part) -> None:
        """Stop ``part`` from answering."""
        assert self._link is not None, "open() comes first"
        self._link.stop(address, part)

    async def send(self, sender: str, xml: str) -> None:
        """Send a stanza through the server."""
        assert self._link is not None, "open() comes first"
        await self._link.send(xml)

    def _opening(self, event: ComponentStreamEvent) -> bytes:
        self._opened = self._opened or isinstance(event, StreamOpened)
        if isinstance(event, StreamOpened) and self._wire.state is State.OPENED:
            return self._wire.handshake()
        return b""

"""How an agent is attached to its server: as a component, or as a client with an account.

A `Link` opens the stream on a connection. `component.link.connection.connection` does the rest, and
knows neither kind.
"""

from typing import Protocol

from component.link.connection import handshake
from component.link.connection.options import ConnectionOptions
from component.link.connection.session import ComponentSession, Opened
from component.link.connection.transport import Transport


class Link(Protocol):
    """One way of being attached to a server. It exists as long as the connection is wanted."""

    @property
    def resumable_s(self) -> float:
        """Seconds for which the session of the broken stream can be resumed; 0 if it cannot."""

    async def open(self, transport: Transport) -> Opened:
        """Open the stream on a new connection. Raises ConnectionFailed."""

    def closed(self) -> None:
        """Note that the stream was closed properly: there is nothing to resume."""

    async def acknowledged(self) -> bool:
        """Wait until the server has acknowledged everything sent so far, or what it has not is sent
        again; return False if the stream has no acknowledgements.
        """


class ComponentLink:
    """A component's stream (XEP-0114).

    Args:
        options: the server, and the address to connect as.
    """

    resumable_s = 0.0

    def __init__(self, options: ConnectionOptions) -> None:
        self._options = options

    async def open(self, transport: Transport) -> Opened:
        """Open the stream and prove the secret. Raises ConnectionFailed."""
        stream, events = await handshake.open_stream(transport, self._options)
        return Opened(ComponentSession(transport, stream), [*events], self._options.address)

    def closed(self) -> None:
        """Do nothing: a component's stream cannot be resumed."""

    async def acknowledged(self) -> bool:
        """Return False: XEP-0114 has no acknowledgements."""
        return False


def link_for(options: ConnectionOptions) -> Link:
    """The link that the options describe."""
    if options.mode == "component":
        return ComponentLink(options)
    # Imported only in client mode: TLS, SASL and stream management.
    from component.link.connection.client_link import ClientLink  # noqa: PLC0415

    return ClientLink(options)

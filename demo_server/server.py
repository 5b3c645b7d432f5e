"""The embedded server: creates its parts and its two listeners."""

import ipaddress
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
import structlog
from anyio.abc import Listener, SocketAttribute, SocketStream, TaskStatus

from demo_server.c2s import ClientStream
from demo_server.certificate import Certificate
from demo_server.client_link import ClientLink
from demo_server.component_link import ComponentLink
from demo_server.router import Router
from demo_server.sasl import Credentials
from demo_server.table import Table
from demo_server.wire import Tap, Wire
from xep.jid import JID

MAX_OUTPUT = 4 * 1024 * 1024
"""Maximum number of queued bytes for one peer before it is disconnected."""


Talk = Callable[[], Awaitable[None]]

_LOOPBACK = ipaddress.IPv4Network("127.0.0.0/8")
_log = structlog.get_logger(__name__)


class DemoServer:
    """A loopback-only XMPP server for demonstrations and tests. It stores nothing on disk.

    Clients log in over STARTTLS with SCRAM; components connect by XEP-0114.

        async with DemoServer(accounts={"juliet": "secret"}) as server:
            ...  # server.c2s_port, server.component_port, server.ca_file

    Args:
        host: the domain of the server and its accounts.
        address: the loopback address to listen on: of 127.0.0.0/8, or ::1.
        c2s_port: the port for clients; 0 for any free port.
        component_port: the port for components; 0 for any free port.
        accounts: passwords by the localpart of the account.
        components: secrets by domain.
        certificate: for STARTTLS; by default a new one for ``host`` and ``address``.
        max_output: maximum number of queued bytes for one peer before it is disconnected.
        tap: called with each stanza in both directions, for demonstrations.

    Attributes:
        c2s_port: the port for clients, once the server listens.
        component_port: the port for components, once the server listens.
        ca_file: while it runs, a PEM file with the authority for clients to trust.

    Raises:
        ValueError: an address that is not a loopback address, or an invalid name.
    """

    def __init__(
        self,
        host: str = "localhost",
        address: str = "127.0.0.1",
        *,
        c2s_port: int = 0,
        component_port: int = 0,
        accounts: Mapping[str, str] | None = None,
        components: Mapping[str, str] | None = None,
        certificate: Certificate | None = None,
        max_output: int = MAX_OUTPUT,
        tap: Tap | None = None,
    ) -> None:
        self.host = JID.parse(host).domain
        self.address = _loopback(address)
        self.c2s_port = c2s_port
        self.component_port = component_port
        self.ca_file: Path | None = None
        self._credentials = Credentials(self.host, accounts or {})
        self._secrets = {JID.parse(name).domain: word for name, word in (components or {}).items()}
        self._certificate = certificate or Certificate.make(self.host, address)
        self._max_output = max_output
        self._tap = tap
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Listen, and serve until the block ends."""
        async with AsyncExitStack() as stack:
            group = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(group.cancel_scope.cancel)
            await group.start(self.run)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        """Close all connections and stop listening."""
        return await self._stack.__aexit__(kind, error, traceback)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; started when both servers listen and the ports are known.

        Raises:
            OSError: a port is taken.
        """
        router = Router(Table(self.host, self._credentials.accounts, self._secrets))

        def client(wire: Wire) -> Talk:
            stream = ClientStream(self.host, self._credentials)
            return ClientLink(wire, stream, self._certificate.context, router).talk

        def component(wire: Wire) -> Talk:
            return ComponentLink(wire, self._secrets, router).talk

        async with (
            await self._listen(self.c2s_port) as clients,
            await self._listen(self.component_port) as components,
            anyio.create_task_group() as group,
        ):
            self.c2s_port = clients.extra(SocketAttribute.local_port)  # noqa: S610 - no Django
            self.component_port = components.extra(SocketAttribute.local_port)  # noqa: S610
            with _file_of(self._certificate.ca_pem) as self.ca_file:
                group.start_soon(clients.serve, partial(self._serve, client))
                group.start_soon(components.serve, partial(self._serve, component))
                task_status.started()
                await anyio.sleep_forever()

    async def _listen(self, port: int) -> Listener[SocketStream]:
        return await anyio.create_tcp_listener(local_host=self.address, local_port=port)

    async def _serve(self, make: Callable[[Wire], Talk], stream: SocketStream) -> None:
        wire = Wire(stream, self._max_output, self._tap)
        try:
            await wire.run(make(wire))
        except Exception:  # noqa: BLE001 - an error must not end the streams of others
            _log.exception("an error in the embedded server ended a connection", peer=wire.name)


def _loopback(address: str) -> str:
    """Return ``address``. Raises ValueError unless it is a loopback address."""
    allowed = "127.0.0.1, another address of 127.0.0.0/8, or ::1"
    try:
        given = ipaddress.ip_address(address)
    except ValueError:
        raise ValueError(
            f"The embedded server listens on an IP address of this machine, not on {address!r}:"
            f" give it {allowed}."
        ) from None
    if given not in _LOOPBACK and given != ipaddress.IPv6Address("::1"):
        raise ValueError(
            f"The embedded server is only for this machine, but {address} can be reached from"
            f" others: give it {allowed}."
        )
    return address


@contextmanager
def _file_of(pem: bytes) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="xmpp-agent-") as directory:
        path = Path(directory) / "ca.pem"
        path.write_bytes(pem)
        yield path

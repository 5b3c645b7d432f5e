"""The embedded server in a thread, for commands that run as an admin runs them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from anyio.from_thread import start_blocking_portal

from demo_server import DemoServer
from tests.servers.clients import SlixClient


class Embedded:
    """A running `DemoServer` with the face of the real servers of the tests."""

    component_domain = "agent.localhost"
    secret = "the secret of the component"

    def __init__(self, server: DemoServer, accounts: dict[str, str]) -> None:
        self.accounts = accounts
        self.port = server.component_port
        self.c2s_port = server.c2s_port
        self.ca_file = server.ca_file
        self._server = server

    def agent_toml(self) -> str:
        """The smallest configuration for it."""
        return (
            f'[server]\nhost = "127.0.0.1"\nport = {self.port}\n'
            f'component_domain = "{self.component_domain}"\n'
            'component_secret = "${AGENT_SECRET}"\n'
        )

    def login(self, account: str = "juliet", **options: Any) -> SlixClient:
        """A client of one of the accounts, not yet connected."""
        return SlixClient(
            f"{account}@localhost",
            self.accounts[account],
            "127.0.0.1",
            self._server.c2s_port,
            ca_file=self._server.ca_file,
            **options,
        )


@contextmanager
def embedded_server() -> Iterator[Embedded]:
    """Run the server for the time of the context."""
    accounts = {"juliet": "password of juliet", "romeo": "password of romeo"}
    with start_blocking_portal() as portal:
        server = DemoServer(
            accounts=accounts, components={Embedded.component_domain: Embedded.secret}
        )
        with portal.wrap_async_context_manager(server):
            yield Embedded(server, accounts)

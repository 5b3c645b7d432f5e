"""An account for an agent on a server of the tests, and the configuration of its guide."""

from pathlib import Path

import pytest

from tests.servers import guides
from tests.servers.base import Server
from tests.servers.fixtures import ACCOUNTS, SITE

HOST = SITE
ACCOUNT = f"helper@{HOST}"
FULL = f"{ACCOUNT}/agent"
PASSWORD = ACCOUNTS["helper"]
GUIDE = guides.DOCS / "how-to" / "client-mode.md"


def client_toml(directory: Path) -> str:
    """The guide's configuration; its agent.env is written to the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    written = guides.fill(guides.block(GUIDE, "agent.env"), {guides.SECRET: f'"{PASSWORD}"'})
    (directory / "agent.env").write_text(written)
    (directory / "agent.env").chmod(0o600)
    return guides.block(GUIDE, "agent.toml")


def at(server: Server) -> dict[str, object]:
    """The settings that say where the server of a test is."""
    return {
        "server__host": server.address,
        "server__port": server.c2s_port,
        "server__tls_ca": str(server.ca_file),
    }


@pytest.fixture(scope="session")
def server(xmpp_server: Server) -> Server:
    """The shared server, as its host with the account sees it."""
    return xmpp_server.on(HOST)

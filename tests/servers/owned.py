"""One service whose agent has a PubSub service with an owner, which many tests look at."""

from collections.abc import Iterator

import pytest

from tests.servers.agent_process import AgentProcess
from tests.servers.base import Server
from tests.servers.fixtures import PUBSUB


def owned_by_juliet(server: Server, directories: pytest.TempPathFactory) -> Iterator[Server]:
    """Have a service on the server for as long as the fixture that this is."""
    owner = server.jid("juliet")
    with AgentProcess(
        server,
        directories.mktemp("owned"),
        agent__admins=[owner],
        pubsub__ask_presence=True,
    ) as agent:
        agent.connected()
        yield server


@pytest.fixture(scope="session")
def owned(xmpp_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server on which juliet is an admin of an agent."""
    yield from owned_by_juliet(xmpp_server.on(PUBSUB), tmp_path_factory)

"""Clients of both libraries, and a service on the embedded server that they call."""

from collections.abc import AsyncIterator, Iterator

import anyio
import pytest

from component.app.features import make_settings
from component.app.service import Service
from component.config import Agent, Conformance, RequestLimits, Server, Skills, Storage
from component.config.peers import Peer
from demo_server import DemoServer
from tests.demo_server.peers import AGENT, new_server
from tests.servers.proxy import Proxy
from tests.xmpp_agent_client.callers import CALLERS
from xmpp_agent_client import Agents

BOT = "bot.localhost"
"""A component that calls the service."""


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DemoServer]:
    """A server with a service that offers the skills of the conformance kit."""
    components = {AGENT: "secret", BOT: "secret"}
    async with new_server(components=components) as running, anyio.create_task_group() as group:
        settings = make_settings(
            server=Server(
                host=running.address,
                port=running.component_port,
                component_domain=AGENT,
                component_secret="secret",
            ),
            storage=Storage(path=tmp_path_factory.mktemp("agent") / "data"),
            skills=Skills(
                modules=("component.cli.demo_skills", "tests.xmpp_agent_client.guide_skills")
            ),
            agent=Agent(allowed_domains=("localhost", BOT)),
            peer=(Peer(name="bot", jid=BOT, offers=("conformance.*",)),),
            conformance=Conformance(enabled=True),
            limits=RequestLimits(inline_s=1),
        )
        service = Service(settings)
        await group.start(service.run)
        await service.established.wait()
        yield running
        service.stop()


@pytest.fixture
def way(server: DemoServer) -> Iterator[Proxy]:
    """The way of the client to the server, which can be cut."""
    with Proxy(server.address, server.c2s_port) as way:
        yield way


@pytest.fixture(params=CALLERS)
async def agents(
    request: pytest.FixtureRequest, server: DemoServer, way: Proxy
) -> AsyncIterator[Agents]:
    """Juliet's client."""
    jid, password = f"juliet@{server.host}", "pässword"
    async with CALLERS[request.param](
        jid, password, "127.0.0.1", way.port, server.ca_file
    ) as agents:
        yield agents

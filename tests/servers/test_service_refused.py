"""A server that does not let the service in: one sentence in the log, and it keeps trying."""

import pytest

from tests.servers import guides
from tests.servers.agent_process import AgentProcess
from tests.servers.base import Server
from tests.servers.conftest import MakeAgent
from tests.servers.fixtures import ServerFactory
from tests.servers.talk import execute, login, output

pytestmark = [pytest.mark.servers]

ECHO = execute("echo", text="hello")


def says_once(agent: AgentProcess, code: str, reason: str) -> None:
    """It says why there is no connection, once, however often it tries, and goes on trying."""
    line = agent.wait_log("not connected", code=code)
    assert line["reason"] == reason
    assert line["level"] == "warning"
    for _ in range(3):
        assert agent.wait_log("still not connected")["code"] == code
    assert len(agent.log("not connected")) == 1
    assert agent.running


def serves(server: Server, domain: str | None = None) -> None:
    with login(server) as juliet:
        assert output(juliet.iq(domain or server.component_domain, ECHO, "set")) == "hello"


def refuses_the_handshake(server: Server, domain: str) -> str:
    return (
        f"The server at 127.0.0.1:{server.component_port} refused the handshake for {domain}: the "
        "component's secret differs from the server's, or, as ejabberd answers both alike, "
        f"{domain} is not a host of the listener on port {server.component_port}."
    )


def test_nobody_listens_then_a_wrong_secret(
    make_server: ServerFactory, make_agent: MakeAgent
) -> None:
    server = make_server(start=False)
    agent = make_agent(server, secret="the secret after it was changed")
    says_once(
        agent,
        "refused",
        f"127.0.0.1:{server.component_port} refuses connections: start the XMPP server, and check "
        "that its component (XEP-0114) listener is enabled on that address and port.",
    )
    server.start()
    line = agent.wait_log("not connected", code="not-authorized")
    assert line["reason"] == refuses_the_handshake(server, server.component_domain)
    agent.wait_log("still not connected", code="not-authorized")
    # The admin changes the server's secret; the service finds out by itself.
    old, server.secret = server.secret, agent.secret
    server.restart()
    agent.connected()
    serves(server)
    assert old not in "\n".join(agent.errors)


@pytest.mark.thorough
def test_the_service_logs_once_that_the_server_does_not_know_its_domain(
    xmpp_server: Server, make_agent: MakeAgent
) -> None:
    domain = "assistants.localhost"
    agent = make_agent(xmpp_server, server__component_domain=domain)
    if xmpp_server.name == "ejabberd":  # answers a bad domain and a bad secret alike
        says_once(agent, "not-authorized", refuses_the_handshake(xmpp_server, domain))
    else:
        says_once(
            agent,
            "host-unknown",
            f"The server at 127.0.0.1:{xmpp_server.component_port} has no component {domain}: add "
            "it to the server's configuration, or correct the component's domain.",
        )


@pytest.mark.thorough
def test_the_service_connects_once_its_domain_is_configured(
    make_prosody: ServerFactory, make_agent: MakeAgent
) -> None:
    server = make_prosody()
    agent = make_agent(server, server__component_domain="assistants.localhost")
    agent.wait_log("not connected", code="host-unknown")
    body = guides.block(server.guide, "component")
    renamed = body.replace(f"agent.{guides.HOST}", f"assistants.{guides.HOST}")
    guide = server.directory / "guide.md"
    guide.write_text(server.guide.read_text().replace(body, renamed))
    server.guide = guide
    server.restart()
    agent.connected()
    serves(server, "assistants.localhost")


@pytest.mark.thorough
def test_two_services_of_one_domain(prosody_server: Server, make_agent: MakeAgent) -> None:
    first = make_agent(prosody_server, "first").connected()
    second = make_agent(prosody_server, "second")
    domain, port = prosody_server.component_domain, prosody_server.component_port
    says_once(
        second,
        "conflict",
        f"Another process is connected to 127.0.0.1:{port} as {domain}: this one waits and takes"
        " over when the other disconnects. If that is not intended, stop the other process, or"
        " use a different domain for this one.",
    )
    serves(prosody_server)
    assert first.stop() == 0
    second.connected()
    serves(prosody_server)
    assert len(first.log("connected")) == 1

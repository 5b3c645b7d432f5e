"""The life of the service process on real servers: what is kept, how it stops, how it dies."""

import signal
from pathlib import Path

import pytest

from tests.servers.base import Server
from tests.servers.clients import SlixClient
from tests.servers.conftest import MakeAgent
from tests.servers.proxy import Proxy
from tests.servers.talk import (
    PING,
    ROSTER,
    application,
    condition,
    error,
    execute,
    from_,
    login,
    output,
)

pytestmark = [pytest.mark.servers]

CAPS = "{http://jabber.org/protocol/caps}c"
# Long enough that none of it can be what ends a test.
FOR_EVER = 3000.0
LONG_LIMITS = {
    "limits__inline_s": FOR_EVER,
    "server__drain_s": FOR_EVER,
    "conformance__enabled": True,
}
SLEEP_FOR_EVER = execute("conformance.sleep", seconds=FOR_EVER)

GATED = '''
from pathlib import Path
import anyio
from component.skills import skill

@skill(read_only=True, open_world=False)
async def gated() -> str:
    """Wait for the file `gate`."""
    while not (Path(__file__).parent / "gate").exists():
        await anyio.sleep(0.02)
    return "passed the gate"
'''


def subscribe(client: SlixClient, address: str) -> None:
    # Who has asked for the roster is told what becomes of subscriptions (RFC 6121 §2.2).
    assert client.iq(None, ROSTER).get("type") == "result"
    client.send_raw(f"<presence to='{address}' type='subscribe'/>")
    client.presences.take(from_(address, "subscribed"))
    assert client.presences.take(from_(address)).find(CAPS) is not None


def test_subscriptions_outlive_the_process(xmpp_server: Server, make_agent: MakeAgent) -> None:
    domain = xmpp_server.component_domain
    assistant = f"assistant@{domain}"
    agent = make_agent(xmpp_server).connected()
    with login(xmpp_server) as juliet, login(xmpp_server, "romeo") as romeo:
        subscribe(juliet, domain)
        subscribe(romeo, assistant)

        assert agent.stop() == 0
        juliet.presences.take(from_(domain, "unavailable"))
        romeo.presences.take(from_(assistant, "unavailable"))

        agent.start().connected()
        assert juliet.presences.take(from_(domain)).find(CAPS) is not None
        romeo.presences.take(from_(assistant))

        # What juliet gave up is given up for good, by a process that then has no time to say more.
        juliet.send_raw(f"<presence to='{domain}' type='unsubscribe'/>")
        juliet.presences.take(from_(domain, "unavailable"))
        # A server that asks for presence at the same time has it twice.
        assert juliet.iq(domain, PING).get("type") == "result"
        before = len(juliet.presences.all())
        agent.kill()
        agent.start().connected()
        romeo.presences.take(from_(assistant))
        # What was announced to juliet, if anything, came before this.
        assert juliet.iq(domain, PING).get("type") == "result"
        since = juliet.presences.all()[before:]
        available = [p.get("from", "") for p in since if p.get("type") is None]
        assert [address for address in available if domain in address] == []
        romeo.send_raw(f"<presence to='{assistant}' type='unsubscribe'/>")
        romeo.presences.take(from_(assistant, "unavailable"))


def test_sigterm_answers_what_is_under_way(
    xmpp_server: Server, make_agent: MakeAgent, tmp_path: Path
) -> None:
    domain = xmpp_server.component_domain
    with (
        Proxy(xmpp_server.address, xmpp_server.component_port) as way,
        login(xmpp_server) as juliet,
    ):
        (tmp_path / "own.py").write_text(GATED)
        modules = [str(tmp_path / "own.py")]
        agent = make_agent(
            xmpp_server, server__port=way.port, skills__modules=modules, **LONG_LIMITS
        ).connected()
        slow = juliet.start_iq(domain, execute("gated"), "set")
        # Stanzas of one sender keep their order: when this is answered, the other has begun.
        assert output(juliet.iq(domain, execute("echo", text="begun"), "set")) == "begun"
        agent.send(signal.SIGTERM)
        agent.wait_log("stopping")
        refused = juliet.iq(domain, execute("echo", text="late"), "set")
        assert condition(refused) == "resource-constraint"
        assert error(refused).get("type") == "wait"
        assert application(refused) is not None
        (tmp_path / "gate").touch()
        assert output(slow.result(120)) == "passed the gate"
        assert agent.wait() == 0
        assert way.passed(to_server=True).endswith(b"</stream:stream>")
        assert way.passed(to_server=False).endswith(b"</stream:stream>")


def test_what_does_not_end_in_time_is_answered_too(
    xmpp_server: Server, make_agent: MakeAgent
) -> None:
    domain = xmpp_server.component_domain
    with login(xmpp_server) as juliet:
        agent = make_agent(xmpp_server, **LONG_LIMITS | {"server__drain_s": 0.5}).connected()
        slow = juliet.start_iq(domain, SLEEP_FOR_EVER, "set")
        juliet.iq(domain, PING)
        agent.send(signal.SIGTERM)
        assert condition(slow.result(120)) == "recipient-unavailable"
        assert agent.wait() == 0
        (line,) = agent.log("cancelled requests that took too long")
        assert line["requests"] == 1


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.thorough)]
)
def test_a_second_signal_ends_it_at_once(
    prosody_server: Server, make_agent: MakeAgent, number: signal.Signals
) -> None:
    agent = make_agent(prosody_server, **LONG_LIMITS).connected()
    with login(prosody_server) as juliet:
        juliet.start_iq(prosody_server.component_domain, SLEEP_FOR_EVER, "set")
        juliet.iq(prosody_server.component_domain, PING)
        agent.send(number)
        agent.wait_log("stopping")
        agent.send(number)
        assert agent.wait() == 1


@pytest.mark.thorough
def test_killed_it_can_be_started_again(xmpp_server: Server, make_agent: MakeAgent) -> None:
    domain = xmpp_server.component_domain
    agent = make_agent(xmpp_server, **LONG_LIMITS).connected()
    with login(xmpp_server) as juliet:
        juliet.start_iq(domain, SLEEP_FOR_EVER, "set")
        juliet.iq(domain, PING)
        agent.kill()
        agent.start().connected()
        assert output(juliet.iq(domain, execute("echo", text="again"), "set")) == "again"


@pytest.mark.thorough
def test_one_process_to_a_data_directory(prosody_server: Server, make_agent: MakeAgent) -> None:
    first = make_agent(prosody_server).connected()
    second = make_agent(prosody_server, "second", storage__path=str(first.directory / "data"))
    assert second.wait() == 1
    (line,) = second.errors
    assert line.startswith("error: The data directory ")
    assert f"is in use by process {first.pid}. Stop that process, or use" in line
    assert first.running

"""What the network and the server do to a running service, and that it serves again after."""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.servers.base import Server
from tests.servers.clients import SlixClient
from tests.servers.conftest import MakeAgent
from tests.servers.fixtures import ServerFactory
from tests.servers.proxy import Proxy
from tests.servers.talk import condition, execute, from_, login, output

pytestmark = [pytest.mark.servers]

ECHO = execute("echo", text="hello")
# What a server says for a component that is away; ejabberd takes it for another server's.
ITS_OWN_ERRORS = {"remote-server-timeout", "forbidden", "service-unavailable"}
CALLERS = 3
LIMIT = 120.0


class Load:
    """Callers who execute without a pause, and log in again whenever their stream is lost."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.came: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._answers = dict.fromkeys(range(CALLERS), 0)
        self._faults: list[BaseException] = []
        self._over = False
        self._up = threading.Event()
        self._up.set()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Call as long as the block lasts; raises what a caller may never see."""
        callers = [threading.Thread(target=self._call_on, args=(n,)) for n in range(CALLERS)]
        for caller in callers:
            caller.start()
        try:
            yield
        finally:
            self._over = True
            self._up.set()
            for caller in callers:
                caller.join(LIMIT)
        assert not any(caller.is_alive() for caller in callers)
        assert self._faults == []

    def every_caller_is_answered(self, times: int = 10) -> None:
        """Wait until every caller has got so many more results."""
        with self._changed:
            wanted = {caller: count + times for caller, count in self._answers.items()}

            def there() -> bool:
                return bool(self._faults) or all(
                    self._answers[caller] >= count for caller, count in wanted.items()
                )

            assert self._changed.wait_for(there, LIMIT), f"no answers; came: {self.came}"
        assert self._faults == []

    @contextmanager
    def without_server(self) -> Iterator[None]:
        """Nobody tries to log in while the server is down."""
        self._up.clear()
        yield
        self._up.set()

    def _call_on(self, number: int) -> None:
        while not self._over:
            try:
                with login(self.server, "juliet" if number % 2 else "romeo") as client:
                    while not self._over:
                        reply = client.iq(self.server.component_domain, ECHO, "set")
                        self._note(number, reply.get("type") == "result" or condition(reply))
            except ConnectionError:
                self._note(number, "connection lost")
                self._up.wait(LIMIT)
            except BaseException as fault:  # noqa: BLE001 - raised by whoever waits
                with self._changed:
                    self._faults.append(fault)
                    self._changed.notify_all()
                return

    def _note(self, number: int, what: bool | str) -> None:
        with self._changed:
            self.came["result" if what is True else str(what)] += 1
            self._answers[number] += what is True
            self._changed.notify_all()


def crash(server: Server) -> None:
    server.kill()
    server.start()


def shut_down(server: Server) -> None:
    server.stop()
    server.start()


def test_the_server_goes_away_under_load(make_server: ServerFactory, make_agent: MakeAgent) -> None:
    server = make_server()
    agent = make_agent(server).connected()
    pid = agent.pid
    load = Load(server)
    with load.running():
        load.every_caller_is_answered()
        for go_away in (crash, shut_down):
            with load.without_server():
                go_away(server)
            agent.connected()
            load.every_caller_is_answered()
    assert agent.running
    assert agent.pid == pid
    assert set(load.came) <= {"result", "connection lost", *ITS_OWN_ERRORS}, load.came
    assert load.came["connection lost"] >= CALLERS
    assert agent.stop() == 0


def test_only_the_connection_of_the_component_is_cut(
    xmpp_server: Server, make_agent: MakeAgent
) -> None:
    """Each caller that was heard is answered, by a result on the next connection.

    Who is subscribed is shown the presence again.
    """
    domain = xmpp_server.component_domain
    with (
        Proxy(xmpp_server.address, xmpp_server.component_port) as way,
        login(xmpp_server) as juliet,
    ):
        agent = make_agent(xmpp_server, server__port=way.port, conformance__enabled=True)
        agent.connected()
        juliet.send_raw(f"<presence to='{domain}' type='subscribe'/>")
        juliet.presences.take(from_(domain))
        slow = juliet.start_iq(domain, execute("conformance.sleep", seconds=2), "set")
        assert output(juliet.iq(domain, ECHO, "set")) == "hello"
        way.cut()
        agent.wait_log("not connected")
        line = agent.wait_log("connected")
        assert line["attempts"] >= 1
        assert line["down_s"] >= 0
        assert output(slow.result(120)) == "slept 2 seconds"
        assert output(juliet.iq(domain, ECHO, "set")) == "hello"
        juliet.presences.take(from_(domain))
        juliet.send_raw(f"<presence to='{domain}' type='unsubscribe'/>")
        juliet.presences.take(from_(domain, "unavailable"))


def answered_at_last(client: SlixClient, domain: str) -> bool:
    """Ask until an answer comes: ejabberd may first ask the connection of which it does not yet
    know that it is dead."""
    for _ in range(20):
        with contextlib.suppress(TimeoutError):
            return output(client.iq(domain, ECHO, "set", timeout=1)) == "hello"
    return False


def test_a_half_open_connection_is_noticed(xmpp_server: Server, make_agent: MakeAgent) -> None:
    domain = xmpp_server.component_domain
    with (
        Proxy(xmpp_server.address, xmpp_server.component_port) as way,
        login(xmpp_server) as juliet,
    ):
        agent = make_agent(
            xmpp_server,
            server__port=way.port,
            server__read_timeout_s=1,
            server__probe_timeout_s=4,
            server__keepalive_s=0.5,
        )
        agent.connected()
        # Silence alone is no reason: the probe comes back.
        way.wait_for("id=.probe-", to_server=True)
        way.wait_for("id=.probe-", to_server=False)
        assert output(juliet.iq(domain, ECHO, "set")) == "hello"
        assert agent.log("not connected") == []

        way.freeze()
        line = agent.wait_log("not connected", code="silent")
        assert line["reason"] == (
            f"Nothing came from 127.0.0.1:{way.port} for 1 s, nor within 4 s after a probe: "
            "the connection is closed and opened again."
        )
        if xmpp_server.name == "prosody":
            # The server has not noticed yet, and knows only one; ejabberd would take a second.
            agent.wait_log("not connected", code="conflict")
        way.cut_frozen()
        agent.connected()
        assert answered_at_last(juliet, domain)

"""Several services on one PostgreSQL and one domain of ejabberd, which balances the stanzas."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.servers import guides
from tests.servers.agent_process import AgentProcess
from tests.servers.base import Server
from tests.servers.command_line import doctor
from tests.servers.crowd import Crowd
from tests.servers.fixtures import OTHER, PAIR, ServerFactory
from tests.waiting import until

pytestmark = [pytest.mark.servers]

WHERE = '''
"""Tells which instance executes it."""

from pathlib import Path

from xmpp_agent import skill


@skill(read_only=True, inline=True)
def where() -> str:
    """Where am I?"""
    return Path.cwd().name
'''
GUIDE = tomllib.loads(guides.block(guides.DOCS / "how-to" / "ejabberd.md", "component-number"))[
    "server"
]["component_number"]
FOR_EVER = 3000.0
ASKED = 6


@contextmanager
def instances(
    server: Server, directory: Path, postgres: str, crowd: Crowd, count: int
) -> Iterator[Sequence[AgentProcess]]:
    """So many services, not started yet. Each asks six accounts of the crowd when it starts."""
    watches = [
        {
            "name": f"watch{number}",
            "service": name,
            "node": "urn:xmpp:microblog:0",
            "principal": name,
            "skill": "where",
        }
        for number, name in enumerate(crowd.names(ASKED))
    ]
    with ExitStack() as stack:
        found = []
        for name in ("first", "second", "third")[:count]:
            agent = AgentProcess(
                server,
                directory / name,
                storage__postgres=postgres,
                server__component_number=count,
                agent__allowed_domains=[server.host, crowd.domain],
                skills__modules=["./where.py"],
                limits__iq_timeout_s=FOR_EVER,  # an answer that is lost is missed
                watch=watches,
            )
            agent.directory.mkdir()
            (agent.directory / "where.py").write_text(WHERE)
            stack.callback(agent.close)
            found.append(agent)
        yield found


def opened(agent: AgentProcess, count: int) -> None:
    """Wait until an instance has opened so many connections besides its first one."""
    for _ in range(count):
        agent.wait_log("connected", use="receiving")


def places(crowd: Crowd, names: Sequence[str], agent: str) -> Mapping[str, str]:
    """Return which instance serves each account."""
    return {name: crowd.ask(name, agent, "where") for name in names}


def refused(agent: AgentProcess) -> None:
    """Wait until an instance has got the answer of each account that it asks."""
    for _ in range(ASKED):
        agent.wait_log("a service refuses to be watched")


def greeted(crowd: Crowd, names: Sequence[str], agent: str) -> None:
    """All accounts write, and get an answer each."""
    for name in names:
        crowd.send_raw(
            f"<message from='{name}/desk' to='{agent}' type='chat'><body>/help</body></message>"
        )
    for name in names:
        crowd.messages.take(
            lambda message, name=name: (
                message.get("to", "").startswith(name)
                and message.find("{jabber:component:accept}body") is not None
            )
        )


def name_of(agent: AgentProcess) -> str:
    return agent.directory.name


def test_messages_for_an_instance_that_was_killed_arrive_at_another_one(
    ejabberd_server: Server, tmp_path: Path, postgres_url: str
) -> None:
    server = ejabberd_server.on(PAIR)
    assistant = f"assistant@{server.component_domain}"
    with (
        Crowd(ejabberd_server.on(OTHER)) as crowd,
        instances(server, tmp_path, postgres_url, crowd, GUIDE) as (first, second),
    ):
        names = crowd.names(12)
        opened(first.start(), GUIDE - 1)
        refused(first)
        second.start().connected()
        refused(second)
        before = places(crowd, names, assistant)
        assert {*before.values()} == {"first", "second"}
        for gone, other in ((second, first), (first, second)):
            gone.kill()
            opened(other, 1)
            greeted(crowd, names, assistant)
            assert {*places(crowd, names, assistant).values()} == {name_of(other)}

            gone.start().connected()
            refused(gone)
            greeted(crowd, names, assistant)
            assert places(crowd, names, assistant) == before


@pytest.mark.thorough
def test_one_of_three_instances_serves_all_accounts_until_another_one_is_back(
    make_ejabberd: ServerFactory, tmp_path: Path, postgres_url: str
) -> None:
    guide = tmp_path / "ejabberd.md"
    text = (guides.DOCS / "how-to" / "ejabberd.md").read_text()
    guide.write_text(text.replace("component_number: 2", "component_number: 3"))
    server = make_ejabberd(second="crowd.test", additions=[(str(guide), "balancing")])
    assistant = f"assistant@{server.component_domain}"
    with (
        Crowd(server, second=True) as crowd,
        instances(server, tmp_path, postgres_url, crowd, 3) as (first, second, third),
    ):
        names = crowd.names(12)
        opened(first.start(), 2)
        refused(first)
        for agent in (second, third):
            agent.start().connected()
            refused(agent)
        everywhere = places(crowd, names, assistant)
        assert {*everywhere.values()} == {"first", "second", "third"}

        third.kill()
        second.kill()
        opened(first, 2)
        greeted(crowd, names, assistant)
        assert {*places(crowd, names, assistant).values()} == {"first"}

        second.start().connected()
        refused(second)
        greeted(crowd, names, assistant)
        assert {*places(crowd, names, assistant).values()} == {"first", "second"}

        third.start().connected()
        refused(third)
        greeted(crowd, names, assistant)
        assert {*places(crowd, names, assistant).values()} == {"first", "second", "third"}

        # A further program gets nothing, and takes nothing.
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "agent.toml").write_text(server.agent_toml())
        settings = {"server__component_number": 3, "server__probe_timeout_s": 0.5}
        _, found = doctor(elsewhere, server.secret, **settings)
        assert found["connection"][0] == "warning"
        assert "the running instances have all 3 connections" in found["connection"][1]
        greeted(crowd, names, assistant)

        # Those that stop give their connections to the others at once.
        assert second.stop() == 0
        assert third.stop() == 0
        opened(first, 2)
        greeted(crowd, names, assistant)


def test_doctor_checks_service_discovery_on_all_connections(
    ejabberd_server: Server, tmp_path: Path
) -> None:
    server = ejabberd_server.on(PAIR)
    (tmp_path / "agent.toml").write_text(server.agent_toml())
    for _ in range(3):  # ejabberd chooses the connections for each of them anew
        code, found = doctor(tmp_path, server.secret, server__component_number=GUIDE)
        verdicts = {name: verdict for name, (verdict, _) in found.items()}
        assert (code, verdicts["probe"], verdicts["service discovery"]) == (0, "ok", "ok"), found
        assert verdicts["memory homes"] == "ok"


@pytest.mark.thorough
def test_doctor_says_that_other_instances_have_connections(
    ejabberd_server: Server, tmp_path: Path
) -> None:
    server = ejabberd_server.on(PAIR)
    (tmp_path / "agent.toml").write_text(server.agent_toml())
    with Crowd(server):  # it takes one of two places, and answers nothing
        _, found = doctor(
            tmp_path, server.secret, server__component_number=2, server__probe_timeout_s=0.5
        )
    verdict, text = found["service discovery"]
    assert verdict == "ok" or (verdict == "warning" and "stop them to check" in text), found


@pytest.mark.thorough
def test_a_connection_to_which_ejabberd_sends_nothing_is_opened_again(
    ejabberd_server: Server, tmp_path: Path, postgres_url: str
) -> None:
    server = ejabberd_server.on(PAIR)
    assistant = f"assistant@{server.component_domain}"
    with (
        Crowd(ejabberd_server.on(OTHER)) as crowd,
        instances(server, tmp_path, postgres_url, crowd, 2) as (first, _),
    ):
        with Crowd(server):  # it takes one of two places, as a lost machine would keep it
            first.set(server__probe_timeout_s=0.5)
            first.start().wait_log("not connected", code="silent")
        names = crowd.names(12)

        def is_served(name: str) -> bool:
            try:
                return crowd.ask(name, assistant, "where", timeout=1) == "first"
            except TimeoutError:
                return False

        until(lambda: all(map(is_served, names)))

"""Several services on one PostgreSQL and one domain of ejabberd, which balances the stanzas."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.servers.agent_process import AgentProcess
from tests.servers.base import Server
from tests.servers.crowd import Crowd
from tests.servers.fixtures import OTHER, PAIR

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
FOR_EVER = 3000.0
OPENS = "opens one more connection, which only receives"
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
            "node": "news",
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


def places(crowd: Crowd, names: Sequence[str], agent: str) -> Mapping[str, str]:
    """Return which instance serves each account."""
    return {name: crowd.ask(name, agent, "where") for name in names}


def refused(agent: AgentProcess) -> None:
    """Wait until an instance has got the answer of each account that it asks."""
    for _ in range(ASKED):
        agent.wait_log("source changed", state="refused")


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


def test_messages_for_an_instance_that_was_killed_arrive_at_another_one(
    ejabberd_server: Server, tmp_path: Path, postgres_url: str
) -> None:
    server = ejabberd_server.on(PAIR)
    assistant = f"assistant@{server.component_domain}"
    with (
        Crowd(ejabberd_server.on(OTHER)) as crowd,
        instances(server, tmp_path, postgres_url, crowd, 2) as (first, second),
    ):
        names = crowd.names(12)
        first.start().wait_log(OPENS)
        refused(first)
        second.start().connected()
        refused(second)
        before = places(crowd, names, assistant)
        assert {*before.values()} == {"first", "second"}
        for gone, other in ((second, first), (first, second)):
            gone.kill()
            other.wait_log(OPENS)
            other.connected()
            greeted(crowd, names, assistant)
            assert {*places(crowd, names, assistant).values()} == {other.directory.name}

            gone.start().connected()
            refused(gone)
            greeted(crowd, names, assistant)
            assert places(crowd, names, assistant) == before

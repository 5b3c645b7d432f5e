"""Durable work in a process of its own: messages that are sent again, and the memory it takes."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.servers import crashing
from tests.servers.agent_process import AgentProcess
from tests.servers.crashing import ask
from tests.servers.dealer import HOME, Dealer
from tests.servers.talk import EXECUTE, execute

pytestmark = [pytest.mark.servers]

ANN = f"ann@{HOME}/desk"
MOST_MB = 110


@pytest.fixture
def server() -> Iterator[Dealer]:
    with Dealer() as server:
        yield server


def resident_mb(agent: AgentProcess) -> float:
    status = Path(f"/proc/{agent.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


def test_what_was_not_told_is_told_by_the_next_start(server: Dealer, tmp_path: Path) -> None:
    with crashing.agent(server, tmp_path / "agent") as agent:
        link = server.link(0)
        task = ask(server, link, ANN, "crash.steps", "told", count=1, pause_ms=0)
        server.ended(task)
        assert agent.stop() == 0
        with closing(sqlite3.connect(agent.directory / "data" / "agent.db")) as other, other:
            # As if it had been killed between the commit and the message.
            other.execute("UPDATE tasks SET unsent_revision = revision WHERE id = ?", (task,))
        server.finals.clear()
        agent.start()
        server.link(1)
        assert server.ended(task).get("state") == "completed"


@pytest.mark.thorough
@pytest.mark.parametrize("backend", ["trio", "asyncio"])
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_service_stays_below_its_memory_limit(
    request: pytest.FixtureRequest, server: Dealer, tmp_path: Path, kind: str, backend: str
) -> None:
    url = request.getfixturevalue("postgres_url") if kind == "postgresql" else None
    with crashing.agent(
        server, tmp_path / "agent", postgres=url, backend=backend, program=True
    ) as agent:
        link = server.link(0)
        replies = [
            server.start_iq(
                link,
                f"u{number}@{HOME}/desk",
                execute(
                    "crash.steps",
                    attributes="mode='async'",
                    label=f"l{number}",
                    count=2,
                    pause_ms=0,
                ),
                "set",
            )
            for number in range(50)
        ]
        for reply in replies:
            accepted = reply.result(120).find(f"{{{EXECUTE}}}accepted")
            assert accepted is not None
            assert server.ended(accepted.get("task", "")).get("state") == "completed"
        megabytes = resident_mb(agent)
        print(f"{kind}, {backend}: {megabytes:.0f} MB")
        assert megabytes < MOST_MB

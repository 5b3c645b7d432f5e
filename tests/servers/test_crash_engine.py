"""The engine comes when there is work for it, and nobody's handshake waits for that."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.servers import crashing
from tests.servers.agent_process import AgentProcess
from tests.servers.crash_skills import GATE, lines
from tests.servers.crashing import ask
from tests.servers.dealer import HOME, Dealer, Link
from tests.servers.talk import EXECUTE, execute, output

pytestmark = [pytest.mark.servers]

ANN = f"ann@{HOME}/desk"
ENGINE = ("component.tasks.engine", "component.tasks.run")
TASKS = f"<tasks xmlns='{crashing.TASK}'/>"
MOST_MB = 110


@pytest.fixture
def server() -> Iterator[Dealer]:
    with Dealer() as server:
        yield server


def loaded(server: Dealer, link: Link, *modules: str) -> set[bool]:
    """Whether the service has imported them: a skill of its own looks."""
    asked = [execute("crash.loaded", module=module) for module in modules]
    return {output(server.iq(link, ANN, one, "set")) == "true" for one in asked}


def resident_mb(agent: AgentProcess) -> float:
    status = Path(f"/proc/{agent.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_it_is_imported_with_the_first_durable_work(
    server: Dealer, tmp_path: Path, backend: str
) -> None:
    with crashing.agent(server, tmp_path / "agent", backend=backend) as agent:
        link = server.link(0)
        # What is answered at once, and what is asked about work that is not there.
        assert output(server.iq(link, ANN, execute("echo", text="hello"), "set")) == "hello"
        assert server.iq(link, ANN, TASKS).get("type") == "result"
        assert loaded(server, link, *ENGINE) == {False}
        task = ask(server, link, ANN, "crash.steps", "first", count=1, pause_ms=0)
        assert server.ended(task).get("state") == "completed"
        assert loaded(server, link, *ENGINE) == {True}
        # All of it has ended and been told: the next start has nothing to load it for.
        assert agent.stop() == 0
        agent.start()
        assert loaded(server, server.link(1), *ENGINE) == {False}


def test_the_handshake_does_not_wait_for_it(server: Dealer, tmp_path: Path) -> None:
    with crashing.agent(server, tmp_path / "agent") as agent:
        link = server.link(0)
        task = ask(server, link, ANN, "crash.gate", "left", may_repeat="true")
        server.poll(lambda: any(line[1] == "gate" for line in lines(agent.directory)), "the gate")
        agent.kill()
        (agent.directory / GATE).touch()
        database = agent.directory / "data" / "agent.db"
        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            # It can read that there is work, and can claim none of it.
            other.execute("BEGIN IMMEDIATE")
            agent.start()
            link = server.link(1)
            assert output(server.iq(link, ANN, execute("echo", text="hello"), "set")) == "hello"
            assert task not in server.finals
            other.execute("ROLLBACK")
        assert server.ended(task).get("state") == "completed"
        assert loaded(server, link, *ENGINE) == {True}


def test_what_was_not_told_is_told_though_the_stream_was_there_first(
    server: Dealer, tmp_path: Path
) -> None:
    with crashing.agent(server, tmp_path / "agent") as agent:
        link = server.link(0)
        task = ask(server, link, ANN, "crash.steps", "told", count=1, pause_ms=0)
        server.ended(task)
        assert agent.stop() == 0
        with closing(sqlite3.connect(agent.directory / "data" / "agent.db")) as other, other:
            # As if it had been killed between the commit and the message.
            other.execute("UPDATE tasks SET untold = revision WHERE id = ?", (task,))
        server.finals.clear()
        with closing(sqlite3.connect(agent.directory / "data" / "agent.db")) as other:
            other.execute("BEGIN IMMEDIATE")
            agent.start()
            link = server.link(1)
            # Each reads the database, in turn with what is done on connecting: that is over then.
            for _ in range(10):
                assert server.iq(link, ANN, TASKS).get("type") == "result"
            other.rollback()
        assert server.ended(task).get("state") == "completed"


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_it_is_small(
    request: pytest.FixtureRequest, server: Dealer, tmp_path: Path, kind: str, backend: str
) -> None:
    url = request.getfixturevalue("postgres_url") if kind == "postgresql" else None
    with crashing.agent(server, tmp_path / "agent", postgres=url, backend=backend) as agent:
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
            accepted = reply.result(20).find(f"{{{EXECUTE}}}accepted")
            assert accepted is not None
            assert server.ended(accepted.get("task", "")).get("state") == "completed"
        assert loaded(server, link, *ENGINE) == {True}
        megabytes = resident_mb(agent)
        print(f"{kind}, {backend}: {megabytes:.0f} MB")
        assert megabytes < MOST_MB

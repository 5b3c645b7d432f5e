"""Ends of tasks that wait for a server that does not read, when the stream or the process ends."""

import re
import socket
import urllib.request
from pathlib import Path

import pytest

from tests.servers.base import Server
from tests.servers.dam import Dam
from tests.servers.talk import execute, from_, login
from tests.servers.tasking import Desk, begin, completed, event, open_desk
from tests.waiting import eventually

pytestmark = [pytest.mark.servers, pytest.mark.anyio]

RUNS = 5
ANSWERS = 80
ANSWER_BYTES = 200_000
"""Together more than the kernel takes of a connection that is not read."""
SLACK = 2_000_000
BULK = f"""
from component.skills import skill


@skill(name="bulk", description="Say much.", inline=True, read_only=True)
def bulk() -> str:
    return "x" * {ANSWER_BYTES}
"""
ANSWERED = 'iq_answered_total{outcome="result"}'
COMPLETED = 'tasks{state="completed"}'


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The service is a process of its own: the loop of the test does not matter."""
    return "asyncio"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def figure(port: int, name: str) -> float:
    """One of the service's metrics; 0 if it is not there yet."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=120) as answer:
        found = re.search(rf"^\w*{re.escape(name)} (\S+)$", answer.read().decode(), re.MULTILINE)
    return 0.0 if found is None else float(found.group(1))


@pytest.mark.parametrize("ends", ["process", pytest.param("stream", marks=pytest.mark.thorough)])
async def test_the_end_of_a_task_arrives_once(
    prosody_server: Server, tmp_path: Path, ends: str
) -> None:
    server, port = prosody_server, free_port()
    (tmp_path / "desk").mkdir()
    (tmp_path / "desk" / "bulk.py").write_text(BULK)
    with (
        Dam(server.address, server.component_port) as way,
        login(server) as juliet,
        open_desk(
            server,
            tmp_path / "desk",
            server__port=way.port,
            skills__modules=["./own.py", "./bulk.py"],
            metrics__listen=f"127.0.0.1:{port}",
            limits__output_bytes=4 * ANSWERS * ANSWER_BYTES,
        ) as agent,
    ):
        agent.connected()
        desk = Desk(server, agent)
        tasks = [
            begin(juliet, desk.assistant, "slow", "mode='async'", run=f"r{n}") for n in range(RUNS)
        ]
        way.hold()
        before = figure(port, ANSWERED)
        for _ in range(ANSWERS):
            juliet.start_iq(desk.assistant, execute("bulk"), "set")
        await eventually(lambda: figure(port, ANSWERED) >= before + ANSWERS)
        assert figure(port, "outbox_bytes") > SLACK
        for number in range(RUNS):
            desk.open_gate(f"r{number}")
        await eventually(lambda: figure(port, COMPLETED) >= RUNS)
        if ends == "process":
            agent.kill()
            way.cut()
            agent.start()
        else:
            way.cut()
        agent.connected()
        for number, task in enumerate(tasks):
            assert completed(juliet, task) == f"r{number} is done"
        # What was sent again would have been sent before this is answered.
        juliet.iq(desk.assistant, execute("echo", text="last"), "set")
        again = [
            message
            for message in juliet.messages.all()
            if from_(desk.assistant)(message)
            and any(event(task, "completed")(message) for task in tasks)
        ]
        assert again == []

"""`skills list` and `skills call` with the skills of HTTP requests and MCP servers."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from component.cli.frame import ExitCode
from tests.component.cli.conftest import RunCommand
from tests.component.cli.embedded import Embedded
from tests.component.features.mcp.serving import SCRIPTED
from tests.component.sandbox.unreported import no_confinement_report
from tests.servers.agent_process import AgentProcess

__all__ = ["no_confinement_report"]
pytestmark = pytest.mark.ports


class _Weather(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(b"sunny")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def weather() -> Iterator[str]:
    """The settings of a skill that is an HTTP request, with its server."""
    with HTTPServer(("127.0.0.1", 0), _Weather) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"""
[rest.weather]
description = "Tell the weather."
url = "http://127.0.0.1:{server.server_port}/weather"
"""
        server.shutdown()
        thread.join()


def test_a_request_is_listed_and_called_whether_or_not_the_service_runs(
    command: RunCommand, embedded: Embedded, tmp_path: Path, weather: str
) -> None:
    toml = embedded.agent_toml() + weather

    def check() -> None:
        (found,) = json.loads(command("skills", "list", "--json", "weather").stdout)
        assert (found["name"], found["state"]) == ("weather", "offered")
        assert command("skills", "call", "weather").stdout == "sunny\n"

    Path("agent.toml").write_text(toml)
    check()
    with AgentProcess(embedded, tmp_path, toml=toml) as service:
        service.connected()
        check()


def test_a_source_that_does_not_work_is_named_with_the_reason(command: RunCommand) -> None:
    with Path("agent.toml").open("a") as file:
        file.write('[mcp.clock]\ncommand = ["/nonexistent"]\n')
    listed = command("skills", "list")
    assert listed.exit_code == ExitCode.OK
    assert "echo" in listed.stdout
    assert "The skills of mcp.clock are missing, because" in listed.stderr
    called = command("skills", "call", "clock.time")
    assert called.exit_code == ExitCode.FAILURE
    assert "error: There is no skill called 'clock.time' in agent.toml." in called.stderr
    assert "mcp.clock" in called.stderr


def test_the_tools_of_an_mcp_server_are_listed_and_called(command: RunCommand) -> None:
    with Path("agent.toml").open("a") as file:
        words = json.dumps(["/usr/bin/python3", "-S", str(SCRIPTED)])
        readable = json.dumps([str(SCRIPTED)])
        file.write(f"[mcp.clock]\ncommand = {words}\nreadable = {readable}\n")
    listed = command("skills", "list", "--json", "clock")
    found = {one["name"]: one for one in json.loads(listed.stdout)}
    assert found["clock.echo"]["inputSchema"]["properties"] == {"text": {"type": "string"}}
    assert command("skills", "call", "clock.echo", "text=hello").stdout == "hello\n"

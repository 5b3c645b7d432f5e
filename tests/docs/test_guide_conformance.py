"""The guide of the conformance kit: its commands run where only its installation is."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.packaging.releases import copy_sources
from tests.servers.agent_process import AgentProcess
from tests.servers.base import Server
from tests.servers.guides import DOCS, block, fill

pytestmark = [pytest.mark.servers]

GUIDE = DOCS / "how-to" / "conformance.md"
WHEELS = Path(sys.prefix) / "wheelhouse"
LIMIT_S = 300.0
Shell = Callable[..., str]
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_NO_COMPILE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Run a command line of the guide in a new virtual environment; return what it prints."""
    assert WHEELS.exists(), f"{WHEELS} is missing: run tests/tools/wheelhouse.sh"
    environment = tmp_path_factory.mktemp("clean")
    subprocess.run([sys.executable, "-m", "venv", environment], check=True, timeout=LIMIT_S)
    checkout = copy_sources(tmp_path_factory.mktemp("checkout") / "sources")

    def run(line: str, directory: Path = environment, **variables: str) -> str:
        done = subprocess.run(
            line,
            shell=True,
            cwd=directory,
            env={
                "PATH": f"{environment}/bin:/usr/bin:/bin",
                "HOME": str(environment),
                **OFFLINE,
                "PIP_FIND_LINKS": str(WHEELS),
                **variables,
            },
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(block(GUIDE, "install"), checkout)
    return run


@pytest.fixture
def server(xmpp_server: Server, tmp_path: Path) -> Iterator[Server]:
    """A server with an agent."""
    with AgentProcess(xmpp_server, tmp_path, conformance__enabled=True) as agent:
        agent.connected()
        yield xmpp_server


def test_the_command_tests_an_agent(shell: Shell, server: Server) -> None:
    line = fill(
        block(GUIDE, "client").strip(),
        {
            "agent.example.net": server.component_domain,
            "juliet@example.net": server.jid("juliet"),
        },
    )
    where = f"--host {server.address} --port {server.c2s_port} --ca-file {server.ca_file}"
    printed = shell(f"{line} {where} EXE-003", PASSWORD=server.accounts["juliet"])
    assert "through slixmpp" in printed


def test_the_command_tests_the_agent_of_this_project(shell: Shell) -> None:
    assert "through slixmpp" in shell(f"{block(GUIDE, 'self-test').strip()} EXE-003")

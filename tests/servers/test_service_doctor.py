"""`xmpp-agent doctor` on real servers, with the agent.toml of their guides."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.servers.agent_process import PROGRAM, environment
from tests.servers.base import Server
from tests.servers.conftest import MakeAgent
from tests.servers.talk import execute, login, output

pytestmark = [pytest.mark.servers]


def doctor(server: Server, directory: Path, **settings: object) -> tuple[int, dict[str, str]]:
    """Its exit code, and the verdict of each check by its name."""
    directory.mkdir(exist_ok=True)
    (directory / "agent.toml").write_text(server.agent_toml())
    done = subprocess.run(
        [PROGRAM, "doctor", "--json", "--config", "agent.toml"],
        cwd=directory,
        env={**environment(**settings), "AGENT_SECRET": server.secret},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert server.secret not in done.stdout + done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, {check["name"]: check["verdict"] for check in found}


def test_all_is_well_then_the_service_runs(
    xmpp_server: Server, make_agent: MakeAgent, tmp_path: Path
) -> None:
    all_is_well = dict.fromkeys(
        (
            *("configuration", "policy", "skills", "model", "storage", "memory"),
            *("connection", "probe", "service discovery"),
        ),
        "ok",
    )
    assert doctor(xmpp_server, tmp_path / "agent") == (0, all_is_well)
    # The very directory that has been looked at.
    agent = make_agent(xmpp_server).connected()
    first = ("configuration", "policy", "skills", "model", "storage", "memory")
    assert doctor(xmpp_server, tmp_path / "agent") == (
        0,
        dict.fromkeys(first, "ok") | {"storage": "warning"},
    )
    with login(xmpp_server) as juliet:
        echo = execute("echo", text="still here")
        assert output(juliet.iq(xmpp_server.component_domain, echo, "set")) == "still here"
    assert len(agent.log("connected")) == 1
    if xmpp_server.name == "prosody":
        code, found = doctor(xmpp_server, tmp_path / "elsewhere")
        assert (code, found["connection"]) == (0, "warning")


def test_a_domain_that_the_server_does_not_know(xmpp_server: Server, tmp_path: Path) -> None:
    code, found = doctor(xmpp_server, tmp_path, server__component_domain="nosuch.localhost")
    assert (code, found["connection"]) == (1, "failed")
    assert "probe" not in found

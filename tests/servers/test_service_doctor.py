"""`xmpp-agent doctor` on real servers, with the agent.toml of their guides."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.servers.agent_process import PROGRAM, environment
from tests.servers.base import Server
from tests.servers.conftest import MakeAgent
from tests.servers.fixtures import ServerFactory
from tests.servers.talk import execute, login, output

pytestmark = [pytest.mark.servers]


def doctor(server: Server, directory: Path, **settings: object) -> tuple[int, dict[str, str]]:
    """Its exit code, and the verdict of each check by its name."""
    code, found = run(server, directory, **settings)
    return code, {name: verdict for name, (verdict, _) in found.items()}


def checked(server: Server, directory: Path, **settings: object) -> dict[str, tuple[str, str]]:
    """The verdict and the text of each check by its name."""
    return run(server, directory, **settings)[1]


def run(
    server: Server, directory: Path, **settings: object
) -> tuple[int, dict[str, tuple[str, str]]]:
    """Its exit code, and the verdict and the text of each check by its name."""
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
    checks = {check["name"]: (check["verdict"], check["text"]) for check in found}
    del checks["confinement"]  # as the kernel permits
    return done.returncode, checks


def test_all_is_well_then_the_service_runs(
    xmpp_server: Server, make_agent: MakeAgent, tmp_path: Path
) -> None:
    all_is_well = dict.fromkeys(
        (
            *("configuration", "policy", "skills", "model", "storage", "memory"),
            *("connection", "probe", "service discovery", "memory homes"),
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


def test_which_homes_of_memories_are_possible(
    prosody_server: Server,
    ejabberd_server: Server,
    make_prosody: ServerFactory,
    tmp_path: Path,
) -> None:
    def homes(server: Server, name: str, **settings: object) -> tuple[str, str]:
        return checked(server, tmp_path / name, **settings)["memory homes"]

    verdict, text = homes(ejabberd_server, "ejabberd", memory__home="person")
    assert verdict == "warning"
    assert "has no IQ privileges" in text
    assert homes(ejabberd_server, "ours")[0] == "ok"
    verdict, text = homes(prosody_server, "prosody", memory__home="person")
    assert (verdict, "mod_privilege of Prosody" in text) == ("ok", True)
    granting = make_prosody(additions=[("memory.md", "privilege")])
    verdict, text = homes(granting, "granting", memory__home="person")
    assert (verdict, "lets the agent act on behalf" in text) == ("ok", True)


def test_a_domain_that_the_server_does_not_know(xmpp_server: Server, tmp_path: Path) -> None:
    code, found = doctor(xmpp_server, tmp_path, server__component_domain="nosuch.localhost")
    assert (code, found["connection"]) == (1, "failed")
    assert "probe" not in found

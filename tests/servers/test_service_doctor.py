"""`xmpp-agent doctor` on real servers, with the agent.toml of their guides."""

from pathlib import Path

import pytest

from tests.servers import command_line
from tests.servers.base import Server
from tests.servers.conftest import MakeAgent
from tests.servers.fixtures import GRANTED
from tests.servers.talk import execute, login, output

pytestmark = [pytest.mark.servers]


def run(
    server: Server, directory: Path, **settings: object
) -> tuple[int, dict[str, tuple[str, str]]]:
    """Its exit code, and the verdict and the text of each check by its name."""
    directory.mkdir(exist_ok=True)
    (directory / "agent.toml").write_text(server.agent_toml())
    return command_line.doctor(directory, server.secret, **settings)


def doctor(server: Server, directory: Path, **settings: object) -> tuple[int, dict[str, str]]:
    """Its exit code, and the verdict of each check by its name."""
    code, found = run(server, directory, **settings)
    return code, {name: verdict for name, (verdict, _) in found.items()}


def test_doctor_reports_ok_before_and_while_the_service_runs(
    xmpp_server: Server, make_agent: MakeAgent, tmp_path: Path
) -> None:
    all_is_well = dict.fromkeys(
        (
            *("configuration", "policy", "skills", "model", "storage", "memory"),
            *("connection", "probe", "service discovery", "memory homes", "files"),
        ),
        "ok",
    )
    assert doctor(xmpp_server, tmp_path / "agent") == (0, all_is_well)
    # The very directory that has been looked at.
    agent = make_agent(xmpp_server).connected()
    first = ("configuration", "policy", "skills", "model", "storage", "service", "memory", "files")
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
    prosody_server: Server, ejabberd_server: Server, tmp_path: Path
) -> None:
    def homes(server: Server, name: str, **settings: object) -> tuple[str, str]:
        return run(server, tmp_path / name, **settings)[1]["memory homes"]

    verdict, text = homes(ejabberd_server, "ejabberd", memory__home="person")
    assert verdict == "warning"
    assert "has no IQ privileges" in text
    assert homes(ejabberd_server, "ours")[0] == "ok"
    verdict, text = homes(prosody_server, "prosody", memory__home="person")
    assert (verdict, "mod_privilege of Prosody" in text) == ("ok", True)
    verdict, text = homes(prosody_server.on(GRANTED), "granting", memory__home="person")
    assert (verdict, "lets the agent act on behalf" in text) == ("ok", True)

"""What keeps an agent from its account is said in a sentence, by `doctor` and in the log."""

import json
import subprocess
from pathlib import Path

import pytest
import trustme

from tests.servers.agent_process import PROGRAM, AgentProcess, environment
from tests.servers.base import Server
from tests.servers.client_account import ACCOUNT, HOST, PASSWORD, at, client_toml, server

__all__ = ["server"]  # pytest finds fixtures by their names in here

pytestmark = [pytest.mark.servers]


def doctor(directory: Path, **settings: object) -> dict[str, tuple[str, str]]:
    """The verdict and the text of each check by its name."""
    (directory / "agent.toml").write_text(client_toml(directory))
    done = subprocess.run(
        [PROGRAM, "doctor", "--json", "--config", "agent.toml"],
        cwd=directory,
        env=environment(**settings),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert PASSWORD not in done.stdout + done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {check["name"]: (check["verdict"], check["text"]) for check in found}


def test_all_is_well(server: Server, tmp_path: Path) -> None:
    found = doctor(tmp_path, **at(server))
    homes, _ = found.pop("memory homes")
    del found["confinement"]  # as the kernel permits
    assert homes == ("ok" if server.name == "prosody" else "warning")
    assert {name: verdict for name, (verdict, _) in found.items()} == dict.fromkeys(
        (
            *("configuration", "policy", "skills", "model", "storage", "memory"),
            *("connection", "probe", "service discovery"),
        ),
        "ok",
    )
    assert f"over TLSv1.3 accepted {ACCOUNT}" in found["connection"][1]


def refusal(server: Server, directory: Path, **changes: object) -> str:
    verdict, text = doctor(directory, **(at(server) | changes))["connection"]
    assert verdict == "failed"
    return text


def test_a_wrong_password(server: Server, tmp_path: Path) -> None:
    text = refusal(server, tmp_path, server__password="guessed")
    assert f"refused the login of {ACCOUNT}" in text
    assert "its password differs from server.password" in text


def test_an_account_that_is_not_there(server: Server, tmp_path: Path) -> None:
    text = refusal(server, tmp_path, server__jid=f"nobody@{HOST}")
    assert "there is no such account" in text


def test_a_certificate_that_nobody_known_has_signed(server: Server, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    text = refusal(server, tmp_path, server__tls_ca=str(other))
    assert "is not accepted" in text
    assert "set the CA file to the authority that signed it" in text


def test_a_certificate_of_another_name(server: Server, tmp_path: Path) -> None:
    text = refusal(server, tmp_path, server__tls_server_name="other.example")
    assert "issued for 'other.example'" in text


def test_the_port_of_components(server: Server, tmp_path: Path) -> None:
    text = refusal(server, tmp_path, server__port=server.component_port)
    assert "client listener" in text


def test_a_domain_that_the_server_does_not_serve(server: Server, tmp_path: Path) -> None:
    text = refusal(server, tmp_path, server__jid="helper@other.example")
    assert "does not serve the domain of helper@other.example" in text


def test_a_second_process_with_the_same_resource(server: Server, tmp_path: Path) -> None:
    settings = at(server) | {"server__reconnect_min_s": 5, "server__reconnect_max_s": 5}
    directories = (tmp_path / "one", tmp_path / "two")
    one, two = (
        AgentProcess(server, each, toml=client_toml(each), **settings) for each in directories
    )
    with one:
        one.connected()
        with two:
            two.connected()
            line = one.wait_log("not connected", code="conflict")
            assert "give each a resource of its own" in line["reason"]

"""What keeps an agent from its account is said in a sentence, by `doctor` and in the log."""

from pathlib import Path

import pytest
import trustme

from tests.servers import command_line
from tests.servers.agent_process import AgentProcess
from tests.servers.base import Server
from tests.servers.client_account import ACCOUNT, HOST, PASSWORD, at, client_toml, server

__all__ = ["server"]  # pytest finds fixtures by their names in here

pytestmark = [pytest.mark.servers]


def doctor(directory: Path, **settings: object) -> dict[str, tuple[str, str]]:
    """The verdict and the text of each check by its name."""
    (directory / "agent.toml").write_text(client_toml(directory))
    return command_line.doctor(directory, PASSWORD, **settings)[1]


def test_the_connection_is_checked_with_the_account(server: Server, tmp_path: Path) -> None:
    found = doctor(tmp_path, **at(server))
    homes, _ = found.pop("memory homes")
    assert homes == ("ok" if server.name == "prosody" else "warning")
    assert {name: verdict for name, (verdict, _) in found.items()} == dict.fromkeys(
        (
            *("configuration", "policy", "skills", "model", "storage", "memory"),
            *("connection", "probe", "service discovery", "files"),
        ),
        "ok",
    )
    assert f"over TLSv1.3 accepted {ACCOUNT}" in found["connection"][1]


REFUSALS = {
    "a wrong password": (
        {"server__password": "guessed"},
        f"refused the login of {ACCOUNT}",
        "its password differs from server.password",
    ),
    "an account that is not there": (
        {"server__jid": f"nobody@{HOST}"},
        "there is no such account",
    ),
    "a certificate of another name": (
        {"server__tls_server_name": "other.example"},
        "issued for 'other.example'",
    ),
    "a domain that the server does not serve": (
        {"server__jid": "helper@other.example"},
        "does not serve the domain of helper@other.example",
    ),
    "a certificate that nobody known has signed": (
        {"server__tls_ca": "other.pem"},
        "is not accepted",
        "set the CA file to the authority that signed it",
    ),
    "the port of components": ({}, "client listener"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_what_keeps_an_agent_from_its_account_is_a_sentence(
    server: Server, tmp_path: Path, what: str
) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    changes, *said = REFUSALS[what]
    if what == "the port of components":
        changes = {"server__port": server.component_port}
    verdict, text = doctor(tmp_path, **(at(server) | changes))["connection"]
    assert verdict == "failed"
    assert not [words for words in said if words not in text], text


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

"""How the agent is connected."""

from typing import Any

import pytest

CLIENT = """\
[server]
mode = "client"
jid = "helper@example.com"
password = "geheim"
"""


def test_a_client_needs_no_more_than_an_account(read: Any) -> None:
    server = read(CLIENT).server
    assert (server.host, server.port, server.resource) == ("example.com", 5222, "agent")
    assert (server.address, server.secret) == ("helper@example.com", "geheim")
    assert read(CLIENT + "tls = true\n").server.port == 5223
    assert read(CLIENT + 'host = "127.0.0.1"\nport = 15222\n').server.host == "127.0.0.1"
    assert read(CLIENT, XMPP_AGENT_SERVER__PORT="99").server.port == 99


def test_servers_are_looked_up_unless_the_settings_name_one(read: Any) -> None:
    assert read(CLIENT).server.srv is True
    for line in ('host = "127.0.0.1"', "port = 15222", "tls = true", "srv = false"):
        assert read(f"{CLIENT}{line}\n").server.srv is False
    assert read(CLIENT + 'host = "127.0.0.1"\nsrv = true\n').server.srv is True


def test_the_domain_of_the_account_is_let_in_unless_another_is_named(read: Any) -> None:
    assert read(CLIENT).allowed_domains == ("example.com",)


@pytest.mark.parametrize("line", ['tls_ca = "ca.pem"', "tls_verify = false"])
def test_a_client_has_tls_without_asking_for_it(read: Any, line: str) -> None:
    assert read(f"{CLIENT}{line}\n").server.tls is False


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[server]\nmode = "client"\n', 'server.jid is missing: add jid = "helper@example.com"'),
        ('[server]\nmode = "client"\n', "server.password is missing: add password ="),
        (CLIENT + 'component_domain = "a.b"\n', "server.component_domain has no effect"),
        ("[server]\nsrv = true\n", "server.srv is only for a client: remove it"),
        (f"{CLIENT}component_number = 2\n", "server.component_number is only for a component"),
        ('[server]\njid = "a@b.c"\n', "server.jid has no effect"),
        ("[server]\n", 'server.component_domain is missing: add component_domain = "agent.'),
        (CLIENT.replace("helper@", ""), "server.jid must be the address of an account"),
        (CLIENT.replace(".com", ".com/x"), "server.jid must be the address of an account"),
        (CLIENT.replace("helper@", "@"), "server.jid is not an address"),
        (CLIENT.replace("geheim", ""), "server.password is missing"),
        (CLIENT.replace("client", "clients"), "server.mode must be 'component' or 'client'"),
        (CLIENT + '[[agents]]\nname = "researcher"\n', "agents has 'researcher', which has no add"),
    ],
)
def test_what_is_wrong_is_named(problems: Any, text: str, sentence: str) -> None:
    assert any(sentence in found for found in problems(text)), problems(text)


def test_the_one_agent_of_a_client_can_be_declared(read: Any) -> None:
    (entry,) = read(CLIENT + '[[agents]]\nname = "assistant"\ntitle = "Helper"\n').agents
    assert entry.title == "Helper"

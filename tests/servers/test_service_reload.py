"""The configuration of the process is reloaded by SIGHUP and by command, on real servers."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.notified import Notified
from tests.servers.agent_process import AgentProcess
from tests.servers.base import Server
from tests.servers.command_line import run
from tests.servers.conftest import MakeAgent
from tests.servers.talk import condition, execute, login, output

pytestmark = [pytest.mark.servers]

RULE = """
[[policy.rules]]
skills = ["echo"]
allowed_jids = ["romeo@localhost"]
"""
ECHO = execute("echo", text="hello")


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notified]:
    with Notified(tmp_path / "notify") as manager:
        monkeypatch.setenv("NOTIFY_SOCKET", manager.name)
        yield manager


def write(agent: AgentProcess, text: str) -> None:
    """Replace the file, as an editor does."""
    new = agent.directory / "agent.toml.new"
    new.write_text(text)
    new.replace(agent.directory / "agent.toml")


def test_sighup_reloads_the_configuration_and_never_ends_the_process(
    xmpp_server: Server, make_agent: MakeAgent, told: Notified
) -> None:
    toml = xmpp_server.agent_toml()
    agent = make_agent(xmpp_server, log__level="info").connected()
    domain = xmpp_server.component_domain
    told.wait(STATUS=f"connected as {domain}")
    assert told.take() == {"READY": "1"}
    with login(xmpp_server) as juliet:
        assert output(juliet.iq(domain, ECHO, "set")) == "hello"

        write(agent, toml + RULE)
        agent.send(signal.SIGHUP)
        line = agent.wait_log("reloaded")
        assert (line["changed"], line["restart_to_use"]) == ("[policy]", "nothing")
        assert "1 rules" in line["policy"]
        assert told.wait(RELOADING="1")["MONOTONIC_USEC"].isdecimal()
        told.wait(READY="1")
        assert condition(juliet.iq(domain, ECHO, "set")) == "item-not-found"

        write(agent, toml + "[policy]\nconfirms = 7\n")
        agent.send(signal.SIGHUP)
        line = agent.wait_log("the configuration was not reloaded")
        assert "policy.confirms is not a setting" in line["reason"]
        told.wait(READY="1")
        assert condition(juliet.iq(domain, ECHO, "set")) == "item-not-found"

        write(agent, toml)
        for _ in range(5):
            agent.send(signal.SIGHUP)
        agent.wait_log("reloaded", changed="[policy]")
        assert output(juliet.iq(domain, ECHO, "set")) == "hello"
    assert agent.stop() == 0
    told.wait(STOPPING="1")


def test_the_command_reloads_the_configuration_and_tells_what_is_wrong(
    xmpp_server: Server, make_agent: MakeAgent
) -> None:
    toml = xmpp_server.agent_toml()
    agent = make_agent(xmpp_server).connected()
    where, secret = agent.directory, agent.secret

    write(agent, toml + RULE + "[storage]\npath = './data'\n[limits]\ninline_s = 3\n")
    done = run(where, "reload", secret=secret)
    assert done.stdout.splitlines() == [
        "[policy] has changed: the service uses it now.",
        "[limits] has changed: restart to use it.",
    ]
    assert done.exit_code == 0

    write(agent, toml.replace("[agent]", "[agent]\navatar = 'nosuch.png'"))
    done = run(where, "reload", secret=secret)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "\nerror: agent.avatar: " in f"\n{done.stderr}"
    assert "nosuch.png" in agent.wait_log("the configuration was not reloaded")["reason"]

    write(agent, toml + "[policy]\nconfirms = 7\n")
    done = run(where, "reload", secret=secret)
    assert done.exit_code == 78
    assert "policy.confirms is not a setting" in done.stderr
    assert agent.stop() == 0

    write(agent, toml)
    done = run(where, "reload", secret=secret)
    assert done.exit_code == 1
    assert "needs it. Start it with `xmpp-agent run`" in done.stderr

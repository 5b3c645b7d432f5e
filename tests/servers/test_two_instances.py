"""Two services on one PostgreSQL, as the guides have it: both on ejabberd, by turns on Prosody."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.servers import guides
from tests.servers.agent_process import AgentProcess
from tests.servers.base import Server
from tests.servers.fixtures import ServerFactory
from tests.servers.talk import execute, login, output, result
from tests.servers.tasking import (
    CONFIRM,
    TASK,
    answer,
    asks,
    begin,
    completed,
    decision,
    event,
    params,
)

pytestmark = [pytest.mark.servers]

FOR_EVER = 3000.0


def pair(server: Server, directory: Path, postgres: str) -> list[AgentProcess]:
    # An answer that goes to the other one is waited for in vain: longer than any test does.
    settings = {"limits__iq_timeout_s": FOR_EVER, "conformance__enabled": True}
    return [
        AgentProcess(server, directory / name, storage__postgres=postgres, **settings)
        for name in ("first", "second")
    ]


def test_ejabberd_has_both(make_ejabberd: ServerFactory, tmp_path: Path, postgres_url: str) -> None:
    text = (guides.DOCS / "ejabberd.md").read_text()
    component = guides.block(guides.DOCS / "ejabberd.md", "component")
    balancing = guides.block(guides.DOCS / "ejabberd.md", "balancing")
    guide = tmp_path / "ejabberd.md"
    guide.write_text(text.replace(component, component + balancing))
    server = make_ejabberd(guide=guide)
    with ExitStack() as stack:
        first, second = pair(server, tmp_path, postgres_url)
        for agent in (first, second):
            stack.enter_context(agent).connected()
        agent_jid = f"assistant@{server.component_domain}"
        clients = [stack.enter_context(login(server, name)) for name in ("juliet", "romeo")]
        for client in clients:
            for number in range(5):
                # Each question is preceded by one of ours: what the client is.
                task = begin(client, agent_jid, "conformance.erase", target=str(number))
                confirm = asks(client, task)[1]
                allowed = decision(confirm.attrib["id"], "approve")
                assert client.iq(agent_jid, allowed, "set").get("type") == "result"
                assert completed(client, task) == f"erased {number}"
        waiting = [
            (client, begin(client, agent_jid, "conformance.ask", question="Which?"))
            for client in clients
        ]
        told = [client.messages.take(event(task, "input-required")) for client, task in waiting]
        # What ejabberd gives to the one that is away is lost, so it has to come back.
        first.kill()
        first.start().connected()
        for (client, task), message in zip(waiting, told, strict=True):
            asked = message.find(f"{{{TASK}}}task/{{{TASK}}}input")
            assert asked is not None
            given = answer(asked, task, params({"colour": "green"}))
            assert result(client.iq(agent_jid, given, "set")).get("id") == task
            assert "green" in completed(client, task)


def test_prosody_has_one_and_the_other_stands_by(
    make_prosody: ServerFactory, tmp_path: Path, postgres_url: str
) -> None:
    server = make_prosody()
    with ExitStack() as stack:
        first, second = pair(server, tmp_path, postgres_url)
        stack.enter_context(first).connected()
        stack.enter_context(second).wait_log("not connected", code="conflict")
        agent_jid = f"assistant@{server.component_domain}"
        juliet = stack.enter_context(login(server))
        assert output(juliet.iq(agent_jid, execute("echo", text="x"), "set")) == "x"
        task = begin(juliet, agent_jid, "conformance.erase", target="it")
        confirm = asks(juliet, task)[1]
        first.kill()
        second.connected()
        assert confirm.tag == f"{{{CONFIRM}}}confirm"
        allowed = decision(confirm.attrib["id"], "approve")
        assert juliet.iq(agent_jid, allowed, "set").get("type") == "result"
        assert completed(juliet, task) == "erased it"

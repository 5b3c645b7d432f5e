"""Two services on one PostgreSQL, as the guides have it: both on ejabberd, by turns on Prosody."""

from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from component.control.client import ControlRequest, ask
from tests.component.features.installed_skills.world import install
from tests.component.models.endpoint import in_thread
from tests.servers.agent_process import AgentProcess
from tests.servers.base import Server
from tests.servers.chatting import asks as asks_in_chat
from tests.servers.fixtures import PAIR
from tests.servers.talk import execute, login, output, result
from tests.servers.tasking import (
    TASK,
    answer,
    asks,
    begin,
    completed,
    decision,
    event,
    params,
)
from tests.waiting import until

pytestmark = [pytest.mark.servers]

FOR_EVER = 3000.0


def pair(server: Server, directory: Path, postgres: str, **more: object) -> list[AgentProcess]:
    # An answer that is not passed on is waited for in vain: longer than any test does.
    settings = {"limits__iq_timeout_s": FOR_EVER, "conformance__enabled": True, **more}
    return [
        AgentProcess(server, directory / name, storage__postgres=postgres, **settings)
        for name in ("first", "second")
    ]


def test_ejabberd_has_both(ejabberd_server: Server, tmp_path: Path, postgres_url: str) -> None:
    server = ejabberd_server.on(PAIR)
    with ExitStack() as stack:
        first, second = pair(server, tmp_path, postgres_url, server__component_number=2)
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
        first.kill()
        second.wait_log("connected", use="receiving")
        for (client, task), message in zip(waiting, told, strict=True):
            asked = message.find(f"{{{TASK}}}task/{{{TASK}}}input")
            assert asked is not None
            given = answer(asked, task, params({"colour": "green"}))
            assert result(client.iq(agent_jid, given, "set")).get("id") == task
            assert "green" in completed(client, task)


def operate(agent: AgentProcess, command: str, **params: object) -> str:
    """What an instance answers to its operator."""
    request = ControlRequest(command, msgspec.Raw(msgspec.json.encode(params)))
    answer = ask(agent.directory / "data", request)
    assert answer is not None
    assert answer.error is None, answer.error
    return answer.text


def test_prosody_has_one_and_what_is_said_to_the_other_holds_for_both(
    prosody_server: Server, tmp_path: Path, postgres_url: str
) -> None:
    """By the control socket of the instance that has no stream; each has copies of its own."""
    server, skills = prosody_server, tmp_path / "skills"
    install(skills)
    with ExitStack() as stack:
        model = stack.enter_context(in_thread())
        more = {
            "skills__directories": [str(skills)],
            "llm__provider": "openai",
            "llm__model": "scripted",
            "llm__base_url": model.url,
            "llm__api_key": "sk-scripted",
        }
        first, second = pair(server, tmp_path, postgres_url, **more)
        stack.enter_context(first).connected()
        stack.enter_context(second).wait_log("not connected", code="conflict")
        assistant = f"assistant@{server.component_domain}"
        juliet = stack.enter_context(login(server))

        def unknown() -> bool:
            answer = juliet.iq(assistant, execute("greet", who="Juliet"), "set")
            return answer.get("type") == "error" or output(answer) != "Hello Juliet"

        def refused() -> bool:
            return juliet.iq(assistant, execute("echo", text="x"), "set").get("type") == "error"

        # A skill is approved, revoked, and approved again.
        assert unknown()
        assert "is offered" in operate(second, "approve-skill", name="greet", trusted=True)
        until(lambda: not unknown())
        copies = [agent.directory / "data" / "approved-skills" for agent in (first, second)]
        assert [len(list(each.iterdir())) for each in copies] == [1, 1]
        assert "not offered any more" in operate(second, "revoke-skill", name="greet")
        until(unknown)
        until(lambda: not any(list(each.iterdir()) for each in copies))
        operate(second, "approve-skill", name="greet", trusted=True)
        until(lambda: not unknown())

        # The service is paused, and the instance that has the stream is killed.
        task = begin(juliet, assistant, "conformance.erase", target="it")
        confirm = asks(juliet, task)[1]
        assert not refused()
        assert "Paused" in operate(second, "pause")
        until(refused)
        first.kill()
        second.connected()
        assert refused()  # that does not end when an instance ends
        allowed = decision(confirm.attrib["id"], "approve")
        assert juliet.iq(assistant, allowed, "set").get("type") == "result"
        assert completed(juliet, task) == "erased it"

        # The next one that waits ends the pause and kills an agent.
        first.start().wait_log("not connected", code="conflict")
        assert "accepted again" in operate(first, "resume")
        until(lambda: not refused())
        assert not unknown()
        assert "killed" in operate(first, "kill-agent", name="assistant")
        until(lambda: "killed" in operate(second, "agents"))
        assert "shut down permanently" in asks_in_chat(
            juliet, assistant, "Are you there?", "shut down"
        )

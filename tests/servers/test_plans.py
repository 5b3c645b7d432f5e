"""A plan on real servers: approved, run by several agents side by side, killed, declined in part,
revised, and finished.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.component.models.answers import Answer, Calls, Text
from tests.component.models.endpoint import Request
from tests.servers.base import Server
from tests.servers.chatting import Chat, asks, body, chatting, heard, reply, say
from tests.servers.clients import SlixClient
from tests.servers.conftest import MakeAgent
from tests.servers.talk import login
from tests.waiting import until

pytestmark = [pytest.mark.servers]

EXAMPLES = Path(__file__).parents[2] / "examples" / "skills"

AGENTS = ("north", "south", "west")
PLAN = {
    "title": "Clean up",
    "goal": "Find out which disks are unused, and wipe them.",
    "steps": [
        *(
            {
                "id": one,
                "kind": "agent",
                "role": "looker",
                "skills": ["lookup"],
                "instructions": f"Look up {one}.",
            }
            for one in AGENTS
        ),
        {
            "id": "first",
            "kind": "call",
            "skill": "wipe",
            "params": {"disk": "A"},
            "after": [*AGENTS],
        },
        {
            "id": "found",
            "kind": "call",
            "skill": "wipe",
            "params": {"disk": "{north.text}"},
            "after": ["first"],
        },
    ],
    "result": "All is clean: {found.text || first.text}",
}


def revised() -> dict[str, object]:
    """Return the plan with another last step."""
    *steps, _ = PLAN["steps"]
    last = {"id": "other", "kind": "call", "skill": "wipe", "params": {"disk": "B"}}
    return PLAN | {"steps": [*steps, last | {"after": ["first"]}], "result": "All is clean now."}


def plays(request: Request) -> Answer:
    """Answer as the agent that starts the plan, as its sub-agents, and as the one that revises."""
    text = str(request.messages)
    if "You revise a plan" in text:
        return Text(json.dumps(revised()))
    if "a sub-agent of" in text:
        run = next(one for one in AGENTS if f"Look up {one}." in text)
        if "was found" in text:
            return Text(f"disk-{run}")
        return Calls(("lookup", {"run": run}))
    if "has begun" in text or "is asked whether the plan" in text:
        return Text("I have made a plan.")
    return Calls(("plan_start", {"plan": PLAN}))


@pytest.fixture
def chat(xmpp_server: Server, tmp_path: Path) -> Iterator[Chat]:
    with chatting(xmpp_server, tmp_path) as found:
        found.model.otherwise = plays
        yield found


def confirm(juliet: SlixClient, chat: Chat, words: str, decision: str) -> str:
    """Decide the question that contains these words; return it."""
    question = heard(juliet, words)
    reply(juliet, chat.assistant, question, decision)
    return body(question)


@pytest.mark.both_servers
def test_a_plan_survives_asks_adapts_and_reports(xmpp_server: Server, chat: Chat) -> None:
    with login(xmpp_server) as juliet:
        say(juliet, chat.assistant, "Clean up the unused disks, please.")
        shown = confirm(juliet, chat, "May I carry out this plan", "yes")
        assert "disk: A" in shown
        assert "disk: {north.text}" in shown
        heard(juliet, "Approved")
        chat.again()
        for one in AGENTS:
            chat.open_gate(one)
        heard(juliet, "May I run", "disk-north")
        assert "disk-north" in asks(juliet, chat.assistant, "/inbox", "Question")
        say(juliet, chat.assistant, "/inbox 1 no, because that disk is mine. Take B")
        heard(juliet, "Denied")  # without that it may be lost with the process
        assert chat.effects() == ["wiped A"]
        chat.again()
        difference = confirm(juliet, chat, "May I change the plan", "yes")
        assert "disk: B" in difference
        assert "Removed: found" in difference
        heard(juliet, "All is clean now.")
        assert chat.effects() == ["wiped A", "wiped B"]
        say(juliet, chat.assistant, "/plan list")
        assert "Clean up: completed" in body(heard(juliet, "Clean up: "))
        assert "disk" not in asks(juliet, chat.assistant, "/inbox", "")


def test_a_plan_that_is_a_skill_runs_with_the_bundled_model(
    xmpp_server: Server, make_agent: MakeAgent, tmp_path: Path
) -> None:
    shutil.copytree(EXAMPLES / "ask-people", tmp_path / "plans" / "ask-people")
    agent = make_agent(
        xmpp_server,
        llm__provider="local",
        llm__max_tokens_per_request=32,
        skills__directories=[str(tmp_path / "plans")],
        skills__auto_approve="confined",
    ).connected()
    assistant, romeo_at = f"assistant@{agent.domain}", xmpp_server.jid("romeo")
    with login(xmpp_server) as juliet, login(xmpp_server, "romeo") as romeo:
        say(juliet, assistant, f"/run ask_people question=Tea? people={romeo_at}")
        reply(juliet, assistant, heard(juliet, "May I carry out this plan"), "yes")
        reply(romeo, assistant, heard(romeo, "asks: Tea?"), "Oolong")
        until(
            lambda: "Ask several people is done" in asks(juliet, assistant, "/tasks", "Ask several")
        )

"""An operator has an agent do something in a person's conversation: by the command line, a form,
and by slash. The person gets the answer, and is asked what has to be confirmed.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.component.models.endpoint import Calls, Text
from tests.servers import command_line
from tests.servers.chatting import Chat, asks, body, heard, reply
from tests.servers.clients import SlixClient
from tests.servers.test_chat import _fresh, juliet, romeo
from tests.servers.test_commands_service import Dialogue
from tests.servers.watching import wait_for

pytestmark = [pytest.mark.servers]


# The people of this module, as in test_chat.
__all__ = ["_fresh", "juliet", "romeo"]


def command(chat: Chat, *words: str) -> Result:
    """Run the command line on the machine of the service."""
    return command_line.run(chat.agent.directory, *words, secret=chat.agent.secret)


def tell(chat: Chat, text: str, *more: str, who: str = "juliet") -> dict[str, Any]:
    """Tell the agent something for a person; what the command prints."""
    address = chat.server.jid(who)
    done = command(chat, "agents", "tell", "assistant", text, "--for", address, "--json", *more)
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def refused(chat: Chat, *words: str) -> str:
    """What the command line says of what it cannot do."""
    done = command(chat, "agents", "tell", *words)
    assert done.exit_code != 0
    return done.stderr


def audit(chat: Chat) -> list[dict[str, Any]]:
    path = chat.agent.directory / "data" / "audit"
    lines = "".join(each.read_text() for each in sorted(path.glob("*.jsonl"))).splitlines()
    return [json.loads(line) for line in lines]


def test_the_person_gets_the_answer_and_the_history_names_the_operator(
    chat: Chat, juliet: SlixClient
) -> None:
    chat.model.answers(Text("Good morning, Juliet: it rains today."))
    sheet = tell(chat, "Wish a good morning.", "--wait")
    assert (sheet["outcome"], sheet["agent"]) == ("answered", "assistant")
    assert sheet["answer"] == "Good morning, Juliet: it rains today."
    message = heard(juliet, "Good morning")
    assert (message.get("from"), message.get("type")) == (chat.assistant, "chat")
    assert message.get("id") == f"{sheet['turn']}.answer"
    chat.model.answers(Text("I was told to."))
    asks(juliet, chat.assistant, "Why do you write?", "told to")
    shown = [one["content"] for one in chat.model.requests[-1].messages]
    told = next(one for one in shown if "Wish a good morning." in one)
    assert "\n\n[This is from operator, who operates this service" in told
    lines = (chat.agent.directory / "data").rglob("history.jsonl")
    assert any('"operator":"operator"' in path.read_text() for path in lines)
    assert sheet["turn"] in [one["trace"] for one in audit(chat) if one.get("outcome") == "told"]


def test_the_person_is_asked_and_not_the_operator(
    chat: Chat, juliet: SlixClient, romeo: SlixClient
) -> None:
    chat.model.answers(Calls(("wipe", {"disk": "old"})), Text("It is wiped."))
    sheet = tell(chat, "Wipe the old disk.", "--wait")
    assert sheet["outcome"] == "asked"
    question = heard(juliet, "wipe", "not your own request, but one of my operator. May I run")
    reply(juliet, chat.assistant, question, "yes")
    heard(juliet, "It is wiped.")
    assert "wiped old" in chat.effects()
    assert not [one for one in romeo.messages.all() if "wipe" in body(one)]


@pytest.mark.thorough
def test_an_operators_turn_is_paid_from_the_budget_that_is_named(
    chat: Chat, juliet: SlixClient
) -> None:
    def spent(of: str) -> int:
        rows = json.loads(command(chat, "budget", "--json").stdout)
        return next((row["calls"] for row in rows if row["of"] == of), 0)

    mine, theirs = chat.server.jid("juliet"), chat.server.jid("romeo")
    before = spent(mine), spent(theirs)
    chat.model.answers(Text("Paid."))
    tell(chat, "Do it.", "--wait", "--budget", f"principal:{theirs}")
    heard(juliet, "Paid.")
    assert (spent(mine), spent(theirs)) == (before[0], before[1] + 1)


def test_admins_tell_an_agent_with_a_form_and_by_slash(
    chat: Chat, juliet: SlixClient, romeo: SlixClient
) -> None:
    chat.model.answers(Text("By a form."))
    form = Dialogue(romeo, chat.agent.domain, "command/tell-agent")
    given = {"name": "assistant", "text": "Say it.", "for": chat.server.jid("juliet"), "wait": "1"}
    form.submit(**given)
    assert form.status == "completed"
    heard(juliet, "By a form.")
    chat.model.answers(Text("By slash."))
    words = f'/tell-agent assistant "Say it." {chat.server.jid("juliet")}'
    assert "has started" in asks(romeo, chat.assistant, words, "Turn")
    heard(juliet, "By slash.")
    shown = [one["content"] for one in chat.model.requests[-1].messages]
    assert f"\n\n[This is from {chat.server.jid('romeo')}, who operates" in shown[-1]
    assert "no command" in asks(juliet, chat.assistant, words, "tell-agent")


def test_the_command_line_says_why_an_agent_cannot_be_told(
    chat: Chat, juliet: SlixClient, tmp_path: Path
) -> None:
    who = chat.server.jid("juliet")
    assert "no agent called 'nobody'" in refused(chat, "nobody", "Do it.", "--for", who)
    assert "is not admitted" in refused(chat, "assistant", "Do.", "--for", "bob@elsewhere.example")
    no = refused(chat, "assistant", "Do it.", "--for", who, "--budget", "agent:nobody")
    assert "there are: total, agent:assistant" in no
    assert "Missing option '--for'" in refused(chat, "assistant", "Do it.")
    asks(juliet, chat.assistant, "/stop-contact", "not write")
    assert "has stopped messages" in refused(chat, "assistant", "Do it.", "--for", who)
    asks(juliet, chat.assistant, "/start-contact", "write to you first again")
    assert command(chat, "agents", "pause", "assistant").exit_code == 0
    assert "is paused: resume it first" in refused(chat, "assistant", "Do it.", "--for", who)
    assert command(chat, "agents", "resume", "assistant").exit_code == 0
    assert chat.model.requests == []


def test_who_wants_no_messages_any_more_does_not_get_the_answer(
    chat: Chat, juliet: SlixClient
) -> None:
    chat.model.answers(Calls(("slowly", {"run": "late"})), Text("This is withheld."))
    tell(chat, "Do it slowly.")
    wait_for(chat.effects, lambda effects: "begun late" in effects)
    asks(juliet, chat.assistant, "/stop-contact", "not write")
    chat.open_gate("late")
    chat.agent.wait_log("an answer is withheld: its recipient wants no messages")
    asks(juliet, chat.assistant, "/start-contact", "write to you first again")
    assert not [one for one in juliet.messages.all() if "withheld" in body(one)]

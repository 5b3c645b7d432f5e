"""Schedules through a real server: from the chat, by form, by the model, and across kills."""

import json
import re

import pytest

from tests.component.models.endpoint import Calls, Text
from tests.servers.chatting import Chat, asks, body, heard, reply, say
from tests.servers.clients import SlixClient
from tests.servers.talk import result
from tests.servers.test_chat import _fresh, juliet, romeo
from tests.servers.test_commands_service import Dialogue
from tests.servers.test_operator_turn import command

pytestmark = [pytest.mark.servers]


# The people of this module, as in test_chat.
__all__ = ["_fresh", "juliet", "romeo"]


def name_in(answer: str) -> str:
    """The name of the schedule that a command has added."""
    found = re.search(r"^- (\S+):", answer, re.MULTILINE)
    assert found is not None, answer
    return found[1]


def test_a_goal_from_the_chat_fires_and_its_answer_arrives(chat: Chat, juliet: SlixClient) -> None:
    chat.model.answers(Text("Time for tea, Juliet."))
    added = asks(juliet, chat.assistant, "/schedule add in 2 seconds: remind me of tea", "Added")
    assert "remind me of tea" in added
    message = heard(juliet, "Time for tea")
    assert (message.get("from"), message.get("type")) == (chat.assistant, "chat")
    (request,) = chat.model.requests
    asked = request.messages[-1]["content"]
    assert "started by the schedule" in asked
    assert "remind me of tea" in asked
    assert asks(juliet, chat.assistant, "/schedule", "schedules") == "There are no schedules."


def test_who_has_added_a_schedule_pays_for_its_goal(chat: Chat, juliet: SlixClient) -> None:
    def calls() -> int:
        rows = json.loads(command(chat, "budget", "--json").stdout)
        person = chat.server.jid("juliet")
        return next((row["calls"] for row in rows if row["of"] == person), 0)

    before = calls()
    chat.model.answers(Text("Tea is ready."))
    asks(juliet, chat.assistant, "/schedule add in 1 second: remind me of tea", "Added")
    heard(juliet, "Tea is ready.")
    assert calls() == before + 1


def test_a_skill_from_the_chat_fires(chat: Chat, juliet: SlixClient) -> None:
    asks(juliet, chat.assistant, "/schedule add in 1 second: run weather city=Verona", "Added")
    assert body(heard(juliet, "Sunny")) == "Sunny in Verona."
    assert not chat.model.requests
    chat.model.answers(Text("It stays so."))
    asks(juliet, chat.assistant, "Will it stay so?", "It stays so.")
    shown = [str(one["content"]) for one in chat.model.requests[0].messages]
    assert any("\nSunny in Verona.\n" in one for one in shown), "the model knows what she was told"


def test_a_destructive_skill_is_asked_about_before_it_runs(chat: Chat, juliet: SlixClient) -> None:
    asks(juliet, chat.assistant, "/schedule add in 1 second: run wipe disk=tape", "Added")
    question = heard(juliet, "wipe", "May I run")
    assert "wiped tape" not in chat.effects()
    reply(juliet, chat.assistant, question, "yes")
    heard(juliet, "tape is wiped.")
    assert chat.effects().count("wiped tape") == 1


def test_schedules_are_listed_paused_resumed_and_removed(
    chat: Chat, juliet: SlixClient, romeo: SlixClient
) -> None:
    text = "/schedule add every monday at 9: sum up my week"
    name = name_in(asks(juliet, chat.assistant, text, "Added"))
    assert ": every monday at 9, next " in asks(juliet, chat.assistant, "/schedule list", "sum up")
    assert asks(romeo, chat.assistant, "/schedule", "schedules") == "There are no schedules."
    asks(romeo, chat.assistant, f"/schedule remove {name}", "There is no schedule called")
    asks(juliet, chat.assistant, f"/schedule pause {name}", f"Paused {name}.")
    asks(juliet, chat.assistant, f"/schedule pause {name}", "is paused already")
    assert "paused" in asks(juliet, chat.assistant, "/schedule", "sum up")
    asks(juliet, chat.assistant, f"/schedule resume {name}", "Resumed")
    asks(juliet, chat.assistant, f"/schedule remove {name}", f"Removed {name}.")
    assert asks(juliet, chat.assistant, "/schedule", "schedules") == "There are no schedules."


def test_a_form_and_the_command_line(chat: Chat, juliet: SlixClient) -> None:
    form = Dialogue(juliet, chat.agent.domain, "command/schedule")
    form.submit(action="add", name="hourly", when="every hour", goal="Look at the sky.")
    assert form.status == "completed"
    rows = json.loads(command(chat, "schedules", "list", "--json").stdout)
    (row,) = [one for one in rows if one["name"] == "hourly"]
    assert (row["owner"], row["state"]) == (chat.server.jid("juliet"), "active")
    done = command(chat, "schedules", "remove", row["id"])
    assert done.exit_code == 0, done.stderr
    assert asks(juliet, chat.assistant, "/schedule", "schedules") == "There are no schedules."
    done = command(chat, "schedules", "remove", row["id"])
    assert "There is no schedule called" in done.stderr


def test_the_model_adds_a_reminder_that_the_person_asks_for(chat: Chat, juliet: SlixClient) -> None:
    wanted = {"when": "in 2 seconds", "goal": "Remind the person to call Romeo.", "name": "call"}
    chat.model.answers(Calls(("schedule_add", wanted)), Text("I will."), Text("Please call Romeo."))
    say(juliet, chat.assistant, "Remind me to call Romeo.")
    heard(juliet, "I will.")
    heard(juliet, "Please call Romeo.")


def test_an_invalid_schedule_is_answered_with_the_reason(chat: Chat, juliet: SlixClient) -> None:
    for said, told in (
        ("add every 5 seconds: hurry", "the shortest interval is 60 seconds"),
        ("add every monday at 25: x", "does not begin with a time"),
        ("add 2020-01-01 at 8: x", "has passed"),
        ("add in 5 minutes: run missing a=1", "There is no skill called 'missing'"),
        ("add in 5 minutes: run weather town=1", "The parameters do not fit weather"),
        ("add in 5 minutes:", "not what"),
        ("dance", "action"),
    ):
        asks(juliet, chat.assistant, f"/schedule {said}", told)


@pytest.mark.thorough
def test_a_kill_between_loses_no_firing_and_repeats_none(chat: Chat, juliet: SlixClient) -> None:
    asks(juliet, chat.assistant, "/schedule add in 3 seconds: run wipe disk=disk7", "Added")
    chat.agent.kill()
    chat.agent.start().connected()
    question = heard(juliet, "disk7", "May I run")
    chat.again()
    reply(juliet, chat.assistant, question, "yes")
    heard(juliet, "disk7 is wiped.")
    assert chat.effects().count("wiped disk7") == 1


SCHEDULES = "urn:fluux:agent:0#schedules"
PUBSUB = "http://jabber.org/protocol/pubsub"
EVENT = f"{{{PUBSUB}#event}}"


def items(client: SlixClient, chat: Chat) -> list[dict[str, str]]:
    """The items of the node of schedules, as its owner sees them."""
    wanted = f"<pubsub xmlns='{PUBSUB}'><items node='{SCHEDULES}'/></pubsub>"
    answer = result(client.iq(chat.assistant, wanted))
    return [json.loads(one.text or "") for one in answer.iter("{urn:xmpp:json:0}json")]


def test_firings_are_published_to_their_owner_alone(
    chat: Chat, juliet: SlixClient, romeo: SlixClient
) -> None:
    for client in (juliet, romeo):
        jid = chat.server.jid("juliet" if client is juliet else "romeo")
        wish = f"<subscribe node='{SCHEDULES}' jid='{jid}'/>"
        result(client.iq(chat.assistant, f"<pubsub xmlns='{PUBSUB}'>{wish}</pubsub>", "set"))
    text = "/schedule add every hour: run weather city=Ulm"
    name = name_in(asks(juliet, chat.assistant, text, "Added"))
    (row,) = items(juliet, chat)
    assert (row["name"], row["skill"], row["state"]) == (name, "weather", "active")
    assert items(romeo, chat) == []
    asks(juliet, chat.assistant, f"/schedule remove {name}", "Removed")
    assert items(juliet, chat) == []
    asks(juliet, chat.assistant, "/schedule add in 1 second: run weather city=Ulm", "Added")
    told = juliet.messages.take(
        lambda message: '"task"' in "".join(one.text or "" for one in message.iter())
    )
    (found,) = told.iter("{urn:xmpp:json:0}json")
    fired = json.loads(found.text or "")
    assert fired["task"]
    assert fired["last"].endswith("Z")
    assert "next" not in fired or not fired["next"]
    heard(juliet, "Sunny in Ulm.")
    assert not [one for one in romeo.messages.all() if one.find(f"{EVENT}event") is not None]

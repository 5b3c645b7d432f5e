"""People talk with an agent through a real server: tools, questions, commands, budgets, crashes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.component.models.endpoint import Answer, Calls, Refuse, Request, Stall, Text
from tests.servers.base import Server
from tests.servers.chatting import (
    CONFIRM,
    STATES,
    Chat,
    asks,
    body,
    chatting,
    heard,
    reply,
    say,
    words,
)
from tests.servers.clients import SlixClient
from tests.servers.talk import login

pytestmark = [pytest.mark.servers]


@pytest.fixture(scope="module")
def juliet(chat: Chat) -> Iterator[SlixClient]:
    with login(chat.server) as client:
        yield client


@pytest.fixture(scope="module")
def romeo(chat: Chat) -> Iterator[SlixClient]:
    """An admin."""
    with login(chat.server, "romeo") as client:
        yield client


@pytest.fixture(autouse=True)
def _fresh(chat: Chat, juliet: SlixClient) -> None:
    asks(juliet, chat.assistant, "/new", "new")
    while juliet.messages.all():
        juliet.messages.take()
    chat.model.requests.clear()


def shown(request: Request) -> str:
    """All that a model was shown, as one text."""
    return "\n".join(str(message.get("content")) for message in request.messages)


# -- talk --------------------------------------------------------------------------------------


def test_an_answer_from_the_model(chat: Chat, juliet: SlixClient) -> None:
    chat.model.answers(Text("Good evening, Juliet."))
    say(
        *(juliet, chat.assistant, "Good evening!"),
        thread="balcony",
        inside=f"<active xmlns='{STATES[1:-1]}'/>",
    )
    juliet.messages.take(lambda m: m.find(f"{STATES}composing") is not None)
    message = heard(juliet, "Good evening, Juliet.")
    assert message.findtext("{jabber:client}thread") == "balcony"
    assert message.get("from") == chat.assistant
    assert message.find(f"{STATES}active") is not None
    (request,) = chat.model.requests
    assert request.messages[-1]["role"] == "user"
    assert words(request) == ["Good evening!"]


def test_the_domain_itself_is_answered_by_the_default_agent(chat: Chat, juliet: SlixClient) -> None:
    chat.model.answers(Text("Here I am."))
    assert asks(juliet, chat.agent.domain, "Anybody?", "Here") == "Here I am."


def test_the_conversation_goes_on(chat: Chat, juliet: SlixClient) -> None:
    chat.model.answers(Text("Nice to meet you."), Text("Your name is Juliet."))
    asks(juliet, chat.assistant, "My name is Juliet.", "Nice")
    asks(juliet, chat.assistant, "What is my name?", "Juliet")
    first, second = chat.model.requests
    assert words(second) == ["My name is Juliet.", "What is my name?"]
    assert second.messages[: len(first.messages)] == first.messages
    assert second.messages[len(first.messages)]["content"] == "Nice to meet you."


def test_nobody_is_shown_what_somebody_else_said(
    chat: Chat, juliet: SlixClient, romeo: SlixClient
) -> None:
    chat.model.answers(Text("I keep it."), Text("Which one?"))
    asks(juliet, chat.assistant, "My secret is 4711.", "keep")
    asks(romeo, chat.assistant, "What is the secret?", "Which")
    assert "4711" not in shown(chat.model.requests[1])


# -- tools -------------------------------------------------------------------------------------


def test_a_tool_is_called(chat: Chat, juliet: SlixClient) -> None:
    chat.model.answers(Calls(("weather", {"city": "Verona"})), Text("It is sunny."))
    assert asks(juliet, chat.assistant, "How is the weather?", "sunny") == "It is sunny."
    first, second = chat.model.requests
    assert {"weather", "wipe", "memory_store"} <= set(first.tools)
    assert "Sunny in Verona." in second.messages[-1]["content"]


def test_what_it_remembers(chat: Chat, juliet: SlixClient) -> None:
    stored = Calls(("memory_store", {"key": "tea", "body": "Juliet likes jasmine tea."}))
    chat.model.answers(stored, Text("Noted."), Text("Jasmine."))
    asks(juliet, chat.assistant, "Remember that I like jasmine tea.", "Noted")
    asks(juliet, chat.assistant, "/new", "new")
    asks(juliet, chat.assistant, "Which tea do I like?", "Jasmine")
    assert "Juliet likes jasmine tea." in shown(chat.model.requests[-1])
    assert "jasmine" in asks(juliet, chat.assistant, "/memory", "tea")


def test_a_yes_in_plain_chat(chat: Chat, juliet: SlixClient) -> None:
    chat.model.answers(Calls(("wipe", {"disk": "sda"})), Text("It is done."))
    say(juliet, chat.assistant, "Wipe sda!")
    question = heard(juliet, "sda")
    assert question.find(CONFIRM) is not None
    assert "wiped sda" not in chat.effects()
    reply(juliet, chat.assistant, question, "yes")
    assert body(heard(juliet, "done")) == "It is done."
    assert "wiped sda" in chat.effects()
    assert "sda is wiped." in chat.model.requests[1].messages[-1]["content"]


def test_people_say_yes_as_they_do(chat: Chat, juliet: SlixClient) -> None:
    chat.model.answers(Calls(("wipe", {"disk": "sde"})), Text("Wiped."))
    say(juliet, chat.assistant, "Wipe sde!")
    question = heard(juliet, "sde")
    reply(juliet, chat.assistant, question, "Sure, go ahead!")
    heard(juliet, "Wiped.")
    assert "wiped sde" in chat.effects()


def test_a_reaction_answers_a_question(chat: Chat, juliet: SlixClient) -> None:
    chat.model.answers(Calls(("wipe", {"disk": "sdf"})), Text("Wiped it."))
    say(juliet, chat.assistant, "Wipe sdf!")
    question = heard(juliet, "sdf").attrib["id"]
    juliet.send_raw(
        f"<message type='chat' to='{chat.assistant}' id='r1'>"
        f"<reactions xmlns='urn:xmpp:reactions:0' id='{question}'>"
        "<reaction>\U0001f44d</reaction></reactions><store xmlns='urn:xmpp:hints'/></message>"
    )
    heard(juliet, "Wiped it.")
    assert "wiped sdf" in chat.effects()


def test_what_cannot_be_read_is_told_so(chat: Chat, juliet: SlixClient) -> None:
    text = asks(
        *(juliet, chat.assistant, "This message is encrypted.", "can't read"),
        inside="<encrypted xmlns='eu.siacs.conversations.axolotl'><payload/></encrypted>"
        "<encryption xmlns='urn:xmpp:eme:0' name='OMEMO'"
        " namespace='eu.siacs.conversations.axolotl'/><store xmlns='urn:xmpp:hints'/>",
    )
    assert "OMEMO" in text
    assert chat.model.requests == []


def test_a_message_is_acknowledged_and_its_correction_too_late(
    chat: Chat, juliet: SlixClient
) -> None:
    chat.model.answers(Text("It rains in Pari."))
    juliet.send_raw(
        f"<message type='chat' to='{chat.assistant}' id='w1'><body>The weather in Pari?</body>"
        "<origin-id xmlns='urn:xmpp:sid:0' id='w1'/><request xmlns='urn:xmpp:receipts'/>"
        "<markable xmlns='urn:xmpp:chat-markers:0'/></message>"
    )
    receipt = juliet.messages.take(lambda m: m.find("{urn:xmpp:receipts}received") is not None)
    assert receipt.find("{urn:xmpp:receipts}received").get("id") == "w1"  # type: ignore[union-attr]
    displayed = receipt.find("{urn:xmpp:chat-markers:0}displayed")
    assert displayed is not None
    assert displayed.get("id") == "w1"
    heard(juliet, "It rains in Pari.")
    replace = "<replace xmlns='urn:xmpp:message-correct:0' id='w1'/>"
    asks(juliet, chat.assistant, "The weather in Paris?", "came too late", inside=replace)
    assert len(chat.model.requests) == 1


def test_a_correction_during_the_first_call_of_the_model_is_answered(
    chat: Chat, juliet: SlixClient
) -> None:
    chat.model.answers(Stall(), Text("It rains in Paris."))
    juliet.send_raw(
        f"<message type='chat' to='{chat.assistant}' id='c1'><body>Rain in Pari?</body></message>"
    )
    while not chat.model.requests:
        asks(juliet, chat.assistant, "/ping", "pong")
    replace = "<replace xmlns='urn:xmpp:message-correct:0' id='c1'/>"
    assert asks(juliet, chat.assistant, "Rain in Paris?", "rains", inside=replace)
    assert "Rain in Pari?" not in shown(chat.model.requests[1])


def test_a_message_that_is_too_large_comes_back(chat: Chat, juliet: SlixClient) -> None:
    # Too many elements: as many bytes as are too many would take a real server long.
    many = "<x/>" * 11_000
    juliet.send_raw(f"<message type='chat' to='{chat.assistant}' id='big'>{many}</message>")
    bounced = juliet.messages.take(lambda message: message.get("type") == "error")
    assert bounced.get("id") == "big"


def test_a_no_in_plain_chat(chat: Chat, juliet: SlixClient) -> None:
    before = chat.effects()
    chat.model.answers(Calls(("wipe", {"disk": "sdb"})), Text("Then I leave it."))
    say(juliet, chat.assistant, "Wipe sdb!")
    heard(juliet, "sdb")
    say(juliet, chat.assistant, "no, it is the wrong one")
    heard(juliet, "leave")
    assert chat.effects() == before
    assert "wrong one" in shown(chat.model.requests[1])


def test_after_stop_contact_a_person_is_still_asked_about_their_own_request(
    chat: Chat, juliet: SlixClient
) -> None:
    asks(juliet, chat.assistant, "/stop-contact", "not write")
    chat.model.answers(Calls(("wipe", {"disk": "sdd"})), Text("And sdd is wiped now."))
    say(juliet, chat.assistant, "Wipe sdd!")
    reply(juliet, chat.assistant, heard(juliet, "May I", "sdd"), "yes")
    heard(juliet, "sdd is wiped now")
    assert "wiped sdd" in chat.effects()
    asks(juliet, chat.assistant, "/start-contact", "write to you first again")


def test_it_talks_on_while_a_question_is_open(chat: Chat, juliet: SlixClient) -> None:
    chat.model.answers(
        Calls(("wipe", {"disk": "sdc"})), Text("Four."), Text("And sdc is wiped now.")
    )
    say(juliet, chat.assistant, "Wipe sdc!")
    question = heard(juliet, "sdc")
    assert asks(juliet, chat.assistant, "What is two and two?", "Four") == "Four."
    reply(juliet, chat.assistant, question, "yes")
    heard(juliet, "sdc is wiped now")
    assert "wiped sdc" in chat.effects()


# -- commands ----------------------------------------------------------------------------------


def test_each_slash_command_is_answered_without_the_model(chat: Chat, juliet: SlixClient) -> None:
    at = chat.assistant
    listed = asks(juliet, at, "/help", "/new")
    names = "new reset forget status ping usage stop persona skills tasks memory"
    for name in names.split():
        assert f"/{name} " in listed
    assert asks(juliet, at, "/ping", "pong") == "pong"
    assert "weather" in asks(juliet, at, "/skills", "weather")
    assert "Model: scripted" in asks(juliet, at, "/status", "Model")
    assert "Today you have used" in asks(juliet, at, "/usage", "count anew")
    assert "city" in asks(juliet, at, "/help weather", "weather")
    assert "Paris" in asks(juliet, at, "/run weather city=Paris", "Paris")
    assert "/run weather city=" in asks(juliet, at, "/run weather", "needs")
    assert asks(juliet, at, "/stop", "").endswith(".")
    assert "myself" in asks(juliet, at, "/persona", "myself")
    asks(juliet, at, "/tasks", "")
    asks(juliet, at, "/reset", "")
    asks(juliet, at, "/memory", "")
    assert chat.model.requests == []


def test_a_skill_that_a_command_runs_is_confirmed_like_any_other(
    chat: Chat, juliet: SlixClient
) -> None:
    say(juliet, chat.assistant, "/run wipe disk=sdw")
    question = heard(juliet, "May I", "sdw")
    assert "wiped sdw" not in chat.effects()
    reply(juliet, chat.assistant, question, "yes")
    assert body(heard(juliet, "sdw is wiped"))
    assert chat.effects().count("wiped sdw") == 1
    assert chat.model.requests == []


def test_new_and_forget(chat: Chat, juliet: SlixClient) -> None:
    chat.model.answers(Text("Ah."), Text("Oh."), Text("Eh."))
    asks(juliet, chat.assistant, "I am a Capulet.", "Ah")
    asks(juliet, chat.assistant, "/new", "new conversation")
    asks(juliet, chat.assistant, "Who am I?", "Oh")
    assert "Capulet" not in shown(chat.model.requests[1])
    mine = chat.agent.directory / "data" / "memory" / chat.server.jid("juliet")
    assert any("Capulet" in file.read_text() for file in (mine / "sessions").iterdir())
    asks(juliet, chat.assistant, "/forget", "Deleted")
    assert not (mine / "history.jsonl").exists()
    asks(juliet, chat.assistant, "And now?", "Eh")


def test_stop_in_the_middle(chat: Chat, juliet: SlixClient) -> None:
    chat.model.answers(Stall(), Text("What else?"))
    say(juliet, chat.assistant, "Tell me everything.")
    while not chat.model.requests:
        asks(juliet, chat.assistant, "/ping", "pong")
    asks(juliet, chat.assistant, "/stop", "topped")
    asks(juliet, chat.assistant, "Something short, please.", "What else?")


def test_an_admin_pauses_an_agent(chat: Chat, juliet: SlixClient, romeo: SlixClient) -> None:
    assert "assistant" in asks(romeo, chat.assistant, "/agents", "assistant")
    asks(romeo, chat.assistant, "/pause-agent assistant", "paused")
    assert "paused" in asks(juliet, chat.assistant, "Hello?", "paused")
    asks(romeo, chat.assistant, "/resume-agent assistant", "answers again")
    chat.model.answers(Text("Hello."))
    asks(juliet, chat.assistant, "Hello?", "Hello.")
    assert "no command" in asks(juliet, chat.assistant, "/pause-agent assistant", "command")


def test_a_persona_from_the_files(chat: Chat, juliet: SlixClient) -> None:
    folder = chat.agent.directory / "data" / "memory" / "personas" / "poet"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "persona.toml").write_text('[persona]\nid = "poet"\nname = "Poet"\n')
    (folder / "identity.md").write_text("You are a poet of the Renaissance.")
    assert "poet" in asks(juliet, chat.assistant, "/persona list", "Personas")
    asks(juliet, chat.assistant, "/persona poet", "I am now")
    chat.model.answers(Text("A rose by any other name."), Text("Plainly, then."))
    asks(juliet, chat.assistant, "What is in a name?", "rose")
    assert "poet of the Renaissance" in shown(chat.model.requests[0])
    asks(juliet, chat.assistant, "/persona reset", "myself again")
    asks(juliet, chat.assistant, "And plainly?", "Plainly")
    assert "poet of the Renaissance" not in shown(chat.model.requests[1])


# -- several at once -----------------------------------------------------------------------------


def test_sub_agents_do_a_part_each(chat: Chat, juliet: SlixClient) -> None:
    def think(request: Request) -> Answer:
        text = shown(request)
        if "a sub-agent of" in text:
            city = "Verona" if "Verona" in text else "Mantua"
            if request.messages[-1]["role"] == "tool":
                return Text(f"{city}: {request.messages[-1]['content']}")
            return Calls(("weather", {"city": city}))
        if request.messages[-1]["role"] == "tool":
            return Text("Both are sunny.")
        spawned = [{"task": f"How is the weather in {city}?"} for city in ("Verona", "Mantua")]
        return Calls(*(("spawn_agent", one) for one in spawned))

    chat.model.otherwise = think
    try:
        asks(juliet, chat.assistant, "How is it in Verona and Mantua?", "Both are sunny.")
    finally:
        chat.model.otherwise = None
    results = [m["content"] for m in chat.model.requests[-1].messages if m["role"] == "tool"]
    assert len(results) == 2
    assert "Sunny in Verona." in results[0]
    assert "Sunny in Mantua." in results[1]


def test_what_is_said_in_the_middle_is_answered_with_it(chat: Chat, juliet: SlixClient) -> None:
    chat.model.answers(Stall(), Text("Verona, by train."))
    say(juliet, chat.assistant, "How do I get there?")
    while not chat.model.requests:
        asks(juliet, chat.assistant, "/ping", "pong")
    say(juliet, chat.assistant, "To Verona, I mean.")
    heard(juliet, "by train")
    assert words(chat.model.requests[1]) == ["How do I get there?", "To Verona, I mean."]


@pytest.mark.thorough
def test_a_message_for_another_agent_of_the_component(xmpp_server: Server, tmp_path: Path) -> None:
    server = xmpp_server
    agents = [{"name": "researcher", "identity": "You find things out.", "skills": ["weather"]}]
    with chatting(server, tmp_path, agents=agents) as chat, login(server) as juliet:
        chat.model.answers(Text("I looked."))
        asks(juliet, f"researcher@{chat.agent.domain}", "Look!", "I looked.")
        (request,) = chat.model.requests
        assert "You find things out." in shown(request)
        assert [name for name in request.tools if name != "spawn_agent"] == ["weather"]


# -- what goes wrong -----------------------------------------------------------------------------


def test_an_outage_is_one_plain_sentence_and_loses_nothing(chat: Chat, juliet: SlixClient) -> None:
    chat.model.answers(Refuse(503), Text("Now I can."))
    say(juliet, chat.assistant, "The word is rosemary.")
    excuse = body(heard(juliet))
    assert "503" not in excuse
    assert excuse.endswith(".")
    asks(juliet, chat.assistant, "Can you now?", "Now I can.")
    assert "rosemary" in shown(chat.model.requests[-1])


@pytest.mark.thorough
def test_killed_in_the_middle_of_a_turn(chat: Chat, juliet: SlixClient) -> None:
    begun = len(chat.effects())
    chat.model.answers(Calls(("weather", {"city": "Mantua"}), ("lookup", {"run": "crash"})))
    say(juliet, chat.assistant, "Look it up for me.")
    while len(chat.model.requests) < 1:
        asks(juliet, chat.assistant, "/ping", "pong")
    chat.again()
    chat.model.answers(Text("Found."))
    chat.open_gate("crash")
    assert body(heard(juliet, "Found")) == "Found."
    assert len(chat.effects()) == begun
    assert words(chat.model.requests[-1]) == ["Look it up for me."]


def test_killed_while_it_waits_for_a_word(chat: Chat, juliet: SlixClient) -> None:
    chat.model.answers(Calls(("wipe", {"disk": "sdx"})))
    say(juliet, chat.assistant, "Wipe sdx!")
    question = heard(juliet, "sdx")
    chat.again()
    chat.model.answers(Text("sdx is clean."))
    reply(juliet, chat.assistant, question, "yes")
    heard(juliet, "sdx is clean")
    assert chat.effects().count("wiped sdx") == 1


# -- budgets -------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_budget_stops_it_before_the_call(xmpp_server: Server, tmp_path: Path) -> None:
    server = xmpp_server
    limits = {
        "budgets__per_principal__tokens": 6000,
        "budgets__alert": 0.001,
        "llm__max_tokens_per_request": 1000,
    }
    with (
        chatting(server, tmp_path, **limits) as chat,
        login(server) as juliet,
        login(server, "romeo") as admin,
    ):
        answered = 0
        chat.model.otherwise = Text("word " * 700)
        while "budget" not in asks(juliet, chat.assistant, "Go on.", ""):
            answered += 1
            assert answered < 20
        assert len(chat.model.requests) == answered > 0
        assert "of 6,000" in asks(juliet, chat.assistant, "/usage", "tokens")
        heard(admin, "% of the budget of", server.jid("juliet"))

"""People make personas for themselves in a plain chat, through a real server and a crash."""

from collections.abc import Iterator
from typing import Final

import pytest

from tests.component.models.endpoint import Request, Text
from tests.servers.base import Server
from tests.servers.chatting import Chat, asks, body, chatting, heard, say
from tests.servers.clients import Element, SlixClient
from tests.servers.talk import result
from tests.servers.test_chat import juliet, romeo

# pytest finds fixtures by their names in here.
__all__ = ["juliet", "romeo"]

pytestmark = [pytest.mark.servers]

COMMANDS: Final = "http://jabber.org/protocol/commands"
FORMS: Final = "jabber:x:data"
FIELD: Final = f"{{{FORMS}}}field"


@pytest.fixture(scope="module")
def chat(prosody_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chat]:
    allowed = {"personas__allow_user_personas": "true", "personas__allow_sharing": "true"}
    with chatting(prosody_server, tmp_path_factory.mktemp("chat"), **allowed) as chat:
        yield chat


def shown(request: Request) -> str:
    return "\n".join(str(message.get("content")) for message in request.messages)


def test_made_in_a_dialogue_that_is_killed_in_its_middle(
    chat: Chat, juliet: SlixClient, romeo: SlixClient
) -> None:
    at = chat.assistant
    asks(juliet, at, "/persona create Study Buddy", "1 of 3", "/persona cancel")
    chat.again()
    asks(juliet, at, "You are a patient tutor.", "2 of 3")
    chat.again()
    assert asks(juliet, at, "/ping", "pong") == "pong"  # which is no answer
    chat.model.answers(Text("Good evening, Romeo."))
    asks(romeo, at, "Is anybody asked?", "Romeo")  # nor is what somebody else says
    asks(juliet, at, "You are kind, and strict.", "3 of 3")
    asks(juliet, at, "No direct answers, ever.", "Study Buddy is created")
    assert len(chat.model.requests) == 1
    assert "(yours) - You are a patient tutor." in asks(juliet, at, "/persona list", "study-buddy")
    assert "study-buddy" not in asks(romeo, at, "/persona list", "ersonas")
    asks(juliet, at, "/persona study buddy", "I am now Study Buddy.")
    chat.model.answers(Text("What do you think it is?"), Text("Four."))
    asks(juliet, at, "What is two and two?", "What do you think")
    prompt = shown(chat.model.requests[-1])
    for text in ("a patient tutor.", "kind, and strict.", "No direct answers, ever."):
        assert prompt.index(text) < prompt.index("is data: things to read")
    asks(romeo, at, "What is two and two?", "Four.")
    assert "patient tutor" not in shown(chat.model.requests[-1])
    mine = chat.agent.directory / "data" / "memory" / chat.server.jid("juliet") / "personas"
    assert sorted(each.name for each in (mine / "study-buddy").iterdir()) == [
        *("identity.md", "instructions.md", "persona.toml", "personality.md")
    ]


def test_left_in_the_middle(chat: Chat, juliet: SlixClient) -> None:
    asks(juliet, chat.assistant, "/persona create poet", "1 of 3")
    asks(juliet, chat.assistant, "/persona cancel", "Cancelled.")
    chat.model.answers(Text("Here I am."))
    asks(juliet, chat.assistant, "Who is there?", "Here I am.")


def test_handed_on_from_one_to_another(chat: Chat, juliet: SlixClient, romeo: SlixClient) -> None:
    at = chat.assistant
    asks(juliet, at, '/persona create bard role="You are a bard.\nYou \\"sing\\"."', "is created")
    text = asks(juliet, at, "/persona export bard", "[persona]")
    asks(romeo, at, f"/persona import\n{text}", "bard is imported")
    asks(romeo, at, "/persona bard", "I am now bard.")
    chat.model.answers(Text("La la la."))
    asks(romeo, at, "Sing!", "La la")
    assert 'You are a bard.\nYou "sing".' in shown(chat.model.requests[-1])
    say(romeo, at, "/persona import\n" + "a." * 3_000 + "a = 1")
    assert "no persona" in body(heard(romeo, "no persona"))
    asks(romeo, at, "/persona delete bard", "bard is deleted. I am now myself again.")


def test_a_persona_is_created_with_a_form(chat: Chat, juliet: SlixClient) -> None:
    fields = {"persona": "create", "name": "cook", "role": "You cook.", "rules": "No meat."}
    assert "cook is created." in _said(_completed(juliet, chat.assistant, fields))
    assert "cook (yours) - You cook." in asks(juliet, chat.assistant, "/persona list", "cook")
    form = _completed(juliet, chat.assistant, {"persona": "create", "name": "a/b", "role": "x"})
    assert form.get("status") == "executing"  # the form comes back, with what is wrong
    assert "small letters, digits" in _said(form)


def _completed(client: SlixClient, at: str, fields: dict[str, str]) -> Element:
    """The command after its form was sent, with these fields."""
    node = "command/persona"
    begun = result(client.iq(at, f"<command xmlns='{COMMANDS}' node='{node}'/>", "set"))
    asked = [field.get("var") for field in begun.iter(FIELD)]
    assert set(fields) <= set(asked)
    given = "".join(
        f"<field var='{var}'><value>{value}</value></field>" for var, value in fields.items()
    )
    return result(
        client.iq(
            at,
            f"<command xmlns='{COMMANDS}' node='{node}' sessionid='{begun.get('sessionid')}'"
            f" action='complete'><x xmlns='{FORMS}' type='submit'>{given}</x></command>",
            "set",
        )
    )


def _said(command: Element) -> str:
    return "\n".join(note.text or "" for note in command.iter(f"{{{COMMANDS}}}note"))

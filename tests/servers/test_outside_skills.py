"""A running service offers the skills that reach outside: an agent writes to somebody after a
person has confirmed it, and calls an HTTP API.
"""

from collections.abc import Iterator

import pytest
from anyio.from_thread import start_blocking_portal

from tests.component.models.endpoint import Calls, Text
from tests.component.web_server import Server as Web
from tests.component.web_server import as_json, serving
from tests.servers.base import Server
from tests.servers.chatting import Chat, asks, body, chatting, heard, reply, say
from tests.servers.clients import SlixClient
from tests.servers.talk import login

pytestmark = [pytest.mark.servers]


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    api = serving(lambda _: as_json({"now": {"degrees": 21}}))
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(api) as server:
        yield server


@pytest.fixture(scope="module")
def chat(xmpp_server: Server, web: Web, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chat]:
    with chatting(
        xmpp_server,
        tmp_path_factory.mktemp("outside"),
        xmpp_send__recipients=[xmpp_server.jid("romeo")],
        xmpp_send__first_contact="introduce",
        rest={
            "warmth": {
                "description": "Return how warm it is.",
                "url": f"{web.url}/{{city}}",
                "parameters": {"city": {"type": "string"}},
                "output": "{now.degrees} degrees",
            }
        },
    ) as running:
        yield running


@pytest.fixture(scope="module")
def juliet(chat: Chat) -> Iterator[SlixClient]:
    with login(chat.server) as client:
        yield client


def test_a_message_is_confirmed_and_sent_on_behalf_of_a_person(
    chat: Chat, juliet: SlixClient
) -> None:
    romeo_jid = chat.server.jid("romeo")
    with login(chat.server, "romeo") as romeo:
        call = Calls(("xmpp_send", {"to": romeo_jid, "text": "Come to the balcony."}))
        chat.model.answers(call, Text("I have told him."))
        say(juliet, chat.assistant, "Tell Romeo to come to the balcony!")
        question = heard(juliet, "balcony", romeo_jid)
        reply(juliet, chat.assistant, question, "yes")
        message = heard(romeo, "balcony")
        heard(juliet, "told him")
    told = f"{chat.server.jid('juliet')} asks me to tell you:\nCome to the balcony."
    assert body(message).endswith(told)
    assert body(message).startswith("Hello, I am ")
    assert message.attrib["from"] == chat.assistant


def test_nobody_else_is_written_to(chat: Chat, juliet: SlixClient) -> None:
    call = Calls(("xmpp_send", {"to": "tybalt@example.org", "text": "Come out."}))
    chat.model.answers(call, Text("I may not."))
    say(juliet, chat.assistant, "Write to Tybalt!")
    reply(juliet, chat.assistant, heard(juliet, "tybalt@example.org"), "yes")
    heard(juliet, "I may not")
    assert "not permitted to write" in chat.model.requests[-1].messages[-1]["content"]


def test_an_http_api_is_called(chat: Chat, juliet: SlixClient, web: Web) -> None:
    chat.model.answers(Calls(("warmth", {"city": "Verona"})), Text("Warm."))
    asks(juliet, chat.assistant, "How warm is it?", "Warm")
    assert web.requests[-1].path == "/Verona"
    assert "21 degrees" in chat.model.requests[-1].messages[-1]["content"]

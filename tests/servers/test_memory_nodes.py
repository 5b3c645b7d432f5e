"""A person reads, corrects and deletes what an agent remembers of them, with a client that nobody
here wrote, on real servers.
"""

import json
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from slixmpp.exceptions import IqError

from tests.component.models.endpoint import Calls, Text
from tests.servers.base import Server
from tests.servers.chatting import Chat, asks, chatting
from tests.servers.clients import SlixClient
from tests.servers.talk import execute, login, output

pytestmark = [pytest.mark.servers]

MEMORY = "urn:fluux:agent:0#memory"
STORES_TEA = ("memory_store", {"key": "tea", "body": "Juliet likes jasmine tea."})


class Owner:
    """A person and the client with which they look at their node."""

    def __init__(self, chat: Chat, client: SlixClient) -> None:
        self.client = client
        self.service = chat.assistant
        self.node = f"{MEMORY}/{chat.server.jid('juliet')}"

        async def register(xmpp: Any) -> None:
            xmpp.register_plugin("xep_0060")

        client.run(register)

    def do(self, verb: str, *args: Any, **options: Any) -> Any:
        async def call(xmpp: Any) -> Any:
            return await getattr(xmpp.plugin["xep_0060"], verb)(
                self.service, self.node, *args, **options
            )

        return self.client.run(call)

    def items(self) -> dict[str, ET.Element]:
        answer = self.do("get_items")
        return {each["id"]: each["payload"] for each in answer["pubsub"]["items"]}

    def texts(self) -> dict[str, str]:
        return {key: "".join(each.itertext()) for key, each in self.items().items()}

    def edit(self, key: str, text: str) -> None:
        memory = ET.Element(f"{{{MEMORY}}}memory", key=key, version="2")
        ET.SubElement(memory, f"{{{MEMORY}}}content").text = text
        self.do("publish", id=key, payload=memory)


def recall(chat: Chat, client: SlixClient, key: str) -> str:
    asked = execute("conformance.recall", key=key)
    return output(client.iq(to=chat.agent.domain, payload=asked, type="set"))


@pytest.fixture(scope="module", params=["both", pytest.param("pep", marks=pytest.mark.thorough)])
def chat(
    request: pytest.FixtureRequest, xmpp_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Chat]:
    me = {"name": "assistant", "capabilities": ["memory"], "skills": ["memory_*"]}
    with chatting(
        xmpp_server,
        tmp_path_factory.mktemp("chat"),
        memory__store=request.param,
        conformance__enabled=True,
        agents=[me],
    ) as found:
        yield found


def test_the_owner_edits_and_deletes_what_is_remembered(chat: Chat) -> None:
    with login(chat.server) as juliet, login(chat.server, "romeo") as romeo:
        owner, stranger = Owner(chat, juliet), Owner(chat, romeo)
        chat.model.answers(Calls(STORES_TEA), Text("I will remember that."))
        asks(juliet, chat.assistant, "I like jasmine tea.", "remember that")
        (item,) = owner.items().values()
        assert item.tag == f"{{{MEMORY}}}memory"
        assert (item.get("key"), item.get("version")) == ("tea", "1")
        assert item.get("by") == chat.assistant
        assert owner.texts() == {"tea": "Juliet likes jasmine tea."}
        for verb in ("get_items", "get_node_config", "delete_node"):
            with pytest.raises(IqError) as refused:
                stranger.do(verb)
            assert refused.value.condition == "item-not-found", verb
        # The owner's new text is in the next prompt.
        owner.edit("tea", "Juliet likes black coffee, no tea.")
        chat.model.answers(Text("Coffee, then."))
        asks(juliet, chat.assistant, "Which tea do I like?", "Coffee, then.")
        prompt = json.dumps(chat.model.requests[-1].body)
        assert "black coffee" in prompt
        assert "Juliet likes jasmine tea" not in prompt.replace("{\\", "")[: prompt.find("I like")]
        # What the owner deletes is gone: from prompts, files, the index.
        owner.do("retract", "tea")
        recalled = juliet.iq(
            to=chat.agent.domain, payload=execute("conformance.recall", key="tea"), type="set"
        )
        assert output(recalled) == ""
        for path in (chat.agent.directory / "data" / "memory").rglob("*"):
            if path.is_file() and path.name != "history.jsonl":
                assert b"coffee" not in path.read_bytes(), path
        assert owner.items() == {}


def test_a_node_outlives_a_restart_and_forget_empties_it(chat: Chat) -> None:
    with login(chat.server) as juliet:
        owner = Owner(chat, juliet)
        owner.edit("hat", "My hat is blue.")
        chat.again()
        recalled = juliet.iq(
            to=chat.agent.domain, payload=execute("conformance.recall", key="hat"), type="set"
        )
        assert output(recalled) == "My hat is blue."
        asks(juliet, chat.assistant, "/memory set hat It is red now.", "version")
        assert owner.texts() == {"hat": "It is red now."}
        assert "It is red now" in asks(juliet, chat.assistant, "/memory export", "format")
        asks(juliet, chat.assistant, "/forget", "Deleted")
        assert owner.items() == {}

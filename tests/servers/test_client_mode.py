"""An agent on an ordinary account: discovery, execute, confirmation, commands and chat."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.component.models.endpoint import Calls, Text
from tests.servers import guides
from tests.servers.base import Server
from tests.servers.chatting import CONFIRM, Chat, asks, chatting, heard, reply, say
from tests.servers.client_account import ACCOUNT, FULL, at, client_toml, server
from tests.servers.clients import Element, SlixClient
from tests.servers.talk import (
    EXECUTE,
    FLUUX,
    INFO,
    ITEMS,
    ROSTER,
    SKILLS,
    application,
    condition,
    execute,
    from_,
    login,
    output,
    query,
    result,
)

__all__ = ["server"]  # pytest finds fixtures by their names in here

pytestmark = [pytest.mark.servers]

COMMANDS = "http://jabber.org/protocol/commands"


@dataclass
class ClientChat(Chat):
    """A chat with an agent that has an account."""

    @property
    def assistant(self) -> str:
        return ACCOUNT


@pytest.fixture(scope="module")
def chat(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chat]:
    directory = tmp_path_factory.mktemp("agent")
    toml = client_toml(directory)
    with chatting(server, directory, toml=toml, **at(server)) as chat:
        yield ClientChat(chat.server, chat.agent, chat.model)


@dataclass
class Contact:
    """A client that is subscribed to the agent, and the presence that it got."""

    client: SlixClient
    presence: Element


@pytest.fixture(scope="module")
def contact(chat: Chat) -> Iterator[Contact]:
    with login(chat.server, ca_file=chat.server.ca_file) as client:
        client.iq(None, ROSTER)  # only who has asked for the roster hears of subscriptions
        client.send_raw(f"<presence type='subscribe' to='{ACCOUNT}'/>")
        client.presences.take(from_(ACCOUNT, "subscribed"))
        yield Contact(client, client.presences.take(from_(ACCOUNT)))


@pytest.fixture
def juliet(contact: Contact) -> SlixClient:
    return contact.client


def test_discovery_at_the_full_address(juliet: SlixClient) -> None:
    info = result(juliet.iq(FULL, query(INFO)))
    features = {one.get("var") for one in info.iterfind("{*}feature")}
    assert {FLUUX, EXECUTE, SKILLS, COMMANDS} <= features
    (identity,) = info.iterfind("{*}identity")
    assert (identity.get("category"), identity.get("type"), identity.get("name")) == (
        "client",
        "bot",
        "Helper",
    )
    items = result(juliet.iq(FULL, query(ITEMS, f"node='{SKILLS}'")))
    skills = {one.get("node"): one.get("jid") for one in items}
    assert skills[f"{SKILLS}/echo"] == FULL, "where those who ask can reach it by IQ"


def test_an_execute_is_answered(juliet: SlixClient) -> None:
    assert output(juliet.iq(FULL, execute("echo", text="hello"), "set")) == "hello"
    answer = juliet.iq(FULL, f"<execute xmlns='{EXECUTE}'/>", "set")
    condition_of_ours = application(answer)
    assert condition(answer) == "bad-request"
    assert condition_of_ours is not None
    assert condition_of_ours.tag.endswith("}malformed")


def test_a_confirmation_and_the_end_of_the_task(chat: Chat, juliet: SlixClient) -> None:
    accepted = result(juliet.iq(FULL, execute("wipe", disk="sda"), "set"))
    assert accepted.tag == f"{{{EXECUTE}}}accepted"
    question = heard(juliet, "sda")
    assert question.find(CONFIRM) is not None
    reply(juliet, ACCOUNT, question, "yes")

    def ended(message: Element) -> bool:
        task = message.find(f"{{{FLUUX}#task}}task")
        return task is not None and task.get("state") == "completed"

    assert "sda is wiped." in "".join(juliet.messages.take(ended).itertext())
    assert chat.effects() == ["wiped sda"]


def test_an_ad_hoc_command(juliet: SlixClient) -> None:
    listed = result(juliet.iq(FULL, query(ITEMS, f"node='{COMMANDS}'")))
    nodes = {one.get("node") for one in listed}
    node = next(one for one in nodes if one is not None and one.endswith("help"))
    asked = f"<command xmlns='{COMMANDS}' node='{node}' action='execute'/>"
    assert result(juliet.iq(FULL, asked, "set")).get("status") == "executing"


def test_chat_with_the_bare_address(chat: Chat, juliet: SlixClient) -> None:
    chat.model.answers(Text("Good evening, Juliet."))
    say(juliet, ACCOUNT, "Good evening!")
    assert heard(juliet, "Good evening, Juliet.").get("from") == FULL
    chat.model.answers(Calls(("weather", {"city": "Verona"})), Text("It is sunny."))
    assert "sunny" in asks(juliet, ACCOUNT, "How is the weather?", "sunny")
    assert "/help" in asks(juliet, ACCOUNT, "/help", "/help")


def test_a_contact_request_is_approved_and_shows_the_capabilities(contact: Contact) -> None:
    assert contact.presence.get("from") == FULL
    caps = contact.presence.find("{http://jabber.org/protocol/caps}c")
    assert caps is not None
    asked = query(INFO, f"node='{caps.get('node')}#{caps.get('ver')}'")
    assert result(contact.client.iq(FULL, asked)).find("{*}identity") is not None


def test_aioxmpp_finds_and_asks_the_agent(chat: Chat) -> None:
    server = chat.server
    account = (server.jid("romeo"), server.accounts["romeo"])
    where = (server.address, str(server.c2s_port), str(server.ca_file))
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "tests.servers.aioxmpp_peer",
            *account,
            *where,
            FULL,
        ],
        cwd=guides.DOCS.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["outputs"] == ["from aioxmpp"]
    assert {FLUUX, EXECUTE} <= set(found["features"])
    assert found["identities"] == [["client", "bot"]]
    assert "/help" in found["answer"]


def test_a_fault_in_a_disco_query_is_no_condition_of_the_protocol(juliet: SlixClient) -> None:
    broken = query(ITEMS, inside="<set xmlns='http://jabber.org/protocol/rsm'><max>x</max></set>")
    answer = juliet.iq(FULL, broken)
    assert condition(answer) == "bad-request"
    assert application(answer) is None

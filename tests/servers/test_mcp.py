"""Tools of MCP servers through a real XMPP server: in chats, by IQ, and with their questions."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.component.features.mcp.serving import SCRIPTED
from tests.component.models.endpoint import Calls, Text
from tests.profiles import THOROUGH
from tests.servers.base import Server
from tests.servers.chatting import CONFIRM, Chat, asks, body, chatting, heard, reply, say
from tests.servers.clients import SlixClient
from tests.servers.mcp_servers import python_server
from tests.servers.talk import execute, output
from tests.servers.test_chat import _fresh, juliet

pytestmark = [pytest.mark.servers]

__all__ = ["_fresh", "juliet"]


@pytest.fixture(scope="module")
def chat(xmpp_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chat]:
    servers: dict[str, Any] = {
        "own": {"command": [sys.executable, "-S", str(SCRIPTED)], "readable": [str(SCRIPTED)]},
    }
    if THOROUGH:
        servers["time"] = {
            "command": [python_server("time")],
            "read_only": ["*"],
            "annotations": {"*": {"read_only": True, "open_world": False}},
        }
    with chatting(xmpp_server, tmp_path_factory.mktemp("mcp"), mcp=servers) as chat:
        for name in servers:
            if not chat.agent.log("an MCP server is available", server=name):
                chat.agent.wait_log("an MCP server is available", server=name)
        yield chat


@pytest.mark.thorough
def test_a_person_uses_a_tool_in_a_chat(chat: Chat, juliet: SlixClient) -> None:
    wanted = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    chat.model.answers(Calls(("time__convert_time", wanted)), Text("It is nine in the evening."))
    asks(juliet, chat.assistant, "What is noon UTC in Tokyo?", "nine")
    first, second = chat.model.requests
    assert any("convert_time" in name for name in first.tools)
    assert "21:00" in str(second.messages[-1]["content"])


@pytest.mark.thorough
def test_an_iq_runs_a_tool(chat: Chat, juliet: SlixClient) -> None:
    answer = juliet.iq(
        chat.assistant,
        execute("time.get_current_time", timezone="Europe/Paris"),
        type="set",
        timeout=120,
    )
    assert json.loads(output(answer))["timezone"] == "Europe/Paris"


def test_a_tool_counts_as_destructive(chat: Chat, juliet: SlixClient) -> None:
    chat.model.answers(Calls(("own__echo", {"text": "hello"})), Text("It said hello."))
    say(juliet, chat.assistant, "Say hello by the tool.")
    question = heard(juliet, "own.echo")
    assert question.find(CONFIRM) is not None
    reply(juliet, chat.assistant, question, "yes")
    assert body(heard(juliet, "said")) == "It said hello."
    assert "hello" in str(chat.model.requests[-1].messages[-1]["content"])


def test_a_question_of_a_server_reaches_the_person(chat: Chat, juliet: SlixClient) -> None:
    chat.model.answers(Calls(("own__choose", {"text": ""})), Text("You chose."))
    say(juliet, chat.assistant, "Let me choose.")
    reply(juliet, chat.assistant, heard(juliet, "own.choose"), "yes")
    question = heard(juliet, "The MCP server own asks: Which one?")
    reply(juliet, chat.assistant, question, "red")
    heard(juliet, "You chose")
    told = str(chat.model.requests[-1].messages[-1]["content"])
    assert "accept" in told
    assert "red" in told


def test_a_question_that_is_open_at_a_restart_ends_the_call_when_it_is_answered(
    chat: Chat, juliet: SlixClient
) -> None:
    """The process of the server is gone with the service. Nothing is called twice."""
    chat.model.answers(Calls(("own__choose", {"text": ""})), Text("You chose too late."))
    say(juliet, chat.assistant, "Let me choose.")
    reply(juliet, chat.assistant, heard(juliet, "own.choose"), "yes")
    question = heard(juliet, "The MCP server own asks: Which one?")
    chat.agent.kill()
    chat.agent.start().connected()
    reply(juliet, chat.assistant, question, "red")
    heard(juliet, "You chose too late")
    told = str(chat.model.requests[-1].messages[-1]["content"])
    assert "after the service was started again" in told
    assert "accept" not in told

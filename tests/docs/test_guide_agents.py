"""The guide to agents that talk: its configuration runs, and its conversation takes place."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from component.agent.conversation import RESTARTS
from component.app.features import load
from component.config.agents import Loop
from tests.component.models.endpoint import Calls, Endpoint, Text, in_thread
from tests.docs.conftest import Commands
from tests.servers.agent_process import AgentProcess
from tests.servers.base import Server
from tests.servers.chatting import asks, body, heard, reply, say
from tests.servers.guides import ADDRESS, DOCS, HOST, PORT, block, fill
from tests.servers.talk import login

GUIDE = DOCS / "how-to" / "agents.md"
TURNS = DOCS / "explanation" / "turns.md"
COMMANDS = DOCS / "reference" / "chat-commands.md"
# What a model would find by itself: which tool it calls before it answers.
CALLS = {
    "What do I have on Friday?": Calls(("diary_look", {"day": "Friday"})),
    "Cancel it, please.": Calls(("diary_cancel", {"day": "Friday"})),
}
OURS = ("May I run", "Approved: ", "Today you have")
"""How answers begin that no model writes."""


NOT_IN_HELP = {"approve", "deny", "show", "answer"}
"""Ways to answer a question."""


def commands_told() -> set[str]:
    """The slash commands in the tables of the reference, but for those that need a setting."""
    rows = re.findall(r"^\| (`/.*?) \|", COMMANDS.read_text(), re.MULTILINE)
    return set(re.findall(r"`/([a-z-]+)", " ".join(rows))) - {"memory-home", "grants", "peers"}


def conversation() -> list[tuple[str, str]]:
    """Who says what in the guide, in order."""
    said: list[tuple[str, str]] = []
    for line in block(GUIDE, "conversation").splitlines():
        who, colon, text = line.partition(": ")
        if colon and not line.startswith(" "):
            said.append((who, text))
        else:
            last, before = said.pop()
            said.append((last, f"{before}\n{line.strip()}"))
    return said


def configuration(server: Server) -> str:
    """The guide's agent.toml for a server of the tests."""
    values = {HOST: server.host, ADDRESS: server.address, PORT: str(server.component_port)}
    return fill(block(GUIDE, "agent.toml"), values)


@pytest.fixture
def model() -> Iterator[Endpoint]:
    with in_thread() as endpoint:
        endpoint.key = "sk-of-the-guide"
        yield endpoint


def script(model: Endpoint) -> None:
    """Let the model say what the guide has it say."""
    for who, text in conversation():
        if who == "juliet" and text in CALLS:
            model.answers(CALLS[text])
        elif who == "butler" and not text.startswith(OURS):
            model.answers(Text(text))


@pytest.mark.servers
def test_the_conversation_of_the_guide_takes_place(
    prosody_server: Server, model: Endpoint, tmp_path: Path, commands: Commands
) -> None:
    (tmp_path / "diary.py").write_text(block(GUIDE, "diary.py"))
    (tmp_path / "agent.env").write_text(f"OPENAI_API_KEY={model.key}\n")
    script(model)
    toml = configuration(prosody_server)
    agent = AgentProcess(prosody_server, tmp_path, toml=toml, llm__base_url=model.url)
    with agent, login(prosody_server) as juliet, login(prosody_server, "romeo") as romeo:
        agent.connected()
        message = None
        for who, text in conversation():
            if text == "yes":  # faster than anybody types it, so it has to name its question
                assert message is not None
                reply(juliet, f"assistant@{agent.domain}", message, text)
            elif who == "juliet":
                say(juliet, f"assistant@{agent.domain}", text)
            else:
                pattern = ".*".join(map(re.escape, text.split("…")))
                message = heard(juliet)
                assert re.fullmatch(pattern, body(message)), body(message)
        assert model.left == 0
        assert model.requests[0].tools == [
            *("spawn_agent", "diary_cancel", "diary_look"),
            *("memory_forget", "memory_recall", "memory_search", "memory_store", "time"),
        ]
        assert model.requests[0].body["model"] == "gpt-4.1-mini"
        # The other agent uses the other model, with the key and at the address of the first.
        model.answers(Text("Let me think."))
        say(juliet, f"researcher@{agent.domain}", "Why is the sky blue?")
        assert body(heard(juliet, "think")) == "Let me think."
        assert model.requests[-1].body["model"] == "gpt-4.1"
        for command, words in (
            ("agents list", ("assistant", "researcher", "Thinks longer")),
            ("agents pause researcher", ("researcher", "paused")),
            ("agents resume researcher", ("researcher", "idle")),
            ("budget", ("principal", prosody_server.jid("juliet"), "200000")),
        ):
            assert f"xmpp-agent {command}" in GUIDE.read_text()
            printed = commands(f"xmpp-agent {command}", AGENT_SECRET=agent.secret)
            assert all(word in printed for word in words), printed
        there = [asks(who, agent.domain, "/help", "/help") for who in (juliet, romeo)]
        assert commands_told() == {*re.findall(r"/([a-z-]+)", "".join(there)), *NOT_IN_HELP}
    record = "".join(path.read_text() for path in (tmp_path / "data" / "audit").glob("*.jsonl"))
    kinds = {json.loads(line)["kind"] for line in record.splitlines()}
    assert {"model", "tool-call", "confirmation"} <= kinds


@pytest.mark.parametrize(
    "text", re.findall(r"^```toml\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
)
def test_every_toml_example_of_the_agents_guide_is_loaded(text: str, tmp_path: Path) -> None:
    if "[server]" not in text:
        text = f'[server]\ncomponent_domain = "agent.example.com"\ncomponent_secret = "x"\n{text}'
    path = tmp_path / "agent.toml"
    path.write_text(text)
    settings = load(path, {"AGENT_SECRET": "x", "OPENAI_API_KEY": "y"})
    assert settings.notice is None


def test_the_figures_are_those_of_the_code() -> None:
    text = " ".join((GUIDE.read_text() + TURNS.read_text()).split())
    loop = Loop()
    words, ordinals = {3: "three"}, {3: "third"}
    assert f"From the {ordinals[loop.same_call]} call with the same arguments" in text
    assert f"dropped ({words[RESTARTS]} times in a turn at most)" in text

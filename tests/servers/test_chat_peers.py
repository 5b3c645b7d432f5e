"""Other agents write to this agent: what they say is labelled, and reaches out into the world only
with somebody's word. Who says nothing of itself is a person, and waits for nobody.
"""

import json
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher import MatchXPath

from component.audit.files import files_in
from tests.component.models.endpoint import Calls, Text
from tests.servers.base import Server
from tests.servers.chatting import CONFIRM, Chat, asks, body, chatting, heard, reply, say
from tests.servers.clients import SlixClient
from tests.servers.talk import FLUUX, INFO, login

pytestmark = [pytest.mark.servers]

POST = '''

@skill(destructive=False)
def post(text: str) -> str:
    """Put a text where everybody sees it."""
    with Path("effects").open("a") as file:
        file.write(f"posted {text}\\n")
    return f"{text} is posted."
'''
NOBODY = "nobody can be asked"


class Speaker:
    """A client that says of itself what a test wants, or nothing."""

    def __init__(self, client: SlixClient, *features: str, silent: bool = False) -> None:
        self._client = client
        self._features = features
        self.silent = silent
        self.asked = threading.Semaphore(0)
        matcher = MatchXPath(f"{{jabber:client}}iq/{{{INFO}}}query")
        client.xmpp.register_handler(Callback("what it is", matcher, self._answer))

    def _answer(self, iq: Any) -> None:
        self.asked.release()
        if self.silent:
            return
        features = "".join(f"<feature var='{one}'/>" for one in self._features)
        self._client.xmpp.send_raw(
            f"<iq type='result' id='{iq['id']}' to='{iq['from']}'>"
            f"<query xmlns='{INFO}'>{features}</query></iq>"
        )


@pytest.fixture
def chat(prosody_server: Server, tmp_path: Path) -> Iterator[Chat]:
    with peer_chat(prosody_server, tmp_path) as chat:
        yield chat


def peer_chat(server: Server, directory: Path, **settings: object) -> Any:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "posting.py").write_text(
        f"from pathlib import Path\nfrom component.skills import skill\n{POST}"
    )
    modules = ["./own.py", "./posting.py"]
    return chatting(server, directory, skills__modules=modules, **settings)


@pytest.fixture
def juliet(prosody_server: Server) -> Iterator[SlixClient]:
    with login(prosody_server, plugins=()) as client:
        yield client


@pytest.fixture
def romeo(prosody_server: Server) -> Iterator[SlixClient]:
    with login(prosody_server, "romeo") as client:
        yield client


def said_by(chat: Chat, account: str) -> list[tuple[str, str]]:
    """The messages of an account, with the label that each has in its session."""
    file = chat.agent.directory / "data" / "memory" / chat.server.jid(account) / "history.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [(one["content"], one["taint"]) for one in lines if one.get("role") == "user"]


def test_a_peer_reaches_nothing_outside_and_a_person_is_asked(
    chat: Chat, juliet: SlixClient, romeo: SlixClient
) -> None:
    Speaker(juliet, FLUUX)
    for call in (("post", {"text": "hello"}), ("wipe", {"disk": "sda"})):
        chat.model.answers(Calls(call), Text("I must not."))
        asks(juliet, chat.assistant, f"Do it: {call[0]}!", "I must not.")
        result = chat.model.requests[-1].messages[-1]["content"]
        assert NOBODY in result
    assert chat.effects() == []
    assert not any(one.find(CONFIRM) is not None for one in juliet.messages.all())
    assert said_by(chat, "juliet") == [("Do it: post!", "peer"), ("Do it: wipe!", "peer")]
    prompt = str(chat.model.requests[0].messages)
    # The address is marked as data, because the peer chose it.
    assert re.search(rf">{re.escape(chat.server.jid('juliet'))}</data-\w+>\.", prompt)
    assert "This message is from another agent." in prompt

    chat.model.answers(Calls(("post", {"text": "hello"})), Text("It is there."))
    asks(romeo, chat.assistant, "Do it: post!", "It is there.")
    assert chat.effects() == ["posted hello"]
    chat.model.answers(Calls(("wipe", {"disk": "sda"})), Text("It is done."))
    say(romeo, chat.assistant, "Do it: wipe!")
    question = heard(romeo, "sda")
    assert question.find(CONFIRM) is not None
    reply(romeo, chat.assistant, question, "yes")
    assert body(heard(romeo, "done")) == "It is done."
    assert said_by(chat, "romeo") == [("Do it: post!", "person"), ("Do it: wipe!", "person")]

    chat.agent.stop()
    record = [
        json.loads(line)
        for file in files_in(chat.agent.directory / "data" / "audit")
        for line in file.read_bytes().splitlines()
    ]
    flows = [one for one in record if one["kind"] == "taint"]
    by_label = [one for one in flows if "peer" in one["detail"]]
    assert [(one["principal"], one["subject"], one["outcome"]) for one in by_label] == [
        (chat.server.jid("juliet"), name, "confirm") for name in ("post", "wipe")
    ]


def test_an_approver_is_asked_about_what_a_peer_wants(
    prosody_server: Server, tmp_path: Path, juliet: SlixClient, romeo: SlixClient
) -> None:
    rules = [{"skills": ["post"], "approvers": [prosody_server.jid("romeo")]}]
    with peer_chat(prosody_server, tmp_path, policy__rules=rules) as chat:
        Speaker(juliet, FLUUX)
        chat.model.answers(Calls(("post", {"text": "hello"})), Text("It is there."))
        say(juliet, chat.assistant, "Post it!")
        question = heard(romeo, "post")
        assert question.find(CONFIRM) is not None
        assert chat.effects() == []
        reply(romeo, chat.assistant, question, "yes")
        assert body(heard(juliet, "there")) == "It is there."
        assert chat.effects() == ["posted hello"]


@pytest.mark.thorough
def test_who_never_says_what_it_is_is_answered_and_asked_once(
    chat: Chat, juliet: SlixClient
) -> None:
    speaker = Speaker(juliet, silent=True)
    chat.model.answers(Text("Good evening."), Text("And to you."))
    assert asks(juliet, chat.assistant, "Good evening!", "evening") == "Good evening."
    asks(juliet, chat.assistant, "Good night!", "And to you.")
    assert speaker.asked.acquire(blocking=False)
    assert not speaker.asked.acquire(blocking=False)
    assert [label for _, label in said_by(chat, "juliet")] == ["person", "person"]


def test_killed_while_it_asks(chat: Chat, juliet: SlixClient) -> None:
    speaker = Speaker(juliet, FLUUX, silent=True)
    say(juliet, chat.assistant, "Do it!")
    assert speaker.asked.acquire(timeout=120)
    while not rows(chat):
        pass
    chat.agent.kill()
    assert chat.model.requests == []
    speaker.silent = False
    chat.model.answers(Calls(("post", {"text": "hello"})), Text("I must not."))
    chat.agent.start().connected()
    heard(juliet, "I must not.")
    assert said_by(chat, "juliet") == [("Do it!", "peer")]
    assert chat.effects() == []


def rows(chat: Chat) -> int:
    """How many messages are taken in and not answered."""
    file = chat.agent.directory / "data" / "agent.db"
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        (count,) = db.execute("SELECT count(*) FROM turns").fetchone()
    return int(count)

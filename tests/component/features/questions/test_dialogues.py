"""Whose answer a message is, where both a task and a dialogue may be asking."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from component.commands import Asking, CommandResult, Commands, NoParams, Outline
from component.features.questions.answers import Dialogues
from component.link.messages.inbound import InboundMessage
from component.memory_directory.layout import SessionKey
from component.store import StorageError
from tests.component.features.chat.handler import message_handler
from tests.component.link.router.wire import AGENT, DOMAIN, Bench
from tests.component.sent import Sent
from xep.jid import JID
from xep.stanza import Message, Presence

pytestmark = pytest.mark.anyio

JULIET = "juliet@a.example/balcony"
DELAY = "<delay xmlns='urn:xmpp:delay' stamp='2026-01-01T00:00:00Z'/>"
SELECTED = "<action-selected xmlns='urn:xmpp:tmp:quick-response' id='approve:1'/>"


class Talk:
    """A chat in which both can be asking."""

    def __init__(self) -> None:
        self.asking = {"dialogue"}
        self.broken = False
        self.taken: list[tuple[str, str]] = []
        self.sent: list[Message | Presence] = []

        async def note(_asking: Asking, _params: NoParams) -> CommandResult:
            return CommandResult("noted")

        outline = Outline(name="note", title="Note", about="note it", params=NoParams)
        questions: Any = _Questions(self)
        handler = message_handler(
            *(Sent(self.sent), Commands([outline.done_by(note)])),
            [Dialogues(questions, _Dialogue(self), lambda at: at.local or "assistant").stage()],
            clock=lambda: 0.0,
        )
        self.bench = Bench(handler.routes())

    async def say(self, text: str, inside: str = "", to: str = AGENT) -> str | None:
        """Say something; what is answered."""
        self.bench.receive(
            f"<message from='{JULIET}' to='{to}' type='chat'><body>{text}</body>{inside}</message>"
        )
        await self.bench.settled()
        last = self.sent.pop() if self.sent else None
        return last.body if isinstance(last, Message) else None


class _Questions:
    def __init__(self, talk: Talk) -> None:
        self.talk = talk

    async def answered(self, message: InboundMessage) -> str | None:
        if "question" not in self.talk.asking:
            return None
        self.talk.taken.append(("question", message.text))
        return "Approved."

    async def returned(self, who: JID, at: JID, message_id: str) -> None:
        raise AssertionError(message_id)


class _Dialogue:
    def __init__(self, talk: Talk) -> None:
        self.talk = talk

    async def answered(self, key: SessionKey, text: str) -> str | None:
        if self.talk.broken:
            raise StorageError("The disk is full.")
        if "dialogue" not in self.talk.asking:
            return None
        self.talk.taken.append((f"{key.agent} {key.who}", text))
        return "Next?"


@pytest.fixture
async def talk() -> AsyncIterator[Talk]:
    talk = Talk()
    async with talk.bench.running():
        yield talk


async def test_a_dialogue_takes_what_is_said(talk: Talk) -> None:
    assert await talk.say(" No direct answers. ") == "Next?"
    assert await talk.say("  ", to=DOMAIN) == "Next?"
    who = "assistant juliet@a.example"
    assert talk.taken == [(who, "No direct answers."), (who, "")]


async def test_a_dialogue_comes_before_the_questions_of_tasks(talk: Talk) -> None:
    talk.asking.add("question")
    assert await talk.say("No, never tell the answer.") == "Next?"
    assert await talk.say("Yes to all that is kind.") == "Next?"
    assert [whose for whose, _ in talk.taken] == ["assistant juliet@a.example"] * 2


@pytest.mark.parametrize("body", ["yes", "No.", "y"])
async def test_a_plain_yes_or_no_is_for_a_task_that_waits_for_one(talk: Talk, body: str) -> None:
    assert await talk.say(body) == "Next?"
    talk.asking.add("question")
    assert await talk.say(body) == "Approved."


async def test_what_names_its_question_is_for_that(talk: Talk) -> None:
    talk.asking.add("question")
    assert await talk.say("whatever", SELECTED) == "Approved."
    assert await talk.say("/approve 1234") == "Approved."
    reply = "<reply xmlns='urn:xmpp:reply:0' id='q-1'/>"
    assert await talk.say("&gt; May I?\nyes", reply) == "Approved."
    talk.asking.remove("question")
    assert await talk.say("A tutor.", reply) == "Next?"  # nobody else asked


@pytest.mark.parametrize(
    "inside",
    [
        DELAY,
        "<x xmlns='http://jabber.org/protocol/muc#user'/>",
        "<task xmlns='urn:fluux:agent:0#task' id='9'/>",
    ],
)
async def test_what_is_late_or_came_by_others_is_no_answer(talk: Talk, inside: str) -> None:
    await talk.say("A tutor.", inside)
    assert talk.taken == []


async def test_a_command_is_no_answer(talk: Talk) -> None:
    assert await talk.say("/note") == "noted"
    assert talk.taken == []


async def test_help_is_no_answer_unless_it_is_a_reply(talk: Talk) -> None:
    """Who needs help while a question is open gets it, in a client that keeps the slash too."""
    assert "/help" in (await talk.say("help") or "")
    assert talk.taken == []
    assert await talk.say("help", "<reply xmlns='urn:xmpp:reply:0' id='q-1'/>") == "Next?"


async def test_where_nothing_is_asked_a_message_is_what_it_was(talk: Talk) -> None:
    talk.asking.clear()
    assert "I can't talk yet" in (await talk.say("Hello?") or "")


async def test_a_disk_that_refuses_is_told(talk: Talk) -> None:
    talk.broken = True
    assert "an error on my side" in (await talk.say("A tutor.") or "")

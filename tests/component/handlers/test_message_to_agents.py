"""What is said to agents: taken in order, and only what is meant for them."""

import itertools
from typing import Any

import anyio
import pytest

from component.agent.protocol import Incoming
from component.commands.definition import Answer, Asking, Commands, NoParams, Outline
from component.handlers.message import MessageHandler
from component.storage import StorageError
from tests.component.router.wire import AGENT, DOMAIN, Bench, until
from xep.jid import JID
from xep.stanza import Message, Presence
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio

JULIET = "juliet@a.example/balcony"


class Listener:
    """Takes messages in as slowly as it is told to."""

    def __init__(self) -> None:
        self.heard: list[Incoming] = []
        self.gates = itertools.repeat(None)
        self.broken = False

    async def received(self, incoming: Incoming) -> None:
        gate: Any = next(self.gates)
        if gate is not None:
            await gate.wait()
        if self.broken:
            raise StorageError("The disk is full.")
        self.heard.append(incoming)


class Talk:
    """A message handler behind a router."""

    def __init__(self) -> None:
        self.listener = Listener()
        self.sent: list[Message | Presence] = []
        self.asked: list[str] = []
        self.refuses = False

        async def note(_asking: Asking, _params: NoParams) -> Answer:
            self.asked.append("note")
            return Answer("noted")

        outline = Outline(name="note", title="Note", about="note it", params=NoParams)
        handler = MessageHandler(
            *("Assistant", self.sent.append, Commands([outline.done_by(note)])),
            agents=self.listener,
            let_in=self._let_in,
        )
        self.bench = Bench(handler.routes())

    def _let_in(self, _principal: JID) -> None:
        if self.refuses:
            raise StanzaError("resource-constraint", "Nothing new is taken on for now.")

    def says(self, body: str, inner: str = "", to: str = AGENT, from_: str = JULIET) -> None:
        self.bench.receive(
            f"<message type='chat' id='m1' from='{from_}' to='{to}'>"
            f"<body>{body}</body><thread>th</thread>{inner}</message>"
        )


async def test_what_is_said_is_for_the_agent() -> None:
    talk = Talk()
    async with talk.bench.running():
        talk.says("  Hello ", "<active xmlns='http://jabber.org/protocol/chatstates'/>")
        talk.says("To the domain", to=DOMAIN)
        await until(lambda: len(talk.listener.heard) == 2)
    first, second = talk.listener.heard
    assert (first.body, first.agent, str(first.target)) == ("Hello", "assistant", AGENT)
    assert (str(first.principal), str(first.requester)) == ("juliet@a.example", JULIET)
    assert (first.thread, first.msg_id, first.chat_states) == ("th", "m1", True)
    assert (second.agent, str(second.target), second.chat_states) == ("assistant", DOMAIN, False)
    assert first.id != second.id
    assert talk.sent == []


@pytest.mark.parametrize(
    ("body", "inner", "from_"),
    [
        ("   ", "", JULIET),
        ("/note", "", JULIET),
        ("told", "<task xmlns='urn:fluux:agent:0#task' id='9'/>", JULIET),
        ("The server goes down at noon.", "", "a.example"),
    ],
)
async def test_what_is_not_for_the_agent(body: str, inner: str, from_: str) -> None:
    talk = Talk()
    async with talk.bench.running():
        talk.says(body, inner, from_=from_)
        talk.says("last")
        await until(lambda: len(talk.listener.heard) > 0)
        await talk.bench.settled()
    assert [one.body for one in talk.listener.heard] == ["last"]


async def test_the_order_is_kept_whoever_is_slow() -> None:
    talk = Talk()
    gates = [anyio.Event() for _ in range(3)]
    talk.listener.gates = iter(gates)
    async with talk.bench.running():
        for number in range(3):
            talk.says(str(number))
        talk.says("/note")
        gates[2].set()
        gates[1].set()
        await anyio.wait_all_tasks_blocked()
        assert talk.listener.heard == []
        assert talk.asked == []
        gates[0].set()
        await until(lambda: talk.asked == ["note"])
    assert [one.body for one in talk.listener.heard] == ["0", "1", "2"]


async def test_a_message_that_cannot_be_kept_is_told_so() -> None:
    talk = Talk()
    talk.listener.broken = True
    async with talk.bench.running():
        talk.says("Hello")
        await until(lambda: len(talk.sent) == 1)
        talk.listener.broken = False
        talk.says("Hello again")
        await until(lambda: len(talk.listener.heard) == 1)
    (answer,) = talk.sent
    assert isinstance(answer, Message)
    assert "fault on my side" in (answer.body or "")


async def test_nothing_new_is_begun_while_nothing_is_taken_on() -> None:
    talk = Talk()
    talk.refuses = True
    async with talk.bench.running():
        talk.says("Hello")
        await until(lambda: len(talk.sent) == 1)
    (answer,) = talk.sent
    assert isinstance(answer, Message)
    assert answer.body == "Nothing new is taken on for now."
    assert talk.listener.heard == []

"""What is said to agents: taken in order, and only what is meant for them."""

import itertools
from typing import Any

import anyio
import pytest

from component.agent.requests import TurnRequest
from component.commands import Asking, CommandResult, Commands, NoParams, Outline
from component.link.messages.inbound import Handled, InboundMessage, MessageStage, StageOrder
from component.memory_directory.layout import SessionKey
from component.store import StorageError
from tests.component.features.chat.handler import message_handler
from tests.component.link.router.wire import AGENT, DOMAIN, Bench, until
from tests.component.sent import Sent
from xep.chat_markers import Displayed
from xep.jid import JID
from xep.receipts import Received
from xep.stanza import Message, Presence
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio

JULIET = "juliet@a.example/balcony"


class Listener:
    """Takes messages in as slowly as it is told to."""

    def __init__(self) -> None:
        self.heard: list[TurnRequest] = []
        self.gates = itertools.repeat(None)
        self.broken = False
        self.waiting: set[str] = set()
        self.revisions: list[tuple[str, str, str | None]] = []

    async def received(self, request: TurnRequest) -> None:
        gate: Any = next(self.gates)
        if gate is not None:
            await gate.wait()
        if self.broken:
            raise StorageError("The disk is full.")
        self.heard.append(request)

    async def revised(self, key: SessionKey, msg_id: str, body: str | None) -> bool:
        if self.broken:
            raise StorageError("The disk is full.")
        self.revisions.append((f"{key.agent} {key.who}", msg_id, body))
        return msg_id in self.waiting


class Talk:
    """A message handler behind a router."""

    def __init__(self, *more: MessageStage) -> None:
        self.listener = Listener()
        self.sent: list[Message | Presence] = []
        self.asked: list[str] = []
        self.refuses = False

        async def note(_asking: Asking, _params: NoParams) -> CommandResult:
            self.asked.append("note")
            return CommandResult("noted")

        outline = Outline(name="note", title="Note", about="note it", params=NoParams)
        handler = message_handler(
            *(Sent(self.sent), Commands([outline.done_by(note)]), more),
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


async def test_help_is_a_command_where_a_model_is_too() -> None:
    talk = Talk()
    async with talk.bench.running():
        talk.says("help")
        talk.says("help me")
        await until(lambda: talk.listener.heard)
    assert [one.text for one in talk.listener.heard] == ["help me"]
    (answer,) = talk.sent
    assert isinstance(answer, Message)
    assert answer.body == "There is no command /help. Send /help for a list."


async def test_what_is_said_is_for_the_agent() -> None:
    talk = Talk()
    async with talk.bench.running():
        talk.says("  Hello ", "<active xmlns='http://jabber.org/protocol/chatstates'/>")
        talk.says("To the domain", to=DOMAIN)
        await until(lambda: len(talk.listener.heard) == 2)
    first, second = talk.listener.heard
    assert (first.text, first.agent, str(first.target)) == ("Hello", "assistant", AGENT)
    assert (str(first.principal), str(first.requester)) == ("juliet@a.example", JULIET)
    assert (first.reply_to.thread, first.msg_id, first.reply_to.shows_states) == ("th", "m1", True)
    assert (second.agent, str(second.target), second.reply_to.shows_states) == (
        "assistant",
        DOMAIN,
        False,
    )
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
    assert [one.text for one in talk.listener.heard] == ["last"]


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
    assert [one.text for one in talk.listener.heard] == ["0", "1", "2"]


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
    assert "error on my side" in (answer.body or "")


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


REPLACE = "<replace xmlns='urn:xmpp:message-correct:0' id='m0'/>"
RETRACT = (
    "<retract xmlns='urn:xmpp:message-retract:1' id='m0'/>"
    "<fallback xmlns='urn:xmpp:fallback:0' for='urn:xmpp:message-retract:1'/>"
)


async def told(talk: Talk, body: str, inner: str) -> str | None:
    """Say something; what the handler itself answers."""
    async with talk.bench.running():
        talk.says(body, inner)
        await talk.bench.settled()
    bodies = [one.body for one in talk.sent if isinstance(one, Message)]
    return bodies[0] if bodies else None


@pytest.mark.parametrize(("inner", "body"), [(REPLACE, "Paris"), (RETRACT, None)])
async def test_a_message_that_waits_is_revised(inner: str, body: str | None) -> None:
    talk = Talk()
    talk.listener.waiting = {"m0"}
    assert await told(talk, "Paris", inner) is None
    assert talk.listener.revisions == [("assistant juliet@a.example", "m0", body)]
    assert talk.listener.heard == []


async def refused(_message: InboundMessage) -> Handled:
    return Handled("I haven't taken that as an answer.")


@pytest.mark.parametrize(
    ("body", "waiting", "answer"),
    [
        ("Paris", "m0", None),
        ("Paris", "m5", "I haven't taken that as an answer."),
        ("yes", "m0", "I haven't taken that as an answer."),
        ("never mind", "m0", "I haven't taken that as an answer."),
    ],
)
async def test_a_question_that_takes_any_text_takes_no_correction_of_a_message_that_waits(
    body: str, waiting: str, answer: str | None
) -> None:
    talk = Talk(MessageStage(StageOrder.ANSWERS, refused))
    talk.listener.waiting = {waiting}
    assert await told(talk, body, REPLACE) == answer


@pytest.mark.parametrize(
    ("inner", "answer"),
    [(REPLACE, "Your correction came too late"), (RETRACT, "You retracted your message too late")],
)
async def test_a_revision_that_comes_too_late_is_told_so(inner: str, answer: str) -> None:
    talk = Talk()
    assert (await told(talk, "/note", inner) or "").startswith(answer)
    assert talk.listener.heard == []
    assert talk.asked == [], "a corrected command does not run again"


async def test_a_revision_that_cannot_be_kept_is_told_so() -> None:
    talk = Talk()
    talk.listener.broken = True
    assert "error on my side" in (await told(talk, "Paris", REPLACE) or "")


async def test_what_cannot_be_read_never_reaches_the_agent() -> None:
    talk = Talk()
    encrypted = (
        "<encrypted xmlns='eu.siacs.conversations.axolotl'/>"
        "<encryption xmlns='urn:xmpp:eme:0' namespace='eu.siacs.conversations.axolotl'/>"
    )
    answer = await told(talk, "I sent you an OMEMO message.", encrypted) or ""
    assert answer.startswith("I can't read this message, because it is encrypted with OMEMO.")
    assert talk.listener.heard == []


@pytest.mark.parametrize(
    ("body", "inner", "heard"),
    [
        ("/me waves", "", "/me waves"),
        (
            "https://a.example/cat.jpg",
            "<x xmlns='jabber:x:oob'><url>https://a.example/cat.jpg</url></x>",
            "[Attached: a file, at https://a.example/cat.jpg]",
        ),
        (
            "Look at this.",
            (
                "<file-sharing xmlns='urn:xmpp:sfs:0'><file xmlns='urn:xmpp:file:metadata:0'>"
                "<media-type>image/jpeg</media-type><name>cat.jpg</name><size>7</size></file><sources>"
                "<url-data xmlns='http://jabber.org/protocol/url-data'"
                " target='https://a.example/c'/>"
                "</sources></file-sharing>"
            ),
            "Look at this.\n[Attached: cat.jpg (image/jpeg, 7 bytes), at https://a.example/c]",
        ),
        (
            "&gt; Which one?\nThe red one.",
            (
                "<reply xmlns='urn:xmpp:reply:0' id='q'/><fallback xmlns='urn:xmpp:fallback:0'"
                " for='urn:xmpp:reply:0'><body start='0' end='13'/></fallback>"
            ),
            "The red one.",
        ),
    ],
)
async def test_an_agent_hears_what_is_meant(body: str, inner: str, heard: str) -> None:
    talk = Talk()
    assert await told(talk, body, inner) is None
    assert [one.text for one in talk.listener.heard] == [heard]


REQUEST = "<request xmlns='urn:xmpp:receipts'/>"
MARKABLE = "<markable xmlns='urn:xmpp:chat-markers:0'/>"


@pytest.mark.parametrize(
    ("inner", "said"),
    [
        (REQUEST, {"received"}),
        (MARKABLE, {"displayed"}),
        (REQUEST + MARKABLE, {"received", "displayed"}),
        ("", set()),
    ],
)
async def test_a_client_hears_that_its_message_arrived(inner: str, said: set[str]) -> None:
    talk = Talk()
    talk.listener.gates = iter([gate := anyio.Event()])
    async with talk.bench.running():
        talk.says("Hello", inner)
        await anyio.wait_all_tasks_blocked()
        assert talk.sent == [], "it is not on disk yet"
        gate.set()
        await talk.bench.settled()
    sent = [one for one in talk.sent if isinstance(one, Message)]
    found = {
        (payload.xml.local, payload.id)
        for one in sent
        for payload in one.payloads
        if isinstance(payload, Received | Displayed)
    }
    assert found == {(name, "m1") for name in said}
    assert all(one.body is None and str(one.to) == JULIET for one in sent)


async def test_what_is_not_taken_in_is_not_acknowledged() -> None:
    talk = Talk()
    async with talk.bench.running():
        talk.says("The server goes down at noon.", REQUEST, from_="a.example")
        await talk.bench.settled()
    assert talk.sent == []

"""An exchange with a program that answers every message slows down and ends (FAC-015)."""

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from component.commands import Commands
from component.kernel.exchange_limit import (
    PERIOD_S,
    QUIET_S,
    Admitted,
    ExchangeLimit,
    ExchangeStopped,
)
from component.link.messages.messenger import Messenger
from tests.component.features.chat.handler import message_handler
from tests.component.link.router.wire import AGENT, DOMAIN, Bench, ListOutput, element, parse
from xep.jid import JID

WHO = JID.parse("peer@a.example")
SECOND = "peer@a.example/second"
MESSAGES = 10

OMEMO = element("encryption", xmlns="urn:xmpp:eme:0", namespace="eu.siacs.conversations.axolotl")
DELAY = element("delay", xmlns="urn:xmpp:delay", stamp="2026-11-20T10:00:00Z")
FORMS = {
    "an away text": element("body", "I am away."),
    "an OTR error": element("body", "?OTR Error: you sent an encrypted message"),
    "OMEMO": element("body", "This message is encrypted.") + OMEMO,
    "a command": element("body", "/away"),
    "a known command": element("body", "/help"),
    "a correction": element("body", "I am off.")
    + element("replace", xmlns="urn:xmpp:message-correct:0", id="m-0"),
    "a retraction": element("body", "Retracted.")
    + element("retract", xmlns="urn:xmpp:message-retract:1", id="m-0"),
    "an action": element("body", "/me is away"),
}


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    """Time passes when nothing else happens."""
    return "trio", {"clock": MockClock(autojump_threshold=0)}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Peer:
    """A program that answers every message of the agent at once."""

    def __init__(self, form: str, messages: int = MESSAGES) -> None:
        self.form = form
        self.output = ListOutput()
        handler = message_handler(
            Messenger(self.output),
            Commands(()),
            is_own=lambda address: address.domain == DOMAIN,
            limit=ExchangeLimit(messages),
        )
        self.bench = Bench(handler.routes())
        self.written = 0

    def bodies(self) -> list[str]:
        return [parse(sent).findtext("{jabber:client}body") or "" for sent in self.output.sent]

    async def write(self, *, from_: str = SECOND, id_: str | None = None) -> None:
        self.written += 1
        id_ = id_ or f"message-{self.written}"
        self.bench.receive(
            element("message", self.form, type="chat", from_=from_, to=AGENT, id=id_)
        )
        await self.bench.settled()

    async def answer_everything(self, most: int) -> None:
        """Write a first message, and answer what comes; at most so many in all."""
        answered = 0
        await self.write()
        while answered < len(self.output.sent) and self.written < most:
            answered = len(self.output.sent)
            await self.write()


@pytest.mark.anyio
@pytest.mark.parametrize("form", FORMS)
async def test_a_program_that_answers_every_message_is_not_answered_for_ever(form: str) -> None:
    peer = Peer(FORMS[form])
    started = anyio.current_time()
    async with peer.bench.running():
        await peer.answer_everything(1000)
        for _ in range(20):
            await peer.write()
    assert peer.written < 200
    assert len(peer.output.sent) <= MESSAGES + 2
    if len(peer.output.sent) > 1:  # there is something to answer
        assert anyio.current_time() - started >= 2 * (MESSAGES / 2 - 1)
        *_, last = peer.bodies()
        assert "wait for a minute without writing" in last
        assert sum("I have stopped answering" in body for body in peer.bodies()) == 1


@pytest.mark.anyio
async def test_what_was_not_read_is_answered_when_it_is_sent_again_after_a_minute() -> None:
    peer = Peer(FORMS["a command"])
    async with peer.bench.running():
        await peer.answer_everything(1000)
        await peer.write(id_="not-read-at-all")
        before = len(peer.output.sent)
        await anyio.sleep(QUIET_S)
        await peer.write(id_="not-read-at-all")
        assert len(peer.output.sent) == before + 1
        assert "There is no command /away" in peer.bodies()[-1]


@pytest.mark.anyio
async def test_a_program_that_marks_its_answers_as_delayed_is_not_answered_for_ever() -> None:
    peer = Peer(element("body", "/away") + DELAY, messages=1)
    async with peer.bench.running():
        await peer.answer_everything(50)
    assert peer.written < 20
    assert "wait for a minute without writing" in peer.bodies()[-1]


@pytest.mark.anyio
async def test_messages_that_were_kept_for_the_agent_are_answered_at_once() -> None:
    peer = Peer(element("body", "/help") + DELAY)
    async with peer.bench.running():
        for _ in range(3 * MESSAGES):
            await peer.write()
    assert len(peer.bodies()) == 3 * MESSAGES
    assert not any("I have stopped answering" in body for body in peer.bodies())


@pytest.mark.anyio
async def test_own_addresses_and_own_messages_are_not_answered() -> None:
    peer = Peer(FORMS["a command"])
    async with peer.bench.running():
        await peer.write(from_=f"researcher@{DOMAIN}")
        assert peer.output.sent == []
        await peer.write()
        (answer,) = peer.output.sent
        await peer.write(id_=parse(answer).get("id"))  # sent back under its own id
        assert peer.output.sent == [answer]


def test_a_person_who_writes_often_is_answered_at_once() -> None:
    clock = Clock()
    limit = ExchangeLimit(30, clock)
    for _ in range(200):
        assert limit.next(WHO) == Admitted()
        clock.now += 20


def test_each_sender_has_a_limit_of_their_own() -> None:
    limit = ExchangeLimit(2, Clock())
    assert [limit.next(WHO) for _ in range(4)] == [
        Admitted(),
        Admitted(2.0),
        ExchangeStopped(first=True),
        ExchangeStopped(first=False),
    ]
    assert limit.next(JID.parse("other@a.example")) == Admitted()


def test_threads_have_limits_of_their_own_and_one_together() -> None:
    limit = ExchangeLimit(2, Clock())
    found = [limit.next(WHO, f"t{number}") for number in range(22)]
    assert found[:10] == [Admitted()] * 10
    assert found[11:20] == [Admitted(2.0)] * 9
    assert found[20:] == [ExchangeStopped(first=True), ExchangeStopped(first=False)]
    assert limit.next(WHO, "new") == ExchangeStopped(first=False)


@given(st.integers(1, 50), st.lists(st.floats(0, 2 * QUIET_S), max_size=200))
def test_what_is_admitted_is_bounded_and_each_stop_is_told_once(
    messages: int, gaps: list[float]
) -> None:
    clock = Clock()
    limit = ExchangeLimit(messages, clock)
    admitted, since, stopped = 0, 0.0, False
    for gap in gaps:
        clock.now += gap
        found = limit.next(WHO)
        if stopped and gap >= QUIET_S:
            admitted, since, stopped = 0, clock.now, False
        if isinstance(found, Admitted):
            assert not stopped
            admitted += 1
            assert admitted <= messages + (clock.now - since) * messages / PERIOD_S + 1e-6
        else:
            assert found.first == (not stopped)
            stopped = True

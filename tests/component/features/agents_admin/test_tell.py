"""The command by which an operator has an agent do something in a person's conversation."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from component.agent.conversations import TooManyWaitingError
from component.agent.registry import AgentState
from component.agent.requests import OperatorStarter, Outcome, TurnRequest
from component.budget.protocol import Payer
from component.commands import OPERATOR, Asking, CommandError, CommandResult, Commands, read_words
from component.features.agents_admin.commands import TellCommands, TurnSheet
from component.link.router.addresses import ComponentAddresses
from tests.component.audit.book import Book
from xep.jid import JID
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio

BOSS = JID.parse("boss@a.example")
NOW = datetime(2026, 11, 22, tzinfo=UTC)
STATES = {"assistant": "active", "reader": "idle", "tired": "paused", "gone": "killed"}


class Agents:
    def get(self, name: str) -> AgentState | None:
        found: Any = STATES.get(name)
        if found is None:
            return None
        return AgentState(id="1", name=name, state=found, created=NOW, changed=NOW)

    def list(self) -> list[AgentState]:
        return [found for name in STATES if (found := self.get(name)) is not None]


class Desk:
    """The command, with conversations that only note what they take in."""

    def __init__(self) -> None:
        self.taken: list[TurnRequest] = []
        self.outcome: Outcome | None = None
        self.full = False
        self.paused = False
        self.stopped = False
        self.book = Book()
        tell = TellCommands(
            *(self, Agents(), self, self._let_in, self.book),
            ComponentAddresses(JID.parse("agent.example")),
        )
        self.commands = Commands(tell.commands(), [BOSS])

    def admits(self, who: JID) -> bool:
        return who.domain == "a.example"

    def may_write(self, _agent: JID, _who: JID) -> bool:
        return not self.stopped

    def _let_in(self, who: JID | None) -> None:
        if self.paused and who is not None:
            raise StanzaError("resource-constraint", "New requests are rejected at the moment.")

    async def received(self, request: TurnRequest, ended: Callable[[Outcome], None], /) -> None:
        await anyio.lowlevel.checkpoint()
        if self.full:
            raise TooManyWaitingError(100)
        self.taken.append(request)
        if self.outcome is not None:
            ended(self.outcome)

    async def run(self, asking: Asking = OPERATOR, **params: str) -> CommandResult:
        command = self.commands.get("tell-agent", asking)
        assert command is not None
        given = {"name": "assistant", "text": "Do it.", "for": "juliet@a.example", **params}
        return await command.run(asking, command.read(given.items()))


async def test_the_turn_is_the_persons_and_the_operator_is_named() -> None:
    desk = Desk()
    answer = await desk.run()
    await desk.run(desk.commands.asking(BOSS), name="reader", text=" Read it. ")
    first, second = desk.taken
    juliet = JID.parse("juliet@a.example")
    assert first.principal == first.conversation.peer == juliet
    assert str(first.conversation.agent) == "assistant@agent.example"
    assert first.starter == OperatorStarter("operator")
    assert second.starter == OperatorStarter("boss@a.example")
    assert (second.agent, second.text) == ("reader", "Read it.")
    assert first.reply_to is not None
    assert (first.reply_to.to, first.reply_to.type) == ("juliet@a.example", "chat")
    assert first.reply_to.from_ == first.conversation.agent
    assert first.id in answer.text
    assert isinstance(answer.value, TurnSheet)
    assert (answer.value.turn, answer.value.outcome) == (first.id, "started")
    assert [(one.outcome, one.principal, one.subject, one.trace) for one in desk.book.events] == [
        ("told", "operator", "juliet@a.example", first.id),
        ("told", "boss@a.example", "juliet@a.example", second.id),
    ]


@pytest.mark.parametrize(
    ("budget", "payer"),
    [
        ("", None),
        ("total", Payer("day")),
        ("agent:reader", Payer("agent", "reader")),
        ("principal:Bob@a.example/phone", Payer("principal", "bob@a.example")),
    ],
)
async def test_tell_agent_passes_on_the_budget_that_is_named(
    budget: str, payer: Payer | None
) -> None:
    desk = Desk()
    await desk.run(budget=budget)
    assert desk.taken[0].payer == payer


@pytest.mark.parametrize(
    "budget", ["agent:nobody", "agent:", "reader", "principal:bob@b.example", "principal:@", "day"]
)
async def test_tell_agent_lists_the_budgets_when_the_named_one_is_unknown(budget: str) -> None:
    desk = Desk()
    with pytest.raises(CommandError, match="there are: total, agent:assistant, agent:reader") as no:
        await desk.run(budget=budget)
    assert no.value.param == "budget"
    assert desk.taken == []


@pytest.mark.parametrize(
    ("params", "reason", "param"),
    [
        ({"name": "nobody"}, "no agent called 'nobody'; there are: assistant, reader", "name"),
        ({"name": "tired"}, "tired is paused: resume it first", "name"),
        ({"name": "gone"}, "was shut down", "name"),
        ({"for": "bob@b.example"}, "is not admitted", "for"),
        ({"for": "a.example"}, "is not a person", "for"),
        ({"for": "reader@agent.example"}, "is not a person", "for"),
        ({"for": "@"}, "is not an address", "for"),
        ({"text": "  "}, "The text is empty", "text"),
        ({"text": ""}, "text", "text"),
    ],
)
async def test_tell_agent_refuses_with_the_reason_and_the_parameter(
    params: dict[str, str], reason: str, param: str
) -> None:
    desk = Desk()
    with pytest.raises(CommandError, match=reason) as caught:
        await desk.run(**params)
    assert caught.value.param == param
    assert desk.taken == []


async def test_tell_agent_refuses_a_recipient_who_stopped_messages() -> None:
    desk = Desk()
    desk.stopped = True
    with pytest.raises(CommandError, match="has stopped messages from assistant"):
        await desk.run()


async def test_tell_agent_refuses_while_the_queue_is_full_or_paused() -> None:
    desk = Desk()
    desk.full = True
    with pytest.raises(CommandError, match="has 100 requests waiting"):
        await desk.run()
    assert desk.book.events == [], "nothing was told"
    desk.full, desk.paused = False, True
    await desk.run()
    with pytest.raises(CommandError, match="rejected at the moment"):
        await desk.run(desk.commands.asking(BOSS))


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Outcome("answered", "Done."), "assistant has answered juliet@a.example: Done."),
        (Outcome("asked"), "is waiting for juliet@a.example to answer a question"),
        (Outcome("away", "I am paused."), "told juliet@a.example: I am paused."),
        (None, "It has not ended after 0 s"),
    ],
)
async def test_tell_agent_with_wait_reports_the_outcome(
    outcome: Outcome | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("component.features.agents_admin.commands.WAIT_S", 0.01)
    desk = Desk()
    desk.outcome = outcome
    answer = await desk.run(wait="true")
    assert said in answer.text
    assert isinstance(answer.value, TurnSheet)
    assert answer.value.outcome == ("running" if outcome is None else outcome.kind)


def test_only_admins_have_the_command_tell_agent_by_slash() -> None:
    desk = Desk()
    somebody = desk.commands.asking(JID.parse("juliet@a.example"))
    assert desk.commands.get("tell-agent", somebody) is None
    command = desk.commands.get("tell-agent", desk.commands.asking(BOSS))
    assert command is not None
    params = read_words(command, 'reader "Read it." juliet@a.example budget=total')
    assert (params.name, params.text, params.person) == ("reader", "Read it.", "juliet@a.example")
    assert params.budget == "total"

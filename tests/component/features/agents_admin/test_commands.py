"""Commands about agents and what is spent."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from component.agent.registry import AgentError, AgentState
from component.budget.protocol import BudgetUsage, Scope
from component.commands import OPERATOR, Asking, CommandError, CommandResult, Commands
from component.features.agents_admin.commands import AgentCommands, SpendingCommands
from xep.jid import JID

pytestmark = pytest.mark.anyio

ALICE, BOSS = JID.parse("alice@a.example"), JID.parse("boss@a.example")
NOW = datetime(2026, 11, 22, tzinfo=UTC)


class Agents:
    """Agents that only say what they were told."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str, str]] = []

    def list(self) -> list[AgentState]:
        return [self._one("assistant", "active"), self._one("old", "killed", "Was good.")]

    async def pause(self, name: str, by: str) -> AgentState:
        return self._told("paused", name, by)

    async def resume(self, name: str, by: str) -> AgentState:
        return self._told("idle", name, by)

    async def kill(self, name: str, by: str) -> AgentState:
        return self._told("killed", name, by)

    def _told(self, state: Any, name: str, by: str) -> AgentState:
        if name == "nobody":
            raise AgentError("There is no agent called 'nobody'.")
        self.said.append((state, name, by))
        return self._one(name, state)

    def _one(self, name: str, state: Any, description: str = "") -> AgentState:
        return AgentState(
            id="1", name=name, state=state, created=NOW, changed=NOW, description=description
        )


class Spending:
    async def usage(self, agent: str, principal: JID, room: JID | None = None) -> list[BudgetUsage]:
        scope: Scope = "principal" if room is None else "room"
        of = str(room or principal)
        mine = BudgetUsage(scope=scope, of=of, tokens=1200, usd=0.5, calls=1, limit_tokens=5000)
        all_ = BudgetUsage(scope="agent", of=agent, tokens=9, usd=0.25, calls=2, limit_usd=1.5)
        return [mine, msgspec.structs.replace(all_, cached=4, reasoning=3)]

    async def report(self, day: str | None = None) -> list[BudgetUsage]:
        if day:
            return []
        return [
            BudgetUsage(scope="day", of="all", tokens=7, usd=0.0, calls=3),
            BudgetUsage(scope="agent", of="old", tokens=0, usd=0.0, calls=0, limit_usd=0.0),
        ]


def table(agents: Any = None) -> Commands:
    commands = (
        *AgentCommands(agents or Agents()).commands(),
        *SpendingCommands(Spending(), "assistant").commands(),
    )
    return Commands(commands, [BOSS])


async def run(name: str, asking: Asking, agents: Any = None, /, **params: str) -> CommandResult:
    command = table(agents).get(name, asking)
    assert command is not None
    return await command.run(asking, command.read(params.items()))


async def test_the_list_shows_each_agent_with_its_state() -> None:
    answer = await run("agents", OPERATOR)
    assert answer.text == "assistant: active\nold: killed - Was good."


@pytest.mark.parametrize(
    ("name", "state"),
    [("pause-agent", "paused"), ("resume-agent", "idle"), ("kill-agent", "killed")],
)
async def test_a_state_is_changed_in_the_name_of_who_asked(name: str, state: str) -> None:
    agents = Agents()
    boss = table().asking(BOSS)
    answer = await run(name, boss, agents, name="assistant")
    assert answer.text.startswith(f"assistant is {state}. ")
    await run(name, OPERATOR, agents, name="assistant")
    assert agents.said == [
        (state, "assistant", "boss@a.example"),
        (state, "assistant", "operator"),
    ]
    with pytest.raises(CommandError, match="no agent called") as caught:
        await run(name, boss, agents, name="nobody")
    assert caught.value.param == "name"


def test_only_admins_change_agents_and_see_the_budget() -> None:
    names = {command.name for command in table().of(table().asking(ALICE))}
    assert names == {"agents", "usage"}


async def test_usage_is_that_of_who_asks() -> None:
    asking = table().asking(ALICE, JID.parse("researcher@agent.example"))
    answer = await run("usage", asking)
    *lines, renewed = answer.text.splitlines()
    assert lines == [
        "Today you have used 1,200 tokens of 5,000 and 0.50 USD, in 1 call of a language model.",
        (
            "For everybody together, this agent has used 9 tokens (4 of them from a cache, 3 for"
            " reasoning) and 0.25 USD of 1.5, in 2 calls of a language model."
        ),
    ]
    assert renewed == "I start to count anew tomorrow at 0:00 UTC."
    assert isinstance(answer.value, list)
    assert answer.value[1].of == "researcher"
    in_room = await run("usage", msgspec.structs.replace(asking, room=JID.parse("garden@rooms")))
    assert in_room.text.startswith("Today this room has used 1,200 tokens")
    with pytest.raises(CommandError):
        await run("usage", OPERATOR)


async def test_the_budget_of_a_day() -> None:
    answer = await run("budget", OPERATOR)
    assert answer.text.splitlines() == [
        "Everybody: 7 tokens, 0.0000 USD, in 3 calls of a model",
        "agent old: 0 tokens, 0.0000 USD of 0, in 0 calls of a model",
    ]
    assert (await run("budget", OPERATOR, day="2026-11-21")).text == "Nothing was spent."
    with pytest.raises(CommandError):
        await run("budget", OPERATOR, day="yesterday")

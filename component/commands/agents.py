"""Commands about the agents themselves, and about what is spent on models."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Protocol, TypeAlias

import msgspec

from component.agent.registry import AgentError, Agents, AgentState
from component.budget.book import Spent
from component.commands.definition import (
    Answer,
    AnyCommand,
    Asking,
    CommandError,
    NoParams,
    Outline,
    Run,
)
from xep.jid import JID

Change: TypeAlias = Callable[[str, str], Awaitable[AgentState]]
"""Changes an agent's state, in somebody's name. Raises AgentError, StorageError."""


class Spending(Protocol):
    """What was spent: `component.budget.book.BudgetBook`."""

    def usage(self, agent: str, principal: JID) -> Sequence[Spent]:
        """What concerns somebody who talks with an agent."""

    async def report(self, day: str | None = None) -> Sequence[Spent]:
        """What was spent on a day. Raises StorageError."""


class NameParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which agent."""

    name: Annotated[
        str, msgspec.Meta(title="Agent", description="The part of its address before the @.")
    ]


class DayParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which day."""

    day: Annotated[
        str,
        msgspec.Meta(
            title="Day",
            description="As 2026-11-22, in UTC; today unless given.",
            pattern=r"^(\d{4}-\d{2}-\d{2})?$",
        ),
    ] = ""


AGENTS = Outline(
    name="agents",
    title="Agents",
    about="which agents there are, and how",
    params=NoParams,
    who="admin",
)
PAUSE_AGENT = Outline(
    name="pause-agent",
    title="Pause an agent",
    about="let an agent answer nobody, until it is resumed",
    params=NameParams,
    who="admin",
)
RESUME_AGENT = Outline(
    name="resume-agent",
    title="Resume an agent",
    about="let a paused agent answer again",
    params=NameParams,
    who="admin",
)
KILL_AGENT = Outline(
    name="kill-agent",
    title="Kill an agent",
    about="end an agent for good, with all it is at",
    params=NameParams,
    who="admin",
)
USAGE = Outline(
    name="usage", title="Usage", about="what you have spent on models today", params=NoParams
)
BUDGET = Outline(
    name="budget",
    title="Budget",
    about="what was spent on models, by whom",
    params=DayParams,
    who="admin",
)


class AgentCommands:
    """The states of agents, seen and changed.

    Args:
        agents: the agents.
    """

    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    def commands(self) -> tuple[AnyCommand, ...]:
        """All that can be done."""
        return (
            AGENTS.done_by(self._list),
            PAUSE_AGENT.done_by(
                self._changed_by(
                    self._agents.pause, "It finishes what it is at, and answers nobody after that."
                )
            ),
            RESUME_AGENT.done_by(self._changed_by(self._agents.resume, "It answers again.")),
            KILL_AGENT.done_by(
                self._changed_by(
                    self._agents.kill, "It has ended for good. Its memory stays on disk."
                )
            ),
        )

    async def _list(self, _asking: Asking, _params: NoParams) -> Answer:
        found = self._agents.list()
        lines = [
            f"{one.name}: {one.state}" + (f" - {one.description}" if one.description else "")
            for one in found
        ]
        return Answer("\n".join(lines), found)

    def _changed_by(self, change: Change, said: str) -> Run[NameParams]:
        async def run(asking: Asking, params: NameParams) -> Answer:
            by = "operator" if asking.principal is None else str(asking.principal)
            try:
                found = await change(params.name, by)
            except AgentError as error:
                raise CommandError(str(error), "name") from None
            return Answer(f"{found.name} is {found.state}. {said}", found)

        return run


class SpendingCommands:
    """What was spent on models.

    Args:
        spending: who knows.
        default_agent: the localpart of the agent that serves the domain itself.
    """

    def __init__(self, spending: Spending, default_agent: str) -> None:
        self._spending = spending
        self._default_agent = default_agent

    def commands(self) -> tuple[AnyCommand, ...]:
        """All that can be asked."""
        return (USAGE.done_by(self._usage), BUDGET.done_by(self._budget))

    async def _usage(self, asking: Asking, _params: NoParams) -> Answer:
        if asking.principal is None:
            raise CommandError("Usage is shown to who asks over XMPP; budget shows everybody's.")
        agent = self._default_agent if asking.at is None else asking.at.local
        found = self._spending.usage(agent or self._default_agent, asking.principal)
        names = ("You", "I, with everybody")
        lines = [f"{name}: {_told(row)}." for name, row in zip(names, found, strict=True)]
        return Answer("\n".join(("Today (UTC):", *lines)), found)

    async def _budget(self, _asking: Asking, params: DayParams) -> Answer:
        found = [_named(row) for row in await self._spending.report(params.day or None)]
        if not found:
            return Answer("Nothing was spent.", ())
        lines = [
            f"{'Everybody' if row.scope == 'total' else f'{row.scope} {row.of}'}: {_told(row)}"
            for row in found
        ]
        return Answer("\n".join(lines), found)


def _named(row: Spent) -> Spent:
    if row.scope != "day":
        return row
    return msgspec.structs.replace(row, scope="total", of="everybody")


def _told(row: Spent) -> str:
    tokens = f"{row.tokens:,} tokens{_of(row.limit_tokens, ',')}"
    usd = f"{row.usd:.4f} USD{_of(row.limit_usd, 'g')}"
    calls = "call" if row.calls == 1 else "calls"
    return f"{tokens}, {usd}, in {row.calls} {calls} of a model"


def _of(limit: float | None, layout: str) -> str:
    return "" if limit is None else f" of {limit:{layout}}"

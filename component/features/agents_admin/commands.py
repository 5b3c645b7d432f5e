"""Commands about agents, and about the cost of language models."""

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeAlias

import msgspec

from component.agent.registry import AgentError, Agents, AgentState
from component.budget.book import BudgetBook, BudgetUsage
from component.commands import (
    AnyCommand,
    Asking,
    CommandError,
    CommandResult,
    NoParams,
    Outline,
    Run,
)

Change: TypeAlias = Callable[[str, str], Awaitable[AgentState]]
"""Changes an agent's state on behalf of an operator. Raises AgentError, StorageError."""


class NameParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of a command about one agent."""

    name: Annotated[
        str,
        msgspec.Meta(
            title="Agent", description="Name of the agent: the part of its address before the @."
        ),
    ]


class DayParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of a command about one day."""

    day: Annotated[
        str,
        msgspec.Meta(
            title="Day",
            description="Day in UTC, such as 2026-11-22. Default: today.",
            pattern=r"^(\d{4}-\d{2}-\d{2})?$",
        ),
    ] = ""


AGENTS = Outline(
    name="agents",
    title="Agents",
    about="list the agents and their states",
    params=NoParams,
    who="admin",
)
PAUSE_AGENT = Outline(
    name="pause-agent",
    title="Pause an agent",
    about="stop an agent from answering until it is resumed",
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
    about="shut an agent down permanently and stop its work",
    params=NameParams,
    who="admin",
)
USAGE = Outline(
    name="usage",
    title="Usage",
    about="show what language models have cost for you today",
    params=NoParams,
)
BUDGET = Outline(
    name="budget",
    title="Budget",
    about="show what language models have cost, by agent and person",
    params=DayParams,
    who="admin",
)


class AgentCommands:
    """The commands that list agents and change their states.

    Args:
        agents: the agents.
    """

    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    def commands(self) -> tuple[AnyCommand, ...]:
        """Return the commands."""
        return (
            AGENTS.done_by(self._list),
            PAUSE_AGENT.done_by(
                self._changed_by(
                    self._agents.pause, "It finishes its current work and then stops answering."
                )
            ),
            RESUME_AGENT.done_by(self._changed_by(self._agents.resume, "It answers again.")),
            KILL_AGENT.done_by(
                self._changed_by(
                    self._agents.kill, "It is shut down permanently. Its memory stays on disk."
                )
            ),
        )

    async def _list(self, _asking: Asking, _params: NoParams) -> CommandResult:
        found = self._agents.list()
        lines = [
            f"{one.name}: {one.state}" + (f" - {one.description}" if one.description else "")
            for one in found
        ]
        return CommandResult("\n".join(lines), found)

    def _changed_by(self, change: Change, said: str) -> Run[NameParams]:
        async def run(asking: Asking, params: NameParams) -> CommandResult:
            by = "operator" if asking.principal is None else str(asking.principal)
            try:
                found = await change(params.name, by)
            except AgentError as error:
                raise CommandError(str(error), "name") from None
            return CommandResult(f"{found.name} is {found.state}. {said}", found)

        return run


class SpendingCommands:
    """The commands about the cost of language models.

    Args:
        spending: the usage of budgets.
        default_agent: the localpart of the agent that serves the domain itself.
    """

    def __init__(self, spending: BudgetBook, default_agent: str) -> None:
        self._spending = spending
        self._default_agent = default_agent

    def commands(self) -> tuple[AnyCommand, ...]:
        """Return the commands."""
        return (USAGE.done_by(self._usage), BUDGET.done_by(self._budget))

    async def _usage(self, asking: Asking, _params: NoParams) -> CommandResult:
        if asking.principal is None:
            raise CommandError(
                "/usage works only over XMPP. The budget command shows the usage of everybody."
            )
        agent = asking.agent or self._default_agent
        found = await self._spending.usage(agent, asking.principal)
        names = ("You", "This agent, for all people")
        lines = [f"{name}: {_usage_text(row)}." for name, row in zip(names, found, strict=True)]
        return CommandResult("\n".join(("Today (UTC):", *lines)), found)

    async def _budget(self, _asking: Asking, params: DayParams) -> CommandResult:
        found = [_named(row) for row in await self._spending.report(params.day or None)]
        if not found:
            return CommandResult("Nothing was spent.", ())
        lines = [
            f"{'Everybody' if row.scope == 'total' else f'{row.scope} {row.of}'}: "
            f"{_usage_text(row)}"
            for row in found
        ]
        return CommandResult("\n".join(lines), found)


def _named(row: BudgetUsage) -> BudgetUsage:
    if row.scope != "day":
        return row
    return msgspec.structs.replace(row, scope="total", of="everybody")


def _usage_text(row: BudgetUsage) -> str:
    tokens = f"{row.tokens:,} tokens{_of(row.limit_tokens, ',')}"
    parts = [f"{row.cached:,} cached"] if row.cached else []
    parts += [f"{row.reasoning:,} reasoning"] if row.reasoning else []
    if parts:
        tokens += f" ({', '.join(parts)})"
    usd = f"{row.usd:.4f} USD{_of(row.limit_usd, 'g')}"
    calls = "call" if row.calls == 1 else "calls"
    return f"{tokens}, {usd}, in {row.calls} {calls} of a model"


def _of(limit: float | None, layout: str) -> str:
    return "" if limit is None else f" of {limit:{layout}}"

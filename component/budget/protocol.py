"""Budgets of language models: spenders, limits, amounts, and what people are told about them."""

import operator
from collections.abc import Mapping
from typing import Literal

import msgspec

from component.config.agents import Budget
from component.config.kinds import defaults
from xep.jid import JID

Scope = Literal["agent", "principal", "room", "task", "day"]
"""The kinds of budget: those of an agent (its sub-agents included), of a principal, of a room and
of everybody together are counted per day (UTC); that of a task, which is a turn or a durable task,
from its start.
"""


class Payer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A budget that pays for a turn instead of those of its principal and its agent.

    `of` is the name of an agent or the bare JID of a principal or a room; it is empty if `scope` is
    `day`: then only the total budget pays, which every call counts against. `usd` is the limit of
    a room, in US dollars a day; without one it has that of a principal.
    """

    scope: Literal["agent", "principal", "room", "day"]
    of: str = ""
    usd: float | None = None


class Spender(msgspec.Struct, frozen=True):
    """The spender of a call: `agents` are the agent and its parents, `task` is the turn.

    `payer` pays instead of the budgets of these agents and of the principal. `limit_usd` and
    `limit_tokens` are the maximum cost of the task, if it has its own limits.
    """

    agents: tuple[str, ...]
    principal: JID
    task: str
    payer: Payer | None = None
    limit_usd: float | None = None
    limit_tokens: int | None = None


class TurnBudget(msgspec.Struct, frozen=True, omit_defaults=True):
    """What pays for the calls that a skill makes for a turn: see `Spender`.

    `task` is the turn that pays: for a sub-agent, the turn of the topmost agent.
    """

    task: str
    payer: Payer | None = None
    limit_usd: float | None = None
    limit_tokens: int | None = None


class Amount(msgspec.Struct, frozen=True):
    """Tokens of both directions together, and US dollars.

    Of the tokens, `cached` were read from the cache of a provider, `reasoning` were reasoning, and
    `output` were answers. `calls` is the number of calls that have cost it.
    """

    tokens: int = 0
    usd: float = 0.0
    cached: int = 0
    reasoning: int = 0
    output: int = 0
    calls: int = 0

    def plus(self, other: "Amount") -> "Amount":
        """Return the sum of both."""
        return Amount(
            *map(operator.add, msgspec.structs.astuple(self), msgspec.structs.astuple(other))
        )


class Reservation(msgspec.Struct, frozen=True):
    """A reservation for one call. Pass it to `settle`, whatever the outcome of the call."""

    id: int
    who: Spender
    most: Amount
    day: str


class BudgetExceededError(Exception):
    """A call would exceed the budget `scope` of `of`. The text is a sentence for the person."""

    def __init__(self, sentence: str, scope: Scope, of: str) -> None:
        super().__init__(sentence)
        self.scope = scope
        self.of = of


_NO_LIMIT = defaults(Budget)


class BudgetLimits(msgspec.Struct, frozen=True, kw_only=True):
    """All budgets. `alert` is the fraction of a budget at which an alert is sent."""

    agents: Mapping[str, Budget] = {}
    principal: Budget = _NO_LIMIT
    task: Budget = _NO_LIMIT
    day: Budget = _NO_LIMIT
    alert: float = 0.8


class BudgetUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of a budget: a row of the report. The limits are None if there are none.

    Of the tokens, `cached` were read from the cache of a provider and `reasoning` were reasoning.
    For people the scope `day` is called `total`, as in the settings.
    """

    scope: Scope | Literal["total"]
    of: str
    tokens: int
    usd: float
    calls: int
    limit_tokens: int | None = None
    limit_usd: float | None = None
    cached: int = 0
    reasoning: int = 0
    output: int = 0


def usage_text(row: BudgetUsage) -> str:
    """Return the usage and the limit in words."""
    tokens = f"{row.tokens} tokens" + (f" of {row.limit_tokens}" if row.limit_tokens else "")
    usd = f"{row.usd:.4f} USD" + (f" of {row.limit_usd:g}" if row.limit_usd else "")
    return f"{tokens}, {usd}"


def exceeded_text(scope: Scope, *, is_named: bool = False) -> str:
    """Return the answer to a person; `is_named`: the budget was chosen for this turn."""
    if is_named and scope == "task":
        return "I stopped, because this would cost more than the budget that was chosen for it."
    if is_named:
        return "I can't do this today, because it would exceed the budget that was chosen for it."
    match scope:
        case "task":
            return (
                "I stopped, because the answer would cost more than one answer may. Please ask"
                " for less at a time."
            )
        case "principal":
            return (
                "I can't answer this today, because it would exceed your daily budget. The"
                " budget is renewed every day; /usage shows when."
            )
        case "agent":
            return "I can't answer this today, because it would exceed my daily budget."
        case "room":
            return (
                "I can't answer here any more today, because the daily budget of this room is used"
                " up. It is renewed at midnight (UTC)."
            )
    return "I can't answer this today, because it would exceed the daily budget of this service."

"""Budgets: their limits, the amounts spent, and the sentences for people about them."""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from component.budget.protocol import Scope


class Limit(msgspec.Struct, frozen=True):
    """Maximum tokens and US dollars; None for no limit."""

    tokens: int | None = None
    usd: float | None = None


class BudgetLimits(msgspec.Struct, frozen=True, kw_only=True):
    """All budgets. `alert` is the fraction of a budget at which an alert is sent."""

    agents: Mapping[str, Limit] = {}
    principal: Limit = Limit()
    task: Limit = Limit()
    day: Limit = Limit()
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


def usage_text(row: BudgetUsage) -> str:
    """Return the usage and the limit in words."""
    parts: Iterable[str] = (
        f"{row.tokens} tokens" + (f" of {row.limit_tokens}" if row.limit_tokens else ""),
        f"{row.usd:.4f} USD" + (f" of {row.limit_usd:g}" if row.limit_usd else ""),
    )
    return ", ".join(parts)


def sentence(scope: Scope, *, is_named: bool = False) -> str:
    """Return the answer to a person whose call would exceed a budget; `is_named` says that the
    budget was chosen for this turn.
    """
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
                " budget is renewed at midnight UTC; /usage shows it."
            )
        case "agent":
            return "I can't answer this today, because it would exceed my daily budget."
    return "I can't answer this today, because it would exceed the daily budget of this service."

"""What the loop asks of the budgets: leave before each call of a model, and to be told after it."""

from typing import Literal, Protocol

import msgspec

from xep.jid import JID

Scope = Literal["agent", "principal", "task", "day"]
"""Whose budget: an agent's (its sub-agents included), a principal's and the day of all together are
counted by the day (UTC); a task's, which is a turn or a durable task, from its beginning."""


class Spender(msgspec.Struct, frozen=True):
    """For whom is paid: `agents` are the agent and those above it, `task` the turn."""

    agents: tuple[str, ...]
    principal: JID
    task: str


class Amount(msgspec.Struct, frozen=True):
    """Tokens of both directions together, and US dollars."""

    tokens: int = 0
    usd: float = 0.0


class Reservation(msgspec.Struct, frozen=True):
    """Leave for one call. Hand it back to `settle`, whatever came of the call."""

    id: int
    who: Spender
    most: Amount
    day: str


class BudgetExceededError(Exception):
    """A call would exceed a budget. The text is a sentence for the person.

    `scope` and `of` say which budget it is.
    """

    def __init__(self, sentence: str, scope: Scope, of: str) -> None:
        """Take the sentence, and which budget."""
        super().__init__(sentence)
        self.scope = scope
        self.of = of


class Budgets(Protocol):
    """Neither method waits: what is spent is known in memory and written down behind it."""

    def reserve(self, who: Spender, most: Amount) -> Reservation:
        """Set aside what a call can cost at most. Raises BudgetExceededError."""

    def settle(self, reservation: Reservation, spent: Amount) -> None:
        """Say what it has cost; nothing if it was never made."""

"""The interface of budgets for the agent loop: a reservation before each call of a model, its cost
after it.
"""

from typing import Literal, Protocol

import msgspec

from xep.jid import JID

Scope = Literal["agent", "principal", "task", "day"]
"""The kinds of budget: those of an agent (its sub-agents included), of a principal and of everybody
together are counted per day (UTC); that of a task, which is a turn or a durable task, from its
start.
"""


class Payer(msgspec.Struct, frozen=True):
    """A budget that pays for a turn instead of those of its principal and its agent.

    `of` is the name of an agent or the bare JID of a principal; it is empty if `scope` is `day`:
    then only the total budget pays, which every call counts against.
    """

    scope: Literal["agent", "principal", "day"]
    of: str = ""


class Spender(msgspec.Struct, frozen=True):
    """The spender of a call: `agents` are the agent and its parents, `task` is the turn.

    `payer` pays instead of the budgets of these agents and of the principal. `limit_usd` is the
    maximum cost of the task in US dollars, if it has its own limit.
    """

    agents: tuple[str, ...]
    principal: JID
    task: str
    payer: Payer | None = None
    limit_usd: float | None = None


class TurnBudget(msgspec.Struct, frozen=True, omit_defaults=True):
    """What pays for the calls that a skill makes for a turn: see `Spender`.

    `task` is the turn that pays: for a sub-agent, the turn of the topmost agent.
    """

    task: str
    payer: Payer | None = None
    limit_usd: float | None = None


class Amount(msgspec.Struct, frozen=True):
    """Tokens of both directions together, and US dollars.

    Of the tokens, `cached` were read from the cache of a provider, and `reasoning` were reasoning.
    """

    tokens: int = 0
    usd: float = 0.0
    cached: int = 0
    reasoning: int = 0


class Reservation(msgspec.Struct, frozen=True):
    """A reservation for one call. Pass it to `settle`, whatever the outcome of the call."""

    id: int
    who: Spender
    most: Amount
    day: str


class BudgetExceededError(Exception):
    """A call would exceed a budget. The text is a sentence for the person.

    `scope` and `of` identify the budget.
    """

    def __init__(self, sentence: str, scope: Scope, of: str) -> None:
        """Create the error from the sentence and the budget."""
        super().__init__(sentence)
        self.scope = scope
        self.of = of


class Budgets(Protocol):
    """Costs are kept in memory and stored soon after; nobody waits for the database, except an
    instance that shares a budget with others and has to ask for more of it.
    """

    async def acquire(self, who: Spender, most: Amount) -> Reservation:
        """Reserve the maximum cost of a call. Raises BudgetExceededError, StorageError."""

    def settle(self, reservation: Reservation, spent: Amount) -> None:
        """Record the cost of a call; zero if it was never made."""

    def ended(self, task: str) -> None:
        """Forget the costs of a turn or a durable task that has ended."""

"""Budgets that several instances share, in the database.

Each instance has an allotment of a budget: the amount that it may spend without asking. For each
budget

    spent + the sum of all allotments <= limit

holds in every transaction that enlarges an allotment, so it always holds. An instance reserves
amounts from its allotment in memory; what it has spent moves from its allotment to the spent
amount, in the commit that stores the costs anyway.

How much of its allotment an instance has spent is unknown after it was killed: calls may have been
in progress. So all of it counts as spent once other instances have declared it dead. If the
instance was only paused, and returns, it corrects that with the amount that it has really spent.

A call that fits into the allotment of its instance does not wait. Allotments are renewed in the
commit that stores the costs, so successive calls cost no additional commit. Only the first call
after a pause waits for one, and each call when a budget is nearly spent.
"""

from typing import Final

import msgspec

from component.budget.protocol import Amount
from component.budget.rows import Key, add
from component.config.agents import Budget
from component.store.database import Database

CHANNEL: Final = "budgets"
"""The channel on which an instance asks the others for amounts that they hold and do not need."""

_SPARE_PART: Final = 4
"""An instance takes at most this part of the rest of a budget ahead of time."""
_KEY: Final = "day = ? AND scope = ? AND subject = ?"
_DEAD: Final = "instance NOT IN (SELECT id FROM instances)"
_NANO: Final = 1_000_000_000


class Units(msgspec.Struct, frozen=True):
    """Tokens and billionths of a US dollar: whole numbers, whose sums are exact."""

    tokens: int = 0
    nanos: int = 0

    @property
    def as_spent(self) -> Amount:
        """The same as what was spent, without a call."""
        return Amount(self.tokens, self.nanos / _NANO)

    @classmethod
    def of(cls, amount: Amount | Budget) -> "Units":
        """Return units for tokens and US dollars."""
        return cls(amount.tokens or 0, round((amount.usd or 0.0) * _NANO))

    def __add__(self, other: "Units") -> "Units":
        """Return the sum."""
        return Units(self.tokens + other.tokens, self.nanos + other.nanos)

    def __sub__(self, other: "Units") -> "Units":
        """Return the difference."""
        return Units(self.tokens - other.tokens, self.nanos - other.nanos)

    @property
    def positive(self) -> "Units":
        """The same, at least zero."""
        return Units(max(0, self.tokens), max(0, self.nanos))

    def exceeds(self, other: "Units", limit: Budget) -> bool:
        """Return whether the sum with `other` exceeds the limit."""
        return (limit.tokens is not None and self.tokens > other.tokens) or (
            limit.usd is not None and self.nanos > other.nanos
        )


NOTHING: Final = Units()


class BudgetAccount(msgspec.Struct, eq=False):
    """What was spent and reserved, and how much of it is not on disk yet."""

    spent: Amount = Amount()
    held: Amount = Amount()  # the reservations of calls in progress
    under_way: int = 0
    new: Amount = Amount()
    alerted: bool = False

    def hold(self, most: Amount) -> None:
        """Reserve the maximum cost of a call."""
        self.held = self.held.plus(most)
        self.under_way += 1

    def let_go(self, most: Amount) -> None:
        """Release the reservation of a call that has ended."""
        self.under_way = max(0, self.under_way - 1)  # a turn may end before its last call
        # Floating-point sums leave a remainder, which must be zero without reservations.
        self.held = (
            Amount(max(0, self.held.tokens - most.tokens), max(0.0, self.held.usd - most.usd))
            if self.under_way
            else Amount()
        )


class Allotment(msgspec.Struct, eq=False):
    """What this instance may spend of a budget without asking.

    `written` is the allotment as stored, None if there is none; `may` is less while some of it is
    being returned, and counts the amount `writing`, which is being stored. `call` is the size of
    the last call.
    """

    may: Units = NOTHING
    call: Units = NOTHING
    written: Units | None = None
    writing: Amount = Amount()

    def free(self, account: BudgetAccount) -> Units:
        """Return the rest of the allotment."""
        unstored = account.new.plus(self.writing)
        return (self.may - Units.of(account.held) - Units.of(unstored)).positive


class AllotmentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance reports about one budget, and requests from it.

    Attributes:
        alert_at: the part of the limit at which an alert is sent.
        spent: what was spent and is not stored yet.
        had: the allotment as last stored; None if there was none yet.
        keep: the amount reserved for calls in progress, and what may be kept ahead of time.
        want: what a waiting call needs in addition; all of it or nothing is granted.
        spare: what would be useful ahead of time, in calls of the size `call`.
    """

    key: Key
    limit: Budget
    alert_at: float
    spent: Amount
    had: Units | None
    keep: Units
    want: Units
    spare: Units
    call: Units


class AllotmentGrant(msgspec.Struct, frozen=True):
    """What was stored: the spent sum, the allotment, what others hold, and whether this instance
    has to send the alert that the budget is nearly spent.
    """

    total: Amount
    allotment: Units
    others: Units
    alert: bool


def settle(database: Database, holder: str, instance: str, ask: AllotmentRequest) -> AllotmentGrant:
    """Store what was spent, and take an allotment. Settle budgets in their order.

    `holder` identifies the holder of the allotment for its whole lifetime, `instance` is the name
    under which it currently sends heartbeats.
    """
    add(database, ask.key, Amount())  # locks the row until the end of the transaction
    charged = _charge_dead(database, ask.key, holder)
    own = database.execute(
        f"SELECT 1 FROM budget_allotments WHERE {_KEY} AND holder = ?",  # noqa: S608 - ours
        (*ask.key, holder),
    ).fetchone()
    if own is None and ask.had is not None:
        # Others have declared this instance dead and charged its whole allotment.
        charged -= ask.had
    total = add(database, ask.key, ask.spent.plus(charged.as_spent))
    others = _held_by_others(database, ask.key, holder)
    allotment = _allotted(ask, total, others)
    database.execute(
        "INSERT INTO budget_allotments (day, scope, subject, holder, instance, tokens, nanos)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (day, scope, subject, holder) DO UPDATE"
        " SET instance = excluded.instance, tokens = excluded.tokens, nanos = excluded.nanos",
        (*ask.key, holder, instance, allotment.tokens, allotment.nanos),
    )
    return AllotmentGrant(total, allotment, others, _alerts(database, ask, total))


def _allotted(ask: AllotmentRequest, total: Amount, others: Units) -> Units:
    left = Units.of(ask.limit) - Units.of(total) - others
    wanted = ask.keep + ask.want
    keep = ask.keep if wanted.exceeds(left, ask.limit) else wanted
    left -= keep
    # The less is left, the less is taken ahead of time; in the end nothing, so that any instance
    # can use a small budget.
    spare = Units(
        min(ask.spare.tokens, left.tokens // _SPARE_PART),
        min(ask.spare.nanos, left.nanos // _SPARE_PART),
    )
    return keep if ask.call.exceeds(spare, ask.limit) else keep + spare


def _held_by_others(database: Database, key: Key, holder: str) -> Units:
    found = database.execute(
        "SELECT coalesce(sum(tokens), 0), coalesce(sum(nanos), 0)"  # noqa: S608 - ours
        f" FROM budget_allotments WHERE {_KEY} AND holder <> ?",
        (*key, holder),
    ).fetchone()
    assert found is not None, "a sum is one row"
    return Units(*found)


def _charge_dead(database: Database, key: Key, holder: str) -> Units:
    """Delete the allotments of dead instances; return their sum, to be counted as spent."""
    found = database.execute(
        f"DELETE FROM budget_allotments WHERE {_KEY} AND holder <> ? AND {_DEAD}"  # noqa: S608
        " RETURNING tokens, nanos",
        (*key, holder),
    ).fetchall()
    return sum((Units(*row) for row in found), NOTHING)


def charge_dead(database: Database, holder: str) -> None:
    """Count the allotments of all dead instances as spent."""
    found = database.execute(
        "SELECT DISTINCT day, scope, subject FROM budget_allotments"  # noqa: S608 - ours
        f" WHERE holder <> ? AND {_DEAD} ORDER BY day, scope, subject",
        (holder,),
    ).fetchall()
    for day, scope, subject in found:
        key: Key = (day, scope, subject)
        add(database, key, Amount())  # locks the row
        add(database, key, _charge_dead(database, key, holder).as_spent)


def forget_empty(database: Database, holder: str) -> None:
    """Remove the rows of empty allotments."""
    database.execute(
        "DELETE FROM budget_allotments WHERE holder = ? AND tokens = 0 AND nanos = 0", (holder,)
    )


def spent_part(spent: Amount, limit: Budget) -> float:
    """Return the spent part of a budget; 0 without a limit."""
    return max(
        spent.tokens / limit.tokens if limit.tokens else 0.0,
        spent.usd / limit.usd if limit.usd else 0.0,
    )


def _alerts(database: Database, ask: AllotmentRequest, total: Amount) -> bool:
    """Return whether the budget is nearly spent and no alert was sent yet."""
    if spent_part(total, ask.limit) < ask.alert_at:
        return False
    done = database.execute(
        f"UPDATE spending SET alerted = 1 WHERE {_KEY} AND alerted = 0",  # noqa: S608 - ours
        ask.key,
    )
    return done.rowcount > 0


def would_help(ask: AllotmentRequest, got: AllotmentGrant) -> bool:
    """Return whether others hold an amount that was requested and not granted."""
    missing = (ask.keep + ask.want).exceeds(got.allotment, ask.limit)
    return missing and got.others != NOTHING


def gives(ask: AllotmentRequest) -> bool:
    """Return whether an amount is returned that other instances may use."""
    needed = ask.keep + Units.of(ask.spent)
    return ask.had is not None and ask.had.exceeds(needed, ask.limit)

"""The tables of spending."""

from typing import Final, NamedTuple, TypeAlias

import msgspec

from component.budget.protocol import Limit, Scope
from component.storage.database import Database
from component.storage.schema import Table

TABLES: Final = (
    Table(
        name="spending",
        columns="""
            day TEXT NOT NULL,
            scope TEXT NOT NULL,
            subject TEXT {C} NOT NULL,
            tokens BIGINT NOT NULL,
            usd DOUBLE PRECISION NOT NULL,
            calls BIGINT NOT NULL,
            alerted INTEGER NOT NULL DEFAULT 0,
            cached BIGINT NOT NULL DEFAULT 0,
            reasoning BIGINT NOT NULL DEFAULT 0,
            PRIMARY KEY (day, scope, subject)
        """,
        kept="sums",
    ),
    Table(
        name="budget_allotments",
        columns="""
            day TEXT NOT NULL,
            scope TEXT NOT NULL,
            subject TEXT {C} NOT NULL,
            holder TEXT NOT NULL,
            instance TEXT NOT NULL,
            tokens BIGINT NOT NULL,
            nanos BIGINT NOT NULL,
            PRIMARY KEY (day, scope, subject, holder)
        """,
        kept="sums",
    ),
)


TASKS: Final = "tasks"
"""Replaces the day in the row of a task, which may last longer than a day."""

_MOST_TOKENS: Final = 2**62

Key: TypeAlias = tuple[str, Scope, str]
"""The day, and the budget."""


class More(NamedTuple):
    """Tokens, US dollars and calls; of the tokens those read from a cache, and of reasoning."""

    tokens: int = 0
    usd: float = 0.0
    calls: int = 0
    cached: int = 0
    reasoning: int = 0

    def plus(self, other: "More") -> "More":
        """Return the sum of both."""
        return More(
            self.tokens + other.tokens,
            self.usd + other.usd,
            self.calls + other.calls,
            self.cached + other.cached,
            self.reasoning + other.reasoning,
        )


class Row(msgspec.Struct, frozen=True):
    """The usage of one budget."""

    key: Key
    spent: More


_SUMS: Final = "tokens, usd, calls, cached, reasoning"


def _more(tokens: int, usd: float, calls: int, cached: int, reasoning: int) -> More:
    return More(int(tokens), float(usd), int(calls), int(cached), int(reasoning))


def rows_of(database: Database, day: str) -> list[Row]:
    """Return the usage of a day, the highest first."""
    return [
        Row((day, scope, of), _more(*sums))
        for scope, of, *sums in database.execute(
            f"SELECT scope, subject, {_SUMS} FROM spending WHERE day = ?"  # noqa: S608 - ours
            " ORDER BY usd DESC, tokens DESC, scope, subject",
            (day,),
        ).fetchall()
    ]


def open_tasks(database: Database) -> list[Row]:
    """Return the usage of turns that have not ended."""
    return [
        Row((TASKS, "task", of), _more(*sums))
        for of, *sums in database.execute(
            f"SELECT subject, {_SUMS} FROM spending WHERE day = ?"  # noqa: S608 - ours
            " AND scope = 'task'"
            " AND subject IN (SELECT id FROM turns)",
            (TASKS,),
        ).fetchall()
    ]


def add(database: Database, key: Key, more: More) -> More:
    """Add to the stored usage; return the sum. Tokens stay below 2^63, like the column."""
    database.execute(
        f"INSERT INTO spending (day, scope, subject, {_SUMS})"  # noqa: S608 - ours
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (day, scope, subject) DO UPDATE SET tokens = excluded.tokens + CASE"
        " WHEN spending.tokens > ? THEN ? ELSE spending.tokens END,"
        " usd = spending.usd + excluded.usd, calls = spending.calls + excluded.calls,"
        " cached = spending.cached + excluded.cached,"
        " reasoning = spending.reasoning + excluded.reasoning",
        (*key, *more, _MOST_TOKENS, _MOST_TOKENS),
    )
    found = database.execute(
        f"SELECT {_SUMS} FROM spending"  # noqa: S608 - ours
        " WHERE day = ? AND scope = ? AND subject = ?",
        key,
    ).fetchone()
    assert found is not None, "it was written just now"
    return _more(*found)


def forget(database: Database, key: Key) -> None:
    """Remove a row."""
    database.execute("DELETE FROM spending WHERE day = ? AND scope = ? AND subject = ?", key)


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
    def as_spent(self) -> More:
        """The same as what was spent, without a call."""
        return More(self.tokens, self.nanos / _NANO)

    @classmethod
    def of(cls, tokens: int, usd: float) -> "Units":
        """Return units for tokens and US dollars."""
        return cls(tokens, round(usd * _NANO))

    def __add__(self, other: "Units") -> "Units":
        """Return the sum."""
        return Units(self.tokens + other.tokens, self.nanos + other.nanos)

    def __sub__(self, other: "Units") -> "Units":
        """Return the difference."""
        return Units(self.tokens - other.tokens, self.nanos - other.nanos)

    def exceeds(self, other: "Units", limit: Limit) -> bool:
        """Return whether the sum with `other` exceeds the limit."""
        return (limit.tokens is not None and self.tokens > other.tokens) or (
            limit.usd is not None and self.nanos > other.nanos
        )


NOTHING: Final = Units()


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance reports about one budget, and requests from it.

    Attributes:
        key: the budget.
        limit: the maximum that may be spent of it.
        alert_at: the part of it at which an alert is sent.
        spent: what was spent and is not stored yet.
        had: the allotment as last stored; None if there was none yet.
        keep: the amount reserved for calls in progress, and what may be kept ahead of time.
        want: what a waiting call needs in addition; all of it or nothing is granted.
        spare: what would be useful ahead of time, in calls of the size `call`.
    """

    key: Key
    limit: Limit
    alert_at: float
    spent: More
    had: Units | None
    keep: Units
    want: Units
    spare: Units
    call: Units


class Got(msgspec.Struct, frozen=True):
    """What was stored: the spent sum, the allotment, what others hold, and whether this instance
    has to send the alert that the budget is nearly spent.
    """

    total: More
    allotment: Units
    others: Units
    alert: bool


def settle(database: Database, holder: str, instance: str, ask: Ask) -> Got:
    """Store what was spent, and take an allotment. Settle budgets in their order.

    `holder` identifies the holder of the allotment for its whole lifetime, `instance` is the name
    under which it currently sends heartbeats.
    """
    _lock(database, ask.key)
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
    return Got(total, allotment, others, _alerts(database, ask, total))


def _allotted(ask: Ask, total: More, others: Units) -> Units:
    left = Units.of(ask.limit.tokens or 0, ask.limit.usd or 0.0)
    left -= Units.of(total[0], total[1]) + others
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


def _lock(database: Database, key: Key) -> None:
    """Insert the row of a budget if necessary, and lock it until the end of the transaction."""
    add(database, key, More())


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
        _lock(database, key)
        charged = _charge_dead(database, key, holder)
        add(database, key, charged.as_spent)


def forget_empty(database: Database, holder: str) -> None:
    """Remove the rows of empty allotments."""
    database.execute(
        "DELETE FROM budget_allotments WHERE holder = ? AND tokens = 0 AND nanos = 0", (holder,)
    )


def _alerts(database: Database, ask: Ask, total: More) -> bool:
    """Return whether the budget is nearly spent and no alert was sent yet."""
    tokens, usd = ask.limit.tokens, ask.limit.usd
    part = max(total[0] / tokens if tokens else 0.0, total[1] / usd if usd else 0.0)
    if part < ask.alert_at:
        return False
    done = database.execute(
        f"UPDATE spending SET alerted = 1 WHERE {_KEY} AND alerted = 0",  # noqa: S608 - ours
        ask.key,
    )
    return done.rowcount > 0

"""The tables of budgets: what was spent, and what instances may spend without asking."""

from typing import Final, TypeAlias

import msgspec

from component.budget.protocol import Amount, Scope
from component.store.database import Database
from component.store.schema import Table

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
            output BIGINT NOT NULL DEFAULT 0,
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
        is_work=False,
    ),
)

TASKS: Final = "tasks"
"""Replaces the day in the row of a task, which may last longer than a day."""

_MOST_TOKENS: Final = 2**62

Key: TypeAlias = tuple[str, Scope, str]
"""The day, and the budget."""


_SUMS: Final = "tokens, usd, cached, reasoning, output, calls"


def _amount(tokens: int, usd: float, *counts: int) -> Amount:
    return Amount(int(tokens), float(usd), *map(int, counts))


def spending_of_day(database: Database, day: str) -> dict[Key, Amount]:
    """Return the usage of a day, the highest first."""
    return {
        (day, scope, of): _amount(*sums)
        for scope, of, *sums in database.execute(
            f"SELECT scope, subject, {_SUMS} FROM spending WHERE day = ?"  # noqa: S608 - ours
            " ORDER BY usd DESC, tokens DESC, scope, subject",
            (day,),
        ).fetchall()
    }


def spending_since(database: Database, day: str) -> dict[Key, Amount]:
    """Return the usage of a day and of all later ones."""
    days = database.execute(
        "SELECT DISTINCT day FROM spending WHERE day >= ? AND day <> ?", (day, TASKS)
    ).fetchall()
    return {
        key: amount for (one,) in days for key, amount in spending_of_day(database, one).items()
    }


def open_tasks(database: Database) -> dict[Key, Amount]:
    """Return the usage of turns and of tasks that have not ended."""
    return {
        (TASKS, "task", of): _amount(*sums)
        for of, *sums in database.execute(
            f"SELECT subject, {_SUMS} FROM spending WHERE day = ?"  # noqa: S608 - ours
            " AND scope = 'task'"
            " AND (subject IN (SELECT id FROM turns) OR subject IN (SELECT id FROM tasks"
            " WHERE state NOT IN ('completed', 'failed', 'rejected', 'cancelled')))",
            (TASKS,),
        ).fetchall()
    }


def add(database: Database, key: Key, more: Amount) -> Amount:
    """Add to the stored usage; return the sum. Tokens stay below 2^63, like the column."""
    database.execute(
        f"INSERT INTO spending (day, scope, subject, {_SUMS})"  # noqa: S608 - ours
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (day, scope, subject) DO UPDATE SET tokens = excluded.tokens + CASE"
        " WHEN spending.tokens > ? THEN ? ELSE spending.tokens END,"
        " usd = spending.usd + excluded.usd, calls = spending.calls + excluded.calls,"
        " cached = spending.cached + excluded.cached,"
        " reasoning = spending.reasoning + excluded.reasoning,"
        " output = spending.output + excluded.output",
        (*key, *msgspec.structs.astuple(more), _MOST_TOKENS, _MOST_TOKENS),
    )
    found = database.execute(
        f"SELECT {_SUMS} FROM spending"  # noqa: S608 - ours
        " WHERE day = ? AND scope = ? AND subject = ?",
        key,
    ).fetchone()
    assert found is not None, "it was written just now"
    return _amount(*found)


def forget_spending(database: Database, key: Key) -> None:
    """Remove a row."""
    database.execute("DELETE FROM spending WHERE day = ? AND scope = ? AND subject = ?", key)

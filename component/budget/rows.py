"""The usage of budgets in the database."""

from typing import Final, NamedTuple, TypeAlias

import msgspec

from component.budget.protocol import Scope
from component.storage.database import Database

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

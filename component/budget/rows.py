"""What was spent, as the database keeps it."""

from typing import Final, TypeAlias

import msgspec

from component.budget.protocol import Scope
from component.storage.database import Database

TASKS: Final = "tasks"
"""What stands in the place of the day where a task is counted, which may last longer than one."""

_MOST_TOKENS: Final = 2**62

Key: TypeAlias = tuple[str, Scope, str]
"""The day, and whose it is."""
More: TypeAlias = tuple[int, float, int]
"""Tokens, US dollars and calls."""


class Row(msgspec.Struct, frozen=True):
    """What one has spent."""

    key: Key
    tokens: int
    usd: float
    calls: int


def rows_of(database: Database, day: str) -> list[Row]:
    """What was spent on a day, most first."""
    return [
        Row((day, scope, of), int(tokens), float(usd), int(calls))
        for scope, of, tokens, usd, calls in database.execute(
            "SELECT scope, subject, tokens, usd, calls FROM spending WHERE day = ?"
            " ORDER BY usd DESC, tokens DESC, scope, subject",
            (day,),
        ).fetchall()
    ]


def open_tasks(database: Database) -> list[Row]:
    """What turns have spent that are not over."""
    return [
        Row((TASKS, "task", of), int(tokens), float(usd), int(calls))
        for of, tokens, usd, calls in database.execute(
            "SELECT subject, tokens, usd, calls FROM spending WHERE day = ? AND scope = 'task'"
            " AND subject IN (SELECT id FROM turns)",
            (TASKS,),
        ).fetchall()
    ]


def add(database: Database, key: Key, more: More) -> More:
    """Add to what is on disk; what is there then. Tokens stay below 2^63, as the column does."""
    database.execute(
        "INSERT INTO spending (day, scope, subject, tokens, usd, calls) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (day, scope, subject) DO UPDATE SET tokens = excluded.tokens + CASE"
        " WHEN spending.tokens > ? THEN ? ELSE spending.tokens END,"
        " usd = spending.usd + excluded.usd, calls = spending.calls + excluded.calls",
        (*key, *more, _MOST_TOKENS, _MOST_TOKENS),
    )
    found = database.execute(
        "SELECT tokens, usd, calls FROM spending WHERE day = ? AND scope = ? AND subject = ?", key
    ).fetchone()
    assert found is not None, "it was written just now"
    return int(found[0]), float(found[1]), int(found[2])


def forget(database: Database, key: Key) -> None:
    """Remove a row."""
    database.execute("DELETE FROM spending WHERE day = ? AND scope = ? AND subject = ?", key)

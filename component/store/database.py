"""The interface to the database within one transaction, the same for both databases."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import msgspec

T = TypeVar("T")

Value: TypeAlias = str | int | float | bytes | None
Values: TypeAlias = Sequence[Value]
Dialect: TypeAlias = Literal["sqlite", "postgresql"]


class Rows(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int:
        """The number of changed rows."""

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, or None."""

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all remaining rows."""


class Database(Protocol):
    """One transaction, for the duration of one operation.

    An operation may run again after a failure of the database or the connection. So it must not
    draw random values or read the monotonic clock, and must not keep state except its result.

    Attributes:
        dialect: the SQL dialect, where the two differ.
        now: the time of this transaction, in milliseconds since 1970, UTC, for people to read.
            One clock for all instances: the process's on SQLite, the database's on PostgreSQL. It
            may be wrong, and may jump.
        settled: the same, for comparison with absolute times such as the deadline of a caller.
            After the clock was set forward, it has the new time only when that has lasted for a
            minute.
        steady: milliseconds that do not jump, equal to `now` until the clock jumps for the first
            time. Expiry and deletion times are stored and compared on this scale
            (`component.store.clock`).
    """

    dialect: Dialect
    now: int
    settled: int
    steady: int

    def execute(self, sql: str, parameters: Sequence[Value] = (), /) -> Rows:
        """Run one statement; `?` stands for a parameter on both databases."""

    def expect(self, sql: str, parameters: Sequence[Value] = (), /) -> bool:
        """Run one statement that should find or change a row; return whether it did.

        On PostgreSQL it returns True without waiting for the answer. If there was no row, nothing
        is committed: the operation runs again, and gets False. That costs more than waiting, so it
        should be rare.
        """

    def notify(self, channel: str, /) -> None:
        """Notify listeners of the channel in other processes when this is committed.

        Does nothing on SQLite, where there is no other process.
        """


def among(database: Database, column: str, names: Sequence[str]) -> tuple[str, Value]:
    """Return the condition that a column has one of these values, and its one parameter."""
    value = msgspec.json.encode(names).decode()
    if database.dialect == "postgresql":
        # An array, because the planner expects more rows of a function, and would read the table.
        return f"{column} = ANY(ARRAY(SELECT jsonb_array_elements_text(CAST(? AS jsonb))))", value
    return f"{column} IN (SELECT value FROM json_each(?))", value  # noqa: S608 - a constant


def pairs_of(database: Database, numbers: Mapping[str, int]) -> tuple[str, Value]:
    """Return a table for `FROM` with the columns `key` and `value`, and its one parameter; `value`
    has to be cast to a number.
    """
    table = (
        "jsonb_each_text(CAST(? AS jsonb))" if database.dialect == "postgresql" else "json_each(?)"
    )
    return table, msgspec.json.encode(numbers).decode()

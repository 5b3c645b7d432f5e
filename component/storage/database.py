"""What work inside one transaction may do, on either database."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

T = TypeVar("T")

Value: TypeAlias = str | int | float | bytes | None
Dialect: TypeAlias = Literal["sqlite", "postgresql"]


class Rows(Protocol):
    """What a statement gave."""

    @property
    def rowcount(self) -> int:
        """How many rows it changed."""

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, or None."""

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that are left."""


class Database(Protocol):
    """One transaction of either database, for the time of one operation.

    An operation may run again, after a failure in its surroundings: it draws random values and
    reads the monotonic clock before, not inside, and keeps nothing from a run but what it returns.

    Attributes:
        dialect: which SQL is understood, where the two differ.
        now: the time of this transaction, in milliseconds since 1970, UTC. One clock for all
            instances: the process's on SQLite, the database's on PostgreSQL.
    """

    dialect: Dialect
    now: int

    def execute(self, sql: str, parameters: Sequence[Value] = (), /) -> Rows:
        """Run one statement; `?` stands for a parameter on both databases."""

    def notify(self, channel: str, /) -> None:
        """Wake who listens to the channel in other processes, once this is committed.

        Nothing on SQLite, where there is no other process.
        """


class Transactions(Protocol):
    """Runs operations inside transactions: what most rooms need of `component.storage.Storage`.

    Both raise StorageError if the database refuses.
    """

    async def read(self, op: Callable[[Database], T]) -> T:
        """Return what an operation reads."""

    async def write(self, op: Callable[[Database], T], *, keep_trying: bool = False) -> T:
        """Return what an operation gives, once all it changed is on disk."""

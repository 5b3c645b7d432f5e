"""A database in memory that is used at once, on clocks that the test sets."""

from collections.abc import Callable, Collection, Coroutine
from typing import Any, TypeVar

import anyio

from component.store import Storage
from component.store.database import Database
from tests.memory_database import memory_database

T = TypeVar("T")


def expect(database: Any, sql: str, parameters: Any) -> bool:
    """`Database.expect` of a double on SQLite: the answer is known at once."""
    found = database.execute(sql, parameters)
    return found.fetchone() is not None if sql.startswith("SELECT") else found.rowcount > 0


async def rest(woken: anyio.Event, seconds: float, look_s: float, _skew_ms: int | None) -> None:
    """`Storage.rest` of a double that others may change at any time."""
    with anyio.move_on_after(min(seconds, look_s)):
        await woken.wait()


class DirectDatabase:
    """A `Database` whose transaction is each operation."""

    dialect = "sqlite"

    def __init__(self, start: int) -> None:
        self.now = self.settled = self.steady = start
        self.connection = memory_database()

    def execute(self, sql: str, parameters: Any = ()) -> Any:
        return self.connection.execute(sql, parameters)

    def expect(self, sql: str, parameters: Any = ()) -> bool:
        return expect(self, sql, parameters)

    def notify(self, _channel: str) -> None:
        pass

    def passes(self, ms: int) -> None:
        self.now += ms
        self.settled += ms
        self.steady += ms

    def jumps(self, ms: int) -> None:
        self.now += ms
        self.settled += ms

    # As `component.store.Storage`.

    is_shared = False
    rest = staticmethod(rest)
    poll_s = Storage.poll_s
    select = Storage.select
    change = Storage.change

    async def read(self, op: Callable[[Database], T]) -> T:
        return op(self)  # type: ignore[arg-type]

    async def write(
        self,
        op: Callable[[Database], T],
        *,
        keep_trying: bool = False,
        tasks: Collection[str] = (),
    ) -> T:
        self.connection.execute("BEGIN")
        try:
            result = op(self)  # type: ignore[arg-type]
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")
        return result


def done(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    raise AssertionError("it waits")

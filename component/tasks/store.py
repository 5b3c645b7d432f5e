"""Transactions over tasks, and the changes that are published after their commit."""

from collections.abc import Callable, Collection
from typing import TypeVar

import msgspec

from component.storage.database import Database
from component.storage.storage import Storage
from component.tasks.instances import cancel_row, children_of, wake_one
from component.tasks.record_bound import RecordBound
from component.tasks.rows import Change, Row, is_queued
from component.tasks.states import TERMINAL

T = TypeVar("T")


class Transaction:
    """One operation's view of the database, and the changes to publish after its commit.

    It is a `component.storage.database.Database`, and goes wherever one is expected.
    """

    __slots__ = (
        *("_has_slots", "_retention_ms", "changes", "dialect", "execute", "notify", "now"),
        *("answers", "rows", "settled", "steady"),
    )

    def __init__(
        self, database: Database, has_slots: Callable[[], bool], retention_ms: int
    ) -> None:
        self._has_slots = has_slots
        self._retention_ms = retention_ms
        self.dialect = database.dialect
        self.now = database.now
        self.settled = database.settled
        self.steady = database.steady
        self.execute = database.execute
        self.notify = database.notify
        self.changes: list[Change] = []
        self.answers: list[tuple[str, int]] = []
        """Principals for whom a recorded answer is stored, and its size in bytes."""
        self.rows: list[Row] = []

    def publish(self, *changes: Change) -> None:
        """Publish changes once they are committed.

        When a task has ended, the tasks that it started and that have not ended are cancelled.
        """
        self.changes += changes
        for made in changes:
            if made.ready or is_queued(made.row):
                self.wake_others()
            if made.row.children and made.row.state in TERMINAL:
                for child in children_of(self, made.row.id):
                    self.publish(*cancel_row(self, child, retention_ms=self._retention_ms))

    def queued(self, *rows: Row) -> None:
        """After the commit, let these tasks be claimed if they can be, now or when they are due."""
        self.rows += [msgspec.structs.replace(row) for row in rows]
        if any(map(is_queued, rows)):
            self.wake_others()

    def wake_others(self) -> None:
        """Wake another instance to claim queued tasks, unless this one has slots for them."""
        if not self._has_slots():
            wake_one(self)


class TaskStore:
    """Runs operations on tasks, and publishes their changes after the commit.

    Args:
        storage: reads and writes the rows.
        publish: receives the changes of one commit, and the execution that made it, if one did.
            Called on the event loop; never raises.
        has_slots: returns whether one more task can run on this instance.
        retention_ms: milliseconds for which a task is retained after its end.
        records: the limit on the replay records of a principal.
    """

    def __init__(
        self,
        storage: Storage,
        publish: Callable[["Transaction", object], None],
        has_slots: Callable[[], bool],
        retention_ms: int,
        records: RecordBound,
    ) -> None:
        self.storage = storage
        self.records = records
        self._has_slots = has_slots
        self._retention_ms = retention_ms
        self._publish = publish

    async def read(self, op: Callable[[Database], T]) -> T:
        """Run an operation that reads, and return its value. Raises StorageError."""
        return await self.storage.read(op)

    async def commit(
        self,
        op: Callable[[Transaction], T],
        *,
        tasks: Collection[str] = (),
        keep_trying: bool = False,
        by: object = None,
    ) -> T:
        """Run an operation, and return its value after it is on disk and its changes are published.

        `tasks` are the ids of the tasks that it changes, as far as they are known before; see
        `Storage.write`. With `keep_trying` an operation that the database refuses is tried again
        until it succeeds or the caller is cancelled. `by` is the execution that makes the changes.

        Raises StorageError, and the errors of the operation.
        """

        def run(database: Database) -> tuple[T, Transaction]:
            transaction = Transaction(database, self._has_slots, self._retention_ms)
            return op(transaction), transaction

        value, transaction = await self.storage.write(run, keep_trying=keep_trying, tasks=tasks)
        if transaction.changes or transaction.rows or transaction.answers:
            self._publish(transaction, by)
        return value

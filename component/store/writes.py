"""The operations of one transaction, in the thread of a database.

A batch of writes first runs in one transaction without savepoints, which are a round trip each on
PostgreSQL. If an operation raises after it has changed something, the batch runs again with each
operation in a savepoint. If the database rejects the batch, each operation runs in its own
transaction, so that only those that the database rejects fail.
"""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import anyio
import msgspec

from component import system
from component.store.database import Database
from component.store.errors import (
    ConnectionLostError,
    DiskFullError,
    StorageError,
    UnavailableError,
    UnstorableError,
)

if TYPE_CHECKING:
    from component.store.process_locks import ProcessLocks

T = TypeVar("T")

ATTEMPTS: Final = 4
"""Attempts to run a transaction whose connection breaks."""
FIRST_WAIT_S: Final = 0.2
LONGEST_WAIT_S: Final = 5.0
"""Seconds until what the database refuses is tried again."""
_APART_S: Final = 15.0
"""Time limit for running the operations of a rejected batch one by one, while others wait."""


class Doubt:
    """Whether a transaction whose commit got no answer was committed; None until this is known."""

    committed: bool | None = None


class Queued(msgspec.Struct, Generic[T], eq=False):
    """A queued operation and its outcome.

    `tasks` are the ids of the tasks whose rows it is known to lock. `error` is the operation's own,
    final error; `refused` is an error of the database, after which nothing is written, unless there
    is a `doubt`: then it may have been written, and `value` may be valid.
    """

    op: Callable[[Database], T]
    tasks: Collection[str] = ()
    value: T | None = None
    error: BaseException | None = None
    refused: StorageError | None = None
    doubt: Doubt | None = None
    begun: bool = False
    leads: bool = False
    told: anyio.Event | None = None

    def run(self, database: Database) -> None:
        """Run the operation, and discard the outcome of an earlier run."""
        self.value = self.error = None
        try:
            self.value = self.op(database)
        except BaseException as error:
            self.error = error
            raise


class Transaction(Database, Protocol):
    """A running transaction.

    Attributes:
        changed: whether anything but a SELECT was run since this was last set to False.
        assumed: whether `expect` has returned True without an answer since then.
        failed: whether an error, even if an operation caught it, only allows a rollback.
    """

    changed: bool
    assumed: bool

    @property
    def failed(self) -> bool:
        """See above."""

    def savepoint(self) -> None:
        """Set a savepoint for `back`."""

    def release(self) -> None:
        """Release the savepoint and keep the changes since."""

    def back(self) -> None:
        """Roll back to the savepoint and release it."""

    def explain(self, error: BaseException) -> StorageError | UnstorableError | None:
        """Return what to raise in place of `error`: a StorageError if disk, server or network
        caused it, an UnstorableError if a value cannot be stored, None if it is the operation's
        own.
        """


class Engine(Protocol):
    """One of the two databases, used by one thread that writes and one that reads.

    Attributes:
        place: the place of this run if no transaction of an earlier run there can be committed any
            more; None if that is not certain.
        is_shared: whether other processes may use the database at the same time.
    """

    place: str | None
    is_shared: bool

    def commit(self, writes: Sequence[Queued[Any]], /) -> None:
        """Run and commit operations in order, in one transaction (`run_together`).

        Raises StorageError if the database rejects it; then nothing is written, as far as is known.
        """

    def transaction(self, writes: Sequence[Queued[Any]]) -> AbstractContextManager[Transaction]:
        """Begin a transaction for these operations; commit at the end of the context, or roll
        back if it raises.

        Entering it raises UnavailableError if no transaction can begin. Leaving it may raise
        LateError.
        """

    def reading(self) -> AbstractContextManager[Transaction]:
        """Begin a transaction that only reads, for the duration of the context.

        Raises StorageError; after ConnectionLostError the operation may be run again.
        """

    def skew_ms(self) -> int | None:
        """Return how far the wall clock is ahead of the steady clock, in milliseconds; None if only
        a transaction can tell, since the clock is that of a server, or while a jump does not count
        yet.
        """

    def listen(self, channel: str) -> AbstractAsyncContextManager[AsyncIterator[None]]:
        """Receive notifications of `Database.notify`. Raises StorageError on entering."""

    def locks(self, name: str) -> "ProcessLocks | None":
        """Return the locks of a name; None if there can be no other process."""

    def close(self) -> None:
        """Close the connections."""


class LateError(Exception):
    """A statement failed after its operation had continued: nothing of the batch was written.

    Raised by a context of `Engine.transaction` when it is left, instead of committing.
    """


class _SpoiltError(Exception):
    """An operation failed after a change, so this run must be rolled back."""


def read_once(engine: Engine, op: Callable[[Transaction], T]) -> T:
    """Return `op(transaction)`, run again if the connection breaks. Raises StorageError."""
    for left in reversed(range(ATTEMPTS)):
        try:
            with engine.reading() as transaction:
                return op(transaction)
        except ConnectionLostError:
            if not left:
                raise
    raise AssertionError("unreachable")


def read_all(engine: Engine, reads: Sequence[Queued[Any]]) -> None:
    """Run reads in one transaction, so that they see the same state; each alone if that fails."""
    try:
        read_once(engine, lambda transaction: _run_reads(transaction, reads))
    except BaseException as error:  # noqa: BLE001 - its caller gets it
        if len(reads) == 1:
            reads[0].error = error
            return
        for each in reads:
            read_all(engine, [each])


def _run_reads(transaction: Transaction, reads: Sequence[Queued[Any]]) -> None:
    for read in reads:
        try:
            read.run(transaction)
        except BaseException as error:  # noqa: BLE001 - its caller gets it; the others continue
            read.error = _own(transaction, error)
        if transaction.failed:
            raise read.error or _SpoiltError


def commit_all(engine: Engine, batch: Sequence[Queued[Any]]) -> None:
    """Run and commit operations, and set the outcome of each."""
    for write in batch:
        write.refused = None
    try:
        run_writes(engine.commit, batch)
    except StorageError as error:
        for write in batch:
            kind = DiskFullError if isinstance(error, DiskFullError) else StorageError
            write.refused = kind(str(error)).with_traceback(error.__traceback__)
            write.refused.__cause__ = error.__cause__
    except BaseException as error:  # noqa: BLE001 - all waiting callers must get it
        for write in batch:
            write.error = error


def run_writes(
    commit: Callable[[Sequence[Queued[Any]]], None], writes: Sequence[Queued[Any]]
) -> None:
    """Run operations together or, if the database rejects that, each in its own transaction.

    `commit` runs operations in one transaction (`run_together`). Each operation gets its value,
    its own error, or in `refused` the error of the database.

    Raises:
        StorageError: the database rejects all of them; nothing is written.
    """
    try:
        commit(writes)
    except UnavailableError:
        raise
    except StorageError:
        if len(writes) == 1:
            raise
    else:
        return
    give_up = system.monotonic() + _APART_S
    over: StorageError | None = None
    for write in writes:
        if over is not None:
            write.refused = over
            continue
        try:
            commit([write])
        except StorageError as error:
            write.refused = error
            if isinstance(error, UnavailableError) or system.monotonic() > give_up:
                over = error
        except BaseException as error:  # noqa: BLE001 - its caller gets it; the others continue
            write.error = error


def run_together(engine: Engine, writes: Sequence[Queued[Any]]) -> None:
    """Run operations in order in one transaction; each gets its value or error.

    Raises:
        StorageError: the database rejects the transaction. Nothing is written.
    """
    try:
        with engine.transaction(writes) as transaction:
            for write in writes:
                _run(transaction, write)
    except (_SpoiltError, LateError):
        if len(writes) == 1 and writes[0].error is not None and not transaction.assumed:
            return
        with engine.transaction(writes) as transaction:
            for write in writes:
                _run_apart(transaction, write)


def _run(transaction: Transaction, write: Queued[Any]) -> None:
    transaction.changed = transaction.assumed = False
    try:
        write.run(transaction)
    except BaseException as error:
        write.error = _own(transaction, error)
        if transaction.changed or transaction.assumed or transaction.failed:
            raise _SpoiltError from error
    else:
        if transaction.failed:
            raise _SpoiltError


def _run_apart(transaction: Transaction, write: Queued[Any]) -> None:
    transaction.savepoint()
    try:
        write.run(transaction)
        transaction.release()
    except BaseException as error:  # noqa: BLE001 - its caller gets it; the others continue
        write.error = _own(transaction, error)
        transaction.back()


def _own(transaction: Transaction, error: BaseException) -> BaseException:
    """Return the error to raise to an operation's caller. Raises StorageError if it is not the
    error of the operation.
    """
    why = transaction.explain(error)
    if why is None:
        return error
    if isinstance(why, StorageError):
        raise why from error
    why.__cause__ = error
    return why

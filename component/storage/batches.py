"""Several operations in one transaction, so that one that fails does not affect the others.

The batch first runs in one transaction without savepoints, which are a round trip each on
PostgreSQL. If an operation raises after it has changed something, the batch runs again with each
operation in a savepoint. If the database rejects the batch, each operation runs in its own
transaction, so that only those that the database rejects fail.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from component import system
from component.storage.database import Database
from component.storage.errors import StorageError, UnavailableError, UnstorableError
from component.storage.writes import Write

_APART_S: Final = 15.0
"""Time limit for running the operations of a rejected batch one by one, while others wait."""


class Transaction(Database, Protocol):
    """A running transaction.

    Attributes:
        changed: whether anything but a SELECT was run since this was last set to False.
        failed: whether an error, even if an operation caught it, only allows a rollback.
    """

    changed: bool

    @property
    def failed(self) -> bool:
        """See above."""

    def savepoint(self) -> None:
        """Set a savepoint for `back`."""

    def release(self) -> None:
        """Release the savepoint and keep the changes since."""

    def back(self) -> None:
        """Roll back to the savepoint and release it."""

    def surroundings(self, error: BaseException) -> StorageError | None:
        """The error of disk, server or network behind `error`; None if the operation caused it."""

    def unstorable(self, error: BaseException) -> UnstorableError | None:
        """The error to raise if `error` says that a value cannot be stored; None otherwise."""


class Engine(Protocol):
    """A database that runs transactions."""

    def transaction(self, writes: Sequence[Write[Any]]) -> AbstractContextManager[Transaction]:
        """Begin a transaction for these operations; commit at the end of the context, or roll
        back if it raises.

        Entering it raises UnavailableError if no transaction can begin. Leaving it may raise
        LateError.
        """


class LateError(Exception):
    """A statement failed after its operation had continued: nothing of the batch was written.

    Raised by a context of `Engine.transaction` when it is left, instead of committing.
    """


class _SpoiltError(Exception):
    """An operation failed after a change, so this run must be rolled back."""


def run_writes(
    commit: Callable[[Sequence[Write[Any]]], None], writes: Sequence[Write[Any]]
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


def run_together(engine: Engine, writes: Sequence[Write[Any]]) -> None:
    """Run operations in order in one transaction; each gets its value or error.

    Raises:
        StorageError: the database rejects the transaction. Nothing is written.
    """
    try:
        with engine.transaction(writes) as transaction:
            for write in writes:
                _run(transaction, write)
    except (_SpoiltError, LateError):
        if len(writes) == 1 and writes[0].error is not None:
            return
        with engine.transaction(writes) as transaction:
            for write in writes:
                _run_apart(transaction, write)


def _run(transaction: Transaction, write: Write[Any]) -> None:
    transaction.changed = False
    try:
        write.run(transaction)
    except BaseException as error:
        if (why := transaction.surroundings(error)) is not None:
            raise why from error
        write.error = _own(transaction, error)
        if transaction.changed or transaction.failed:
            raise _SpoiltError from error
    else:
        if transaction.failed:
            raise _SpoiltError


def _run_apart(transaction: Transaction, write: Write[Any]) -> None:
    transaction.savepoint()
    try:
        write.run(transaction)
        transaction.release()
    except BaseException as error:
        if (why := transaction.surroundings(error)) is not None:
            raise why from error
        write.error = _own(transaction, error)
        transaction.back()


def _own(transaction: Transaction, error: BaseException) -> BaseException:
    """The error to raise to an operation's caller."""
    unstorable = transaction.unstorable(error)
    if unstorable is None:
        return error
    unstorable.__cause__ = error
    return unstorable

"""Several operations in one transaction, so that one that fails does not hurt the others."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from component.storage.database import Database
from component.storage.errors import StorageError
from component.storage.writes import Write


class Transaction(Database, Protocol):
    """A transaction that is under way.

    Attributes:
        changed: whether anything but a SELECT was run since this was last set to False.
        failed: whether an error has left nothing to do but to go back, though an operation may
            have caught it.
    """

    changed: bool

    @property
    def failed(self) -> bool:
        """See above."""

    def savepoint(self) -> None:
        """Let `back` return to here."""

    def release(self) -> None:
        """Forget the savepoint, keep what was done since."""

    def back(self) -> None:
        """Undo what was done since the savepoint, and forget that."""

    def surroundings(self, error: BaseException) -> StorageError | None:
        """The sentence if the error is none of the operation but of disk, server or network."""


class Engine(Protocol):
    """Where transactions come from."""

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Begin one; commit when the context is left, or roll back if it raises.

        Leaving it may raise LateError.
        """


class LateError(Exception):
    """A statement failed whose operation had not waited for it: nothing of the batch is there.

    Raised by a context of `Engine.transaction` when it is left, instead of committing.
    """


class _SpoiltError(Exception):
    """An operation has failed after changing something: nothing of this run may stay."""


def run_together(engine: Engine, writes: Sequence[Write[Any]]) -> None:
    """Run the operations in their order in one transaction; each keeps its value or error.

    Nearly always none fails, or one fails before it changes anything. So they run without
    savepoints first, which are a round trip each on PostgreSQL. If one does fail later than that,
    all is undone and they run again, each within a savepoint.

    Raises:
        StorageError: the surroundings failed. Nothing is written.
    """
    try:
        with engine.transaction() as transaction:
            for write in writes:
                _run(transaction, write)
    except (_SpoiltError, LateError):
        if len(writes) == 1 and writes[0].error is not None:
            return
        with engine.transaction() as transaction:
            for write in writes:
                _run_apart(transaction, write)


def _run(transaction: Transaction, write: Write[Any]) -> None:
    transaction.changed = False
    try:
        write.run(transaction)
    except BaseException as error:
        if (why := transaction.surroundings(error)) is not None:
            raise why from error
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
        write.error = error
        transaction.back()

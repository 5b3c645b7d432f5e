"""Group commit: waiting writes share one transaction, and so one sync of the disk. Waiting reads
share one, too.

There is no background task: the first caller while no transaction runs becomes the leader, runs
all operations that wait by then, and notifies their callers. The first of those that arrive
meanwhile is the next leader.

A batch of writes first runs in one transaction without savepoints, which are a round trip each on
PostgreSQL. If an operation raises after it has changed something, the batch runs again with each
operation in a savepoint. If the database rejects the batch, each operation runs in its own
transaction, so that only those that the database rejects fail.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, cast

import anyio

from component import system
from component.store.database import Database
from component.store.errors import (
    DiskFullError,
    StorageError,
    UnavailableError,
    UnstorableError,
)
from component.store.outages import Outages

if TYPE_CHECKING:
    from component.store.process_locks import ProcessLocks

T = TypeVar("T")

TOGETHER: Final = 256
"""Maximum number of operations in one transaction."""
FIRST_WAIT_S: Final = 0.2
LONGEST_WAIT_S: Final = 5.0
"""Seconds until a write that the database refuses is tried again."""
_APART_S: Final = 15.0
"""Time limit for running the operations of a rejected batch one by one, while others wait."""


class Doubt:
    """Whether a transaction whose commit got no answer was committed; None until this is known."""

    committed: bool | None = None


class Queued(Generic[T]):
    """A queued operation and its outcome.

    `tasks` are the ids of the tasks whose rows it is known to lock. `error` is the operation's own,
    final error; `refused` is an error of the database, after which nothing is written, unless there
    is a `doubt`: then it may have been written, and `value` may be valid.
    """

    __slots__ = ("begun", "doubt", "error", "leads", "op", "refused", "tasks", "told", "value")

    def __init__(self, op: Callable[[Database], T], tasks: Collection[str] = ()) -> None:
        self.op = op
        self.tasks = tasks
        self.value: T | None = None
        self.error: BaseException | None = None
        self.refused: StorageError | None = None
        self.doubt: Doubt | None = None
        self.begun = False
        self.leads = False
        self.told: anyio.Event | None = None

    def run(self, database: Database) -> None:
        """Run the operation, and discard the outcome of an earlier run."""
        self.value = self.error = None
        try:
            self.value = self.op(database)
        except BaseException as error:
            self.error = error
            raise

    def outcome(self) -> T:
        """Return the value of the operation, or raise its error."""
        if self.error is not None:
            raise self.error
        return cast("T", self.value)


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
    """

    place: str | None

    def write(self, writes: Sequence[Queued[Any]]) -> None:
        """Run and commit operations in order, in one transaction if possible (`run_writes`).

        Sets `refused` of operations that the database rejects individually. Raises
        StorageError if it rejects all; then nothing is written, as far as is known.
        """

    def transaction(self, writes: Sequence[Queued[Any]]) -> AbstractContextManager[Transaction]:
        """Begin a transaction for these operations; commit at the end of the context, or roll
        back if it raises.

        Entering it raises UnavailableError if no transaction can begin. Leaving it may raise
        LateError.
        """

    def read(self, op: Callable[[Database], T]) -> T:
        """Run an operation that reads. Raises StorageError."""

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


class Groups:
    """Runs operations that wait at the same time together, one group after another, in a thread.

    Args:
        run: runs the operations of a group, and sets the outcome of each.
        what: reads or writes.
        outages: learns how each operation has ended.
    """

    def __init__(
        self, run: Callable[[Sequence[Queued[Any]]], None], what: str, outages: Outages
    ) -> None:
        self._run = run
        self._what = what
        self._outages = outages
        self._waiting: deque[Queued[Any]] = deque()
        self._led = False
        self._crowded = False
        self._thread = anyio.CapacityLimiter(1)

    async def idle(self) -> None:
        """Wait until the running group, if any, has ended."""
        async with self._thread:
            pass

    async def run(
        self,
        op: Callable[[Database], T],
        tasks: Collection[str] = (),
        *,
        keep_trying: bool = False,
    ) -> T:
        """Run an operation, and return its value; see `Storage.write`."""
        queued = Queued(op, tasks)
        wait = FIRST_WAIT_S
        while True:
            await self._once(queued)
            failure = queued.error if queued.refused is None else queued.refused
            if isinstance(failure, StorageError):
                self._outages.failed(self._what, failure)
            else:
                self._outages.succeeded(self._what)
            if queued.refused is None:
                return queued.outcome()
            if not keep_trying:
                raise queued.refused
            await anyio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT_S)

    async def _once(self, queued: Queued[Any]) -> None:
        """Run an operation. One that has begun is completed even if its caller is cancelled."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        queued.begun = queued.leads = False
        queued.told = None
        self._waiting.append(queued)
        if self._led and not await self._follow(queued):
            return
        self._led = True
        with anyio.CancelScope(shield=True):
            if self._crowded:
                # Callers of the last group are about to come again: include them.
                await anyio.lowlevel.checkpoint()
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), TOGETHER))]
            for other in batch:
                other.begun = True
            self._crowded = len(batch) > 1
            try:
                await system.in_thread(self._run, batch, limiter=self._thread)
            finally:
                for other in batch:
                    if other.told is not None:
                        other.told.set()
                self._hand_over()

    async def _follow(self, queued: Queued[Any]) -> bool:
        """Wait until it is done or has to lead; return whether it has to lead."""
        queued.told = anyio.Event()
        try:
            await queued.told.wait()
        except anyio.get_cancelled_exc_class():
            if queued.begun:
                # A committed write is reported; cancellation takes effect at the next await.
                with anyio.CancelScope(shield=True):
                    await queued.told.wait()
                return False
            self._waiting.remove(queued)
            if queued.leads:  # woken and cancelled at once; no current event loop does that
                self._hand_over()
            raise
        return queued.leads

    def _hand_over(self) -> None:
        self._led = bool(self._waiting)
        if self._waiting:
            first = self._waiting[0]
            first.leads = True
            assert first.told is not None, "the operation is waiting"
            first.told.set()


def read_all(engine: Engine, reads: Sequence[Queued[Any]]) -> None:
    """Run reads in one transaction, so that they see the same state; each alone if that fails."""
    try:
        engine.read(lambda database: _run_reads(database, reads))
    except BaseException as error:  # noqa: BLE001 - its caller gets it
        if len(reads) == 1:
            reads[0].error = error
            return
        for each in reads:
            read_all(engine, [each])


def _run_reads(database: Database, reads: Sequence[Queued[Any]]) -> None:
    transaction = cast("Transaction", database)
    for read in reads:
        try:
            read.run(database)
        except BaseException as error:  # noqa: BLE001 - its caller gets it; the others continue
            read.error = _own(transaction, error)
        if transaction.failed:
            raise read.error or _SpoiltError


def commit_all(engine: Engine, batch: Sequence[Queued[Any]]) -> None:
    """Run and commit operations, and set the outcome of each."""
    for write in batch:
        write.refused = None
    try:
        engine.write(batch)
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

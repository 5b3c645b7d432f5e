"""Group commit: waiting writes share one transaction, and so one sync of the disk.

There is no background task: the first caller while no transaction runs becomes the leader, commits
all writes that wait by then, and notifies their callers. The first of those that arrive meanwhile
is the next leader.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar, cast

import anyio
import structlog

from component import system
from component.storage.database import Database
from component.storage.errors import StorageError

_log = structlog.get_logger("component.storage")

T = TypeVar("T")

TOGETHER: Final = 256
"""Maximum number of writes in one transaction."""
FIRST_WAIT_S: Final = 0.2
LONGEST_WAIT_S: Final = 5.0


class Doubt:
    """Whether a transaction whose commit got no answer was committed; None until this is known."""

    committed: bool | None = None


class Write(Generic[T]):
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


class Engine(Protocol):
    """Runs operations on one of the databases, in a worker thread."""

    def write(self, writes: Sequence[Write[Any]]) -> None:
        """Run and commit operations in order, in one transaction if possible.

        Sets `refused` of operations that the database rejects individually. Raises
        StorageError if it rejects all; then nothing is written, as far as is known.
        """


class Writer:
    """Groups writes and commits them with the engine, one transaction at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: deque[Write[Any]] = deque()
        self._led = False
        self._crowded = False
        self._thread = anyio.CapacityLimiter(1)

    async def write(
        self, op: Callable[[Database], T], keep_trying: bool, tasks: Collection[str] = ()
    ) -> T:
        """See `Storage.write`."""
        write = Write(op, tasks)
        wait = FIRST_WAIT_S
        while True:
            await self._once(write)
            if write.refused is None:
                if write.error is not None:
                    raise write.error
                return cast("T", write.value)
            if not keep_trying:
                raise write.refused
            if wait == FIRST_WAIT_S:
                _log.warning("a write failed; will retry", reason=str(write.refused))
            await anyio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT_S)

    async def idle(self) -> None:
        """Wait until the running transaction, if any, has ended."""
        async with self._thread:
            pass

    async def _once(self, write: Write[Any]) -> None:
        await anyio.lowlevel.checkpoint_if_cancelled()
        write.begun = write.leads = False
        write.told = None
        self._waiting.append(write)
        if self._led and not await self._follow(write):
            return
        self._led = True
        with anyio.CancelScope(shield=True):
            if self._crowded:
                # Callers of the last transaction are about to write again: include them.
                await anyio.lowlevel.checkpoint()
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), TOGETHER))]
            for other in batch:
                other.begun = True
            self._crowded = len(batch) > 1
            try:
                await system.in_thread(self._commit, batch, limiter=self._thread)
            finally:
                for other in batch:
                    if other.told is not None:
                        other.told.set()
                self._hand_over()

    async def _follow(self, write: Write[Any]) -> bool:
        """Wait until it is done or has to lead; return whether it has to lead."""
        write.told = anyio.Event()
        try:
            await write.told.wait()
        except anyio.get_cancelled_exc_class():
            if write.begun:
                # A committed write is reported; cancellation takes effect at the next await.
                with anyio.CancelScope(shield=True):
                    await write.told.wait()
                return False
            self._waiting.remove(write)
            if write.leads:  # woken and cancelled at the same time; no current event loop does that
                self._hand_over()
            raise
        return write.leads

    def _hand_over(self) -> None:
        self._led = bool(self._waiting)
        if self._waiting:
            first = self._waiting[0]
            first.leads = True
            assert first.told is not None, "the write is waiting"
            first.told.set()

    def _commit(self, batch: Sequence[Write[Any]]) -> None:
        for write in batch:
            write.refused = None
        try:
            self._engine.write(batch)
        except StorageError as error:
            for write in batch:
                write.refused = StorageError(str(error)).with_traceback(error.__traceback__)
                write.refused.__cause__ = error.__cause__
        except BaseException as error:  # noqa: BLE001 - all waiting callers must get it
            for write in batch:
                write.error = error

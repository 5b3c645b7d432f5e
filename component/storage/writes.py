"""Group commit: writes that wait together share one transaction, and so one sync of the disk.

There is no task of its own: whoever comes first while nobody writes leads, takes along all that
wait by then, and tells them. Who comes meanwhile waits, and the first of those leads next.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar, cast

import anyio
import structlog
from anyio import to_thread

from component.storage.database import Database
from component.storage.errors import StorageError

_log = structlog.get_logger("component.storage")

T = TypeVar("T")

TOGETHER: Final = 256
"""How many writes share a transaction at most."""
FIRST_WAIT_S: Final = 0.2
LONGEST_WAIT_S: Final = 5.0


class Doubt:
    """Whether a transaction was committed whose commit nobody answered; None until it is known."""

    committed: bool | None = None


class Write(Generic[T]):
    """One operation on its way to disk, and what became of it.

    `error` is the operation's own and final; `refused` is that of its surroundings, after which
    nothing is written, unless there is a `doubt`: it may then be, and `value` may stand.
    """

    __slots__ = ("begun", "doubt", "error", "leads", "op", "refused", "told", "value")

    def __init__(self, op: Callable[[Database], T]) -> None:
        self.op = op
        self.value: T | None = None
        self.error: BaseException | None = None
        self.refused: StorageError | None = None
        self.doubt: Doubt | None = None
        self.begun = False
        self.leads = False
        self.told: anyio.Event | None = None

    def run(self, database: Database) -> None:
        """Run the operation once more, and forget what an earlier run gave."""
        self.value = self.error = None
        try:
            self.value = self.op(database)
        except BaseException as error:
            self.error = error
            raise


class Engine(Protocol):
    """Runs operations on one of the databases, in a worker thread."""

    def write(self, writes: Sequence[Write[Any]]) -> None:
        """Run them in this order in one transaction, and commit.

        Raises StorageError if the surroundings fail: nothing is then written, as far as is known.
        """


class Writer:
    """Puts writes together and has the engine commit them, one transaction at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: deque[Write[Any]] = deque()
        self._led = False
        self._crowded = False
        self._thread = anyio.CapacityLimiter(1)

    async def write(self, op: Callable[[Database], T], keep_trying: bool) -> T:
        """See `Storage.write`."""
        write = Write(op)
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
                _log.warning("storage_refuses", reason=str(write.refused))
            await anyio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT_S)

    async def idle(self) -> None:
        """Wait until the transaction that is under way, if there is one, has ended."""
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
                # The others of the last transaction are about to come again: take them along.
                await anyio.lowlevel.checkpoint()
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), TOGETHER))]
            for other in batch:
                other.begun = True
            self._crowded = len(batch) > 1
            try:
                await to_thread.run_sync(self._commit, batch, limiter=self._thread)
            finally:
                for other in batch:
                    if other.told is not None:
                        other.told.set()
                self._hand_over()

    async def _follow(self, write: Write[Any]) -> bool:
        """Wait until it is done, or until it has to lead: return which."""
        write.told = anyio.Event()
        try:
            await write.told.wait()
        except anyio.get_cancelled_exc_class():
            if write.begun:
                # What is written is reported as written; the next wait of the caller is cancelled.
                with anyio.CancelScope(shield=True):
                    await write.told.wait()
                return False
            self._waiting.remove(write)
            if write.leads:  # woken and cancelled at once: no loop of today does that
                self._hand_over()
            raise
        return write.leads

    def _hand_over(self) -> None:
        self._led = bool(self._waiting)
        if self._waiting:
            first = self._waiting[0]
            first.leads = True
            assert first.told is not None, "it waits"
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
        except BaseException as error:  # noqa: BLE001 - everybody who waits has to hear of it
            for write in batch:
                write.error = error

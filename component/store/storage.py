"""The data directory and its database, with an async interface.

**Group commit.** Waiting writes share one transaction, and so one sync of the disk. Waiting reads
share one, too. There is no background task: the first caller while no transaction runs becomes the
leader, runs all operations that wait by then, and notifies their callers. The first of those that
arrive meanwhile is the next leader.
"""

import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import anyio

from component import system
from component.store.clock import SteadyClock, since_boot, skew_in, wall_clock
from component.store.database import Database, Value
from component.store.directory import DirectoryLock, has_room, home_of, locked
from component.store.errors import StorageError, explained
from component.store.outages import Outage, Outages
from component.store.schema import Schema
from component.store.sqlite import SQLite
from component.store.writes import (
    FIRST_WAIT_S,
    LONGEST_WAIT_S,
    Engine,
    Queued,
    commit_all,
    read_all,
    read_once,
)

if TYPE_CHECKING:
    from component.store.process_locks import ProcessLocks

T = TypeVar("T")

TOGETHER: Final = 256
"""Maximum number of operations in one transaction."""


class Storage:
    """The data directory, open and locked; made by `Storage.open`.

    Stores pass functions that take a `Database` to `read` and `write`. They run in two worker
    threads, one that writes and one that reads, so the event loop never waits for the disk.
    """

    def __init__(
        self,
        directory: Path,
        engine: Engine,
        place: str | None = None,
        outages: Outages | None = None,
    ) -> None:
        """Use `Storage.open`."""
        self.directory = directory
        """The data directory, in which other packages may store files."""
        self.place = place
        """The same in consecutive runs, if it is certain that the previous run has ended and
        writes nothing more; None if that is not certain, or on SQLite."""
        self.is_shared = engine.is_shared
        """Whether other processes may use the database at the same time."""
        self._engine = engine
        self._outages = outages = outages or Outages()
        self._writes = _Groups(partial(commit_all, engine), "writes", outages)
        self._reads = _Groups(partial(read_all, engine), "reads", outages)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        schema: Schema,
        directory: Path,
        *,
        postgres: str = "",
        now: Callable[[], int] = wall_clock,
        elapsed: Callable[[], int] | None = None,
        upgrade: bool = False,
    ) -> "AsyncIterator[Storage]":
        """Open the directory (created with mode 0700 if missing) for the duration of the context; a
        new database gets the tables of `schema`.

        The database is the file `agent.db` in it, or, if `postgres` is a connection string of
        libpq, one on a PostgreSQL server; the directory is locked in either case. `now` is
        the clock of SQLite, in milliseconds since 1970, UTC; PostgreSQL has its own. `elapsed` is
        a clock in milliseconds that does not jump, for detecting jumps of the other: that
        of the kernel by default, or `now` if that is passed. With `upgrade`, a database of an
        older release is upgraded (`component.store.upgrade`).

        Raises OutdatedError if it is not; StorageError if the directory cannot be used, if another
        process uses it, if the database is damaged or was written by a newer release, or if the
        server cannot be reached or denies access.
        """
        closing, outages = ExitStack(), Outages(has_room=partial(has_room, directory))
        if elapsed is None:
            elapsed = since_boot if now is wall_clock or postgres else now
        steady = SteadyClock(elapsed)

        def open_engine(place: Callable[[], str | None]) -> Engine:
            if not postgres:
                return SQLite.open(directory / "agent.db", schema, now, steady, upgrade=upgrade)
            from component.store.postgres import PostgreSQL  # noqa: PLC0415 - only if configured

            return PostgreSQL.open(postgres, schema, place(), steady, outages, upgrade=upgrade)

        engine, place = await system.in_thread(_open, directory, open_engine, closing)
        storage = cls(directory, engine, place, outages)
        try:
            yield storage
        finally:
            with anyio.CancelScope(shield=True):
                await storage._writes.idle()
                await storage._reads.idle()
                await system.in_thread(closing.close)

    @property
    def outage(self) -> Outage | None:
        """The present outage of the database, as far as it is known from what was tried."""
        return self._outages.present

    async def find_outage(self, *, within_s: float = 5.0) -> Outage | None:
        """Try to write, and return the outage of the database if it cannot be used.

        In an outage of a server, earlier writes may wait long for it, and this one after them: then
        what is known after `within_s` seconds is returned.
        """
        with suppress(StorageError), anyio.move_on_after(within_s):
            await self.change("UPDATE clock SET skew = skew")
        return self._outages.present

    async def read(self, op: Callable[[Database], T]) -> T:
        """Return `op(database)`, which sees one state of the database throughout.

        Reads run concurrently with writes; those that wait at the same time run in one transaction.
        A read that has begun is completed even if its caller is cancelled.

        Raises StorageError if the database cannot be read.
        """
        return await self._reads.run(op)

    async def write(
        self,
        op: Callable[[Database], T],
        *,
        keep_trying: bool = False,
        tasks: Collection[str] = (),
    ) -> T:
        """Return `op(database)` after all it changed is on disk; if it raises, nothing is.

        Writes run one after another in the order of the calls. Those that wait at the
        same time share one commit, and a failing one does not affect the others. A write that has
        begun is completed and returns its value even if its caller is cancelled; cancellation is
        only raised if nothing was written.

        `tasks` are the ids of the tasks whose rows the operation locks, as far as they are known.
        On PostgreSQL a transaction locks all rows that its operations name, in the order of their
        ids, before it runs the first of them: so two instances that change the same tasks do not
        deadlock. Omitting them can cost time, but does not change results: a transaction
        that waits for other rows longer than half a second is split, and one that the server ends
        because of a deadlock runs again.

        Raises StorageError if the database fails: a full disk, a lock, damage, an unreachable
        server. Nothing is written then; with `keep_trying` it is retried instead, after 0.2 s
        and up to 5 s, until it is written or the caller is cancelled. Raises UnstorableError, with
        `keep_trying` too, if the database cannot store a value.
        """
        return await self._writes.run(op, tasks, keep_trying=keep_trying)

    async def select(self, sql: str, parameters: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of one statement that reads. Raises StorageError, like `read`."""
        return await self.read(lambda database: database.execute(sql, parameters).fetchall())

    async def change(self, sql: str, parameters: Sequence[Value] = ()) -> int:
        """Run one statement that writes; return the number of changed rows. Raises StorageError
        and UnstorableError, like `write`.
        """
        return await self.write(lambda database: database.execute(sql, parameters).rowcount)

    def listen(self, channel: str) -> AbstractAsyncContextManager[AsyncIterator[None]]:
        """Listen for the duration of the context, whose value yields after each notification.

            async with storage.listen("tasks") as notified:
                async for _ in notified: ...

        Several notifications may be merged. It also yields after a reconnect, since notifications
        may have been missed. On SQLite it never yields.

        Raises StorageError on entering if the server cannot be reached; later it keeps retrying.
        """
        return self._engine.listen(channel)

    def poll_s(self, seconds: float) -> float:
        """Return after how many seconds to look for what other processes have changed: infinity if
        there is no other process.
        """
        return seconds if self.is_shared else math.inf

    async def rest(
        self, woken: anyio.Event, seconds: float, look_s: float, skew_ms: int | None
    ) -> None:
        """Wait until an event is set, but at most so many seconds.

        This ends earlier after `look_s` seconds if other processes may have changed the database by
        then, or if the wall clock was set: `skew_ms` is how far it was ahead of the steady clock
        when everything was done that was due; None if there may be more.
        """
        over = anyio.current_time() + seconds
        while not woken.is_set() and (left := over - anyio.current_time()) > 0:
            with anyio.move_on_after(min(left, look_s)):
                await woken.wait()
            found = self._engine.skew_ms()
            if found is None or found != skew_ms:
                return

    def locks(self, name: str) -> "ProcessLocks | None":
        """Return the locks of a name, which the processes on this database share; None on SQLite,
        where there is no other process.
        """
        return self._engine.locks(name)


class _Groups:
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
            elif self._outages.present is not None:
                self._outages.succeeded(self._what)
            if queued.refused is None:
                if queued.error is not None:
                    raise queued.error
                return cast("T", queued.value)
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


def _open(
    directory: Path,
    open_engine: Callable[[Callable[[], str | None]], Engine],
    closing: ExitStack,
) -> tuple[Engine, str | None]:
    """Do the blocking part of `Storage.open`; return engine and place; `closing` undoes it."""
    with ExitStack() as stack:
        lock = stack.enter_context(locked(directory))
        engine = open_engine(partial(_place, directory, lock))
        stack.callback(engine.close)
        closing.push(stack.pop_all())
    return engine, engine.place


def _place(directory: Path, lock: DirectoryLock) -> str | None:
    # The id of the directory as well, in case a sandbox hides the boot id.
    held, home = lock.place, home_of(directory)
    return None if held is None else sha256(f"{home}/{held}".encode()).hexdigest()[:32]


def peek(directory: Path, postgres: str, op: Callable[[Database], T]) -> T | None:
    """Return `op(database)`, which may only read; None if there is no database.

    Blocks. Arguments are those of `Storage.open`. Raises StorageError.
    """
    if postgres:
        from psycopg.errors import UndefinedTable  # noqa: PLC0415 - only if it is configured

        from component.store.postgres import PostgreSQL  # noqa: PLC0415
        from component.store.server import PostgresServer  # noqa: PLC0415

        server = PostgreSQL(PostgresServer.of(postgres))
        try:
            return server.look(op)
        except UndefinedTable:
            return None
        finally:
            server.close()
    import sqlite3  # noqa: PLC0415

    path = directory / "agent.db"
    if not path.exists():
        return None
    with explained(path):
        reader = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None
        )
        try:
            stored = read_once(SQLite(path, reader, reader), skew_in)
            steady = SteadyClock(stored=stored)
            return read_once(SQLite(path, reader, reader, steady=steady), op)
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return None
            raise
        finally:
            reader.close()

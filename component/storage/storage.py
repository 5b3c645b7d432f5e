"""The data directory and its database, behind an async face."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Protocol, TypeVar

import anyio
from anyio import to_thread

from component.private import make_directory
from component.storage import writes
from component.storage.database import Database
from component.storage.errors import explained
from component.storage.home import home_of
from component.storage.lock import DirectoryLock
from component.storage.sqlite import SQLite, process_clock

T = TypeVar("T")


class Engine(writes.Engine, Protocol):
    """One of the two databases, used by one thread that writes and one that reads."""

    def read(self, op: Callable[[Database], T]) -> T:
        """Run an operation that reads. Raises StorageError."""

    def listen(self, channel: str) -> AbstractAsyncContextManager[AsyncIterator[None]]:
        """Be woken by `Database.notify` in any process. Raises StorageError on entering."""

    def close(self) -> None:
        """Give everything back."""


class Storage:
    """The data directory, open and locked; made by `Storage.open`.

    Stores bring functions that take a `Database` to `read` and `write`. They run in worker
    threads, so the event loop never waits for the disk: one that writes and one that reads.
    """

    def __init__(self, directory: Path, engine: Engine, place: str | None = None) -> None:
        """Take over an open database; use `Storage.open`."""
        self.directory = directory
        """Where others may keep files of their own beside `agent.db`."""
        self.place = place
        """The same in every life of a process of which it is certain that the one before is over
        and writes nothing more; None where that is not certain, or nobody shares the database."""
        self._engine = engine
        self._writer = writes.Writer(engine)
        self._reading = anyio.CapacityLimiter(1)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, directory: Path, *, postgres: str = "", now: Callable[[], int] = process_clock
    ) -> "AsyncIterator[Storage]":
        """Open the directory (made with mode 0700 if it is missing) for the time of the context.

        The database is the file `agent.db` in it, or, if `postgres` is a connection string of
        libpq, one on a PostgreSQL server; the directory is still this process's alone. `now` is
        the clock of SQLite, in milliseconds since 1970, UTC; PostgreSQL has its own.

        Raises StorageError if it is no directory or cannot be written to, if another process has
        it, if the database is damaged or was written by a newer release, or if the server cannot
        be reached or does not let us in.
        """
        closing = ExitStack()
        engine, place = await to_thread.run_sync(_open, directory, postgres, now, closing)
        storage = cls(directory, engine, place)
        try:
            yield storage
        finally:
            with anyio.CancelScope(shield=True):
                await storage._writer.idle()
                await to_thread.run_sync(closing.close, limiter=storage._reading)

    async def read(self, op: Callable[[Database], T]) -> T:
        """Return `op(database)`, which sees one state of the database throughout.

        Reads run one after another, and beside writes. One that has begun runs to its end even if
        its caller is cancelled.

        Raises StorageError if the database cannot be read.
        """
        return await to_thread.run_sync(self._engine.read, op, limiter=self._reading)

    async def write(self, op: Callable[[Database], T], *, keep_trying: bool = False) -> T:
        """Return `op(database)` after all it changed is on disk; if it raises, nothing is.

        Writes run one after another in the order in which they were given. Those that wait at the
        same time share one commit, and none hurts another by failing. A write that has begun runs
        to its end and returns its value even if its caller is cancelled; Cancelled means that
        nothing is written.

        Raises StorageError if the surroundings fail: a full disk, a lock, damage, a server that is
        away. Nothing is written then; with `keep_trying` it is tried again instead, after 0.2 s
        and up to 5 s, until it is written or the caller is cancelled.
        """
        return await self._writer.write(op, keep_trying)

    def listen(self, channel: str) -> AbstractAsyncContextManager[AsyncIterator[None]]:
        """Listen for the time of the context, whose value yields whenever somebody has notified.

            async with storage.listen("tasks") as notified:
                async for _ in notified: ...

        Several notifications may come as one. It also yields after a connection that broke was
        made again, since something may have been missed. On SQLite it never yields.

        Raises StorageError on entering if the server cannot be reached; later it keeps trying.
        """
        return self._engine.listen(channel)


def _open(
    directory: Path, postgres: str, now: Callable[[], int], closing: ExitStack
) -> tuple[Engine, str | None]:
    """Do the blocking part of `Storage.open`, and return its place; `closing` undoes it."""
    with ExitStack() as stack:
        with explained(directory):
            make_directory(directory)
        with explained(directory / "agent.lock"):
            lock = DirectoryLock.acquire(directory)
        stack.callback(lock.release)
        engine: Engine
        place = None
        if postgres:
            from component.storage.postgres import PostgreSQL  # noqa: PLC0415 - only who chose it

            engine = server = PostgreSQL.open(postgres, _place(directory, lock))
            place = server.place
        else:
            engine = SQLite.open(directory / "agent.db", now)
        stack.callback(engine.close)
        closing.push(stack.pop_all())
    return engine, place


def _place(directory: Path, lock: DirectoryLock) -> str | None:
    # The name as well, in case a sandbox lets every boot look alike.
    held, home = lock.place, home_of(directory)
    return None if held is None else sha256(f"{home}/{held}".encode()).hexdigest()[:32]

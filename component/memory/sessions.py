"""Conversations on disk: `history.jsonl`, of which only the end is ever read, and `sessions/`."""

import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeAlias, TypeVar

import anyio
import structlog

from component import system
from component.memory import files, upkeep
from component.memory.coding import encoded, stamp, written
from component.memory.ends import End, History, shown
from component.memory.files import Seen
from component.memory.lines import Header, Line, SessionKey
from component.memory.locks import KeyLocks
from component.memory.paths import Layout
from component.memory.tail import Damage, line_number, read_tail, read_turn
from component.memory.upkeep import HISTORY, Forgotten, Status
from component.settings.memory import Session

__all__ = ["Forgotten", "History", "Sessions", "Status"]

T = TypeVar("T")

log = structlog.get_logger("component.memory")

_KEPT = 128  # conversations whose end stays in memory
_AT_ONCE = 1 << 16  # bytes that are written without a thread, if no sync is needed
_ARCHIVES = 8  # archived sessions that are searched for the beginning of a turn
_WARNED = 1024  # damaged lines that are known to be reported


def _rough(text: str) -> int:
    # A low estimate, because the caller, who knows the model, can leave out surplus lines.
    return len(text) // 4


async def _nobody(_key: SessionKey) -> None:
    pass


_Told: TypeAlias = list[tuple[Path, int, int, Damage]]
"""Of each damaged line: the file, its inode, the number of the line, and the damage."""


class Sessions:
    """All conversations of all agents.

    Each conversation has one writer at a time; `/new` and `/forget` may run concurrently, so each
    operation holds the lock of its conversation. The ends of the last 128 are cached, and read
    again if their file was changed by others. Errors of the disk raise MemoryStoreError.

    Attributes:
        layout: where the conversations are.
    """

    def __init__(
        self,
        layout: Layout,
        settings: Session,
        *,
        clock: Callable[[], float] = system.time,
        on_forget: Callable[[SessionKey], Awaitable[None]] = _nobody,
        threads: anyio.CapacityLimiter | None = None,
    ) -> None:
        """Work below `layout.root`, which exists.

        `clock` gives seconds since 1970. `on_forget` is awaited when the files of a conversation
        have been erased, `knowledge.jsonl` among them. `threads` bounds the worker threads.
        """
        self.layout = layout
        self._settings = settings
        self._clock = clock
        self._on_forget = on_forget
        self._threads = threads
        self._locks: KeyLocks[SessionKey] = KeyLocks()
        self._ends: OrderedDict[SessionKey, End] = OrderedDict()
        self._path = lru_cache(maxsize=1024)(lambda key: layout.folder(key) / HISTORY)
        self._warned: OrderedDict[tuple[int, int], None] = OrderedDict()

    async def open(
        self,
        key: SessionKey,
        *,
        tokens: int | None = None,
        count: Callable[[str], int] = _rough,
    ) -> History:
        """Begin with a message: as `read`, but a conversation that has been silent for longer than
        session.idle_timeout_mins, or takes more than session.max_bytes, is archived first.
        """
        async with self._locks.hold(key):
            end = await self._end(key, tokens, count)
            if self._silent(end) or (end is not None and end.seen.size > self._settings.max_bytes):
                return History(archived=await self._put_away(key))
            return shown(end)

    async def read(
        self,
        key: SessionKey,
        *,
        tokens: int | None = None,
        count: Callable[[str], int] = _rough,
    ) -> History:
        """Read the lines since the last summary, and those that it has kept: the last ones up to
        `tokens`, by `count` (session.history_tokens and four characters per token unless given),
        but at least the last line.

        `count` must not wait; it may be called in a worker thread.
        """
        async with self._locks.hold(key):
            return shown(await self._end(key, tokens, count))

    async def append(self, key: SessionKey, lines: Sequence[Line], *, sync: bool) -> None:
        """Append lines with one write; a line without a time gets the current one.

        With `sync` they are on the disk when this returns; otherwise they survive the end of this
        process, but not that of the machine. If it raises, none of them is stored.
        """
        now = self._clock()
        lines, data = written(lines, stamp(now))
        if not data:
            return
        if not sync and len(data) <= _AT_ONCE and key in self._ends and key not in self._locks:
            # A thread would take twenty times as long as the write.
            self._added(key, lines, now, *self._write(key, data, now, sync=False))
            return
        async with self._locks.hold(key):
            seen = await self._run(lambda: self._write(key, data, now, sync=sync))
            self._added(key, lines, now, *seen)

    async def turn(self, key: SessionKey, turn: str) -> tuple[Line, ...]:
        """Read the lines of a turn, oldest first, from the message that began it; empty if there
        are none. They may be in a session that was archived in the meantime.
        """
        async with self._locks.hold(key):
            lines, told = await self._run(lambda: self._turn(key, turn))
        self._warn(told)
        return tuple(lines)

    async def archive(self, key: SessionKey) -> Path | None:
        """Archive the conversation as `sessions/YYYYMMDD-HHMMSS.jsonl` (UTC), so that the next
        message starts a new one; None if it is empty.
        """
        async with self._locks.hold(key):
            end = await self._end(key, None, _rough)
            return None if end is None or end.empty else await self._put_away(key)

    async def forget(self, key: SessionKey) -> Forgotten:
        """Delete the conversation, the notes on the person, the memories and the attachments,
        including those of sub-agents that worked for the person; archived sessions are kept.

        The counts do not include sub-agents.
        """
        for child in await self._run(lambda: upkeep.below(self.layout, key)):
            await self._forget(child)
            await self._run(partial(upkeep.tidy, self.layout.folder(child)))
        return await self._forget(key)

    async def _forget(self, key: SessionKey) -> Forgotten:
        folder = self.layout.folder(key)
        async with self._locks.hold(key):
            self._ends.pop(key, None)
            forgotten = await self._run(lambda: upkeep.erase(self.layout.root, folder))
            await self._on_forget(key)
            return forgotten

    async def status(self, key: SessionKey) -> Status:
        """Count messages, memories and attachments. Reads the whole conversation."""
        folder = self.layout.folder(key)
        async with self._locks.hold(key):
            return await self._run(lambda: upkeep.count(self.layout.root, folder))

    # -- in the event loop ---------------------------------------------------------------------

    async def _run(self, work: Callable[[], T]) -> T:
        return await system.in_thread(work, limiter=self._threads)

    async def _end(
        self, key: SessionKey, tokens: int | None, count: Callable[[str], int]
    ) -> End | None:
        """The end of a conversation, from memory if the file is as it was."""
        budget = self._settings.history_tokens if tokens is None else tokens
        path = self._path(key)
        seen = files.seen(path) if files.check_folder(self.layout.root, path.parent) else None
        end = self._ends.pop(key, None)
        if seen is None:
            return None
        if end is None or end.seen != seen or end.budget != budget or end.count != count:
            end, told = await self._run(lambda: self._read(path, budget, count))
            self._warn(told)
        if end is not None:
            self._keep(key, end)
        return end

    def _keep(self, key: SessionKey, end: End) -> None:
        self._ends[key] = end
        if len(self._ends) > _KEPT:
            self._ends.popitem(last=False)

    def _added(
        self, key: SessionKey, lines: Sequence[Line], now: float, before: Seen | None, after: Seen
    ) -> None:
        end = self._ends.pop(key, None)
        if end is not None and end.seen == before and end.add(lines, now):
            end.seen = after
            self._keep(key, end)

    async def _put_away(self, key: SessionKey) -> Path:
        self._ends.pop(key, None)
        folder = self.layout.folder(key)
        most = self._settings.archived_bytes
        return await self._run(
            lambda: upkeep.put_away(self.layout.root, folder, self._clock(), most)
        )

    def _silent(self, end: End | None) -> bool:
        limit = self._settings.idle_timeout_mins * 60
        return (
            bool(limit) and end is not None and not end.empty and self._clock() - end.last > limit
        )

    def _warn(self, told: _Told) -> None:
        for path, inode, line, damage in told:
            self._warned[inode, damage.offset] = None
            if len(self._warned) > _WARNED:
                self._warned.popitem(last=False)
            log.warning(
                "a line of a conversation cannot be read and is left out",
                file=str(path),
                line=line,
                why=damage.why,
            )

    # -- in worker threads, and where the disk does not make them wait --------------------------

    def _write(
        self, key: SessionKey, data: bytes, now: float, *, sync: bool
    ) -> tuple[Seen | None, Seen]:
        path = self._path(key)
        files.make_folder(self.layout.root, path.parent)
        before = files.seen(path)

        def first() -> bytes:
            return encoded(Header(version=1, created=stamp(now), jid=str(key.who.bare)))

        return before, files.append(path, data, first=first, sync=sync)

    def _read(
        self, path: Path, budget: int, count: Callable[[str], int]
    ) -> tuple[End | None, _Told]:
        with _opened(path) as descriptor:
            if descriptor is None:
                return None, []
            seen = files.state(descriptor)
            tail = read_tail(descriptor, seen.size, budget, count)
            return End(seen, tail, budget, count), self._tell(path, descriptor, tail.damage)

    def _turn(self, key: SessionKey, turn: str) -> tuple[list[Line], _Told]:
        path = self._path(key)
        older = upkeep.archives(self.layout.root, path.parent)[:_ARCHIVES]
        lines: list[Line] = []
        told: _Told = []
        for each in (path, *(e for e in older if e.suffix == ".jsonl")):
            with _opened(each) as descriptor:
                if descriptor is None:
                    continue
                size = files.state(descriptor).size
                found, begun, damage = read_turn(descriptor, size, turn)
                lines[:0] = found
                told += self._tell(each, descriptor, damage)
                if begun:
                    break
        return lines, told

    def _tell(self, path: Path, descriptor: int, damage: Sequence[Damage]) -> _Told:
        inode = files.state(descriptor).inode
        return [
            (path, inode, line_number(descriptor, each.offset), each)
            for each in damage
            if (inode, each.offset) not in self._warned
        ]


@contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    with files.explained(path, "read"):
        try:
            descriptor = files.open_file(path, os.O_RDONLY)
        except FileNotFoundError:
            yield None
            return
        try:
            yield descriptor
        finally:
            os.close(descriptor)

"""Conversations in files: `history.jsonl`, of which only the end is read, and `sessions/`."""

import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import structlog

from component import system
from component.config.memory import Session
from component.conversations import directories
from component.conversations.directories import HISTORY, ConversationCounts, Forgotten
from component.conversations.lines import (
    Header,
    Line,
    StoredLine,
    encode_line,
    encode_lines,
    rfc3339,
)
from component.conversations.tail import (
    CachedTail,
    Damage,
    History,
    line_number,
    read_tail,
    read_told,
    read_turn,
)
from component.memory_directory import files
from component.memory_directory.files import FileState, KeyLocks
from component.memory_directory.layout import Layout, SessionKey

__all__ = ["Forgotten", "History", "Sessions"]

log = structlog.get_logger("component.memory")

_KEPT = 128  # conversations whose tail is cached
_SHORT = 1 << 16  # bytes that are written without a thread, if no sync is needed
_ARCHIVES = 8  # archived sessions that are searched for the beginning of a turn
_WARNED = 1024  # damaged lines that are reported once


def _estimate(text: str) -> int:
    # A low estimate, because the caller, who knows the model, can leave out surplus lines.
    return len(text) // 4


async def _do_nothing(_key: SessionKey) -> None:
    pass


class Sessions:
    """All conversations of all agents.

    Each operation holds the lock of its conversation. The tails of the last 128 are cached, and
    read again if their file was changed by others. Errors of the disk raise MemoryStoreError.

    Args:
        on_forget: is awaited after the files of a conversation were deleted.
    """

    def __init__(
        self,
        layout: Layout,
        settings: Session,
        *,
        clock: Callable[[], float] = system.time,
        on_forget: Callable[[SessionKey], Awaitable[None]] = _do_nothing,
    ) -> None:
        self.layout = layout
        self._settings = settings
        self._clock = clock
        self._on_forget = on_forget
        self._locks: KeyLocks[SessionKey] = KeyLocks()
        self._tails: OrderedDict[SessionKey, CachedTail] = OrderedDict()
        self._path = lru_cache(maxsize=1024)(lambda key: layout.folder(key) / HISTORY)
        self._warned: OrderedDict[tuple[int, int], None] = OrderedDict()

    async def read(
        self,
        key: SessionKey,
        *,
        tokens: int | None = None,
        count: Callable[[str], int] = _estimate,
        may_archive: bool = False,
    ) -> History:
        """Read the lines since the last summary and those that it keeps: the last ones, up to
        `tokens` by `count`, but at least one. Default: session.history_tokens, and four characters
        per token.

        With `may_archive`, a conversation that has been silent for longer than
        session.idle_timeout_mins, or exceeds session.max_bytes, is archived first. `count` must not
        wait; it may be called in a worker thread.
        """
        async with self._locks.hold(key):
            tail = await self._tail(key, tokens, count)
            if tail is None:
                return History()
            if may_archive and (self._is_silent(tail) or tail.seen.size > self._settings.max_bytes):
                return History(archived=await self._archive(key))
            return tail.history

    async def append(self, key: SessionKey, lines: Sequence[StoredLine], *, sync: bool) -> None:
        """Append lines with one write; a line without a time gets the current one.

        With `sync` they are on the disk when this returns; otherwise they survive the end of this
        process, but not that of the machine. If it raises, none of them is stored.
        """
        now = self._clock()
        encoded, data = encode_lines(lines, now)
        if not data:
            return
        if not sync and len(data) <= _SHORT and key in self._tails and key not in self._locks:
            # A thread would take twenty times as long as the write.
            self._add(key, encoded, now, *self._write(key, data, now, sync=False))
            return
        async with self._locks.hold(key):
            states = await system.in_thread(lambda: self._write(key, data, now, sync=sync))
            self._add(key, encoded, now, *states)

    async def turn(self, key: SessionKey, turn: str) -> tuple[Line, ...]:
        """Read the lines of a turn, oldest first, starting with the message that began it; empty if
        there are none. They may be in an archived session.

        They are on the disk when this returns: the caller relies on them, and a process that was
        killed may not have synced them.
        """
        async with self._locks.hold(key):
            return await system.in_thread(self._read_turn, key, turn)

    async def told(self, key: SessionKey, ids: Collection[str]) -> set[str]:
        """Return which of these messages that the agent has sent by itself the conversation has."""
        async with self._locks.hold(key):
            return await system.in_thread(self._read_told, self._path(key), ids)

    async def archive(self, key: SessionKey) -> Path | None:
        """Archive the conversation as `sessions/YYYYMMDD-HHMMSS.jsonl` (UTC), so that the next
        message starts a new one; None if it is empty.
        """
        async with self._locks.hold(key):
            tail = await self._tail(key, None, _estimate)
            return None if tail is None or tail.is_empty else await self._archive(key)

    async def forget(self, key: SessionKey) -> Forgotten:
        """Delete the conversation, the notes on the person, the memories and the attachments,
        including those of sub-agents that worked for the person; archived sessions are kept.

        The counts do not include sub-agents.
        """
        for child in await system.in_thread(directories.below, self.layout, key):
            await self._forget(child)
            await system.in_thread(directories.remove_empty, self.layout.folder(child))
        return await self._forget(key)

    async def _forget(self, key: SessionKey) -> Forgotten:
        folder = self.layout.folder(key)
        async with self._locks.hold(key):
            self._tails.pop(key, None)
            forgotten = await system.in_thread(directories.erase, self.layout.root, folder)
            await self._on_forget(key)
            return forgotten

    async def status(self, key: SessionKey) -> ConversationCounts:
        """Count messages, memories and attachments. Reads the whole conversation."""
        folder = self.layout.folder(key)
        async with self._locks.hold(key):
            return await system.in_thread(directories.count_contents, self.layout.root, folder)

    async def _tail(
        self, key: SessionKey, tokens: int | None, count: Callable[[str], int]
    ) -> CachedTail | None:
        budget = self._settings.history_tokens if tokens is None else tokens
        path = self._path(key)
        seen = files.state_of(path) if files.check_folder(self.layout.root, path.parent) else None
        tail = self._tails.pop(key, None)
        if seen is None:
            return None
        if tail is None or (tail.seen, tail.budget, tail.count) != (seen, budget, count):
            tail = await system.in_thread(self._read, path, budget, count)
        if tail is not None:
            self._keep(key, tail)
        return tail

    def _keep(self, key: SessionKey, tail: CachedTail) -> None:
        self._tails[key] = tail
        if len(self._tails) > _KEPT:
            self._tails.popitem(last=False)

    def _add(
        self,
        key: SessionKey,
        lines: Sequence[StoredLine],
        now: float,
        before: FileState,
        after: FileState,
    ) -> None:
        tail = self._tails.pop(key, None)
        if tail is not None and tail.seen == before and tail.add(lines, now):
            tail.seen = after
            self._keep(key, tail)

    async def _archive(self, key: SessionKey) -> Path:
        self._tails.pop(key, None)
        folder, most = self.layout.folder(key), self._settings.archived_bytes
        return await system.in_thread(
            directories.archive, self.layout.root, folder, self._clock(), most
        )

    def _is_silent(self, tail: CachedTail) -> bool:
        limit = self._settings.idle_timeout_mins * 60
        return bool(limit) and not tail.is_empty and self._clock() - tail.last > limit

    # In worker threads; `_write` also in the event loop, if it does not wait.

    def _write(
        self, key: SessionKey, data: bytes, now: float, *, sync: bool
    ) -> tuple[FileState, FileState]:
        path = self._path(key)
        files.make_folder(self.layout.root, path.parent)

        def first() -> bytes:
            return encode_line(Header(version=1, created=rfc3339(now), jid=str(key.who)))

        return files.append(path, data, first=first, sync=sync)

    def _read(self, path: Path, budget: int, count: Callable[[str], int]) -> CachedTail | None:
        with _opened(path) as descriptor:
            if descriptor is None:
                return None
            seen = files.state_of_open(descriptor)
            tail = read_tail(descriptor, seen.size, budget, count)
            self._warn(path, descriptor, tail.damage)
            return CachedTail(seen, tail, budget, count)

    def _read_turn(self, key: SessionKey, turn: str) -> tuple[Line, ...]:
        path = self._path(key)
        archived = directories.archives(self.layout.root, path.parent)[:_ARCHIVES]
        lines: list[Line] = []
        for each in (path, *(e for e in archived if e.suffix == ".jsonl")):
            with _opened(each) as descriptor:
                if descriptor is None:
                    continue
                os.fdatasync(descriptor)
                size = files.state_of_open(descriptor).size
                found, is_complete, damage = read_turn(descriptor, size, turn)
                lines[:0] = found
                self._warn(each, descriptor, damage)
                if is_complete:
                    break
        return tuple(lines)

    def _read_told(self, path: Path, ids: Collection[str]) -> set[str]:
        with _opened(path) as descriptor:
            if descriptor is None:
                return set()
            return read_told(descriptor, files.state_of_open(descriptor).size, ids)

    def _warn(self, path: Path, descriptor: int, damage: Sequence[Damage]) -> None:
        inode = files.state_of_open(descriptor).inode
        for offset, why in damage:
            if (inode, offset) in self._warned:
                continue
            self._warned[inode, offset] = None
            if len(self._warned) > _WARNED:
                self._warned.popitem(last=False)
            log.warning(
                "a line of a conversation cannot be read and is left out",
                file=str(path),
                line=line_number(descriptor, offset),
                why=why,
            )


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

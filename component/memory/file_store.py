"""Memories in files: the lines of `knowledge.jsonl`, and the index that makes them searchable.

The index is kept up to date: before the memories of a file are used, its state is compared, and the
file is read again if it has changed. So edits by hand are used immediately.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import anyio
import anyio.to_thread
import msgspec
import structlog

from component import system
from component.caches import LRUCache
from component.config.memory import Memory
from component.memory.index import Index, Owner, all_of, items_of, owners_of
from component.memory.index_search import Finder, Hit, Search
from component.memory.knowledge_lines import (
    FILE_NAME,
    FilePast,
    Item,
    MemoryLine,
    current_timestamp,
    encode_memory,
    limit_versions,
    parse_memories,
    past_of,
    remove_keys,
    succeeding,
    versions_of,
    xml_safe,
)
from component.memory.sharing import PRIVATE, Place, Sharing
from component.memory.store import Expected, KnowledgeError, check_expected
from component.memory_directory import files
from component.memory_directory.files import FileState, KeyLocks
from component.memory_directory.layout import KNOWLEDGE
from component.store.errors import StorageError
from xep.characters import without_forbidden

if TYPE_CHECKING:
    from sqlite3 import Connection

T = TypeVar("T")

EMBED_AGAIN_S: Final = 60.0
"""Seconds until the next attempt after the embedding model has failed."""

_LONGEST_FILE: Final = 1 << 30  # bytes that are read of a file
_EMBEDDED: Final = 8  # memories that get their vectors together; searches wait for them
_ATTEMPTS: Final = 3  # to read a file that keeps changing
_CACHED: Final = 64  # answers of `get_many`

_Found: TypeAlias = tuple[dict[str, FileState], dict[tuple[str, str], Item]]
"""The states of files, and the memories that were found in them, by owner and key."""

_log = structlog.get_logger("component.memory")


class CurrentIndex:
    """Reads the index, and refreshes it. All methods raise StorageError.

    Attributes:
        locks: of owners; the writer of a file holds its lock.
    """

    def __init__(self, index: Index, sharing: Sharing) -> None:
        self.locks: KeyLocks[str] = KeyLocks()
        self._written = anyio.Event()
        self._index = index
        self._root = sharing.root
        self._finder = Finder(index)
        self._cached: LRUCache[tuple[tuple[str, ...], frozenset[str]], _Found] = LRUCache(_CACHED)
        # Separate, so that reading a large file again delays no search.
        self._readers = anyio.CapacityLimiter(8)
        self._writers = anyio.CapacityLimiter(8)
        self._refreshers = anyio.CapacityLimiter(2)

    async def find(
        self, places: Sequence[Place], search: Search, documents: Place | None = None
    ) -> list[tuple[Place, Hit]]:
        """Return the best matches, each with its place.

        Args:
            documents: a folder of documents to search as it is in the index.
        """
        by_owner = {place.owner: place for place in (*places, *([documents] if documents else ()))}
        work = partial(self._finder.search_owners, search=search)
        hits = await self._current(places, documents, work)
        return [(by_owner[hit.owner], hit) for hit in hits or ()]

    async def get(self, place: Place, key: str) -> Item | None:
        """Return one memory by its key."""
        found = await self.get_many((place,), (key,))
        return found[0][1] if found else None

    async def get_many(
        self, places: Sequence[Place], keys: Collection[str], documents: Place | None = None
    ) -> list[tuple[Place, Item]]:
        """Return the memories with these keys, in the order of the places.

        A turn asks for those of the turns before it, so they are cached while no file changes.
        """
        keys = [without_forbidden(key) for key in keys]
        asked = tuple([place.owner for place in places]), frozenset(keys)
        states = {place.owner: seen for place in places if (seen := self.state_of(place))}
        cached = None if documents else self._cached.get(asked)
        if cached is not None and cached[0] == states:
            found = cached[1]
        else:

            def work(connection: "Connection", owners: Mapping[str, Owner]) -> _Found:
                seen = {name: owner.seen for name, owner in owners.items()}
                return seen, items_of(connection, owners, keys)

            read = await self._current(places, documents, work) or ({}, {})
            found = read[1]
            if documents is None:
                self._cached[asked] = read
        ordered = (*places, *([documents] if documents else ()))
        pairs = [(place, key) for place in ordered for key in keys]
        return [
            (place, found[place.owner, key]) for place, key in pairs if (place.owner, key) in found
        ]

    async def items(self, place: Place) -> list[Item]:
        """Return all memories of a place, in the order of their last change."""
        return await self._current((place,), None, _all_items) or []

    async def read(self, work: Callable[..., T], *args: object) -> T:
        """Run a function that only reads in a thread."""
        return await self._run(self._readers, work, *args)

    async def write(self, work: Callable[..., T], *args: object) -> T:
        """Run a function that writes a file, whose lock is held, in a thread."""
        try:
            return await self._run(self._writers, work, *args)
        finally:
            self._written.set()

    async def refresh(self, places: Sequence[Place]) -> None:
        """Read files again that have changed."""
        for place in await self._run(self._readers, self._stale, places):
            async with self.locks.hold(place.owner):
                await self._refresh(place, self._refreshers)

    async def refresh_held(self, place: Place) -> None:
        """Read a file again if it has changed, before it is written. The caller holds its lock."""
        await self._refresh(place, self._writers)

    async def tidy(self, owners: Iterable[str] | None = None) -> None:
        """Remove deleted files from the index: those of these owners, or of all."""
        if owners is None:
            owners = await self._run(self._refreshers, self._index.names)
        for owner in owners:
            async with self.locks.hold(owner):
                await self._run(self._refreshers, self._erase_if_deleted, owner)

    async def embed(self) -> None:
        """Make missing vectors, also those of new memories, until cancelled."""
        together = _EMBEDDED
        while self._index.embedder is not None:
            self._written = anyio.Event()
            try:
                made = await self._run(self._refreshers, self._index.embed, together)
            except StorageError as error:
                _log.warning("vectors could not be stored", why=str(error))
                made = None
            if made is None:
                # One at a time, so that a text that crashes the model fails alone.
                together = 1
                await anyio.sleep(EMBED_AGAIN_S)
            elif not made:
                together = _EMBEDDED
                await self._written.wait()

    async def embedded(self) -> None:
        """Return when all memories have vectors, except those that cannot have one."""
        while await self._run(self._refreshers, self._index.embed, _EMBEDDED):
            pass

    async def _current(
        self,
        places: Sequence[Place],
        documents: Place | None,
        work: "Callable[[Connection, Mapping[str, Owner]], T]",
    ) -> T | None:
        """Run `work` on the owners of these places in a thread, in one state of the index in which
        no place is stale, unless they keep changing. None if these places have no files.
        """
        # Most people have no memories, and to notice that takes no thread.
        if documents is None and not any(self.state_of(place) is not None for place in places):
            return None

        def attempt(*, is_last: bool) -> tuple[Sequence[Place], T | None]:
            with self._index.database.reading() as connection:
                known = owners_of(connection, [place.owner for place in places])
                stale = [place for place in places if self._differs(place, known)]
                if stale and not is_last:
                    return stale, None
                if documents is not None:
                    known |= owners_of(connection, [documents.owner])
                return (), work(connection, known)

        for number in range(_ATTEMPTS + 1):
            work_once = partial(attempt, is_last=number == _ATTEMPTS)
            stale, result = await self._run(self._readers, work_once)
            if not stale:
                break
            await self.refresh(stale)
        return result

    async def _refresh(self, place: Place, limiter: anyio.CapacityLimiter) -> None:
        if await self._run(limiter, self._stale, (place,)):
            damaged = await self._run(self._refreshers, self._read_again, place)
            self._written.set()
            if damaged:
                lines = ", ".join(map(str, damaged[:10]))
                _log.warning("lines cannot be read", file=str(place.file), lines=lines)

    async def _run(
        self, limiter: anyio.CapacityLimiter, work: Callable[..., T], *args: object
    ) -> T:
        database = self._index.database
        opened = database.opened
        try:
            return await system.in_thread(work, *args, limiter=limiter)
        except StorageError as error:
            # Another reader may have noticed the damage, and rebuilt it.
            if opened is database.opened and not opened.damaged:
                raise
            if await system.in_thread(database.renew, limiter=limiter):
                path = str(database.path)
                _log.warning("the index is damaged and is rebuilt", path=path, why=str(error))
            return await system.in_thread(work, *args, limiter=limiter)

    def state_of(self, place: Place) -> FileState | None:
        """Return the state of a file, which differs after each change, also one by hand."""
        if not files.check_folder(self._root, place.folder):
            return None
        return files.state_of(place.file)

    # In worker threads.

    def _stale(self, places: Sequence[Place]) -> list[Place]:
        known = self._index.owners([place.owner for place in places])
        return [place for place in places if self._differs(place, known)]

    def _differs(self, place: Place, known: Mapping[str, Owner]) -> bool:
        owner = known.get(place.owner)
        return self.state_of(place) != (None if owner is None else owner.seen)

    def _read_again(self, place: Place) -> list[int]:
        found = None
        if files.check_folder(self._root, place.folder):
            found = files.read(place.file, _LONGEST_FILE)
        if found is None:
            self._index.erase(place.owner)
            return []
        data, seen = found
        items, damaged = parse_memories(data)
        self._index.replace(place.owner, items, seen)
        return damaged

    def _erase_if_deleted(self, owner: str) -> None:
        folder = self._root / owner
        # `documents` compares folders of documents.
        if folder.name != KNOWLEDGE and not (folder / FILE_NAME).exists():
            self._index.erase(owner)


def _all_items(connection: "Connection", owners: Mapping[str, Owner]) -> list[Item]:
    return [item for owner in owners.values() for _, item in all_of(connection, owner.id)]


class FileStore:
    """Writes the files of all places. All methods raise StorageError.

    Attributes:
        index: reads the memories; it is up to date with the files.
    """

    def __init__(self, index: Index, sharing: Sharing, settings: Memory) -> None:
        self._index = index
        self.index = CurrentIndex(index, sharing)
        self._root = sharing.root
        self._settings = settings

    async def put(self, place: Place, entry: MemoryLine, *, expected: Expected = None) -> Item:
        """Store a new memory, or a new version of the one with its key.

        It is on the disk when this returns. If nothing changes, nothing is written. Raises
        KnowledgeError: it exceeds a limit; VersionConflictError.
        """
        entry = xml_safe(entry)
        self._check(entry)
        async with self.index.locks.hold(place.owner):
            await self.index.refresh_held(place)
            return await self.index.write(self._put, place, entry, expected)

    async def forget(self, place: Place, key: str, *, expected: Expected = None) -> bool:
        """Delete a memory with all its versions from the file and from the index.

        A line remains that says that something with this key was forgotten, and when. Return False
        if there is no such memory. Raises VersionConflictError.
        """
        key = without_forbidden(key)
        async with self.index.locks.hold(place.owner):
            await self.index.refresh_held(place)
            return await self.index.write(self._forget, place, key, expected)

    async def erase(self, place: Place) -> int:
        """Delete all memories of a place, and return how many there were."""
        async with self.index.locks.hold(place.owner):
            await self.index.refresh_held(place)
            return await self.index.write(self._erase, place)

    async def past(self, place: Place) -> FilePast:
        """Return what the file says about memories that it no longer has."""
        return await self.index.read(lambda: past_of(_whole(place)))

    async def versions(self, place: Place, key: str) -> list[Item]:
        """Return all versions of a memory that are kept, the oldest first."""
        return await self.index.read(lambda: versions_of(_whole(place), key))

    def _check(self, entry: MemoryLine) -> None:
        if not entry.key.strip():
            raise KnowledgeError("A memory needs a key: a short name by which it is found again.")
        size = len(entry.title.encode()) + len(entry.body.encode())
        if size > self._settings.item_bytes:
            raise KnowledgeError(
                f"This memory has {size} bytes, and {self._settings.item_bytes} are the most."
                " Shorten it, or split it over several keys."
            )

    # In worker threads.

    def _put(self, place: Place, entry: MemoryLine, expected: Expected) -> Item:
        former = self._index.get(place.owner, entry.key)
        check_expected(former, expected)
        if former is not None and former.contents == entry.contents:
            return former
        item = succeeding(former, entry)
        line = encode_memory(msgspec.structs.replace(entry, version=item.version))
        self._check_quota(place, entry.by, int(former is None), len(line))
        files.make_folder(self._root, place.folder)
        _, seen = files.append(place.file, line, sync=True)
        if item.versions > self._settings.versions:
            seen, item = self._shorten(place, item, seen)
        self._index.put(place.owner, item, seen)
        return item

    def _shorten(self, place: Place, item: Item, seen: FileState) -> tuple[FileState, Item]:
        """Remove the older half of the versions, so that this is rarely needed."""
        kept = -(-self._settings.versions // 2)
        data = _whole(place)
        files.replace(place.file, limit_versions(data, item.key, kept))
        last = versions_of(_whole(place), item.key)[-1]
        return files.state_of(place.file) or seen, last

    def _forget(self, place: Place, key: str, expected: Expected) -> bool:
        item = self._index.get(place.owner, key)
        check_expected(item, expected)
        if item is None:
            return False
        line = MemoryLine(key=key, ts=current_timestamp(), forgotten=True)
        files.replace(place.file, remove_keys(_whole(place), (key,), (line,)))
        seen = files.state_of(place.file)
        assert seen is not None, "just written, and its lock is held"
        self._index.remove(place.owner, (key,), seen)
        return True

    def _erase(self, place: Place) -> int:
        if files.check_folder(self._root, place.folder):
            files.remove(place.file)
        return self._index.erase(place.owner)

    def _check_quota(self, place: Place, by: str, new_items: int, new_bytes: int) -> None:
        """Raise KnowledgeError if a line would exceed a limit of its place, or if a shared scope is
        more than half full and its contributor would then have more in it than is free: others
        need that.
        """
        owner = self._index.owners((place.owner,)).get(place.owner)
        seen = files.state_of(place.file)
        items, size = 0 if owner is None else owner.items, 0 if seen is None else seen.size
        most_items = self._settings.items_per_principal
        most_bytes = self._settings.bytes_per_principal
        if new_items and items >= most_items:
            raise KnowledgeError(
                f"There are {items} memories in {place.scope}, and more are not kept. Have"
                " some forgotten first."
            )
        if seen is not None and size + new_bytes > most_bytes:
            raise KnowledgeError(
                f"The memories of {place.scope} take {size} bytes, and more is not kept."
                " Have some forgotten first."
            )
        free_items, free_bytes = most_items - items - new_items, most_bytes - size - new_bytes
        is_half_full = 2 * free_items < most_items or 2 * free_bytes < most_bytes
        if place.scope == PRIVATE or not is_half_full:
            return
        own_items, own_bytes = self._index.share(place.owner, by)
        if own_items + new_items > free_items or own_bytes + new_bytes > free_bytes:
            raise KnowledgeError(
                f"You have stored so much in {place.scope} that others need the room that is"
                " left. Have some of it forgotten first."
            )


def _whole(place: Place) -> bytes:
    found = files.read(place.file, _LONGEST_FILE)
    return b"" if found is None else found[0]

"""The index kept as the files are: each is looked at before it is used, and read again only if it
has changed. So what people add, edit or delete by hand counts at once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import anyio
import structlog

from component import system
from component.memory import files
from component.memory.files import Seen
from component.memory.index import Index, Owner, owners_of
from component.memory.index_search import Finder, Hit, Search
from component.memory.knowledge_lines import FILE_NAME, parse
from component.memory.locks import KeyLocks
from component.memory.paths import KNOWLEDGE
from component.memory.sharing import Place, Sharing
from component.storage.errors import StorageError

T = TypeVar("T")

LONGEST_FILE: Final = 1 << 30
"""Maximum number of bytes that are read of a file."""

_log = structlog.get_logger("component.memory")

EMBED_AGAIN_S: Final = 60.0
"""Seconds until the next try after the embedding model has failed."""

_EMBEDDED: Final = 8  # memories that get their vectors at a time; a question waits for them
_ATTEMPTS: Final = 3  # at a file that somebody keeps changing


class _Found(NamedTuple):
    """What was found, unless there are `stale` places."""

    stale: Sequence[Place]
    hits: Sequence[Hit] = ()


class Fresh:
    """Searches that never miss a change, and what else needs the index to be up to date.

    Args:
        index: the open index.
        sharing: knows the root of all memories.

    Attributes:
        locks: of owners; the writer of a file holds its lock.
    """

    def __init__(self, index: Index, sharing: Sharing) -> None:
        self.locks: KeyLocks[str] = KeyLocks()
        self._written = anyio.Event()
        self._index = index
        self._root = sharing.root
        self._finder = Finder(index)
        # Apart, so that who has a large file read again keeps nobody from a quick look.
        self._readers = anyio.CapacityLimiter(8)
        self._writers = anyio.CapacityLimiter(8)
        self._refreshers = anyio.CapacityLimiter(2)

    async def find(
        self, places: Sequence[Place], search: Search, folder: Place | None = None
    ) -> list[tuple[Place, Hit]]:
        """The memories that fit best, each with its place. Raises StorageError.

        `folder` is one with documents, whose part of the index is used as it is.
        """
        by_owner = {place.owner: place for place in (*places, *([folder] if folder else ()))}
        hits: Sequence[Hit] = ()
        # Most people have no memories, and to see that takes no thread.
        there = folder is not None or any(self._seen(place) is not None for place in places)
        for _ in range(_ATTEMPTS if there else 0):
            found = await self._run(self._readers, self._find, places, search, folder)
            hits = found.hits
            if not found.stale:
                break
            await self.refresh(found.stale)
        return [(by_owner[hit.owner], hit) for hit in hits]

    async def read(self, work: Callable[..., T], *args: object) -> T:
        """Run in a thread what only reads. Raises StorageError."""
        return await self._run(self._readers, work, *args)

    async def write(self, work: Callable[..., T], *args: object) -> T:
        """Run in a thread what writes a file, whose lock is held. Raises StorageError."""
        try:
            return await self._run(self._writers, work, *args)
        finally:
            self._written.set()

    async def refresh(self, places: Sequence[Place]) -> None:
        """Bring the index up to date with files. Raises StorageError."""
        for place in await self._run(self._readers, self._stale, places):
            async with self.locks.hold(place.owner):
                await self._read_if_stale(place, self._refreshers)

    async def refresh_held(self, place: Place) -> None:
        """The same for a file whose lock is held, before it is written. Raises StorageError."""
        await self._read_if_stale(place, self._writers)

    async def tidy(self, owners: Iterable[str] | None = None) -> None:
        """Let the index go of files that are no more, as after somebody removed a directory: of all
        or of some owners. Raises StorageError.
        """
        if owners is None:
            owners = await self._run(self._refreshers, self._index.names)
        for owner in owners:
            async with self.locks.hold(owner):
                await self._run(self._refreshers, self._erase_unless_there, owner)

    async def embed(self) -> None:
        """Make the vectors that are missing, those of new memories included, until cancelled."""
        together = _EMBEDDED
        while self._index.embedder is not None:
            self._written = anyio.Event()
            try:
                made = await self._run(self._refreshers, self._index.embed, together)
            except StorageError as error:
                _log.warning("vectors could not be stored", why=str(error))
                made = None
            if made is None:
                # One at a time then, so that a text that the model does not survive fails alone.
                together = 1
                await anyio.sleep(EMBED_AGAIN_S)
            elif not made:
                together = _EMBEDDED
                await self._written.wait()

    async def embedded(self) -> None:
        """Return when all memories have vectors that can have one. Raises StorageError."""
        while await self._run(self._refreshers, self._index.embed, _EMBEDDED):
            pass

    async def _read_if_stale(self, place: Place, limiter: anyio.CapacityLimiter) -> None:
        if await self._run(limiter, self._is_stale, place):
            damaged = await self._run(self._refreshers, self._read_again, place)
            self._written.set()
            if damaged:
                lines = ", ".join(map(str, damaged[:10]))
                _log.warning("lines cannot be read", file=str(place.file), lines=lines)

    async def _run(
        self, limiter: anyio.CapacityLimiter, work: Callable[..., T], *args: object
    ) -> T:
        """Run in a thread, and once more with a new index if it turns out to be damaged."""
        database = self._index.database
        opened = database.opened
        try:
            return await system.in_thread(work, *args, limiter=limiter)
        except StorageError as error:
            # Another reader that has noticed may have rebuilt it since.
            if opened is database.opened and not opened.damaged:
                raise
            if await system.in_thread(database.renew, limiter=limiter):
                path = str(database.path)
                _log.warning("the index is damaged and is rebuilt", path=path, why=str(error))
            return await system.in_thread(work, *args, limiter=limiter)

    # What follows runs in worker threads.

    def _find(self, places: Sequence[Place], search: Search, folder: Place | None) -> _Found:
        with self._index.database.reading() as connection:
            known = owners_of(connection, [place.owner for place in places])
            stale = [place for place in places if self._differs(place, known)]
            if stale:
                return _Found(stale)
            if folder is not None:
                known |= owners_of(connection, [folder.owner])
            return _Found((), self._finder.among(connection, known, search))

    def _seen(self, place: Place) -> Seen | None:
        if not files.check_folder(self._root, place.folder):
            return None
        return files.seen(place.file)

    def _stale(self, places: Sequence[Place]) -> list[Place]:
        return [place for place in places if self._is_stale(place)]

    def _is_stale(self, place: Place) -> bool:
        return self._differs(place, self._index.owners((place.owner,)))

    def _differs(self, place: Place, known: Mapping[str, Owner]) -> bool:
        owner = known.get(place.owner)
        return self._seen(place) != (None if owner is None else owner.seen)

    def _read_again(self, place: Place) -> list[int]:
        found = None
        if files.check_folder(self._root, place.folder):
            found = files.read(place.file, LONGEST_FILE)
        if found is None:
            self._index.erase(place.owner)
            return []
        data, seen = found
        items, damaged = parse(data)
        self._index.replace(place.owner, items, seen)
        return damaged

    def _erase_unless_there(self, owner: str) -> None:
        folder = self._root / owner
        if folder.name == KNOWLEDGE:
            return  # `documents` compares those
        if not (folder / FILE_NAME).exists():
            self._index.erase(owner)

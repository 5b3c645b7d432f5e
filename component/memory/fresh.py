"""The index kept as the files are: each is looked at before it is used, and read again only if it
has changed. So what people add, edit or delete by hand counts at once.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import anyio
import anyio.to_thread
import structlog

from component.memory import at_hand, files
from component.memory.at_hand import AtHand, Few
from component.memory.files import Seen
from component.memory.index import Index, Owner, all_of, owners_of
from component.memory.index_search import Finder, Hit, Search
from component.memory.knowledge_lines import FILE_NAME, parse
from component.memory.locks import KeyLocks
from component.memory.sharing import Place, Sharing
from component.storage.errors import StorageError

T = TypeVar("T")

LONGEST_FILE: Final = 1 << 30
"""Bytes that are read of a file, whoever has written it."""

_log = structlog.get_logger("component.memory")

_ATTEMPTS: Final = 3  # at a file that somebody keeps changing


class _Found(NamedTuple):
    """What was found, unless there are `stale` places, and memories to have at hand."""

    stale: Sequence[Place]
    hits: Sequence[Hit] = ()
    few: Mapping[str, Few] = {}


class Fresh:
    """Searches that never miss a change, and what else needs the index to be up to date.

    Args:
        index: the open index.
        sharing: knows the root of all memories.

    Attributes:
        locks: of owners; whoever writes a file holds its own.
    """

    def __init__(self, index: Index, sharing: Sharing) -> None:
        self.locks: KeyLocks[str] = KeyLocks()
        self._index = index
        self._root = sharing.root
        self._finder = Finder(index)
        self._at_hand = AtHand()
        # Apart, so that who has a large file read again keeps nobody from a quick look.
        self._readers = anyio.CapacityLimiter(8)
        self._writers = anyio.CapacityLimiter(8)
        self._refreshers = anyio.CapacityLimiter(2)

    async def find(self, places: Sequence[Place], search: Search) -> list[tuple[Place, Hit]]:
        """What fits best, each with where it was found. Raises StorageError."""
        hits = self._find_at_hand(places, search)
        by_owner = {place.owner: place for place in places}
        if hits is None:
            for _ in range(_ATTEMPTS):
                found = await self._run(self._readers, self._find, places, search)
                if not found.stale:
                    break
                await self.refresh(found.stale)
            self._at_hand.keep(found.few)
            hits = found.hits
        return [(by_owner[hit.owner], hit) for hit in hits]

    async def read(self, work: Callable[..., T], *args: object) -> T:
        """Run in a thread what only reads. Raises StorageError."""
        return await self._run(self._readers, work, *args)

    async def write(self, work: Callable[..., T], *args: object) -> T:
        """Run in a thread what writes a file, whose lock is held. Raises StorageError."""
        return await self._run(self._writers, work, *args)

    async def refresh(self, places: Sequence[Place]) -> None:
        """Bring the index up to date with files. Raises StorageError."""
        for place in places:
            if await self._run(self._readers, self._is_stale, place):
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

    async def _read_if_stale(self, place: Place, limiter: anyio.CapacityLimiter) -> None:
        if await self._run(limiter, self._is_stale, place):
            damaged = await self._run(self._refreshers, self._read_again, place)
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
            return await anyio.to_thread.run_sync(work, *args, limiter=limiter)
        except StorageError as error:
            # Somebody else who has noticed may have made it anew since.
            if opened is database.opened and not opened.damaged:
                raise
            if await anyio.to_thread.run_sync(database.renew, limiter=limiter):
                path = str(database.path)
                _log.warning("index is damaged and made anew", path=path, why=str(error))
            return await anyio.to_thread.run_sync(work, *args, limiter=limiter)

    # In the event loop: no more than a look at the state of each file.

    def _find_at_hand(self, places: Sequence[Place], search: Search) -> Sequence[Hit] | None:
        """What is found without the index; None where that cannot be known."""
        if self._index.embedder is not None:
            return None
        owners: dict[str, Few] = {}
        for place in places:
            seen = self._seen(place)
            if seen is None:
                self._at_hand.drop(place.owner)
                continue
            few = self._at_hand.of(place.owner, seen)
            if few is None:
                return None
            owners[place.owner] = few
        return at_hand.find(owners, search, time.time())

    # What follows runs in worker threads.

    def _find(self, places: Sequence[Place], search: Search) -> _Found:
        with self._index.database.reading() as connection:
            known = owners_of(connection, [place.owner for place in places])
            stale = [place for place in places if self._differs(place, known)]
            if stale:
                return _Found(stale)
            if self._index.embedder is not None or not all(
                at_hand.is_small(owner.items, owner.seen) for owner in known.values()
            ):
                return _Found((), self._finder.among(connection, known, search))
            few = {
                name: Few(owner.seen, all_of(connection, owner.id)) for name, owner in known.items()
            }
        return _Found((), at_hand.find(few, search, time.time()), few)

    def _seen(self, place: Place) -> Seen | None:
        if not files.check_folder(self._root, place.folder):
            return None
        return files.seen(place.file)

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
        if not (folder / FILE_NAME).exists():
            self._index.erase(owner)

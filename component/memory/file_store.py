"""Memories in files: the lines of `knowledge.jsonl`, which the index makes searchable."""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from component.memory.current_index import LONGEST_FILE, Fresh
from component.memory.index import Index, all_of, owners_of
from component.memory.index_search import Hit, Search
from component.memory.knowledge_lines import (
    Entry,
    FilePast,
    Item,
    encode,
    fit,
    now,
    past_of,
    shortened,
    succeeding,
    versions_of,
    without,
)
from component.memory.sharing import PRIVATE, Place, Sharing
from component.memory.store import Expected, KnowledgeError, Watcher, Whose, check_expected
from component.memory_directory import files
from component.settings.memory import Memory
from xep.characters import without_forbidden


class FileStore:
    """The files of all places. All methods raise StorageError.

    Args:
        index: the open index.
        sharing: knows the root of all memories.
        settings: `[memory]`, for its limits.

    Attributes:
        fresh: keeps the index up to date with the files.
    """

    def __init__(self, index: Index, sharing: Sharing, settings: Memory) -> None:
        self._index = index
        self.fresh = Fresh(index, sharing)
        self._root = sharing.root
        self._settings = settings

    async def put(self, place: Place, entry: Entry, *, expected: Expected = None) -> Item:
        """Store a memory: a new one, or a new version of the one with its key.

        It is on the disk when this returns. If it says nothing new, nothing is written. Raises
        KnowledgeError: it exceeds a limit; VersionConflictError.
        """
        entry = fit(entry)
        self._check(entry)
        async with self.fresh.locks.hold(place.owner):
            await self.fresh.refresh_held(place)
            return await self.fresh.write(self._put, place, entry, expected)

    async def get(self, place: Place, key: str) -> Item | None:
        """One memory; call `refresh` before."""
        return await self.fresh.read(self._index.get, place.owner, without_forbidden(key))

    async def get_many(
        self, places: Sequence[Place], keys: Collection[str]
    ) -> list[tuple[Place, Item]]:
        """The memories of these places with these keys, in the order of the places; call `refresh`
        before.
        """
        by_owner = {place.owner: place for place in places}
        wanted = [without_forbidden(key) for key in keys]
        found = await self.fresh.read(self._index.get_many, list(by_owner), wanted)
        return [(by_owner[owner], item) for owner, item in found]

    async def items(self, place: Place) -> list[Item]:
        """All memories in the order of their last change; call `refresh` before."""
        return await self.fresh.read(self._list, place)

    async def past(self, place: Place) -> FilePast:
        """Return what the file says about memories that it no longer has."""
        return await self.fresh.read(_past, place)

    async def versions(self, place: Place, key: str) -> list[Item]:
        """All versions of a memory that are kept, the oldest first."""
        return await self.fresh.read(_versions, place, without_forbidden(key))

    async def search(
        self, places: Sequence[Place], search: Search, documents: Place | None = None
    ) -> list[tuple[Place, Hit]]:
        """The memories that fit best, of these places and of a folder of documents."""
        return await self.fresh.find(places, search, documents)

    async def refresh(self, places: Sequence[Place]) -> None:
        """Bring the index up to date with the files of these places."""
        await self.fresh.refresh(places)

    async def forget(
        self,
        place: Place,
        key: str,
        *,
        expected: Expected = None,
    ) -> bool:
        """Erase a memory and all its versions, from the file and from the index.

        A line stays that says that something of this key was forgotten, and when. False if there is
        no such memory. Raises VersionConflictError.
        """
        key = without_forbidden(key)
        async with self.fresh.locks.hold(place.owner):
            await self.fresh.refresh_held(place)
            return await self.fresh.write(self._forget, place, key, expected)

    async def erase(self, place: Place) -> int:
        """Erase all memories of a place; returns how many there were."""
        async with self.fresh.locks.hold(place.owner):
            await self.fresh.refresh_held(place)
            return await self.fresh.write(self._erase, place)

    async def tidy(self, owners: Iterable[str] | None = None) -> None:
        """Remove deleted files from the index: those of these owners, or of all."""
        await self.fresh.tidy(owners)

    def _check(self, entry: Entry) -> None:
        if not entry.key.strip():
            raise KnowledgeError("A memory needs a key: a short name by which it is found again.")
        size = len(entry.title.encode()) + len(entry.content.encode())
        if size > self._settings.item_bytes:
            raise KnowledgeError(
                f"This memory has {size} bytes, and {self._settings.item_bytes} are the most."
                " Shorten it, or split it over several keys."
            )

    # The following methods run in worker threads.

    def _put(self, place: Place, entry: Entry, expected: Expected) -> Item:
        former = self._index.get(place.owner, entry.key)
        check_expected(former, expected)
        if former is not None and former.says(entry):
            return former
        if former is None:
            self._check_room(place)
        files.make_folder(self._root, place.folder)
        item = succeeding(former, entry)
        line = encode(msgspec.structs.replace(entry, version=item.version))
        self._check_size(place, len(line))
        self._check_share(place, entry.by, int(former is None), len(line))
        seen = files.append(place.file, line, sync=True)
        if item.versions > self._settings.versions:
            seen, item = self._shorten(place, item, seen)
        self._index.put(place.owner, item, seen)
        return item

    def _shorten(
        self, place: Place, item: Item, seen: files.FileState
    ) -> tuple[files.FileState, Item]:
        """Remove the older half of the versions, so that this is rarely needed."""
        kept = -(-self._settings.versions // 2)
        data = _whole(place)
        files.replace(place.file, shortened(data, item.key, kept))
        last = versions_of(_whole(place), item.key)[-1]
        return files.state_of(place.file) or seen, last

    def _list(self, place: Place) -> list[Item]:
        with self._index.database.reading() as connection:
            owner = owners_of(connection, (place.owner,)).get(place.owner)
            return [] if owner is None else [item for _, item in all_of(connection, owner.id)]

    def _forget(self, place: Place, key: str, expected: Expected) -> bool:
        item = self._index.get(place.owner, key)
        check_expected(item, expected)
        if item is None:
            return False
        gone = Entry(key=key, ts=now(), forgotten=True)
        files.replace(place.file, without(_whole(place), (key,), (gone,)))
        seen = files.state_of(place.file)
        assert seen is not None, "just written, and its lock is held"
        self._index.remove(place.owner, (key,), seen)
        return True

    def _erase(self, place: Place) -> int:
        if files.check_folder(self._root, place.folder):
            files.remove(place.file)
        return self._index.erase(place.owner)

    def _check_room(self, place: Place) -> None:
        known = self._index.owners((place.owner,)).get(place.owner)
        if known is not None and known.items >= self._settings.items_per_principal:
            raise KnowledgeError(
                f"There are {known.items} memories in {place.scope}, and more are not kept. Have"
                " some forgotten first."
            )

    def _check_share(self, place: Place, by: str, items: int, bytes_: int) -> None:
        """Raise KnowledgeError if a shared scope is more than half full, and somebody would have
        stored more in it than is free then: others need that.
        """
        if place.scope == PRIVATE:
            return
        owner = self._index.owners((place.owner,)).get(place.owner)
        seen = files.state_of(place.file)
        free = self._settings.items_per_principal - items - (0 if owner is None else owner.items)
        free_bytes = (
            self._settings.bytes_per_principal - bytes_ - (0 if seen is None else seen.size)
        )
        is_half_full = 2 * free < self._settings.items_per_principal
        if not is_half_full and 2 * free_bytes >= self._settings.bytes_per_principal:
            return
        own, own_bytes = self._index.share(place.owner, by)
        if own + items > free or own_bytes + bytes_ > free_bytes:
            raise KnowledgeError(
                f"You have stored so much in {place.scope} that others need the room that is"
                " left. Have some of it forgotten first."
            )

    def _check_size(self, place: Place, more: int) -> None:
        seen = files.state_of(place.file)
        if seen is not None and seen.size + more > self._settings.bytes_per_principal:
            raise KnowledgeError(
                f"The memories of {place.scope} take {seen.size} bytes, and more is not kept."
                " Have some forgotten first."
            )


class PrivateFiles:
    """The private memories in the files, as a `component.memory.store.MemoryStore`.

    Args:
        store: the files.
        sharing: knows the file of each person.
    """

    def __init__(self, store: FileStore, sharing: Sharing) -> None:
        self._store = store
        self._sharing = sharing
        self._watchers: list[Watcher] = []

    async def get(self, whose: Whose, key: str) -> Item | None:
        """One memory by its key."""
        place = self.place(whose)
        await self._store.refresh((place,))
        return await self._store.get(place, key)

    async def items(self, whose: Whose) -> Sequence[Item]:
        """All memories, in the order of their last change."""
        place = self.place(whose)
        await self._store.refresh((place,))
        return await self._store.items(place)

    async def past(self, whose: Whose) -> FilePast:
        """Return what the file says about memories that it no longer has."""
        return await self._store.past(self.place(whose))

    async def search(self, whose: Whose, search: Search) -> Sequence[Item]:
        """The memories that fit best."""
        return [hit.item for _, hit in await self._store.search((self.place(whose),), search)]

    async def put(self, whose: Whose, entry: Entry, *, expected: Expected = None) -> Item:
        """Store a memory."""
        item = await self._store.put(self.place(whose), entry, expected=expected)
        self._tell(whose, (entry.key,))
        return item

    async def forget(self, whose: Whose, key: str, *, expected: Expected = None) -> bool:
        """Delete a memory."""
        gone = await self._store.forget(self.place(whose), key, expected=expected)
        self._tell(whose, (key,))
        return gone

    async def erase(self, whose: Whose) -> None:
        """Delete all memories."""
        await self._store.erase(self.place(whose))
        self._tell(whose, None)

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` after changes that are made here. Those made by hand are not noticed."""
        self._watchers.append(watcher)

    def state(self, whose: Whose) -> files.FileState | None:
        """The state of the file; it differs after each change, also after one made by hand."""
        place = self.place(whose)
        if not files.check_folder(self._sharing.root, place.folder):
            return None
        return files.state_of(place.file)

    def place(self, whose: Whose) -> Place:
        """Where the file of a person is."""
        place = self._sharing.place(PRIVATE, whose.agent, whose.who)
        assert place is not None, "everybody has a private one"
        return place

    def _tell(self, whose: Whose, keys: Sequence[str] | None) -> None:
        for watcher in self._watchers:
            watcher(whose, keys)


def _past(place: Place) -> FilePast:
    return past_of(_whole(place))


def _whole(place: Place) -> bytes:
    found = files.read(place.file, LONGEST_FILE)
    return b"" if found is None else found[0]


def _versions(place: Place, key: str) -> list[Item]:
    found = files.read(place.file, LONGEST_FILE)
    return [] if found is None else versions_of(found[0], key)

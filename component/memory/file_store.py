"""Memories in files: the lines of `knowledge.jsonl`, which the index makes searchable."""

import msgspec

from component.memory.current_index import LONGEST_FILE, CurrentIndex
from component.memory.index import Index
from component.memory.knowledge_lines import (
    FilePast,
    Item,
    MemoryLine,
    encode_memory,
    limit_versions,
    now,
    past_of,
    remove_keys,
    succeeding,
    versions_of,
    xml_safe,
)
from component.memory.sharing import PRIVATE, Place, Sharing
from component.memory.store import Expected, KnowledgeError, check_expected
from component.memory_directory import files
from component.memory_directory.files import FileState
from component.settings.memory import Memory
from xep.characters import without_forbidden


class FileStore:
    """Writes the files of all places. All methods raise StorageError.

    Args:
        index: the open index.
        sharing: has the root of all memories.
        settings: `[memory]`, for its limits.

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

    def state(self, place: Place) -> FileState | None:
        """Return the state of a file, which differs after each change, also one by hand."""
        if not files.check_folder(self._root, place.folder):
            return None
        return files.state_of(place.file)

    async def past(self, place: Place) -> FilePast:
        """Return what the file says about memories that it no longer has."""
        return await self.index.read(_past, place)

    async def versions(self, place: Place, key: str) -> list[Item]:
        """Return all versions of a memory that are kept, the oldest first."""
        return await self.index.read(_versions, place, without_forbidden(key))

    def _check(self, entry: MemoryLine) -> None:
        if not entry.key.strip():
            raise KnowledgeError("A memory needs a key: a short name by which it is found again.")
        size = len(entry.title.encode()) + len(entry.content.encode())
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
        self._check_room(place, entry.by, int(former is None), len(line))
        files.make_folder(self._root, place.folder)
        seen = files.append(place.file, line, sync=True)
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
        line = MemoryLine(key=key, ts=now(), forgotten=True)
        files.replace(place.file, remove_keys(_whole(place), (key,), (line,)))
        seen = files.state_of(place.file)
        assert seen is not None, "just written, and its lock is held"
        self._index.remove(place.owner, (key,), seen)
        return True

    def _erase(self, place: Place) -> int:
        if files.check_folder(self._root, place.folder):
            files.remove(place.file)
        return self._index.erase(place.owner)

    def _check_room(self, place: Place, by: str, new_items: int, new_bytes: int) -> None:
        """Raise KnowledgeError if a place has no room for a line, or if a shared scope is more than
        half full and its contributor would then have more in it than is free: others need that.
        """
        owner = self._index.owners((place.owner,)).get(place.owner)
        seen = files.state_of(place.file)
        items, size = 0 if owner is None else owner.items, 0 if seen is None else seen.size
        most_items, most_bytes = (
            self._settings.items_per_principal,
            self._settings.bytes_per_principal,
        )
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


def _past(place: Place) -> FilePast:
    return past_of(_whole(place))


def _whole(place: Place) -> bytes:
    found = files.read(place.file, LONGEST_FILE)
    return b"" if found is None else found[0]


def _versions(place: Place, key: str) -> list[Item]:
    return versions_of(_whole(place), key)

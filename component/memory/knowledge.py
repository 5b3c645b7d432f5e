"""The memories of agents, for skills, commands and prompts, with checks of rights.

`file_store` stores them. Private memories may have a copy in a store of the person, which a
`Replica` synchronises.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Final

import structlog

from component import system
from component.audit.protocol import Recorder
from component.config.memory import Memory
from component.memory.documents import Documents
from component.memory.file_store import FileStore
from component.memory.index import Index
from component.memory.index_search import Hit, Search
from component.memory.knowledge_lines import Memo, current_timestamp
from component.memory.reconciler import Stores, SyncOptions
from component.memory.replica import Replica
from component.memory.sharing import PRIVATE, Place, Sharing, taint_for
from component.memory.store import KnowledgeError, MemoryStore, MissingDecision, Remembered
from component.memory.words import wanted
from component.memory_directory.layout import SessionKey, memory_event
from component.store.errors import StorageError
from xep.characters import without_forbidden

__all__ = ["Knowledge", "KnowledgeError", "Memo", "Remembered"]

_log = structlog.get_logger("component.memory")

_RECALL_CHARACTERS: Final = 8000  # characters of a message that are searched for significant words
_RELATIVE_SCORE: Final = 0.25  # of the best score: worse matches are not added to a prompt


class Knowledge:
    """Memories of all principals.

    In all methods `trace` is the turn of which the access is a part, for the audit log.

    Args:
        recorder: the audit log; every access is recorded.
    """

    def __init__(
        self, index: Index, sharing: Sharing, settings: Memory, recorder: Recorder
    ) -> None:
        self.files = FileStore(index, sharing, settings)
        self.documents = Documents(index, self.files.index, sharing.root)
        self._replica: Replica | None = None
        self._sharing = sharing
        self._recorder = recorder

    def replicate(self, remote: MemoryStore, options: SyncOptions) -> Replica:
        """Synchronise all private memories with the stores of people from now on."""
        stores = Stores(self.files, self._sharing, remote)
        self._replica = Replica(stores, options, self._recorder)
        return self._replica

    @property
    def missing(self) -> Mapping[SessionKey, int]:
        """How many memories are missing in the account of a person without a reason."""
        return {} if self._replica is None else self._replica.held

    async def decide_missing(self, whose: SessionKey, missing: MissingDecision) -> int:
        """Delete the memories that are missing in the person's account without a reason, or restore
        them there. Return how many there were. Raises StorageError.
        """
        if self._replica is None:
            return 0
        return await self._replica.decide(whose, missing)

    def scopes(self, whose: SessionKey) -> tuple[str, ...]:
        """Return the names of the scopes that the principal may read, its own first."""
        return tuple(place.scope for place in self._sharing.visible(whose))

    async def store(
        self, whose: SessionKey, memo: Memo, scope: str = PRIVATE, *, trace: str = ""
    ) -> Remembered:
        """Store a new memory, or a new version of the one with its key.

        It is on the disk when this returns. If nothing changes, nothing is written. Raises
        KnowledgeError, and StorageError.
        """
        replica = self._replica if scope == PRIVATE else None
        try:
            place = self._writable(scope, whose)
            if replica is not None:
                await replica.before_use(whose)
                await replica.before_change(whose, memo.key)
            item = await self.files.put(place, memo.as_line(current_timestamp(), str(whose.who)))
        except (KnowledgeError, StorageError) as error:
            self._record(whose, trace, memo.key, f"store in {scope}: {error}", "refused")
            raise
        if replica is not None:
            await replica.changed(whose, item.key)
        self._record(whose, trace, memo.key, f"stored version {item.version} in {scope}")
        return Remembered(place.scope, item, taint_for(item, place, whose.who))

    async def get(self, whose: SessionKey, key: str, *, trace: str = "") -> list[Remembered]:
        """Return the memories with this key, one of each scope. Raises StorageError."""
        found = await self._get_many(whose, (key,))
        self._record(whose, trace, key, "read" if found else "not there")
        return found

    async def versions(
        self, whose: SessionKey, key: str, scope: str = PRIVATE, *, trace: str = ""
    ) -> list[Remembered]:
        """Return all versions of a memory that are kept, the oldest first. Raises StorageError."""
        place = self._sharing.place(scope, whose)
        if place is None:
            return []
        found = await self.files.versions(place, key)
        if found and found[-1].is_expired(system.time()):
            return []
        self._record(whose, trace, key, f"read {len(found)} versions in {scope}")
        return [Remembered(scope, item, taint_for(item, place, whose.who)) for item in found]

    async def search(
        self, whose: SessionKey, search: Search, *, trace: str = ""
    ) -> list[Remembered]:
        """Return the best matches of all memories that the principal may read. Raises
        StorageError.
        """
        tags = tuple(map(without_forbidden, search.tags))
        search = search._replace(topic=without_forbidden(search.topic), tags=tags)
        found = await self._find(whose, search)
        self._record(whose, trace, "", f"found {len(found)} by searching")
        return found

    async def own(self, whose: SessionKey, *, trace: str = "") -> list[Remembered]:
        """Return all private memories of a principal. Raises StorageError."""
        await self._before_use(whose)
        place = self._sharing.private(whose)
        at = system.time()
        found = [item for item in await self.files.index.items(place) if not item.is_expired(at)]
        self._record(whose, trace, "", f"listed all {len(found)} private ones")
        return [Remembered(PRIVATE, item, taint_for(item, place, whose.who)) for item in found]

    async def forget(
        self, whose: SessionKey, key: str, scope: str = PRIVATE, *, trace: str = ""
    ) -> bool:
        """Delete a memory with all its versions from the file and from the index.

        A line remains that says that something with this key was forgotten, and when. Return False
        if there is no such memory. Raises KnowledgeError, and StorageError.
        """
        replica = self._replica if scope == PRIVATE else None
        try:
            place = self._writable(scope, whose, deletes=True)
            if replica is not None:
                await replica.before_use(whose)
                await replica.before_change(whose, key)
            existed = await self.files.forget(place, key)
        except (KnowledgeError, StorageError) as error:
            self._record(whose, trace, key, f"forget in {scope}: {error}", "refused")
            raise
        if existed:
            if replica is not None:
                await replica.changed(whose, key)
            self._record(whose, trace, key, f"erased from {scope}")
        return existed

    async def erase(self, whose: SessionKey) -> int:
        """Delete all private memories of a principal with an agent, also in the person's store;
        return how many there were. Raises StorageError.
        """
        erasing = nullcontext() if self._replica is None else self._replica.erasing(whose)
        async with erasing:
            count = await self.files.erase(self._sharing.private(whose))
        if count:
            self._record(whose, "", "", f"erased all {count} private ones")
        return count

    async def recall(
        self, whose: SessionKey, words: str, most: int, *, trace: str = ""
    ) -> Sequence[Remembered]:
        """Return memories that match a message; none if it has no significant words.

        Errors of the disk are logged and not raised: the turn continues without memories.
        """
        if most <= 0 or not wanted(words[:_RECALL_CHARACTERS], common=False):
            return ()
        try:
            found = await self._find(whose, Search(words, most=most))
        except StorageError as error:
            _log.warning("memories could not be recalled", agent=whose.agent, why=str(error))
            return ()
        self._record(whose, trace, "", f"recalled {len(found)}")
        if not found:
            return ()
        enough = found[0].score * _RELATIVE_SCORE
        return [one for one in found if one.score >= enough]

    async def unchanged(
        self, whose: SessionKey, shown: Collection[tuple[str, str]]
    ) -> dict[tuple[str, str], Remembered]:
        """Return the memories with these keys and digests that are still stored unchanged. Raises
        StorageError.
        """
        stored = await self._get_many(whose, {key for key, _ in shown})
        found = {(one.key, one.digest): one for one in stored}
        return {at: found[at] for at in shown if at in found}

    async def tidy(self, owners: Iterable[str] | None = None) -> None:
        """Remove deleted files from the index: those of these owners, or of all.

        Raises StorageError.
        """
        await self.files.index.tidy(owners)

    def _writable(self, scope: str, whose: SessionKey, *, deletes: bool = False) -> Place:
        find = self._sharing.deletable if deletes else self._sharing.place
        place = find(scope, whose)
        if place is None:
            names = ", ".join(self.scopes(whose))
            raise KnowledgeError(f"There is no scope {scope!r} here. There are: {names}.")
        if not place.may_write:
            raise KnowledgeError(f"The memories of {scope} are for you to read only.")
        return place

    def _record(
        self, whose: SessionKey, trace: str, subject: str, detail: str, outcome: str = "done"
    ) -> None:
        self._recorder.record(memory_event(whose, outcome, subject, detail, trace))

    async def _before_use(self, whose: SessionKey) -> None:
        if self._replica is not None:
            await self._replica.before_use(whose)

    async def _get_many(self, whose: SessionKey, keys: Collection[str]) -> list[Remembered]:
        await self._before_use(whose)
        places = self._sharing.visible(whose)
        folder = self.documents.searched(self._sharing.documents(whose.agent))
        at = system.time()
        found: list[Remembered] = []
        for place, item in await self.files.index.get_many(places, keys, folder):
            if place is folder:
                is_valid = bool(self.documents.current([(place, Hit(place.owner, item, 0.0))]))
            else:
                is_valid = not item.is_expired(at)
            if is_valid:
                found.append(Remembered(place.scope, item, taint_for(item, place, whose.who)))
        return found

    async def _find(self, whose: SessionKey, search: Search) -> list[Remembered]:
        await self._before_use(whose)
        places = self._sharing.visible(whose)
        folder = self.documents.searched(self._sharing.documents(whose.agent))
        at = system.time()
        found = await self.files.index.find(places, search, folder)
        return [
            Remembered(place.scope, hit.item, taint_for(hit.item, place, whose.who), hit.score)
            for place, hit in self.documents.current(found)
            if not hit.item.is_expired(at)
        ]

"""What agents remember, kept and found: the room behind the memory skills and recall.

The files are the truth, and `fresh` sees to it that what is found is what they say.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import structlog

from component.audit.protocol import Event, Recorder
from component.memory import files
from component.memory.fresh import LONGEST_FILE, Fresh
from component.memory.index import Index
from component.memory.index_search import Search
from component.memory.index_words import wanted
from component.memory.knowledge_lines import (
    Entry,
    Item,
    encode,
    now,
    shortened,
    succeeding,
    versions_of,
    without,
)
from component.memory.recalled import Recalled
from component.memory.sharing import PRIVATE, Place, Sharing, taint_of
from component.policy.taint import Taint
from component.settings.memory import Memory
from component.storage.errors import StorageError
from xep.characters import without_forbidden
from xep.jid import JID

_log = structlog.get_logger("component.memory")

_GLANCE: Final = 8000  # characters of a message in which telling words are looked for
_BESIDE: Final = 0.25  # of the best score: what fits less well is not put before a model unasked


class KnowledgeError(Exception):
    """A memory cannot be stored or forgotten; the message says why, for whoever asked for it."""


class Memo(NamedTuple):
    """What is to be stored. `taint` is who could have written it."""

    key: str
    body: str
    title: str = ""
    topic: str = ""
    tags: tuple[str, ...] = ()
    taint: Taint | None = None


class Remembered(NamedTuple):
    """A memory as a principal finds it: in which scope, and from whom as far as trust goes."""

    scope: str
    item: Item
    taint: Taint | None
    score: float = 0.0


class Knowledge:
    """Memories of all principals. Close the index when it is done.

    In all methods `trace` is the turn of which it is a part, for the record.

    Args:
        index: the open index.
        sharing: whose memories are whose.
        settings: `[memory]`, for its limits.
        recorder: where every access is recorded.
    """

    def __init__(
        self, index: Index, sharing: Sharing, settings: Memory, recorder: Recorder
    ) -> None:
        self._index = index
        self._fresh = Fresh(index, sharing)
        self._sharing = sharing
        self._settings = settings
        self._recorder = recorder

    def scopes(self, agent: str, principal: JID) -> tuple[str, ...]:
        """The names of the scopes that the principal sees, its own first. Never waits."""
        return tuple(place.scope for place in self._sharing.visible(agent, principal))

    async def store(
        self, agent: str, principal: JID, memo: Memo, scope: str = PRIVATE, *, trace: str = ""
    ) -> Remembered:
        """Keep a memory: a new one, or a new version of that with its key.

        It is on the disk when this returns. What says nothing new is left as it is. Raises
        KnowledgeError, and StorageError.
        """
        memo = _fit(memo)
        try:
            place = self._writable(scope, agent, principal)
            self._check(memo)
            async with self._fresh.locks.hold(place.owner):
                await self._fresh.refresh_held(place)
                item = await self._fresh.write(self._store, place, principal, memo)
        except (KnowledgeError, StorageError) as error:
            self._tell(trace, agent, principal, "refused", memo.key, f"store in {scope}: {error}")
            raise
        self._tell(
            trace, agent, principal, "done", memo.key, f"stored version {item.version} in {scope}"
        )
        return Remembered(place.scope, item, taint_of(item, place, principal))

    async def get(
        self, agent: str, principal: JID, key: str, *, trace: str = ""
    ) -> list[Remembered]:
        """The memories of this very key, one for each scope that has it. Raises StorageError."""
        key = without_forbidden(key)
        places = self._sharing.visible(agent, principal)
        await self._fresh.refresh(places)
        found = []
        for place in places:
            item = await self._fresh.read(self._index.get, place.owner, key)
            if item is not None:
                found.append(Remembered(place.scope, item, taint_of(item, place, principal)))
        self._tell(trace, agent, principal, "done", key, "read" if found else "not there")
        return found

    async def versions(
        self, agent: str, principal: JID, key: str, scope: str = PRIVATE, *, trace: str = ""
    ) -> list[Remembered]:
        """All versions of a memory that are kept, the oldest first. Raises StorageError."""
        key = without_forbidden(key)
        place = self._sharing.place(scope, agent, principal)
        if place is None:
            return []
        found = await self._fresh.read(_versions, place, key)
        told = f"read {len(found)} versions in {scope}"
        self._tell(trace, agent, principal, "done", key, told)
        return [Remembered(scope, item, taint_of(item, place, principal)) for item in found]

    async def search(
        self, agent: str, principal: JID, search: Search, *, trace: str = ""
    ) -> list[Remembered]:
        """The memories that fit best, of all that the principal sees. Raises StorageError."""
        tags = tuple(map(without_forbidden, search.tags))
        search = search._replace(topic=without_forbidden(search.topic), tags=tags)
        found = await self._find(agent, principal, search)
        self._tell(trace, agent, principal, "done", "", f"found {len(found)} by searching")
        return found

    async def forget(
        self, agent: str, principal: JID, key: str, scope: str = PRIVATE, *, trace: str = ""
    ) -> bool:
        """Erase a memory and all its versions, from the file and from the index.

        A line stays that says that something of this key was forgotten, and when. False if there is
        no such memory. Raises KnowledgeError, and StorageError.
        """
        key = without_forbidden(key)
        try:
            place = self._writable(scope, agent, principal)
            async with self._fresh.locks.hold(place.owner):
                await self._fresh.refresh_held(place)
                gone = await self._fresh.write(self._forget, place, principal, key)
        except (KnowledgeError, StorageError) as error:
            self._tell(trace, agent, principal, "refused", key, f"forget in {scope}: {error}")
            raise
        if gone:
            self._tell(trace, agent, principal, "done", key, f"erased from {scope}")
        return gone

    async def erase(self, agent: str, principal: JID) -> int:
        """Erase all private memories of a principal with an agent; returns how many there were.

        Raises StorageError.
        """
        place = self._sharing.place(PRIVATE, agent, principal)
        assert place is not None, "everybody has a private one"
        async with self._fresh.locks.hold(place.owner):
            await self._fresh.refresh_held(place)
            count = await self._fresh.write(self._erase, place)
        if count:
            self._tell("", agent, principal, "done", "", f"erased all {count} private ones")
        return count

    async def recall(
        self, agent: str, principal: JID, words: str, most: int, *, trace: str = ""
    ) -> Sequence[Recalled]:
        """What may bear on a message, quickly; nothing where the message has no telling words.

        Never raises for the disk: a turn goes on without its memories, and the log says why.
        """
        if most <= 0 or not wanted(words[:_GLANCE], common=False):
            return ()
        try:
            found = await self._find(agent, principal, Search(words, most=most))
        except StorageError as error:
            _log.warning("memories could not be recalled", agent=agent, why=str(error))
            return ()
        self._tell(trace, agent, principal, "done", "", f"recalled {len(found)}")
        if not found:
            return ()
        enough = found[0].score * _BESIDE
        return [
            Recalled(
                key=one.item.key,
                title=one.item.title,
                body=one.item.body,
                topic=one.item.topic,
                score=one.score,
                taint=one.taint,
            )
            for one in found
            if one.score >= enough
        ]

    async def tidy(self, owners: Iterable[str] | None = None) -> None:
        """Let the index go of files that are no more, all or those of some owners.

        Raises StorageError.
        """
        await self._fresh.tidy(owners)

    # Who may, and what.

    def _writable(self, scope: str, agent: str, principal: JID) -> Place:
        place = self._sharing.place(scope, agent, principal)
        if place is None:
            names = ", ".join(self.scopes(agent, principal))
            raise KnowledgeError(f"There is no scope {scope!r} here. There are: {names}.")
        if not place.may_write:
            raise KnowledgeError(f"The memories of {scope} are for you to read only.")
        return place

    def _check(self, memo: Memo) -> None:
        if not memo.key.strip():
            raise KnowledgeError("A memory needs a key: a short name by which it is found again.")
        size = len(memo.title.encode()) + len(memo.body.encode())
        if size > self._settings.item_bytes:
            raise KnowledgeError(
                f"This memory has {size} bytes, and {self._settings.item_bytes} are the most."
                " Shorten it, or split it over several keys."
            )

    def _tell(
        self, trace: str, agent: str, principal: JID, outcome: str, subject: str, detail: str
    ) -> None:
        self._recorder.record(
            Event(
                kind="memory",
                outcome=outcome,
                principal=str(principal.bare),
                agent=agent,
                trace=trace,
                subject=subject,
                detail=detail,
            )
        )

    async def _find(self, agent: str, principal: JID, search: Search) -> list[Remembered]:
        places = self._sharing.visible(agent, principal)
        return [
            Remembered(place.scope, hit.item, taint_of(hit.item, place, principal), hit.score)
            for place, hit in await self._fresh.find(places, search)
        ]

    # What follows runs in worker threads.

    def _store(self, place: Place, principal: JID, memo: Memo) -> Item:
        former = self._index.get(place.owner, memo.key)
        entry = Entry(
            key=memo.key,
            content=memo.body,
            ts=now(),
            title=memo.title,
            topic=memo.topic,
            tags=memo.tags,
            version=1 if former is None else former.version + 1,
            by=str(principal.bare),
            taint=memo.taint,
        )
        if former is not None and former.says(entry):
            return former
        if former is None:
            self._check_room(place)
        files.make_folder(self._sharing.root, place.folder)
        item = succeeding(former, entry)
        line = encode(entry)
        self._check_size(place, len(line))
        seen = files.append(place.file, line, sync=True)
        if item.versions > self._settings.versions:
            seen, item = self._shorten(place, item, seen)
        self._index.put(place.owner, item, seen)
        return item

    def _shorten(self, place: Place, item: Item, seen: files.Seen) -> tuple[files.Seen, Item]:
        """Let the older half of the versions go, so that it is not done every time."""
        kept = -(-self._settings.versions // 2)
        data = self._whole(place)
        files.replace(place.file, shortened(data, item.key, kept))
        last = versions_of(self._whole(place), item.key)[-1]
        return files.seen(place.file) or seen, last

    def _forget(self, place: Place, principal: JID, key: str) -> bool:
        item = self._index.get(place.owner, key)
        if item is None:
            return False
        if not place.curates and item.creator != str(principal.bare):
            raise KnowledgeError(
                f"The memory {key} of {place.scope} was stored by somebody else, and only they"
                " can have it forgotten."
            )
        gone = Entry(key=key, ts=now(), forgotten=True)
        files.replace(place.file, without(self._whole(place), (key,), (gone,)))
        seen = files.seen(place.file)
        assert seen is not None, "just written, and its lock is held"
        self._index.remove(place.owner, (key,), seen)
        return True

    def _erase(self, place: Place) -> int:
        if files.check_folder(self._sharing.root, place.folder):
            files.remove(place.file)
        return self._index.erase(place.owner)

    def _whole(self, place: Place) -> bytes:
        found = files.read(place.file, LONGEST_FILE)
        return b"" if found is None else found[0]

    def _check_room(self, place: Place) -> None:
        known = self._index.owners((place.owner,)).get(place.owner)
        if known is not None and known.items >= self._settings.items_per_principal:
            raise KnowledgeError(
                f"There are {known.items} memories in {place.scope}, and more are not kept. Have"
                " some forgotten first."
            )

    def _check_size(self, place: Place, more: int) -> None:
        seen = files.seen(place.file)
        if seen is not None and seen.size + more > self._settings.bytes_per_principal:
            raise KnowledgeError(
                f"The memories of {place.scope} take {seen.size} bytes, and more is not kept."
                " Have some forgotten first."
            )


def _fit(memo: Memo) -> Memo:
    """The memo without characters that XML cannot carry: each becomes U+FFFD."""
    return memo._replace(
        key=without_forbidden(memo.key),
        body=without_forbidden(memo.body),
        title=without_forbidden(memo.title),
        topic=without_forbidden(memo.topic),
        tags=tuple(map(without_forbidden, memo.tags)),
    )


def _versions(place: Place, key: str) -> list[Item]:
    found = files.read(place.file, LONGEST_FILE)
    return [] if found is None else versions_of(found[0], key)

"""The memories of agents, for skills, commands and prompts, with checks of rights.

`file_store` stores them. Private memories may have a copy elsewhere, which `Mirror` keeps up to
date.
"""

from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final, NamedTuple, Protocol

import structlog

from component import system
from component.audit.protocol import AuditEvent, Recorder
from component.memory.documents import Documents
from component.memory.file_store import FileStore
from component.memory.index import Index
from component.memory.index_search import Hit, Search
from component.memory.index_words import wanted
from component.memory.knowledge_lines import Entry, Item, now
from component.memory.lines import SessionKey
from component.memory.recalled import Recalled
from component.memory.sharing import PRIVATE, Place, Sharing, taint_of
from component.memory.store import KnowledgeError, MissingDecision, Whose
from component.policy.taint import Taint
from component.settings.memory import Memory
from component.storage.errors import StorageError
from xep.characters import without_forbidden
from xep.jid import JID

__all__ = ["Knowledge", "KnowledgeError", "Memo", "Mirror", "Remembered"]

_log = structlog.get_logger("component.memory")

_GLANCE: Final = 8000  # characters of a message that are searched for significant words
_BESIDE: Final = 0.25  # of the best score: worse matches are not added to a prompt


class Memo(NamedTuple):
    """A memory to be stored. `taint` says who could have written it; `expires` is a time of RFC
    3339.
    """

    key: str
    body: str
    title: str = ""
    topic: str = ""
    tags: tuple[str, ...] = ()
    taint: Taint | None = None
    expires: str = ""


class Remembered(NamedTuple):
    """A memory that a principal has found, with its scope and its taint."""

    scope: str
    item: Item
    taint: Taint | None
    score: float = 0.0


class Mirror(Protocol):
    """Keeps a copy of the private memories elsewhere: `component.memory.replica.Replica`.

    No method but `decide` waits for long: a service that is unavailable is synchronised later.

    Attributes:
        held: how many memories the copy lacks without a reason. They stay here until `decide`.
    """

    held: dict[Whose, int]

    async def decide(self, whose: Whose, missing: MissingDecision) -> int:
        """Delete the memories that are `held`, or restore them in the copy. Returns how many there
        were. Raises StorageError.
        """

    async def before_use(self, whose: Whose) -> None:
        """Get the changes that the person has made in the copy."""

    async def before_change(self, whose: Whose, key: str) -> None:
        """Note that a memory is about to be changed here. Raises StorageError."""

    async def changed(self, whose: Whose, key: str) -> None:
        """Make the change of a memory in the copy, too."""

    def erasing(self, whose: Whose) -> AbstractAsyncContextManager[None]:
        """Delete the copy of all memories of a person, which are deleted here in the block.

        Raises StorageError: it cannot be noted.
        """


class _NoMirror:
    def __init__(self) -> None:
        self.held: dict[Whose, int] = {}

    async def decide(self, whose: Whose, missing: MissingDecision) -> int:
        return 0

    async def before_use(self, whose: Whose) -> None:
        pass

    async def before_change(self, whose: Whose, key: str) -> None:
        pass

    async def changed(self, whose: Whose, key: str) -> None:
        pass

    def erasing(self, whose: Whose) -> AbstractAsyncContextManager[None]:
        return nullcontext()


class Knowledge:
    """Memories of all principals. Close the index when it is done.

    In all methods `trace` is the turn of which it is a part, for the audit log.

    Args:
        index: the open index.
        sharing: who sees and stores which memories.
        settings: `[memory]`, for its limits.
        recorder: where every access is recorded.

    Attributes:
        files: the files.
        documents: the documents of agents.
        mirror: keeps a copy of private memories elsewhere; keeps none unless it is set.
    """

    def __init__(
        self, index: Index, sharing: Sharing, settings: Memory, recorder: Recorder
    ) -> None:
        self.files = FileStore(index, sharing, settings)
        self.mirror: Mirror = _NoMirror()
        self.documents = Documents(index, self.files.fresh, sharing.root)
        self._sharing = sharing
        self._recorder = recorder

    async def decide_missing(self, agent: str, principal: JID, missing: MissingDecision) -> int:
        """Delete the memories that are missing in the person's account without a reason, or restore
        them there. Returns how many there were. Raises StorageError.
        """
        return await self.mirror.decide(SessionKey(agent, principal.bare), missing)

    def scopes(self, agent: str, principal: JID) -> tuple[str, ...]:
        """The names of the scopes that the principal sees, its own first. Never waits."""
        return tuple(place.scope for place in self._sharing.visible(agent, principal))

    async def store(
        self, agent: str, principal: JID, memo: Memo, scope: str = PRIVATE, *, trace: str = ""
    ) -> Remembered:
        """Store a memory: a new one, or a new version of the one with its key.

        It is on the disk when this returns. If it says nothing new, nothing is written. Raises
        KnowledgeError, and StorageError.
        """
        whose = _private(scope, agent, principal)
        try:
            place = self._writable(scope, agent, principal)
            if whose is not None:
                await self.mirror.before_use(whose)
                await self.mirror.before_change(whose, memo.key)
            item = await self.files.put(place, _entry(memo, principal))
        except (KnowledgeError, StorageError) as error:
            self._tell(trace, agent, principal, "refused", memo.key, f"store in {scope}: {error}")
            raise
        if whose is not None:
            await self.mirror.changed(whose, item.key)
        self._tell(
            trace, agent, principal, "done", memo.key, f"stored version {item.version} in {scope}"
        )
        return Remembered(place.scope, item, taint_of(item, place, principal))

    async def get(
        self, agent: str, principal: JID, key: str, *, trace: str = ""
    ) -> list[Remembered]:
        """The memories of this very key, one for each scope that has it. Raises StorageError."""
        found = await self._get(agent, principal, (key,))
        self._tell(trace, agent, principal, "done", key, "read" if found else "not there")
        return found

    async def _get(self, agent: str, principal: JID, keys: Collection[str]) -> list[Remembered]:
        await self.mirror.before_use(SessionKey(agent, principal.bare))
        places = self._sharing.visible(agent, principal)
        await self.files.refresh(places)
        folder = self.documents.searched(self._sharing.documents(agent))
        found: list[Remembered] = []
        wanted = (*places, *(() if folder is None else (folder,)))
        for place, item in await self.files.get_many(wanted, keys):
            if place is folder:
                is_there = bool(self.documents.current([(place, Hit(place.owner, item, 0.0))]))
            else:
                is_there = not item.is_expired(system.time())
            if is_there:
                found.append(Remembered(place.scope, item, taint_of(item, place, principal)))
        return found

    async def versions(
        self, agent: str, principal: JID, key: str, scope: str = PRIVATE, *, trace: str = ""
    ) -> list[Remembered]:
        """All versions of a memory that are kept, the oldest first. Raises StorageError."""
        place = self._sharing.place(scope, agent, principal)
        if place is None:
            return []
        found = await self.files.versions(place, key)
        if found and found[-1].is_expired(system.time()):
            return []
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

    async def own(self, agent: str, principal: JID, *, trace: str = "") -> list[Remembered]:
        """All private memories of a principal. Raises StorageError."""
        await self.mirror.before_use(SessionKey(agent, principal.bare))
        place = self._sharing.place(PRIVATE, agent, principal)
        assert place is not None, "everybody has a private one"
        await self.files.refresh((place,))
        at = system.time()
        found = [item for item in await self.files.items(place) if not item.is_expired(at)]
        self._tell(trace, agent, principal, "done", "", f"listed all {len(found)} private ones")
        return [Remembered(PRIVATE, item, taint_of(item, place, principal)) for item in found]

    async def forget(
        self, agent: str, principal: JID, key: str, scope: str = PRIVATE, *, trace: str = ""
    ) -> bool:
        """Erase a memory and all its versions, from the file and from the index.

        A line stays that says that something of this key was forgotten, and when. False if there is
        no such memory. Raises KnowledgeError, and StorageError.
        """
        whose = _private(scope, agent, principal)
        try:
            place = self._writable(scope, agent, principal, deletes=True)
            if whose is not None:
                await self.mirror.before_use(whose)
                await self.mirror.before_change(whose, key)
            gone = await self.files.forget(place, key)
        except (KnowledgeError, StorageError) as error:
            self._tell(trace, agent, principal, "refused", key, f"forget in {scope}: {error}")
            raise
        if gone:
            if whose is not None:
                await self.mirror.changed(whose, key)
            self._tell(trace, agent, principal, "done", key, f"erased from {scope}")
        return gone

    async def erase(self, agent: str, principal: JID) -> int:
        """Erase all private memories of a principal with an agent, also where a copy of them is
        kept; returns how many there were.

        Raises StorageError.
        """
        place = self._sharing.place(PRIVATE, agent, principal)
        assert place is not None, "everybody has a private one"
        async with self.mirror.erasing(SessionKey(agent, principal.bare)):
            count = await self.files.erase(place)
        if count:
            self._tell("", agent, principal, "done", "", f"erased all {count} private ones")
        return count

    async def recall(
        self, agent: str, principal: JID, words: str, most: int, *, trace: str = ""
    ) -> Sequence[Recalled]:
        """Return memories that match a message; none if it has no significant words.

        Errors of the disk are logged and not raised: the turn continues without memories.
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
        return [_recalled(one) for one in found if one.score >= enough]

    async def unchanged(
        self, agent: str, principal: JID, shown: Collection[tuple[str, str]]
    ) -> dict[tuple[str, str], Recalled]:
        """Return the memories with these keys and digests (`Recalled.digest`) that are still stored
        unchanged. Raises StorageError.
        """
        stored = await self._get(agent, principal, {key for key, _ in shown})
        found = {(one.key, one.digest): one for one in map(_recalled, stored)}
        return {at: found[at] for at in shown if at in found}

    async def tidy(self, owners: Iterable[str] | None = None) -> None:
        """Remove deleted files from the index: those of these owners, or of all.

        Raises StorageError.
        """
        await self.files.tidy(owners)

    # Rights.

    def _writable(self, scope: str, agent: str, principal: JID, *, deletes: bool = False) -> Place:
        find = self._sharing.deletable if deletes else self._sharing.place
        place = find(scope, agent, principal)
        if place is None:
            names = ", ".join(self.scopes(agent, principal))
            raise KnowledgeError(f"There is no scope {scope!r} here. There are: {names}.")
        if not place.may_write:
            raise KnowledgeError(f"The memories of {scope} are for you to read only.")
        return place

    def _tell(
        self, trace: str, agent: str, principal: JID, outcome: str, subject: str, detail: str
    ) -> None:
        self._recorder.record(
            AuditEvent(
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
        await self.mirror.before_use(SessionKey(agent, principal.bare))
        places = self._sharing.visible(agent, principal)
        folder = self.documents.searched(self._sharing.documents(agent))
        at = system.time()
        found = await self.files.search(places, search, folder)
        return [
            Remembered(place.scope, hit.item, taint_of(hit.item, place, principal), hit.score)
            for place, hit in self.documents.current(found)
            if not hit.item.is_expired(at)
        ]


def _recalled(one: Remembered) -> Recalled:
    return Recalled(
        key=one.item.key,
        title=one.item.title,
        body=one.item.body,
        topic=one.item.topic,
        score=one.score,
        taint=one.taint,
    )


def _private(scope: str, agent: str, principal: JID) -> Whose | None:
    return SessionKey(agent, principal.bare) if scope == PRIVATE else None


def _entry(memo: Memo, principal: JID) -> Entry:
    return Entry(
        key=memo.key,
        content=memo.body,
        ts=now(),
        title=memo.title,
        topic=memo.topic,
        tags=memo.tags,
        by=str(principal.bare),
        taint=memo.taint,
        expires=memo.expires,
    )

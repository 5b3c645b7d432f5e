"""Synchronises the memories of one person in two stores, one memory after another."""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Final, Literal, Protocol, TypeAlias

import msgspec
import structlog

from component.memory.knowledge_lines import Entry, FilePast, Item, now, seconds_of
from component.memory.merge import Synced, conflict_key, decide, digest
from component.memory.store import (
    KnowledgeError,
    MemoryStore,
    MissingDecision,
    Past,
    VersionConflictError,
    Whose,
)
from component.memory.sync_state import SyncState, SyncStates

_FEW: Final = 3
"""So many memories may be missing without a reason to count as deleted by hand."""
_ATTEMPTS: Final = 8  # at a memory that others keep changing
_TOGETHER: Final = 100  # memories whose state is written together

_log = structlog.get_logger("component.memory")


Record: TypeAlias = Callable[[Whose, str, str, str], None]
"""Records a change of a memory: whose, its key, the outcome and details."""


Missing: TypeAlias = Literal["ask"] | MissingDecision
"""What is done with many memories that are missing in a store which does not say why."""


class RemoteStore(MemoryStore, Protocol):
    """The store of the person. All methods but `is_reachable` raise StorageError."""

    def is_reachable(self, whose: Whose) -> bool:
        """Whether the store can probably be reached now."""

    async def past(self, whose: Whose) -> Past:
        """Return what the store knows of its past."""

    async def settled(self, whose: Whose, past: Past) -> None:
        """Forget what `past` says of deleted memories: they are deleted in the files as well."""


class LocalStore(MemoryStore, Protocol):
    """The files. All methods raise StorageError."""

    async def past(self, whose: Whose) -> FilePast:
        """Return which memories were deleted by the agent, and not by hand."""


class Reconciled(msgspec.Struct):
    """The result: whether the files were written, and which memories will expire.

    `held` is how many memories the other store lacks without a reason, which stay as they are; None
    if not all were compared.
    """

    wrote_local: bool = False
    expiring: list[Item] = msgspec.field(default_factory=list)
    held: int | None = None


class SyncOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How memories are compared, and how changes are reported.

    Attributes:
        edits_of_files: whether changes of the files by hand count. If not, they are undone.
        record: the audit log.
        tell: sends a sentence to a person.
        clock: returns seconds since 1970.
        missing: what is done with many memories that are missing without a reason.
    """

    edits_of_files: bool
    record: Record
    tell: Callable[[Whose, str], None]
    clock: Callable[[], float]
    missing: Missing = "ask"


class Reconciliation:
    """One comparison of the memories of one person. The caller holds the person's lock.

    Args:
        local: the files.
        remote: the store of the person.
        states: stores `state`.
        whose: the agent and the person.
        state: the last common state of both stores.
        options: how they are compared.
    """

    def __init__(
        self,
        local: LocalStore,
        remote: RemoteStore,
        states: SyncStates,
        whose: Whose,
        state: SyncState,
        options: SyncOptions,
    ) -> None:
        self._local = local
        self._remote = remote
        self._states = states
        self._whose = whose
        self._state = state
        self._options = options
        self._done = Reconciled()
        self._found: dict[str, Synced | None] = {}
        self._copies: list[str] = []
        self._past = Past(None, {})
        self._wrote_remote = False
        self._files = FilePast(frozenset(), is_damaged=False)
        self._held: frozenset[str] = frozenset()
        self._lost: frozenset[str] = frozenset()

    async def run(self, keys: Collection[str] | None) -> Reconciled:
        """Synchronise the memories with these keys, or all of them. Raises StorageError; completed
        changes are kept, and another run does the rest.
        """
        if self._state.erase:
            await self._remote.erase(self._whose)
            await self._states.erased(self._whose, self._state)
            keys = None
        pairs = await self._pairs(keys)
        if self._is_before():
            await self._states.note_filling(self._whose, self._state)
        if keys is not None and (
            self._state.is_filling
            or self._past.is_emptied
            or not self._past.retracted.keys() <= set(keys)
            or any(self._is_unexplained(*pair) for pair in pairs)
        ):
            keys, pairs = None, await self._pairs(None)
        self._judge(pairs)
        if keys is None:
            self._done.held = len(self._held)
            await self._states.note_held(self._whose, self._state, len(self._held))
        try:
            for key, local, remote in pairs:
                if key not in self._held:
                    await self._one(key, local, remote)
            while self._copies:
                key = self._copies.pop()
                await self._one(key, *await self._read(key))
            await self._finish()
        finally:
            # Also after a failure, so that completed changes are known.
            await self._settle()
        return self._done

    def _is_before(self) -> bool:
        """Whether the other store is a new one, or an older state of the one that was known."""
        known, now = self._state.generation, self._past.generation
        return known is not None and now is not None and now.is_before(known)

    def _is_deleted(self, key: str, local: Item) -> bool:
        """Whether the person has deleted a memory in the other store."""
        if self._past.is_emptied:
            return True
        at = self._past.retracted.get(key)
        if at is None or not self._state.is_filling:
            return at is not None
        # An older store may remember a deletion after which the memory was stored again.
        return at >= (seconds_of(local.updated) or math.inf)

    def _is_unexplained(self, key: str, local: Item | None, remote: Item | None) -> bool:
        """Whether a memory that both stores had is missing in one of them, and nothing says why."""
        synced = self._state.of(key)
        if (local is None) == (remote is None) or synced.removing:
            return False
        if local is not None:
            return bool(synced.remote) and not self._is_deleted(key, local)
        return bool(synced.local) and key not in self._files.forgotten

    def _is_cut(self, key: str, local: Item | None, remote: Item | None) -> bool:
        """Whether a damaged line may have been the last one of a memory, so that the file has an
        older text, which nobody has written there.
        """
        return (
            self._files.is_damaged
            and local is not None
            and remote is not None
            and local.version < remote.version
            and digest(remote) == self._state.of(key).remote
        )

    def _judge(self, pairs: Sequence[tuple[str, Item | None, Item | None]]) -> None:
        """Decide about memories that are missing without a reason.

        A few of those that both had were deleted by hand. If they are many, or all, then a store
        was lost, replaced or put back. The files are filled again then. The other store is filled
        if it says that nobody deleted them; if it says nothing, an admin is asked.
        """
        lost = [pair for pair in pairs if self._is_unexplained(*pair)]
        if not lost:
            return
        here = [key for key, local, _ in lost if local is None]
        by_hand = self._options.edits_of_files and not self._files.is_damaged
        there = [key for key, local, _ in lost if local is not None]
        left_here = sum(local is not None and key in self._state.synced for key, local, _ in pairs)
        left_there = sum(found is not None and key in self._state.synced for key, _, found in pairs)
        if here and not (len(here) <= _FEW and left_here and by_hand):
            self._lost |= set(here)
            self._report("memories are missing in the files and are restored", here)
        if not there:
            return
        if self._past.generation is not None or self._options.missing == "restore":
            self._lost |= set(there)
            self._report("memories are missing in the person's store and are restored", there)
        elif self._options.missing == "ask" and (
            self._state.held or not left_there or len(there) > _FEW
        ):
            self._held = frozenset(there)

    def _report(self, event: str, keys: Sequence[str]) -> None:
        _log.warning(
            event, agent=self._whose.agent, principal=str(self._whose.who), count=len(keys)
        )
        self._options.record(self._whose, f"{len(keys)} memories", "restored", event)

    async def _finish(self) -> None:
        """Note how far both stores have come, now that they are alike."""
        if self._past.retracted or self._past.is_emptied:
            await self._remote.settled(self._whose, self._past)
        generation = self._past.generation
        if generation is not None and self._wrote_remote:
            generation = (await self._remote.past(self._whose)).generation
        if generation is not None and not generation.identity:
            generation = None
        found, self._found = self._found, {}
        await self._states.settle(self._whose, self._state, found, alike_at=generation)

    async def _pairs(
        self, keys: Collection[str] | None
    ) -> Sequence[tuple[str, Item | None, Item | None]]:
        pairs = await self._read_pairs(keys)
        # Read later than the memories: a deletion in between is known here.
        self._past = await self._remote.past(self._whose)
        if any(_is_behind(local, remote) for _, local, remote in pairs):
            self._files = await self._local.past(self._whose)
        return pairs

    async def _read_pairs(
        self, keys: Collection[str] | None
    ) -> Sequence[tuple[str, Item | None, Item | None]]:
        if keys is not None:
            return [(key, *await self._read(key)) for key in keys]
        local = {item.key: item for item in await self._local.items(self._whose)}
        remote = {item.key: item for item in await self._remote.items(self._whose)}
        gone = [key for key in self._state.synced if key not in local]
        ordered = dict.fromkeys([*gone, *local, *remote, *self._state.pending])
        return [(key, local.get(key), remote.get(key)) for key in ordered]

    async def _read(self, key: str) -> tuple[Item | None, Item | None]:
        return (
            await self._local.get(self._whose, key),
            await self._remote.get(self._whose, key),
        )

    async def _settle(self) -> None:
        found, self._found = self._found, {}
        await self._states.settle(self._whose, self._state, found)

    async def _one(self, key: str, local: Item | None, remote: Item | None) -> None:
        for _ in range(_ATTEMPTS):
            try:
                local, remote = await self._merge(key, local, remote)
            except VersionConflictError:
                # Somebody has changed it since it was read.
                local, remote = await self._read(key)
                continue
            except KnowledgeError as error:
                self._options.record(self._whose, key, "refused", str(error))
                _log.warning("a memory is refused", key=key, reason=str(error))
                return
            is_gone = local is None and remote is None
            self._found[key] = (
                None if is_gone else Synced(local=digest(local), remote=digest(remote))
            )
            self._done.expiring += [item for item in (local, remote) if item and item.expires]
            if len(self._found) >= _TOGETHER:
                await self._settle()
            return
        _log.warning("a memory keeps changing and is compared again later", key=key)

    async def _merge(
        self, key: str, local: Item | None, remote: Item | None
    ) -> tuple[Item | None, Item | None]:
        """Synchronise one memory. Returns its new state in both stores."""
        synced = self._state.of(key)
        local, remote = await self._without_expired(local, remote, synced)
        own = None if self._options.edits_of_files else key in self._state.pending
        if self._is_cut(key, local, remote):
            own = False
        synced, own = self._assumed(key, local, remote, synced, own)
        decision = decide(local, remote, synced, own_change=own)
        whose = self._whose
        match decision.action:
            case "put-remote":
                assert local is not None
                self._wrote_remote = True
                stored = await self._remote.put(whose, _entry(local), expected=remote or "absent")
                return local, stored
            case "forget-remote":
                await self._states.note_removing(whose, self._state, key)
                self._wrote_remote = True
                await self._remote.forget(whose, key, expected=remote or "absent")
                return None, None
            case "forget-local":
                await self._forget_local(key, local)
                self._options.record(whose, key, "erased", "deleted by the person on PubSub")
                if decision.overruled:
                    self._say(f"You deleted the memory {key} while I was changing it. It is gone.")
                return None, None
            case "put-local" | "keep-both":
                assert remote is not None
                copy = ""
                if decision.action == "keep-both":
                    assert local is not None
                    copy = await self._keep(local)
                local = await self._put_local(local, remote)
                if decision.overruled:
                    self._say_overruled(key, copy)
                return local, remote
            case _:
                return local, remote

    def _assumed(
        self,
        key: str,
        local: Item | None,
        remote: Item | None,
        synced: Synced,
        own: bool | None,
    ) -> tuple[Synced, bool | None]:
        """Return what to decide by: of a store that has lost something, nothing is known."""
        if key in self._lost and (local is None or remote is None):
            return Synced(), True
        if not self._state.is_filling:
            return synced, own
        if remote is None or (local is None and key not in self._files.forgotten):
            return synced, own
        if local is None or synced.local:
            # An older state has what was forgotten since, or an older text.
            return Synced(local=digest(remote), remote=digest(remote)), True
        return synced, own

    async def _without_expired(
        self, local: Item | None, remote: Item | None, synced: Synced
    ) -> tuple[Item | None, Item | None]:
        now_s = self._options.clock()
        was_alike = local is not None and digest(local) == synced.local
        if remote is not None and remote.is_expired(now_s):
            self._wrote_remote = True
            await self._remote.forget(self._whose, remote.key, expected=remote)
            self._options.record(self._whose, remote.key, "erased", "expired")
            if was_alike:
                await self._forget_local(remote.key, local)
                local = None
            remote = None
        if local is not None and local.is_expired(now_s):
            await self._forget_local(local.key, local)
            local = None
        return local, remote

    async def _put_local(self, local: Item | None, remote: Item) -> Item | None:
        """Store the person's version; None if it cannot be stored here."""
        # The taint of a text is kept, unless the person sets another one.
        taint = remote.taint or (None if local is None else local.taint)
        entry = msgspec.structs.replace(
            _entry(remote), version=remote.version, by=str(self._whose.who), taint=taint
        )
        self._done.wrote_local = True
        try:
            stored = await self._local.put(self._whose, entry, expected=local or "absent")
        except KnowledgeError as error:
            # The text that it replaces must not be used any more.
            await self._forget_local(remote.key, local)
            self._options.record(self._whose, remote.key, "refused", str(error))
            self._say(f"I cannot use the memory {remote.key} that you wrote. {error}")
            return None
        self._options.record(
            self._whose, remote.key, "done", f"version {remote.version} read from PubSub"
        )
        return stored

    async def _forget_local(self, key: str, local: Item | None) -> None:
        self._done.wrote_local = True
        await self._local.forget(self._whose, key, expected=local or "absent")

    async def _keep(self, local: Item) -> str:
        """Keep an overruled text under a key of its own, and return the key."""
        number = 1
        while True:
            key = conflict_key(local.key, number)
            there = await self._local.get(self._whose, key)
            if there is None:
                break
            if there.body == local.body:
                return key
            number += 1
        if not self._options.edits_of_files:
            await self._states.note_pending(self._whose, self._state, key)
        entry = msgspec.structs.replace(_entry(local), key=key, by=local.by)
        await self._local.put(self._whose, entry, expected="absent")
        self._done.wrote_local = True
        self._copies.append(key)
        return key

    def _say_overruled(self, key: str, copy: str) -> None:
        mine = f" My text is kept as {copy}." if copy else ""
        self._say(f"You and I changed the memory {key} at the same time. Yours counts.{mine}")

    def _say(self, sentence: str) -> None:
        _log.info("a memory was changed on both sides", agent=self._whose.agent, result=sentence)
        self._options.tell(self._whose, sentence)


def _is_behind(local: Item | None, remote: Item | None) -> bool:
    return remote is not None and (local is None or local.version < remote.version)


def _entry(item: Item) -> Entry:
    return Entry(
        key=item.key,
        content=item.body,
        ts=item.updated or now(),
        title=item.title,
        topic=item.topic,
        tags=item.tags,
        by=item.by,
        taint=item.taint,
        expires=item.expires,
    )

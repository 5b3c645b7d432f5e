"""Synchronises the memories of one person in two stores, one memory after another.

Each memory is merged from three states; the base is the last common state of both stores. A store
has changed if its memory differs from the base. If both have changed, the person's own store, the
*remote* one, decides (specification, MEM-007 and MEM-009).
"""

import hashlib
import math
from collections.abc import Callable, Collection, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec
import structlog

from component import system
from component.audit.protocol import Recorder
from component.memory.file_store import FileStore
from component.memory.knowledge_lines import (
    FilePast,
    Item,
    MemoryLine,
    current_timestamp,
    seconds_of,
)
from component.memory.sharing import Sharing
from component.memory.store import (
    KnowledgeError,
    MemoryStore,
    MissingDecision,
    Past,
    VersionConflictError,
)
from component.memory.sync_state import Synced, SyncState
from component.memory_directory.layout import SessionKey, memory_event

Missing: TypeAlias = Literal["ask"] | MissingDecision
"""What is done with many memories that are missing in a store which does not say why."""

Action: TypeAlias = Literal[
    "settled", "put-remote", "forget-remote", "put-local", "forget-local", "keep-both"
]
"""The action that makes the stores equal: none, a change of one of them, or a second memory for the
text that would be lost."""

_MOST_UNEXPLAINED: Final = 3
"""So many memories may be missing without a reason to count as deleted by hand."""
_ATTEMPTS: Final = 8  # to synchronise a memory that others keep changing
_BATCH: Final = 100  # memories whose state is written together
_CONFLICT: Final = " (conflict)"
_LONGEST_KEY: Final = 200

_log = structlog.get_logger("component.memory")


class Reconciled(msgspec.Struct):
    """The result of a comparison.

    Attributes:
        held: how many memories the other store lacks without a reason, which stay as they are; None
            if not all were compared.
    """

    wrote_local: bool = False
    expiring: list[Item] = msgspec.field(default_factory=list)
    held: int | None = None


class SyncOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How two stores are synchronised. All times are in seconds.

    Attributes:
        notify: sends a sentence to a person.
        edits_of_files: whether changes of the files by hand count. If not, they are undone.
        timeout_s: how long a request waits for the other store.
        fresh_s: how long data of the other store counts as current; infinite if it announces
            changes, so that requests only read the files.
        reconcile_s: how often everything is compared, because not all changes are announced.
        clock: returns seconds since 1970.
    """

    notify: Callable[[SessionKey, str], None]
    edits_of_files: bool = True
    timeout_s: float = 1.0
    fresh_s: float = math.inf
    reconcile_s: float = 900.0
    clock: Callable[[], float] = system.time


class Stores(NamedTuple):
    """The files, and the person's own store, which is remote."""

    files: FileStore
    sharing: Sharing
    remote: MemoryStore


class Reconciliation:
    """One comparison of the memories of one person. The caller holds the person's lock.

    Args:
        missing: what is done with many memories that are missing without a reason.
    """

    def __init__(
        self,
        stores: Stores,
        state: SyncState,
        options: SyncOptions,
        recorder: Recorder,
        missing: Missing = "ask",
    ) -> None:
        self._files = stores.files
        self._remote = stores.remote
        self._place = stores.sharing.private(state.whose)
        self._whose = state.whose
        self._state = state
        self._options = options
        self._recorder = recorder
        self._missing = missing
        self._done = Reconciled()
        self._found: dict[str, Synced | None] = {}
        self._copies: list[str] = []
        self._past = Past(None, {})
        self._wrote_remote = False
        self._file_past = FilePast(frozenset(), is_damaged=False)
        self._held: frozenset[str] = frozenset()
        self._lost: frozenset[str] = frozenset()

    async def run(self, keys: Collection[str] | None) -> Reconciled:
        """Synchronise the memories with these keys, or all of them. Raises StorageError; completed
        changes are kept, and another run does the rest.
        """
        if self._state.erase:
            await self._remote.erase(self._whose)
            await self._state.note_erased()
            keys = None
        pairs = await self._pairs(keys)
        if self._is_before():
            await self._state.note_filling()
        if keys is not None and (
            self._state.is_filling
            or self._past.is_emptied
            or not self._past.retracted.keys() <= set(keys)
            or any(self._is_unexplained(*pair) for pair in pairs)
        ):
            keys, pairs = None, await self._pairs(None)
        self._handle_missing(pairs)
        if keys is None:
            self._done.held = len(self._held)
            await self._state.note_held(len(self._held))
        try:
            for key, local, remote in pairs:
                if key not in self._held:
                    await self._synchronise(key, local, remote)
            while self._copies:
                key = self._copies.pop()
                await self._synchronise(key, *await self._read(key))
            await self._finish()
        finally:
            # Also after a failure, so that completed changes are known.
            await self._settle()
        return self._done

    def _is_before(self) -> bool:
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
        return bool(synced.local) and key not in self._file_past.forgotten

    def _may_be_truncated(self, key: str, local: Item | None, remote: Item | None) -> bool:
        """Whether a damaged line may have been the last one of a memory, so that the file has an
        older text, which is not a change.
        """
        return (
            self._file_past.is_damaged
            and local is not None
            and remote is not None
            and local.version < remote.version
            and digest(remote) == self._state.of(key).remote
        )

    def _handle_missing(self, pairs: Sequence[tuple[str, Item | None, Item | None]]) -> None:
        """Decide about memories that are missing without a reason.

        If they are few, they were deleted by hand. If they are many, or all, a store was lost,
        replaced or restored from a backup. Then the files are filled again. The other store is
        filled if it says that nobody deleted them; if it says nothing, an admin is asked.
        """
        lost = [pair for pair in pairs if self._is_unexplained(*pair)]
        if not lost:
            return
        here = [key for key, local, _ in lost if local is None]
        by_hand = self._options.edits_of_files and not self._file_past.is_damaged
        there = [key for key, local, _ in lost if local is not None]
        left_here = sum(local is not None and key in self._state.synced for key, local, _ in pairs)
        left_there = sum(found is not None and key in self._state.synced for key, _, found in pairs)
        if here and not (len(here) <= _MOST_UNEXPLAINED and left_here and by_hand):
            self._lost |= set(here)
            self._report("memories are missing in the files and are restored", here)
        if not there:
            return
        if self._past.generation is not None or self._missing == "restore":
            self._lost |= set(there)
            self._report("memories are missing in the person's store and are restored", there)
        elif self._missing == "ask" and (
            self._state.held or not left_there or len(there) > _MOST_UNEXPLAINED
        ):
            self._held = frozenset(there)

    def _report(self, event: str, keys: Sequence[str]) -> None:
        _log.warning(
            event, agent=self._whose.agent, principal=str(self._whose.who), count=len(keys)
        )
        self._record(f"{len(keys)} memories", "restored", event)

    async def _finish(self) -> None:
        if self._past.retracted or self._past.is_emptied:
            await self._remote.settled(self._whose, self._past)
        generation = self._past.generation
        if generation is not None and self._wrote_remote:
            generation = (await self._remote.past(self._whose)).generation
        if generation is not None and not generation.identity:
            generation = None
        found, self._found = self._found, {}
        await self._state.settle(found, equal_at=generation)

    async def _pairs(
        self, keys: Collection[str] | None
    ) -> Sequence[tuple[str, Item | None, Item | None]]:
        pairs = await self._read_pairs(keys)
        # Read later than the memories: a deletion in between is known here.
        self._past = await self._remote.past(self._whose)
        if any(_is_behind(local, remote) for _, local, remote in pairs):
            self._file_past = await self._files.past(self._place)
        return pairs

    async def _read_pairs(
        self, keys: Collection[str] | None
    ) -> Sequence[tuple[str, Item | None, Item | None]]:
        if keys is not None:
            return [(key, *await self._read(key)) for key in keys]
        local = {item.key: item for item in await self._files.index.items(self._place)}
        remote = {item.key: item for item in await self._remote.items(self._whose)}
        deleted = [key for key in self._state.synced if key not in local]
        ordered = dict.fromkeys([*deleted, *local, *remote, *self._state.pending])
        return [(key, local.get(key), remote.get(key)) for key in ordered]

    async def _read(self, key: str) -> tuple[Item | None, Item | None]:
        return (
            await self._files.index.get(self._place, key),
            await self._remote.get(self._whose, key),
        )

    async def _settle(self) -> None:
        found, self._found = self._found, {}
        await self._state.settle(found)

    async def _synchronise(self, key: str, local: Item | None, remote: Item | None) -> None:
        for _ in range(_ATTEMPTS):
            try:
                local, remote = await self._merge(key, local, remote)
            except VersionConflictError:
                # Somebody has changed it since it was read.
                local, remote = await self._read(key)
                continue
            except KnowledgeError as error:
                self._record(key, "refused", str(error))
                _log.warning("a memory is refused", key=key, reason=str(error))
                return
            is_gone = local is None and remote is None
            self._found[key] = (
                None if is_gone else Synced(local=digest(local), remote=digest(remote))
            )
            self._done.expiring += [item for item in (local, remote) if item and item.expires]
            if len(self._found) >= _BATCH:
                await self._settle()
            return
        _log.warning("a memory keeps changing and is compared again later", key=key)

    async def _merge(
        self, key: str, local: Item | None, remote: Item | None
    ) -> tuple[Item | None, Item | None]:
        synced = self._state.of(key)
        local, remote = await self._without_expired(local, remote, synced)
        own = None if self._options.edits_of_files else key in self._state.pending
        if self._may_be_truncated(key, local, remote):
            own = False
        synced, own = self._adjusted(key, local, remote, synced, own)
        decision = decide_merge(local, remote, synced, own_change=own)
        whose = self._whose
        match decision.action:
            case "put-remote":
                assert local is not None
                self._wrote_remote = True
                stored = await self._remote.put(whose, _entry(local), expected=remote or "absent")
                return local, stored
            case "forget-remote":
                await self._state.note_removing(key)
                self._wrote_remote = True
                await self._remote.forget(whose, key, expected=remote or "absent")
                return None, None
            case "forget-local":
                await self._forget_local(key, local)
                self._record(key, "erased", "deleted by the person on PubSub")
                if decision.overruled:
                    self._notify(
                        f"You deleted the memory {key} while I was changing it. It is gone."
                    )
                return None, None
            case "put-local" | "keep-both":
                assert remote is not None
                copy = ""
                if decision.action == "keep-both":
                    assert local is not None
                    copy = await self._keep_copy(local)
                local = await self._put_local(local, remote)
                if decision.overruled:
                    self._notify_overruled(key, copy)
                return local, remote
            case _:
                return local, remote

    def _adjusted(
        self,
        key: str,
        local: Item | None,
        remote: Item | None,
        synced: Synced,
        own: bool | None,
    ) -> tuple[Synced, bool | None]:
        """Return the last common state and the own change to decide by: of a store that has lost
        memories, nothing is known.
        """
        if key in self._lost and (local is None or remote is None):
            return Synced(), True
        if not self._state.is_filling:
            return synced, own
        if remote is None or (local is None and key not in self._file_past.forgotten):
            return synced, own
        if local is None or synced.local:
            # An older state has memories that were forgotten since, or older texts.
            return Synced(local=digest(remote), remote=digest(remote)), True
        return synced, own

    async def _without_expired(
        self, local: Item | None, remote: Item | None, synced: Synced
    ) -> tuple[Item | None, Item | None]:
        now_s = self._options.clock()
        was_synced = local is not None and digest(local) == synced.local
        if remote is not None and remote.is_expired(now_s):
            self._wrote_remote = True
            await self._remote.forget(self._whose, remote.key, expected=remote)
            self._record(remote.key, "erased", "expired")
            if was_synced:
                await self._forget_local(remote.key, local)
                local = None
            remote = None
        if local is not None and local.is_expired(now_s):
            await self._forget_local(local.key, local)
            local = None
        return local, remote

    async def _put_local(self, local: Item | None, remote: Item) -> Item | None:
        # The taint of a text is kept, unless the person sets another one.
        taint = remote.taint or (None if local is None else local.taint)
        entry = msgspec.structs.replace(
            _entry(remote), version=remote.version, by=str(self._whose.who), taint=taint
        )
        self._done.wrote_local = True
        try:
            stored = await self._files.put(self._place, entry, expected=local or "absent")
        except KnowledgeError as error:
            # The text that it replaces must not be used any more.
            await self._forget_local(remote.key, local)
            self._record(remote.key, "refused", str(error))
            self._notify(f"I cannot use the memory {remote.key} that you wrote. {error}")
            return None
        self._record(remote.key, "done", f"version {remote.version} read from PubSub")
        return stored

    async def _forget_local(self, key: str, local: Item | None) -> None:
        self._done.wrote_local = True
        await self._files.forget(self._place, key, expected=local or "absent")

    async def _keep_copy(self, local: Item) -> str:
        """Keep an overruled text under a key of its own, and return the key."""
        number = 1
        while True:
            key = conflict_key(local.key, number)
            there = await self._files.index.get(self._place, key)
            if there is None:
                break
            if there.body == local.body:
                return key
            number += 1
        if not self._options.edits_of_files:
            await self._state.note_pending(key)
        entry = msgspec.structs.replace(_entry(local), key=key, by=local.by)
        await self._files.put(self._place, entry, expected="absent")
        self._done.wrote_local = True
        self._copies.append(key)
        return key

    def _record(self, key: str, outcome: str, detail: str) -> None:
        self._recorder.record(memory_event(self._whose, outcome, key, detail))

    def _notify_overruled(self, key: str, copy: str) -> None:
        mine = f" My text is kept as {copy}." if copy else ""
        self._notify(f"You and I changed the memory {key} at the same time. Yours counts.{mine}")

    def _notify(self, sentence: str) -> None:
        _log.info("a memory was changed on both sides", agent=self._whose.agent, result=sentence)
        self._options.notify(self._whose, sentence)


def _is_behind(local: Item | None, remote: Item | None) -> bool:
    return remote is not None and (local is None or local.version < remote.version)


def _entry(item: Item) -> MemoryLine:
    return item.as_line(item.updated or current_timestamp(), item.by)


class MergeDecision(msgspec.Struct, frozen=True):
    """The action, and whether it overrules a change that should be reported to the person."""

    action: Action
    overruled: bool = False


def decide_merge(
    local: Item | None, remote: Item | None, synced: Synced, *, own_change: bool | None = None
) -> MergeDecision:
    """Decide how to make both stores equal.

    Args:
        own_change: whether the memory here was changed by the agent; None if any change counts,
            including edits by hand.
    """
    here, there = digest(local), digest(remote)
    if here == there:
        return MergeDecision("settled")
    is_changed = here != synced.local
    is_own_change = is_changed and own_change is not False
    if there == synced.remote or (synced.removing and remote is None):
        if is_own_change:
            return MergeDecision("forget-remote" if local is None else "put-remote")
        if not is_changed:
            return MergeDecision("settled")
    if remote is None:
        return MergeDecision("forget-local", overruled=is_own_change)
    if local is None or not is_own_change:
        return MergeDecision("put-local", overruled=is_own_change)
    return MergeDecision("keep-both", overruled=True)


def digest(item: Item | None) -> str:
    """Return a digest of a memory without its version and times; empty for None."""
    if item is None:
        return ""
    return hashlib.sha256(msgspec.json.encode(item.contents)).hexdigest()


def conflict_key(key: str, number: int) -> str:
    """The key under which the overruled text of a memory is kept; `number` counts from 1."""
    suffix = _CONFLICT if number == 1 else f"{_CONFLICT[:-1]} {number})"
    return key[: _LONGEST_KEY - len(suffix)].rstrip() + suffix

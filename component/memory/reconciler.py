"""Synchronises the memories of one person in two stores, one memory after another."""

from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol

import msgspec
import structlog

from component.memory.knowledge_lines import Entry, Item, now
from component.memory.merge import Synced, conflict_key, decide, digest
from component.memory.store import KnowledgeError, MemoryStore, VersionConflictError, Whose
from component.memory.sync_state import SyncState, SyncStates

_ATTEMPTS: Final = 8  # at a memory that others keep changing
_TOGETHER: Final = 100  # memories whose state is written together

_log = structlog.get_logger("component.memory")


class Record(Protocol):
    """Records a change of a memory."""

    def __call__(self, whose: Whose, key: str, outcome: str, detail: str, /) -> None:
        """Record it."""


class Reconciled(msgspec.Struct):
    """The result: whether the files were written, and which memories will expire."""

    wrote_local: bool = False
    expiring: list[Item] = msgspec.field(default_factory=list)


class SyncOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How memories are compared, and how changes are reported.

    Attributes:
        edits_of_files: whether changes of the files by hand count. If not, they are undone.
        record: the audit log.
        tell: sends a sentence to a person.
        clock: returns seconds since 1970.
    """

    edits_of_files: bool
    record: Record
    tell: Callable[[Whose, str], None]
    clock: Callable[[], float]


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
        local: MemoryStore,
        remote: MemoryStore,
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

    async def run(self, keys: Collection[str] | None) -> Reconciled:
        """Synchronise the memories with these keys, or all of them. Raises StorageError; completed
        changes are kept, and another run does the rest.
        """
        if self._state.erase:
            await self._remote.erase(self._whose)
            await self._states.erased(self._whose, self._state)
            keys = None
        try:
            for key, local, remote in await self._pairs(keys):
                await self._one(key, local, remote)
            while self._copies:
                key = self._copies.pop()
                await self._one(key, *await self._read(key))
        finally:
            # Also after a failure, so that completed changes are known.
            await self._settle()
        return self._done

    async def _pairs(
        self, keys: Collection[str] | None
    ) -> Iterable[tuple[str, Item | None, Item | None]]:
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
        decision = decide(local, remote, synced, own_change=own)
        whose = self._whose
        match decision.action:
            case "put-remote":
                assert local is not None
                stored = await self._remote.put(whose, _entry(local), expected=remote or "absent")
                return local, stored
            case "forget-remote":
                await self._states.note_removing(whose, self._state, key)
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

    async def _without_expired(
        self, local: Item | None, remote: Item | None, synced: Synced
    ) -> tuple[Item | None, Item | None]:
        now_s = self._options.clock()
        was_alike = local is not None and digest(local) == synced.local
        if remote is not None and remote.is_expired(now_s):
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

"""Keeps private memories equal in two stores: the files, which are always available, and a store of
the person's own, such as a PubSub node.

A request reads the files. Before it does, `before_use` gets the changes of the person, unless they
are known; it waits for a short time at most. Changes by the agent are written to the files first.
They are sent to the other store immediately if it answers, or as soon as it does.
"""

import heapq
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component.audit.protocol import Recorder
from component.memory.knowledge_lines import Item, seconds_of
from component.memory.reconciler import Missing, Reconciliation, Stores, SyncOptions
from component.memory.store import MissingDecision, missing_sentence
from component.memory.sync_state import SyncState, SyncStates
from component.memory_directory.files import FileState, KeyLocks
from component.memory_directory.layout import SessionKey
from component.store.errors import StorageError
from component.store.outages import log_failure

_KEPT: Final = 4096  # people whose stores are known to be equal
_CONCURRENT: Final = 8  # people who are synchronised at the same time
_FIRST_RETRY_S: Final = 5.0
_LONGEST_RETRY_S: Final = 600.0

_log = structlog.get_logger("component.memory")


class _Current(msgspec.Struct, frozen=True):
    """Both stores were equal at `at`, with the file in the state `seen`."""

    seen: FileState | None
    at: float


class Replica:
    """A copy of private memories in the stores of people.

    A method for requests never waits for long: a store that cannot be reached is synchronised
    later.

    Attributes:
        held: how many memories the other store lacks without a reason. They stay in the files until
            `decide`.
    """

    def __init__(self, stores: Stores, options: SyncOptions, recorder: Recorder) -> None:
        self._stores = stores
        self._options = options
        self._recorder = recorder
        self.states = SyncStates(stores.sharing.layout)
        self.held: dict[SessionKey, int] = {}
        self._locks: KeyLocks[SessionKey] = KeyLocks()
        self._current: OrderedDict[SessionKey, _Current] = OrderedDict()
        self._loaded: OrderedDict[SessionKey, SyncState] = OrderedDict()
        self._unsent: dict[SessionKey, set[str] | None] = {}
        self._retries: dict[SessionKey, tuple[float, float]] = {}
        self._expiries: list[tuple[float, str, str, SessionKey]] = []
        self._wake = anyio.Event()
        self._compare_now = anyio.Event()
        stores.remote.watch(self.noticed)

    # For requests.

    async def before_use(self, whose: SessionKey) -> None:
        """Get the changes of the person, and wait for them up to `timeout_s`."""
        if not _has_copy(whose):
            return
        self._expire()
        # During a comparison, reported changes are no longer in `_unsent`, but not yet here.
        if whose not in self._locks and self._is_current(whose):
            return
        current = self._current.get(whose)
        if current is not None and current.seen != self._file_state(whose):
            self._note(whose, None)  # the file was edited
        await self._try(whose)

    async def before_change(self, whose: SessionKey, key: str) -> None:
        """Note that the agent is about to change a memory. Raises StorageError."""
        if self._options.edits_of_files or not _has_copy(whose):
            return
        async with self._locks.hold(whose):
            with self._reloads_state_after_errors(whose):
                await (await self._state(whose)).note_pending(key)

    async def changed(self, whose: SessionKey, key: str) -> None:
        """Send the change of a memory to the other store."""
        if _has_copy(whose):
            self._note(whose, (key,))
            await self._try(whose)

    @asynccontextmanager
    async def erasing(self, whose: SessionKey) -> AsyncIterator[None]:
        """Delete all memories of the person in the other store, after the block has deleted them
        here. The intention is on the disk before. Raises StorageError.
        """
        if not _has_copy(whose):
            yield
            return
        async with self._locks.hold(whose):
            with self._reloads_state_after_errors(whose):
                await (await self._state(whose)).note_erase()
            self._note(whose, None)
            yield
        await self._try(whose)

    async def decide(self, whose: SessionKey, missing: MissingDecision) -> int:
        """Delete the memories that are `held`, or restore them in the other store. Returns how many
        there were. Raises StorageError.
        """
        count = self.held.get(whose, 0)
        if count:
            self._note(whose, None)
            await self._reconcile(whose, missing)
        return count

    # Notifications.

    def noticed(self, whose: SessionKey, keys: Collection[str] | None) -> None:
        """Note that memories were changed in the other store; None for unknown ones. Never
        waits.
        """
        if _has_copy(whose):
            self._note(whose, keys)

    def connected(self) -> None:
        """Compare everything, because the other store can be reached again. Never waits."""
        self._current.clear()
        self._retries.clear()
        self._compare_now.set()
        self._wake.set()

    def available(self, whose: SessionKey) -> None:
        """Compare, because the other store accepts requests about this person now. Never waits."""
        if _has_copy(whose):
            self._retries.pop(whose, None)
            self._note(whose, None)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Send changes, compare periodically, and delete expired memories, until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._compare)
            task_status.started()
            while True:
                self._wake = anyio.Event()
                self._expire()
                ready = [each for each in self._unsent if self._may_try(each)]
                if ready:
                    await self._synchronise(ready)
                with anyio.move_on_after(self._pause()):
                    await self._wake.wait()

    # The work of `run`.

    async def _compare(self) -> None:
        while True:
            self._compare_now = anyio.Event()
            try:
                known = await self.states.known()
            except StorageError as error:
                log_failure(_log, "memories could not be compared", error)
                known = []
            oldest = anyio.current_time() - self._options.reconcile_s
            for whose in known:
                current = self._current.get(whose)
                if current is None or current.at <= oldest:
                    self._note(whose, None)
            self._wake.set()
            with anyio.move_on_after(self._options.reconcile_s):
                await self._compare_now.wait()

    async def _synchronise(self, ready: list[SessionKey]) -> None:
        limiter = anyio.CapacityLimiter(_CONCURRENT)

        async def one(whose: SessionKey) -> None:
            async with limiter:
                await self._try_once(whose)

        async with anyio.create_task_group() as group:
            for whose in ready:
                group.start_soon(one, whose)

    def _expire(self) -> None:
        now = self._options.clock()
        while self._expiries and self._expiries[0][0] <= now:
            _, _, key, whose = heapq.heappop(self._expiries)
            self._note(whose, (key,))

    def _pause(self) -> float:
        # A ready one that was not tried cannot be reached; `connected` sets `_wake`.
        now = anyio.current_time()
        pauses = [at - now for at, _ in self._retries.values() if at > now]
        if self._expiries:
            pauses.append(self._expiries[0][0] - self._options.clock())
        return max(0.01, min(pauses, default=math.inf))

    # One person.

    def _is_current(self, whose: SessionKey) -> bool:
        current = self._current.get(whose)
        if current is None or whose in self._unsent:
            return False
        return not self._is_stale(current) and current.seen == self._file_state(whose)

    def _may_try(self, whose: SessionKey) -> bool:
        at, _ = self._retries.get(whose, (-math.inf, 0.0))
        return anyio.current_time() >= at and self._stores.remote.is_reachable(whose)

    async def _try(self, whose: SessionKey) -> None:
        if not self._may_try(whose):
            self._unsent.setdefault(whose, None)
            return
        with anyio.move_on_after(self._options.timeout_s) as scope:
            await self._try_once(whose)
        if scope.cancelled_caught:
            self._failed(whose, f"no answer in {self._options.timeout_s:g} seconds")

    async def _try_once(self, whose: SessionKey) -> None:
        try:
            await self._reconcile(whose)
        except StorageError as error:
            self._failed(whose, str(error))

    async def _reconcile(self, whose: SessionKey, missing: Missing = "ask") -> None:
        async with self._locks.hold(whose):
            if self._is_current(whose):
                return
            current = self._current.get(whose)
            keys = self._unsent.pop(whose, None)
            if current is None or self._is_stale(current):
                keys = None
            try:
                seen = self._file_state(whose)
                state = await self._state(whose)
                reconciliation = Reconciliation(
                    self._stores, state, self._options, self._recorder, missing
                )
                done = await reconciliation.run(keys)
                self._note_held(whose, done.held)
            except BaseException:
                self._loaded.pop(whose, None)
                self._unsent[whose] = None
                raise
            self._retries.pop(whose, None)
            for item in done.expiring:
                self._schedule_expiry(whose, item)
            if done.wrote_local or keys is not None:
                seen = self._file_state(whose)
            at = anyio.current_time() if keys is None or current is None else current.at
            self._current[whose] = _Current(seen, at)
            self._current.move_to_end(whose)
            if len(self._current) > _KEPT:
                self._current.popitem(last=False)

    def _note_held(self, whose: SessionKey, count: int | None) -> None:
        """Report memories that are missing in the other store, once, until it is decided."""
        if count == 0:
            self.held.pop(whose, None)
        elif count is not None and self.held.get(whose) != count:
            self.held[whose] = count
            _log.error("memories are missing", reason=missing_sentence(whose, count))

    def _is_stale(self, current: _Current) -> bool:
        return anyio.current_time() - current.at > self._options.fresh_s

    def _schedule_expiry(self, whose: SessionKey, item: Item) -> None:
        at = seconds_of(item.expires)
        entry = (at or 0.0, str(whose.who), item.key, whose)
        if at is not None and entry not in self._expiries:
            heapq.heappush(self._expiries, entry)
            self._wake.set()

    def _note(self, whose: SessionKey, keys: Collection[str] | None) -> None:
        if keys is None:
            self._unsent[whose] = None
        elif (unsent := self._unsent.setdefault(whose, set())) is not None:
            unsent.update(keys)
        self._wake.set()

    def _failed(self, whose: SessionKey, reason: str) -> None:
        _, delay = self._retries.get(whose, (0.0, _FIRST_RETRY_S / 2))
        delay = min(delay * 2, _LONGEST_RETRY_S)
        self._retries[whose] = (anyio.current_time() + delay, delay)
        self._unsent.setdefault(whose, None)
        self._wake.set()
        _log.warning(
            "memories could not be brought up to date",
            agent=whose.agent,
            principal=str(whose.who),
            reason=reason,
            retry_s=delay,
        )

    async def _state(self, whose: SessionKey) -> SyncState:
        state = self._loaded.pop(whose, None)
        if state is None:
            state = await self.states.load(whose)
        self._loaded[whose] = state
        if len(self._loaded) > _KEPT:
            self._loaded.popitem(last=False)
        return state

    def _file_state(self, whose: SessionKey) -> FileState | None:
        return self._stores.files.index.state_of(self._stores.sharing.private(whose))

    @contextmanager
    def _reloads_state_after_errors(self, whose: SessionKey) -> Iterator[None]:
        """If a write of the state fails, the state is read again the next time."""
        try:
            yield
        except BaseException:
            self._loaded.pop(whose, None)
            raise


def _has_copy(whose: SessionKey) -> bool:
    """Sub-agents have no address, and so no memories elsewhere."""
    return "/" not in whose.agent

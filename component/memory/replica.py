"""Keeps the private memories of people alike in two stores: the files, which are always there, and
a store of the person's own, such as a PubSub node.

A request reads the files. Before it does, `before_use` takes over what the person has changed, if
that is not known to be done already; it waits for a short time at most. Changes by the agent are
in the files first. They reach the other store at once if it answers, or as soon as it does.
"""

import heapq
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from typing import Final

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component import system
from component.audit.protocol import AuditEvent, Recorder
from component.memory.file_store import PrivateFiles
from component.memory.files import Seen
from component.memory.knowledge_lines import Item, seconds_of
from component.memory.locks import KeyLocks
from component.memory.reconciler import Missing, Reconciliation, RemoteStore, SyncOptions
from component.memory.store import MissingDecision, Whose, missing_sentence
from component.memory.sync_state import SyncState, SyncStates
from component.storage.errors import StorageError

_KEPT: Final = 4096  # people of whom is known in memory that both stores are alike
_AT_ONCE: Final = 8  # people who are caught up with at the same time
_FIRST_RETRY_S: Final = 5.0
_LONGEST_RETRY_S: Final = 600.0

_log = structlog.get_logger("component.memory")


class ReplicaOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How two stores are synchronised. All times are in seconds.

    Attributes:
        edits_of_files: whether changes of the files by hand count. If not, they are undone.
        patience_s: how long a request waits for the other store.
        fresh_s: how long data of the other store counts as current; infinite if it announces
            changes, so that requests only read the files.
        reconcile_s: how often everything is compared, because not all changes are announced.
    """

    edits_of_files: bool = True
    patience_s: float = 1.0
    fresh_s: float = math.inf
    reconcile_s: float = 900.0


class _Current(msgspec.Struct, frozen=True):
    """Both stores were equal at `at`, with the file in the state `seen`."""

    seen: Seen | None
    at: float


class Replica:
    """Implements `component.memory.knowledge.Mirror`.

    Args:
        local: the files.
        remote: the store of the person.
        states: the last common state of both.
        options: how they are synchronised.
        recorder: records changes by the person.
        tell: sends a sentence to a person.
        clock: returns seconds since 1970.

    Attributes:
        held: how many memories the other store lacks without a reason. They stay in the files until
            `decide`.
    """

    def __init__(
        self,
        local: PrivateFiles,
        remote: RemoteStore,
        states: SyncStates,
        options: ReplicaOptions,
        recorder: Recorder,
        tell: Callable[[Whose, str], None],
        clock: Callable[[], float] = system.time,
    ) -> None:
        self._local = local
        self._remote = remote
        self._states = states
        self._options = options
        self._recorder = recorder
        self._clock = clock
        self._sync_options = SyncOptions(
            edits_of_files=options.edits_of_files, record=self._record, tell=tell, clock=clock
        )
        self.held: dict[Whose, int] = {}
        self._locks: KeyLocks[Whose] = KeyLocks()
        self._current: OrderedDict[Whose, _Current] = OrderedDict()
        self._loaded: OrderedDict[Whose, SyncState] = OrderedDict()
        self._unsent: dict[Whose, set[str] | None] = {}
        self._retries: dict[Whose, tuple[float, float]] = {}
        self._expiries: list[tuple[float, str, str, Whose]] = []
        self._wake = anyio.Event()
        self._compare_now = anyio.Event()
        remote.watch(self.noticed)

    # For requests.

    async def before_use(self, whose: Whose) -> None:
        """Get the changes of the person, and wait for them up to `patience_s`."""
        if not _has_copy(whose):
            return
        # During a comparison, reported changes are no longer in `_unsent`, but not yet here.
        if whose not in self._locks and self._is_current(whose):
            return
        current = self._current.get(whose)
        if current is not None and current.seen != self._local.state(whose):
            self._note(whose, None)  # the file was edited
        await self._try(whose)

    async def before_change(self, whose: Whose, key: str) -> None:
        """Note that the agent is about to change a memory. Raises StorageError."""
        if self._options.edits_of_files or not _has_copy(whose):
            return
        async with self._locks.hold(whose):
            await self._kept(whose, self._note_pending(whose, key))

    async def changed(self, whose: Whose, key: str) -> None:
        """Change the other store as a memory was changed here."""
        if _has_copy(whose):
            self._note(whose, (key,))
            await self._try(whose)

    @asynccontextmanager
    async def erasing(self, whose: Whose) -> AsyncIterator[None]:
        """Delete all memories of the person in the other store after they are deleted here, in the
        block. That it is to be done is on the disk before. Raises StorageError.
        """
        if not _has_copy(whose):
            yield
            return
        async with self._locks.hold(whose):
            await self._kept(whose, self._note_erase(whose))
            self._note(whose, None)
            yield
        await self._try(whose)

    async def decide(self, whose: Whose, missing: MissingDecision) -> int:
        """Delete the memories that are `held`, or restore them in the other store. Returns how many
        there were. Raises StorageError.
        """
        count = self.held.get(whose, 0)
        if count:
            self._note(whose, None)
            await self._reconcile(whose, missing)
        return count

    # Notifications.

    def noticed(self, whose: Whose, keys: Collection[str] | None) -> None:
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

    def available(self, whose: Whose) -> None:
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
                due = [each for each in self._unsent if self._may_try(each)]
                if due:
                    await self._catch_up(due)
                with anyio.move_on_after(self._pause()):
                    await self._wake.wait()

    # The work of `run`.

    async def _compare(self) -> None:
        while True:
            self._compare_now = anyio.Event()
            try:
                known = await self._states.known()
            except StorageError as error:
                _log.warning("memories could not be compared", reason=str(error))
                known = []
            oldest = anyio.current_time() - self._options.reconcile_s
            for whose in known:
                current = self._current.get(whose)
                if current is None or current.at <= oldest:
                    self._note(whose, None)
            self._wake.set()
            with anyio.move_on_after(self._options.reconcile_s):
                await self._compare_now.wait()

    async def _catch_up(self, due: list[Whose]) -> None:
        limiter = anyio.CapacityLimiter(_AT_ONCE)

        async def one(whose: Whose) -> None:
            async with limiter:
                await self._try_once(whose)

        async with anyio.create_task_group() as group:
            for whose in due:
                group.start_soon(one, whose)

    def _expire(self) -> None:
        now = self._clock()
        while self._expiries and self._expiries[0][0] <= now:
            _, _, key, whose = heapq.heappop(self._expiries)
            self._note(whose, (key,))

    def _pause(self) -> float:
        """Seconds until there is something to do, if nothing happens before."""
        # Those that are due and were not tried cannot be reached: `connected` wakes this.
        now = anyio.current_time()
        pauses = [at - now for at, _ in self._retries.values() if at > now]
        if self._expiries:
            pauses.append(self._expiries[0][0] - self._clock())
        return max(0.01, min(pauses, default=math.inf))

    # One person.

    def _is_current(self, whose: Whose) -> bool:
        current = self._current.get(whose)
        if current is None or whose in self._unsent:
            return False
        if anyio.current_time() - current.at > self._options.fresh_s:
            return False
        return current.seen == self._local.state(whose)

    def _may_try(self, whose: Whose) -> bool:
        at, _ = self._retries.get(whose, (-math.inf, 0.0))
        return anyio.current_time() >= at and self._remote.is_reachable(whose)

    async def _try(self, whose: Whose) -> None:
        if not self._may_try(whose):
            self._unsent.setdefault(whose, None)
            return
        with anyio.move_on_after(self._options.patience_s) as scope:
            await self._try_once(whose)
        if scope.cancelled_caught:
            self._failed(whose, f"no answer in {self._options.patience_s:g} seconds")

    async def _try_once(self, whose: Whose) -> None:
        try:
            await self._reconcile(whose)
        except StorageError as error:
            self._failed(whose, str(error))

    async def _reconcile(self, whose: Whose, missing: Missing = "ask") -> None:
        async with self._locks.hold(whose):
            if self._is_current(whose):
                return
            current = self._current.get(whose)
            keys = self._unsent.pop(whose, None)
            if current is None or self._is_stale(current):
                keys = None
            try:
                seen = self._local.state(whose)
                state = await self._state(whose)
                options = msgspec.structs.replace(self._sync_options, missing=missing)
                reconciliation = Reconciliation(
                    self._local, self._remote, self._states, whose, state, options
                )
                done = await reconciliation.run(keys)
                self._note_held(whose, done.held)
            except BaseException:
                self._loaded.pop(whose, None)
                self._unsent[whose] = None
                raise
            self._retries.pop(whose, None)
            for item in done.expiring:
                self._expects(whose, item)
            if done.wrote_local or keys is not None:
                seen = self._local.state(whose)
            at = anyio.current_time() if keys is None or current is None else current.at
            self._current[whose] = _Current(seen, at)
            self._current.move_to_end(whose)
            if len(self._current) > _KEPT:
                self._current.popitem(last=False)

    def _note_held(self, whose: Whose, count: int | None) -> None:
        """Report memories that are missing in the other store, once, until it is decided."""
        if count == 0:
            self.held.pop(whose, None)
        elif count is not None and self.held.get(whose) != count:
            self.held[whose] = count
            _log.error("memories are missing", reason=missing_sentence(whose, count))

    def _is_stale(self, current: _Current) -> bool:
        return anyio.current_time() - current.at > self._options.fresh_s

    def _expects(self, whose: Whose, item: Item) -> None:
        at = seconds_of(item.expires)
        entry = (at or 0.0, str(whose.who), item.key, whose)
        if at is not None and entry not in self._expiries:
            heapq.heappush(self._expiries, entry)
            self._wake.set()

    def _note(self, whose: Whose, keys: Collection[str] | None) -> None:
        if keys is None:
            self._unsent[whose] = None
        elif (unsent := self._unsent.setdefault(whose, set())) is not None:
            unsent.update(keys)
        self._wake.set()

    def _failed(self, whose: Whose, reason: str) -> None:
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

    async def _state(self, whose: Whose) -> SyncState:
        state = self._loaded.pop(whose, None)
        if state is None:
            state = await self._states.load(whose)
        self._loaded[whose] = state
        if len(self._loaded) > _KEPT:
            self._loaded.popitem(last=False)
        return state

    async def _note_pending(self, whose: Whose, key: str) -> None:
        await self._states.note_pending(whose, await self._state(whose), key)

    async def _note_erase(self, whose: Whose) -> None:
        await self._states.note_erase(whose, await self._state(whose))

    async def _kept(self, whose: Whose, work: Awaitable[None]) -> None:
        """Perform a write of the state; if it fails, the state is read again the next time."""
        try:
            await work
        except BaseException:
            self._loaded.pop(whose, None)
            raise

    def _record(self, whose: Whose, key: str, outcome: str, detail: str) -> None:
        self._recorder.record(
            AuditEvent(
                kind="memory",
                outcome=outcome,
                principal=str(whose.who),
                agent=whose.agent,
                subject=key,
                detail=detail,
            )
        )


def _has_copy(whose: Whose) -> bool:
    """Sub-agents have no address, and so no memories elsewhere."""
    return "/" not in whose.agent

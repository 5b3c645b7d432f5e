"""The audit log of a running service: accepts events without waiting, and writes them soon."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component import system
from component.audit.files import DIRECTORY, old_files, removal_of, remove_files
from component.audit.heads import Head, heads_in, own_head, place_of, put_head
from component.audit.lines import Chain, ChainLink, timestamp
from component.audit.opening import OpenedLog, open_record
from component.audit.protocol import AuditEvent
from component.audit.quota import Quota
from component.config.service import Audit as AuditSettings
from component.store import Storage, StorageError
from component.store.outages import Outage, log_failure
from component.system import time_ns

_log = structlog.get_logger("component.audit")

_GATHER_S: Final = 0.02
"""How long events are collected, which limits syncs to fifty a second."""
_TIMEOUT_S: Final = 1.0
"""How long the event of a repeatable skill that ran without a task waits for others: waking up for
the disk costs far more than running such a skill."""
_ENOUGH: Final = 4096
"""This many events are written without waiting for more."""
_ANCHOR_S: Final = 1.0
_SLICE: Final = 256
"""Lines encoded between two checkpoints of the event loop: about half a millisecond."""
_TOGETHER: Final = 16_384
"""Maximum number of lines written at a time."""
_FIRST_WAIT_S: Final = 0.2
_LONGEST_WAIT_S: Final = 5.0
_LAST_ATTEMPTS: Final = 3
MOST_WAITING: Final = 65_536
"""Maximum number of events that wait for the disk, before `audit.on_failure` applies."""


class AuditFigures(msgspec.Struct, frozen=True):
    """Statistics: events written, lost and waiting, and how many seconds the oldest has waited."""

    written: int
    lost: int
    waiting: int
    lag_s: float
    failing: bool


class Audit:
    """Implements `component.audit.protocol.Recorder`; made by `Audit.open`.

    Events wait for hundredths of a second and are then written and synced together; events of
    repeatable skills that ran without a task wait up to a second. `settled` waits until earlier
    events are on disk. Once a second the number of the last line is stored in the database, so
    that a truncated log is detected (`heads`).

    No event is lost silently. While the disk cannot be written, events wait in memory and writing
    is retried; when there are too many, `full` says why no new work is accepted, or further events
    are counted and the log records how many were lost.

    Attributes:
        outage: since when the log cannot be written, and why; None while it can.
    """

    def __init__(self, opened: OpenedLog, storage: Storage, settings: AuditSettings) -> None:
        """Use `Audit.open`."""
        self.directory = storage.directory / DIRECTORY
        self._storage = storage
        self._settings = settings
        self._chain = Chain(opened.link)
        self._name = opened.chain
        self._place = place_of(self.directory)
        self._journal = opened.journal
        self._written = opened.link
        self._anchored = opened.link.seq
        self._begun_at = opened.link.seq
        self._promised = opened.link.seq
        """The number of the last event that has been taken from the queue to be encoded."""
        self._quota = Quota(settings.lines_per_minute)
        self._waiting: list[AuditEvent] = []
        self._times: list[int] = []
        """The time of each event, in nanoseconds; pairs would burden the garbage collector."""
        self._made = b""
        """Encoded lines that are not yet on disk."""
        self._made_at = (0, "")
        self._since_ns = 0
        self._most = MOST_WAITING
        self._loses = settings.on_failure == "continue"
        self._lost = 0
        self._lost_before = 0
        self._lost_since = 0
        self.outage: Outage | None = None
        self._put_off = False
        self._begun = False
        """Whether a file was started since old files were last removed."""
        self._asleep = False
        self._wake = anyio.Event()
        self._hurry = anyio.Event()
        self._moved = anyio.Event()
        """Set when there are lines on disk that the database does not know."""
        self._committing = anyio.Lock()
        self._thread = anyio.CapacityLimiter(1)
        for event in opened.news:
            self.record(event)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, storage: Storage, settings: AuditSettings, version: str = ""
    ) -> "AsyncIterator[Audit]":
        """Open the audit log of a data directory for the duration of the context.

        The caller runs `run` meanwhile. At the end, waiting events are written. `version` is that
        of this release, to be recorded. Raises StorageError.
        """
        heads = await storage.read(heads_in)
        opened = await system.in_thread(
            open_record, storage.directory, heads, settings.max_file_bytes, version
        )
        for event in opened.news:
            if event.outcome == "repaired":
                _log.warning("the audit log was repaired", reason=event.detail)
            elif event.outcome != "opened":
                _log.warning("the audit log and the database differ", reason=event.detail)
        audit = cls(opened, storage, settings)
        try:
            yield audit
        finally:
            with anyio.CancelScope(shield=True):
                await audit._close()

    # -- for other packages ----------------------------------------------------------------------

    def record(self, event: AuditEvent) -> None:
        """Record an event, on the thread of the event loop. Never waits and never raises."""
        if self._quota.admits(event):
            self._record(event)

    def _record(self, event: AuditEvent) -> None:
        waiting = self._waiting
        if self._loses and len(waiting) >= self._most:
            self._lost_since = self._lost_since or time_ns()
            self._lost += 1
            return
        waiting.append(event)
        self._times.append(time_ns())
        if self._asleep:
            self._asleep = False
            self._wake.set()
        if event.kind != "execute" or event.task or len(waiting) == _ENOUGH:
            self._hurry.set()

    async def settled(self) -> None:
        """Wait until everything recorded so far is on disk.

        Raises StorageError if the disk cannot be written; writing is retried all the same.
        """
        last = self._promised + len(self._waiting)
        while self._written.seq < last:
            await self._commit(raising=True)

    def full(self) -> str | None:
        """Why no new work is accepted now, as a sentence for the requester; None if it is."""
        if len(self._waiting) < self._most or self._loses:
            return None
        return "Requests cannot be recorded in the audit log at the moment; try again later."

    async def known(self) -> Sequence[ChainLink]:
        """The lines that are known from the database. Raises StorageError."""
        found = await self._storage.read(heads_in)
        head = own_head(found, self._name, self.directory)
        return () if head is None else (head.link,)

    @property
    def figures(self) -> AuditFigures:
        """Statistics of the audit log."""
        since = self._since_ns or (self._times[0] if self._times else 0)
        return AuditFigures(
            written=self._written.seq - self._begun_at,
            lost=self._lost_before + self._lost,
            waiting=len(self._waiting) + self._promised - self._written.seq,
            lag_s=max(0, time_ns() - since) / 1e9 if since else 0.0,
            failing=self.outage is not None,
        )

    @property
    def head(self) -> ChainLink:
        """The last line that is on disk."""
        return self._written

    # -- lifecycle -------------------------------------------------------------------------------

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Write events until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._anchoring)
            group.start_soon(self._counting)
            task_status.started()
            await self._guarded(self._retire)
            wait = _FIRST_WAIT_S
            while True:
                if not self._waiting and not self._made:
                    self._wake = anyio.Event()
                    self._asleep = True
                    await self._wake.wait()
                if self.outage is None and len(self._waiting) < _ENOUGH:
                    with anyio.move_on_after(_TIMEOUT_S):
                        await self._hurry.wait()
                await anyio.sleep(_GATHER_S if self.outage is None else wait)
                self._hurry = anyio.Event()
                await self._commit(raising=False)
                if not self._anchored:
                    # So the database knows the log early, in case it is copied.
                    await self._guarded(self._anchor)
                if self._begun:
                    self._begun = False
                    await self._guarded(self._retire)
                wait = _FIRST_WAIT_S if self.outage is None else min(2 * wait, _LONGEST_WAIT_S)

    async def _close(self) -> None:
        self._retell_lost()
        self._record_counts()
        self.record(AuditEvent(kind="record", outcome="closed"))
        for _ in range(_LAST_ATTEMPTS):
            await self._commit(raising=False)
            if not self._waiting and not self._made:
                break
            await anyio.sleep(_FIRST_WAIT_S)
        else:
            left = self.figures.waiting
            why = "" if self.outage is None else self.outage.reason
            _log.error("the end of the audit log is lost", events=left, reason=why)
        await self._guarded(self._anchor)
        await system.in_thread(self._journal.close, limiter=self._thread)

    # -- the disk --------------------------------------------------------------------------------

    async def _commit(self, *, raising: bool) -> None:
        """Write and sync waiting events. Raises StorageError only if `raising` is set."""
        async with self._committing:
            with anyio.CancelScope(shield=True):
                await self._make_lines()
                if not self._made:
                    return
                link = self._chain.last
                try:
                    begun = await system.in_thread(
                        self._journal.append, self._made, *self._made_at, limiter=self._thread
                    )
                except StorageError as error:
                    self._failed(error)
                    if raising:
                        raise
                    return
                before, self._written = self._written, link
                self._moved.set()
                self._made = b""
                self._since_ns = 0
        if begun and before.seq:
            # A process that can write these files cannot change the log of the system.
            _log.info("a new audit log file is started", after=before.seq, hash=before.hash)
        self._begun = self._begun or begun
        self._went_well()

    async def _make_lines(self) -> None:
        """Encode waiting events, unless there are encoded lines that could not be written."""
        if self._made or not self._waiting:
            return
        taken, self._waiting = self._waiting[:_TOGETHER], self._waiting[_TOGETHER:]
        times, self._times = self._times[:_TOGETHER], self._times[_TOGETHER:]
        self._since_ns = times[0]
        self._promised += len(taken)
        self._made_at = (self._chain.seq + 1, timestamp(self._since_ns // 1_000_000)[:10])
        pieces = []
        for at in range(0, len(taken), _SLICE):
            if at:
                await anyio.lowlevel.checkpoint()
            pieces.append(self._chain.add(times[at : at + _SLICE], taken[at : at + _SLICE]))
        self._made = b"".join(pieces)

    def _failed(self, error: StorageError) -> None:
        since = system.now() if self.outage is None else self.outage.since
        if self.outage is None:
            then = "counted and lost" if self._loses else "too many, and then new work is refused"
            _log.error(
                "the audit log cannot be written; events wait in memory until they are " + then,
                reason=str(error),
                at_most=self._most,
            )
        self.outage = Outage(since, str(error))

    def _went_well(self) -> None:
        if self.outage is not None:
            self.outage = None
            _log.info("the audit log is written again", waiting=len(self._waiting))
        self._retell_lost()

    def _retell_lost(self) -> None:
        if not self._lost or len(self._waiting) >= self._most:
            return
        lost, self._lost = self._lost, 0
        since, self._lost_since = self._lost_since, 0
        self._lost_before += lost
        detail = f"{lost} events since {timestamp(since // 1_000_000)} were not recorded: too many"
        self.record(
            AuditEvent(kind="record", outcome="lost", detail=f"{detail} waited for the disk.")
        )

    async def _retire(self) -> None:
        """Remove files that are too old, after the removal is recorded on disk.

        They must be too old both by the wall clock, which lines contain, and by a clock that does
        not jump; otherwise a wrong clock could remove the audit log.
        """
        if not self._settings.keep_days:
            return
        steady = await self._storage.read(lambda database: database.steady)
        files, last = await system.in_thread(
            old_files,
            self.directory,
            self._settings.keep_days,
            min(time_ns() // 1_000_000, steady),
            limiter=self._thread,
        )
        if last is not None:
            self.record(removal_of(files, last))
            await self.settled()
            await system.in_thread(remove_files, files, limiter=self._thread)

    # -- the database ----------------------------------------------------------------------------

    async def _anchoring(self) -> None:
        while True:
            await self._moved.wait()
            self._moved = anyio.Event()
            await anyio.sleep(_ANCHOR_S)
            await self._guarded(self._anchor)
            if self._written.seq != self._anchored:
                self._moved.set()

    async def _counting(self) -> None:
        while True:
            await self._quota.minute()
            self._record_counts()

    def _record_counts(self) -> None:
        for event in self._quota.summaries():
            self._record(event)

    async def _anchor(self) -> None:
        link = self._written
        if link.seq == self._anchored:
            return
        head = Head(self._name, self._place, link)
        await self._storage.write(lambda database: put_head(database, head))
        self._anchored = link.seq

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do work that can be postponed; log the first failure of several in a row."""
        try:
            await work()
        except StorageError as error:
            if not self._put_off:
                log_failure(
                    _log,
                    "maintenance of the audit log is postponed; events are still written",
                    error,
                )
            self._put_off = True
        else:
            self._put_off = False

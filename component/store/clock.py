"""A steady clock, which is not affected when the wall clock is set.

The wall clock of a process or of a database server can jump: NTP steps it, an operator sets it, a
virtual machine is resumed, a machine boots with a wrong clock. Retention periods are therefore
measured on the *steady* clock, which continues as before when the wall clock jumps:

    steady = wall - skew

A jump is a change of the wall clock that the kernel's time since boot (which also counts while the
machine is suspended) does not confirm. It is added to the skew, so it does not affect the steady
clock. The skew is stored in the only row of the table `clock`, with the last known time, so it is
kept across restarts and shared by all instances on one database.

- After a restart without a reboot, the time since boot shows exactly how long it took.
- After a reboot, it is unknown how much of the difference has really elapsed. The steady clock then
  continues from the last known time, so nothing is deleted early. The difference is stored as
  `downtime`; jumps in the first `GRACE_MS` correct it. After that, it counts for questions, because
  people were given a time of day until which they are open (`component.tasks.expiry`).
- Absolute times, such as the deadline of a caller, are compared with `settled`: the wall clock, but
  after a forward jump only when `HOLD_MS` have passed.
"""

import threading
from collections.abc import Callable
from typing import Final, NamedTuple

import structlog

from component import system
from component.store.database import Database
from component.store.directory import boot_id

_log = structlog.get_logger("component.store")

TOLERANCE_MS: Final = 5_000
"""Smaller differences count as drift or a late answer of the server, and are accepted."""
HOLD_MS: Final = 60_000
GRACE_MS: Final = 300_000
_PLAUSIBLE_MS: Final = 120_000
"""A shorter absence by the wall clock is taken as elapsed time."""
_SAVE_MS: Final = 10_000
"""Maximum age of the stored last known time, if there are transactions to write it with."""


def wall_clock() -> int:
    """Return the time of this machine, in milliseconds since 1970, UTC."""
    return system.time_ns() // 1_000_000


def since_boot() -> int:
    """Return milliseconds since boot, including the time in which the machine was suspended."""
    return system.since_boot_ns() // 1_000_000


def seconds_since_boot() -> float:
    """Return the same in seconds, for the expiry of data in memory."""
    return system.since_boot_ns() / 1e9


class TransactionTimes(NamedTuple):
    """The time of one transaction, in milliseconds; see `component.store.database.Database`."""

    now: int
    settled: int
    steady: int


class Skew(NamedTuple):
    """The stored skew, and how often it has been changed."""

    changes: int
    ms: int


def skew_in(database: Database) -> Skew:
    """Read the stored skew; 0 in a database of an earlier release."""
    tables = {
        "sqlite": "SELECT 1 FROM sqlite_master WHERE name = 'clock'",
        "postgresql": "SELECT 1 FROM pg_class WHERE oid = to_regclass('clock')",
    }
    if database.execute(tables[database.dialect]).fetchone() is None:
        return Skew(0, 0)
    row = database.execute("SELECT changes, skew FROM clock").fetchone()
    return Skew(0, 0) if row is None else Skew(*row)


class SteadyClock:
    """Processes readings of the wall clock, and detects jumps.

    It may be used by several threads.

    Args:
        elapsed: milliseconds that never jump, as `since_boot`.
        boot: identifies the boot since which `elapsed` counts; "" if unknown.
        stored: the skew in the database, for read-only use; otherwise `start` reads it.
    """

    def __init__(
        self,
        elapsed: Callable[[], int] = since_boot,
        boot: str | None = None,
        stored: Skew = Skew(0, 0),  # noqa: B008 - immutable
    ) -> None:
        self.elapsed = elapsed
        self._boot = boot_id() if boot is None else boot
        self._lock = threading.Lock()
        self._offset: int | None = None
        """The wall clock minus the elapsed time."""
        self._stored = stored
        self._pending = 0
        """The amount to be added to the stored skew."""
        self._held = 0
        self._held_since = 0
        self._save_at = 0

    @property
    def stored(self) -> Skew:
        """The stored skew, as last read or written."""
        return self._stored

    def start(self, database: Database, wall: int, *, shared: bool) -> None:
        """Continue from the stored values, at the time `wall`, in a transaction that writes.

        `shared` says that `wall` is the clock of a server that other instances also use.
        """
        row = database.execute(
            "SELECT changes, skew, seen, boot, elapsed, downtime, back_at FROM clock"
        ).fetchone()
        assert row is not None, "the migration has created it"
        changes, stored, seen, boot, elapsed, downtime, back_at = row
        skew, now = stored, self.elapsed()
        if seen is not None:
            gap = wall - skew - seen
            if self._boot and boot == self._boot and now >= elapsed:
                jump = gap - (now - elapsed)
                if abs(jump) > TOLERANCE_MS:
                    _log.warning(
                        "the clock was set while the service was stopped; retention periods are"
                        " not affected",
                        by_s=jump / 1000,
                    )
                    self._hold(jump, now)
                    skew += jump
            elif gap < 0 or gap > _PLAUSIBLE_MS:
                _log.warning(
                    "the clock cannot be compared with that of the last run: retention periods"
                    " continue from the last known time, and questions past their time expire in"
                    " some minutes unless the clock changes again",
                    by_s=gap / 1000,
                )
                # Nothing was written after this time.
                last = seen + _SAVE_MS
                gap = wall - skew - last
                self._hold(gap, now)
                skew += gap
                downtime, back_at = downtime + gap, last
            elif not shared:
                back_at = wall - skew  # NTP may set the clock soon, by the time of the absence
        # Instances that have seen the same jump must not take this start for a correction of it.
        changes += skew != stored
        self._stored = Skew(changes, skew)
        self._offset = wall - now
        self._save_at = now + _SAVE_MS
        database.execute(
            "UPDATE clock SET changes = ?, skew = ?, seen = ?, boot = ?, elapsed = ?, downtime = ?,"
            " back_at = ?",
            (changes, skew, wall - skew, self._boot, now, downtime, back_at),
        )

    def times(self, wall: Callable[[], int]) -> TransactionTimes:
        """Read a wall clock of this machine."""
        return self.read(self.elapsed(), wall(), self.elapsed(), self._stored)

    def read(self, before: int, wall: int, after: int, stored: Skew) -> TransactionTimes:
        """Take a reading: `wall` was read between `before` and `after` of the elapsed time.

        `stored` is the skew in the database as of this transaction.
        """
        with self._lock:
            if self._offset is None:
                self._offset = wall - after
            # The process may have been suspended between the two readings.
            moved = max(0, wall - after - self._offset) + min(0, wall - before - self._offset)
            if moved:
                self._offset += moved
                if abs(moved) > TOLERANCE_MS:
                    _log.warning(
                        "the clock jumped; retention periods are not affected",
                        by_s=moved / 1000,
                    )
                    self._pending += moved
                    self._hold(moved, after)
            if stored.changes > self._stored.changes:
                # Written by this process, or by another instance that has seen the same jump.
                self._stored, self._pending = stored, 0
            if self._held and after - self._held_since >= HOLD_MS:
                self._held = 0
            skew = self._stored.ms + self._pending
            return TransactionTimes(wall, wall - max(0, self._held), wall - skew)

    def save(self, database: Database, times: TransactionTimes) -> Skew | None:
        """Write a changed skew, and periodically the last known time, in a transaction.

        Returns the skew that is stored when the transaction is committed, None if unchanged.
        """
        now = self.elapsed()
        with self._lock:
            if not self._pending and now < self._save_at:
                return None
            self._save_at = now + _SAVE_MS
            stored, pending = self._stored, self._pending
        changed = Skew(stored.changes + 1 if pending else stored.changes, stored.ms + pending)
        young = times.steady - GRACE_MS
        # If another instance was first, its correction is kept.
        database.execute(
            "UPDATE clock SET changes = ?, skew = ?, seen = ?, boot = ?, elapsed = ?, downtime ="
            " CASE WHEN back_at > ? THEN downtime + ? ELSE downtime END WHERE changes = ?",
            (*changed, times.steady, self._boot, now, young, pending, stored.changes),
        )
        return changed

    def saved(self, stored: Skew) -> None:
        """Note that the result of `save` is committed."""
        with self._lock:
            if stored.changes > self._stored.changes:
                self._pending -= stored.ms - self._stored.ms
                self._stored = stored

    def _hold(self, jump: int, now: int) -> None:
        self._held += jump
        self._held_since = now
        if abs(self._held) <= TOLERANCE_MS:
            self._held = 0  # the clock was set back

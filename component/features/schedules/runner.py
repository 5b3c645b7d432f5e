"""Fires schedules when they are due.

A firing is work whose trigger has the schedule as its name and the nominal instant in UTC as its
key, so of several instances one starts it, once. A schedule moves on in the transaction that
records its firing, after its task is recorded: a process that is killed in between fires it again,
which the key makes a repetition.

The wall clock decides when a schedule is due, because people name times of the day. After a jump
forward the new time counts when it has held for a minute. After a jump backward the schedules are
due at the times that follow; firings that took place already are recognised by their keys.
"""

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component.features.schedules import rows
from component.features.schedules.node import ScheduleNode
from component.features.schedules.rows import LATE, Schedule, instant_of
from component.features.schedules.timing import due_instants, names_a_time, next_after
from component.kernel.task_starter import TaskStarter
from component.kernel.triggers import Trigger, Work
from component.store.clock import seconds_since_boot
from component.store.database import Database
from component.store.errors import StorageError
from component.store.outages import log_failure
from component.store.storage import Storage
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.schedules")

_AT_ONCE: Final = 100
_LOOK_S: Final = 15.0
"""Seconds after which this instance looks again, for schedules that another one has added and for
a clock that was set."""
_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 300.0


class _Postponed(msgspec.Struct):
    """A schedule whose work cannot be started now: when it is tried again, and after how long."""

    until: float
    wait: float


class ScheduleRunner:
    """Fires schedules. `clock` returns seconds that do not jump."""

    def __init__(
        self,
        storage: Storage,
        starter: TaskStarter,
        node: ScheduleNode,
        clock: Callable[[], float] = seconds_since_boot,
    ) -> None:
        self._storage = storage
        self._starter = starter
        self.node = node
        self._clock = clock
        self._woken = anyio.Event()
        self._postponed: dict[str, _Postponed] = {}
        self._skew: int | None = None
        """How far the wall clock was ahead of the steady clock when this last looked."""

    def wake(self) -> None:
        """A schedule may be due sooner than was known. Never waits."""
        self._woken.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Fire schedules until cancelled."""
        task_status.started()
        wait = _FIRST_WAIT_S
        while True:
            self._woken = anyio.Event()
            try:
                left = await self.step()
                wait = _FIRST_WAIT_S
            except StorageError as error:
                log_failure(_log, "schedules have to wait", error, seconds=wait)
                left, wait = wait, min(wait * 2, _LONGEST_WAIT_S)
            await self._storage.rest(self._woken, left, _LOOK_S, self._skew)

    async def step(self) -> float:
        """Fire all schedules that are due; return the seconds until the next look. Raises
        StorageError.
        """
        follows_clock = True
        while True:
            waiting = self._waiting()
            found = await self._storage.read(partial(_read_due, but=waiting))
            now = instant_of(found.now)
            if follows_clock and found.skew != self._skew:
                # Without a jump, at the start, this changes nothing: no instant lies between the
                # last firing and the next one.
                await self._storage.write(partial(_bring_forward, now=now))
                self._skew = found.skew
            elif found.schedules:
                await self._fire_together(found.schedules, now)
            else:
                break
            follows_clock = False
        times = [math.inf]
        if found.next_in is not None:
            # One that is due but cannot be read does not keep this busy.
            times.append((found.next_in + 1) / 1000 if found.next_in > 0 else _FIRST_WAIT_S)
        times += [max(0.0, self._postponed[one].until - self._clock()) for one in waiting]
        return min(times)

    async def _fire_together(self, found: Sequence[Schedule], now: datetime) -> None:
        failures: list[StorageError] = []

        async def fire(schedule: Schedule) -> None:
            try:
                await self._fire(schedule, now)
            except StorageError as error:
                failures.append(error)
            except Exception as error:  # noqa: BLE001 - one schedule must not keep back the others
                _log.exception("a schedule cannot be fired", schedule=schedule.id)
                self._postpone(schedule, error)

        async with anyio.create_task_group() as group:
            for each in found:
                group.start_soon(fire, each)
        if failures:
            raise failures[0]

    async def _fire(self, schedule: Schedule, now: datetime) -> None:
        definition = schedule.definition
        most = definition.missed_most if definition.missed == "all" else 1
        instants, following = due_instants(definition.timing, schedule.due, now, most)
        if definition.missed == "skip":
            instants = [one for one in instants if now - one <= LATE]
        if not instants:
            await self._storage.write(partial(rows.move, schedule=schedule, due=following))
        for instant, after in zip(instants, [*instants[1:], following], strict=True):
            # After each of them: a kill does not begin again with the first one.
            if not await self._fire_at(schedule, instant, after, now) or after is None:
                return
            schedule = msgspec.structs.replace(schedule, due=after)

    async def _fire_at(
        self, schedule: Schedule, instant: datetime, after: datetime | None, now: datetime
    ) -> bool:
        """Start the work for one instant, and let the schedule move on in the transaction that
        records it. Returns False if that has to be tried again later, or another instance has
        changed or removed the schedule.
        """
        trigger = trigger_of(schedule, instant)
        moved: list[bool] = []

        def move(database: Database) -> None:
            moved.append(rows.move(database, schedule, after, instant))

        try:
            task = await self._starter.start(trigger, firing_work(schedule, instant, now), move)
            is_first = task is not None
        except StanzaError as error:
            if error.type == "wait":
                self._postpone(schedule, error)
                return False
            task, is_first = None, True  # recorded as refused; its owner is notified
        if is_first:
            _log.info("a schedule has fired", schedule=schedule.id, instant=trigger.key, task=task)
            self.node.fired(schedule, instant, task)
        self._postponed.pop(schedule.id, None)
        if not moved:  # the firing was recorded before
            await self._storage.write(move)
        return moved[-1]

    def _postpone(self, schedule: Schedule, error: Exception) -> None:
        before = self._postponed.get(schedule.id)
        wait = _FIRST_WAIT_S if before is None else min(before.wait * 2, _LONGEST_WAIT_S)
        self._postponed[schedule.id] = _Postponed(self._clock() + wait, wait)
        log_failure(_log, "a schedule has to wait", error, schedule=schedule.id, seconds=wait)

    def _waiting(self) -> list[str]:
        now = self._clock()
        for id_ in [id_ for id_, each in self._postponed.items() if each.until + each.wait < now]:
            del self._postponed[id_]  # it was paused or removed, or it would have been tried
        return [id_ for id_, each in self._postponed.items() if each.until > now]


def firing_work(schedule: Schedule, instant: datetime, now: datetime) -> Work:
    """Return the work of a firing at an instant that starts now. Its owner gets the result on time,
    also in quiet hours, if they have set the time themselves and the firing was not missed.
    """
    work = schedule.definition.work
    is_own = schedule.origin in ("person", "agent")
    if is_own and names_a_time(schedule.definition.timing) and now - instant <= LATE:
        return msgspec.structs.replace(work, deliver="on-time")
    return work


def trigger_of(schedule: Schedule, instant: datetime) -> Trigger:
    """Return the trigger of a schedule at an instant."""
    text = f"{instant:%Y-%m-%dT%H:%M:%SZ}"
    data = {"title": schedule.name, "instant": text, "when": schedule.definition.when}
    return Trigger(
        source="schedule", name=schedule.id, key=text, data=msgspec.Raw(msgspec.json.encode(data))
    )


class _Due(NamedTuple):
    """Schedules that are due; if there are none, in how many milliseconds the next one is."""

    now: int
    skew: int
    schedules: list[Schedule]
    next_in: int | None


def _read_due(database: Database, but: Sequence[str]) -> _Due:
    found = rows.due_now(database, but, _AT_ONCE)
    next_in = None if found else rows.next_due(database, but)
    return _Due(database.settled, database.now - database.steady, found, next_in)


def _bring_forward(database: Database, now: datetime) -> None:
    """Let schedules be due at the times that are to come, after a jump of the wall clock."""
    for each in rows.active(database):
        following = next_after(each.definition.timing, now)
        if following is not None and following < each.due:
            rows.move(database, each, following)

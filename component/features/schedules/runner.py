"""Fires schedules when they are due.

A firing is work whose trigger has the schedule as its name and the nominal instant in UTC as its
key, so of several instances one starts it, once. A schedule moves on only after its firing is
recorded: a process that is killed in between fires it again, which the key makes a repetition.

The wall clock decides when a schedule is due, because people name times of the day. After a jump
forward the new time counts when it has held for a minute. After a jump backward the schedules are
due at the times that follow; firings that took place already are recognised by their keys.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Final

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component.features.schedules import rows
from component.features.schedules.node import ScheduleNode
from component.features.schedules.rows import LATE, Schedule, instant_of
from component.features.schedules.timing import due, names_a_time, next_after
from component.kernel.task_starter import TaskStarter
from component.kernel.triggers import Trigger, Work
from component.store.clock import seconds_since_boot
from component.store.database import Database
from component.store.errors import StorageError
from component.store.storage import Storage
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.schedules")

_AT_ONCE: Final = 100
_LONGEST_S: Final = 15.0
"""Seconds after which this instance looks again, for schedules that another one has added and for
a clock that was set."""
_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 300.0


class _Postponed(msgspec.Struct):
    """A schedule whose work cannot be started now: when it is tried again, and after how long."""

    until: float
    wait: float


class ScheduleRunner:
    """Fires schedules.

    Args:
        storage: has the table `schedules`.
        starter: starts the work.
        node: notifies the owners of schedules.
        clock: seconds that do not jump.

    Attributes:
        node: as given.
    """

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
                _log.warning("schedules have to wait", reason=str(error), seconds=wait)
                left, wait = wait, min(wait * 2, _LONGEST_WAIT_S)
            with anyio.move_on_after(left):
                await self._woken.wait()

    async def step(self) -> float:
        """Fire all schedules that are due; return the seconds until the next look.

        Raises StorageError.
        """
        await self._follow_clock()
        while True:
            waiting = self._waiting()
            now, found = await self._storage.read(partial(_read_due, but=waiting))
            if not found:
                break
            await self._fire_together(found, instant_of(now))
        left = await self._storage.read(partial(rows.next_due, but=waiting))
        times = [_LONGEST_S]
        if left is not None:
            # One that is due but cannot be read does not keep this busy.
            times.append((left + 1) / 1000 if left > 0 else _FIRST_WAIT_S)
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
        """Start the work of a schedule for each instant that is due. Raises StorageError."""
        definition = schedule.definition
        most = definition.missed_most if definition.missed == "all" else 1
        instants, following = due(definition.timing, schedule.due, now, most)
        if definition.missed == "skip":
            instants = [one for one in instants if now - one <= LATE]
        if not instants:
            await self._storage.write(partial(rows.move, schedule=schedule, due=following))
        for instant, after in zip(instants, [*instants[1:], following], strict=True):
            if not await self._start(schedule, instant, now):
                return
            self._postponed.pop(schedule.id, None)
            # After each of them: a kill does not begin again with the first one.
            move = partial(rows.move, schedule=schedule, due=after, fired=instant)
            if not await self._storage.write(move) or after is None:
                return  # it has ended, or another instance has changed or removed it
            schedule = msgspec.structs.replace(schedule, due=after)

    async def _start(self, schedule: Schedule, instant: datetime, now: datetime) -> bool:
        """Start the work for one instant; False if that has to be tried again later."""
        trigger = trigger_of(schedule, instant)
        try:
            task = await self._starter.start(trigger, work_of(schedule, instant, now))
        except StanzaError as error:
            if error.type == "wait":
                self._postpone(schedule, error)
                return False
            task = None  # recorded as refused; its owner is notified
        else:
            if task is None:
                return True  # another instance was first
        _log.info("a schedule has fired", schedule=schedule.id, instant=trigger.key, task=task)
        self.node.fired(schedule, instant, task)
        return True

    def _postpone(self, schedule: Schedule, error: Exception) -> None:
        before = self._postponed.get(schedule.id)
        wait = _FIRST_WAIT_S if before is None else min(before.wait * 2, _LONGEST_WAIT_S)
        self._postponed[schedule.id] = _Postponed(self._clock() + wait, wait)
        _log.warning(
            "a schedule has to wait", schedule=schedule.id, reason=str(error), seconds=wait
        )

    def _waiting(self) -> list[str]:
        """The schedules that are not tried again yet."""
        now = self._clock()
        for id_ in [id_ for id_, each in self._postponed.items() if each.until + each.wait < now]:
            del self._postponed[id_]  # it was paused or removed, or it would have been tried
        return [id_ for id_, each in self._postponed.items() if each.until > now]

    async def _follow_clock(self) -> None:
        """After a jump of the wall clock let schedules be due at the times that are to come now.

        Without a jump, at the start, this changes nothing: no instant lies between the last firing
        and the next one.
        """
        skew, now = await self._storage.read(lambda db: (db.now - db.steady, db.settled))
        if skew == self._skew:
            return
        await self._storage.write(partial(_bring_forward, now=instant_of(now)))
        self._skew = skew


def work_of(schedule: Schedule, instant: datetime, now: datetime) -> Work:
    """Return the work of a firing at an instant that starts now.

    Its owner gets the result on time, also in quiet hours, if they have set the time themselves and
    the firing was not missed.
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
        source="schedule",
        name=schedule.id,
        key=text,
        data=msgspec.Raw(msgspec.json.encode(data)),
    )


def _read_due(database: Database, but: Sequence[str]) -> tuple[int, list[Schedule]]:
    return database.settled, rows.due_now(database, but, _AT_ONCE)


def _bring_forward(database: Database, now: datetime) -> None:
    for each in rows.active(database):
        following = next_after(each.definition.timing, now)
        if following is not None and following < each.due:
            rows.move(database, each, following)

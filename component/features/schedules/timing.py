"""When a schedule fires: cron expressions in a time zone, one instant, or a fixed interval.

All instants are in UTC, so that the repeated hour at the end of daylight saving time is
unambiguous. In a time zone with daylight saving time a cron expression is evaluated as Debian's
cron does it:

- A fixed local time that does not exist, because the clock is set forward over it, fires at the
  end of the gap.
- A fixed local time that exists twice, because the clock is set back, fires the first time.
- An expression whose minute or hour field begins with `*`, such as `*/30 * * * *`, fires in both
  passes of a repeated hour, and not at all in a skipped one.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cache, lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from component.zones import zone_named

if TYPE_CHECKING:
    from cronsim import CronSim

MACROS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_LONGEST_EXPRESSION: Final = 200
_EXAMINED: Final = 200
"""Maximum number of instants that are compared to find the shortest interval."""
_EXAMINED_FOR: Final = timedelta(days=400)
_END: Final = datetime(9000, 1, 1, tzinfo=UTC)
"""No instant is later, so that arithmetic never overflows."""


MINUTE_S: Final = 60
HOUR_S: Final = 3600
DAY_S: Final = 86400
WEEK_S: Final = 7 * DAY_S

EXAMPLES: Final = (
    "every monday at 9, every day at 9 and 18, every 30 minutes, in 20 minutes, tomorrow at 7:15,"
    " 2026-12-24 at 18:00, or a cron expression such as 0 9 * * mon"
)
SHOWN: Final = 60
"""Maximum number of characters of a text that an error repeats."""


class TimingError(ValueError):
    """A text does not say when something is to happen. The message says what is wrong with it."""


class NoTimeError(TimingError):
    """A text that does not begin with a time."""


class PassedError(TimingError):
    """A time that is understood and has passed."""


class Cron(msgspec.Struct, frozen=True, tag="cron", omit_defaults=True):
    """Cron expressions of five fields, evaluated in a time zone.

    Attributes:
        others: further expressions, at whose instants it fires too: 9:30 and 18:00 need two.
        weeks: it fires in every so many weeks, of which that of `since` is the first.
        days: it fires at every so many days, of which `since` is the first.
        since: the first local day; None for no such bound.
        before: it does not fire at this instant or later; None for no such bound.
    """

    expression: str
    zone: str = "UTC"
    others: tuple[str, ...] = ()
    weeks: int = 1
    days: int = 1
    since: date | None = None
    before: datetime | None = None

    def fires_on(self, day: date) -> bool:
        """Return whether a local day is one of those of `weeks`, `days` and `since`."""
        if self.since is None:
            return True
        monday, first = day - timedelta(day.weekday()), self.since - timedelta(self.since.weekday())
        return (
            day >= self.since
            and (monday - first).days // 7 % self.weeks == 0
            and (day - self.since).days % self.days == 0
        )


class Once(msgspec.Struct, frozen=True, tag="once"):
    """One instant."""

    at: datetime


class Every(msgspec.Struct, frozen=True, tag="every", omit_defaults=True):
    """A fixed interval in seconds. It fires at `start` plus each multiple of the interval, and not
    at `before` or later.
    """

    seconds: int
    start: datetime
    before: datetime | None = None


Timing: TypeAlias = Cron | Once | Every


def zone_of(name: str) -> tzinfo:
    """Return the time zone of an IANA name or an offset, `UTC+09:00`. Raises TimingError."""
    found = zone_named(name)
    if found is None:
        raise TimingError(f"there is no time zone {name[:64]!r}: give one such as Europe/Paris")
    return found


def checked_timing(timing: Timing) -> Timing:
    """Return the timing itself. Raises TimingError if it can never fire or is not valid."""
    if isinstance(timing, Every):
        if timing.seconds < 1:
            raise TimingError("an interval is at least one second")
    elif isinstance(timing, Cron):
        unbounded = msgspec.structs.replace(timing, before=None)
        if next_after(unbounded, datetime(2026, 1, 1, tzinfo=UTC)) is None:
            raise TimingError(f"the cron expression {timing.expression!r} never fires")
    return timing


def next_after(timing: Timing, instant: datetime) -> datetime | None:
    """Return the first instant at which a timing fires after another instant, in UTC. Returns None
    if it does not fire any more.
    """
    return next(instants_after(timing, instant), None)


def instants_after(timing: Timing, instant: datetime) -> Iterator[datetime]:
    """The instants at which a timing fires after another instant, in UTC and in their order."""
    if isinstance(timing, Once):
        if timing.at > instant:
            yield timing.at.astimezone(UTC)
    elif isinstance(timing, Every):
        start, step = timing.start.astimezone(UTC), timedelta(seconds=timing.seconds)
        count = 0 if instant < start else (instant - start) // step + 1
        end = _END if timing.before is None else min(_END, timing.before.astimezone(UTC))
        while (found := start + count * step) < end:
            yield found
            count += 1
    else:
        yield from _fires(timing, instant)


def due_instants(
    timing: Timing, first: datetime, now: datetime, most: int
) -> tuple[list[datetime], datetime | None]:
    """The instants from `first`, which is one of them, up to `now`; and the first one after that.
    At most the `most` latest instants are returned, the earliest of them first.
    """
    following = next_after(timing, now)
    if isinstance(timing, Every) and now > first:
        step = timedelta(seconds=timing.seconds)
        first += max(0, (now - first) // step - most) * step
    # A short interval has too many instants to look at each of them after a long time.
    back = timedelta(days=1)
    while True:
        begin = max(first, now - back)
        instants = instants_after(timing, begin - timedelta(microseconds=1))
        found = deque(takewhile(lambda instant: instant <= now, instants), maxlen=most)
        if begin == first or len(found) == most:
            return list(found), following
        back *= 4


def shortest_interval(timing: Timing, now: datetime) -> timedelta | None:
    """The shortest time between two instants in the coming year; None if there are not two."""
    if isinstance(timing, Once):
        return None
    if isinstance(timing, Every):
        return timedelta(seconds=timing.seconds)
    shortest, before = None, None
    for number, instant in enumerate(instants_after(timing, now)):
        if number == _EXAMINED or instant - now > _EXAMINED_FOR:
            break
        if before is not None and (shortest is None or instant - before < shortest):
            shortest = instant - before
        before = instant
    return shortest


def names_a_time(timing: Timing) -> bool:
    """Whether a timing names an instant or times of the day, and not only how often it fires.
    `@daily` and the like do not: nobody who writes that means midnight.
    """
    if isinstance(timing, Cron):
        expression = timing.expression.strip()
        is_macro = expression.startswith("@")
        return not is_macro and not _fields(expression).split()[1].startswith("*")
    return isinstance(timing, Once)


def local_instant(moment: datetime, zone: tzinfo) -> datetime:
    """Return a local time without an offset as an instant, by the rules for fixed times above."""
    found = moment.replace(tzinfo=zone, fold=0)
    while found.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != moment:
        moment += timedelta(minutes=1)  # in the gap: go on to its end
        found = moment.replace(tzinfo=zone, fold=0)
    return found.astimezone(UTC)


def _fires(timing: Cron, instant: datetime) -> Iterator[datetime]:
    """Return the instants after another one, each later than the one before."""
    last = instant.astimezone(UTC)
    if last >= _END:
        return
    end = _END if timing.before is None else min(_END, timing.before)
    for found, day in _merged(timing, instant):
        if found >= end:
            return
        # A fixed time in a repeated hour is found again from within its second pass.
        if found > last and timing.fires_on(day):
            yield found
            last = found


def _merged(timing: Cron, instant: datetime) -> Iterator[tuple[datetime, date]]:
    def of(expression: str) -> Iterator[tuple[datetime, date]]:
        for local in _simulated(expression, timing.zone, instant):
            yield local.astimezone(UTC), local.date()

    return heapq.merge(*[of(each) for each in (timing.expression, *timing.others)])


@cache
def _simulation() -> "tuple[type[CronSim], type[Exception]]":
    """Return cronsim's simulation, corrected, and its error. It is imported where there is a cron
    expression: a service without one starts faster.
    """
    from cronsim import CronSim, CronSimError  # noqa: PLC0415

    class CronSimulation(CronSim):
        """Is correct where a clock is set forward or back by half an hour, as at Lord Howe Island.
        cronsim 2.8 looks for the next hour in steps of 60 minutes. After such a change it arrives
        at half past, and the first half of that hour is lost.
        """

        def advance_hour(self) -> bool:
            """Go on to the beginning of an hour that fits; return False if the present one does."""
            if self.dt.hour in self.hours:
                return False
            self.dt = self.dt.replace(minute=0, second=0)
            while self.dt.hour not in self.hours:
                self.tick(seconds=(60 - self.dt.minute) * 60)
                if self.dt.hour == 0:
                    break  # the day and the month have to fit as well
            return True

    return CronSimulation, CronSimError


def _simulated(expression: str, zone: str, instant: datetime) -> "CronSim":
    fields = _fields(expression)
    simulation, cron_error = _simulation()
    try:
        return simulation(fields, instant.astimezone(zone_of(zone)))
    except cron_error as error:
        raise TimingError(f"the cron expression {expression!r} is not valid: {error}") from None


@lru_cache(256)
def _fields(expression: str) -> str:
    text = expression.strip()
    fields = MACROS.get(text.lower(), text)
    if len(fields) > _LONGEST_EXPRESSION or not fields.isascii():
        raise TimingError(
            f"a cron expression has at most {_LONGEST_EXPRESSION} characters, all of them ASCII"
        )
    if len(fields.split()) != 5:
        raise TimingError(
            f"the cron expression {text!r} needs five fields: minute, hour, day of the month,"
            " month, day of the week"
        )
    return fields

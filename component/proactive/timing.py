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

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias
from zoneinfo import ZoneInfo

import msgspec

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


class TimingError(ValueError):
    """A text does not say when something is to happen. The message says what is wrong with it."""


class Cron(msgspec.Struct, frozen=True, tag="cron"):
    """A cron expression of five fields, evaluated in an IANA time zone."""

    expression: str
    zone: str = "UTC"


class Once(msgspec.Struct, frozen=True, tag="once"):
    """One instant."""

    at: datetime


class Every(msgspec.Struct, frozen=True, tag="every"):
    """A fixed interval in seconds. It fires at `start` plus each multiple of the interval."""

    seconds: int
    start: datetime


Timing: TypeAlias = Cron | Once | Every


def zone_of(name: str) -> ZoneInfo:
    """The time zone of an IANA name. Raises TimingError."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # OSError: the name of a directory, such as Europe
        pass
    raise TimingError(f"there is no time zone {name[:64]!r}: give one such as Europe/Paris")


def checked(timing: Timing) -> Timing:
    """The timing itself. Raises TimingError if it can never fire or is not valid."""
    if isinstance(timing, Every):
        if timing.seconds < 1:
            raise TimingError("an interval is at least one second")
    elif isinstance(timing, Cron):
        _simulated(timing, datetime.now(UTC))
        if next_after(timing, datetime(2026, 1, 1, tzinfo=UTC)) is None:
            raise TimingError(f"the cron expression {timing.expression!r} never fires")
    return timing


def next_after(timing: Timing, instant: datetime) -> datetime | None:
    """The first instant at which a timing fires after another instant, in UTC.

    Returns None if it does not fire any more.
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
        while (found := start + count * step) < _END:
            yield found
            count += 1
    else:
        yield from _fires(timing, instant)


def due(
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
        found = deque(_between(timing, begin, now), maxlen=most)
        if begin == first or len(found) == most:
            return list(found), following
        back *= 4


def _between(timing: Timing, begin: datetime, end: datetime) -> Iterator[datetime]:
    """The instants of a timing from `begin` to `end`, both included."""
    for instant in instants_after(timing, begin - timedelta(microseconds=1)):
        if instant > end:
            return
        yield instant


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


def local_instant(moment: datetime, zone: ZoneInfo) -> datetime:
    """A local time without an offset as an instant, by the rules for fixed times above."""
    found = moment.replace(tzinfo=zone, fold=0)
    while found.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != moment:
        moment += timedelta(minutes=1)  # in the gap: go on to its end
        found = moment.replace(tzinfo=zone, fold=0)
    return found.astimezone(UTC)


def _fires(timing: Cron, instant: datetime) -> Iterator[datetime]:
    """The instants after another one, each later than the one before."""
    last = instant.astimezone(UTC)
    if last >= _END:
        return
    for local in _simulated(timing, instant):
        found = local.astimezone(UTC)
        # A fixed time in a repeated hour is found again from within its second pass.
        if found > last:
            yield found
            last = found
        if found >= _END:
            return


def _simulated(timing: Cron, instant: datetime) -> "CronSim":
    # Imported where there is a cron expression: a service without one starts faster.
    from component.proactive.cron_simulation import (  # noqa: PLC0415
        CronSimError,
        CronSimulation,
    )

    fields = _fields(timing.expression)
    try:
        return CronSimulation(fields, instant.astimezone(zone_of(timing.zone)))
    except CronSimError as error:
        raise TimingError(f"the cron expression {timing.expression!r} is not valid: {error}") from (
            None
        )


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

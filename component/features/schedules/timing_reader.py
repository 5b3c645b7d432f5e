"""Reads a time in English words as a timing, whole or not at all."""

import re
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Final

import msgspec

from component.features.schedules.time_phrases import (
    ORDINALS,
    UNIT,
    DaysOfWeek,
    Part,
    Phrase,
    SpokenDate,
    days_later,
    number_of,
    unit_of,
)
from component.features.schedules.timing import (
    DAY_S,
    EXAMPLES,
    HOUR_S,
    SHOWN,
    WEEK_S,
    Cron,
    Every,
    NoTimeError,
    Once,
    PassedError,
    Timing,
    TimingError,
    checked_timing,
    local_instant,
    next_after,
    zone_of,
)

_LONGEST_S: Final = 10 * 366 * DAY_S
_LAST_YEAR: Final = 2999
_LARGEST_INTERVAL: Final = 1000
_CRON_DAYS: Final = {
    frozenset(range(7)): "*",
    frozenset(range(1, 6)): "1-5",
    frozenset((0, 6)): "6,0",
}


class _Recurrence(msgspec.Struct):
    """On which days something is repeated, or at which interval.

    Attributes:
        of_month: the day of the month, as in a cron expression.
        nth: which of these days of the week in a month, as in a cron expression; empty for all.
        seconds: the interval without times of the day; 0 if they are needed.
        count: how many times on each day; 0 if that was not said.
    """

    days: frozenset[int] | None = None
    of_month: str = ""
    nth: str = ""
    weeks: int = 1
    every: int = 1
    seconds: int = 0
    count: int = 0
    part: Part | None = None


_ANY_DAY: Final = frozenset(range(7))


class TimingReader(Phrase):
    """Reads one time in words. Instants up to `past` have passed. `declared` says whether the time
    must not depend on the current one.
    """

    def __init__(
        self, text: str, zone: str, now: datetime, past: datetime, *, declared: bool
    ) -> None:
        super().__init__(text)
        self._zone_name = zone
        self._zone: tzinfo = zone_of(zone)
        self._now = now
        self._past = past
        self._declared = declared
        self._today = now.astimezone(self._zone).date()
        self._without: frozenset[int] = frozenset()
        self._since: date | None = None
        self._start: datetime | None = None
        self._before: datetime | None = None
        self._has_times = False

    def read(self) -> Timing:
        """Return what the whole text says. Raises TimingError."""
        timing = self._after() or self._timing()
        if self.rest or timing is None:
            kind = TimingError if self.understood else NoTimeError
            raise kind(self._refusal())
        return timing

    def _refusal(self) -> str:
        understood, rest = self.understood, self.rest
        if not understood:
            return f"{rest[:SHOWN]!r} does not say when: write for example {EXAMPLES}"
        return (
            f"only {understood[:SHOWN]!r} is understood, and {rest[:SHOWN]!r} is not: write for"
            f" example {EXAMPLES}"
        )

    def _without_times(self, which: str) -> str:
        understood = self.understood
        if self.rest:
            return self._refusal()
        return (
            f"{understood!r} is understood, and does not say at which {which} of the day: write for"
            f" example {understood} at 9"
        )

    def _relative(self) -> None:
        """Refuse a time that depends on the current one, if it is in the settings."""
        if self._declared:
            raise TimingError(f"{self.text[:SHOWN]!r} depends on when it is read: give the date")

    # Once.

    def _after(self) -> Timing | None:
        """`in 20 minutes`, `20 minutes from now`, `in 3 days at 9`."""
        begin = self.at
        is_in = self.take("in") is not None
        seconds = self.take_duration()
        if seconds is None and is_in and self.take_number() and self.take("months?|years?"):
            raise TimingError(
                f"{self.understood!r} has no fixed length: give the date, such as"
                " 2026-12-24 at 18:00"
            )
        if seconds is None or not (is_in or self.take("from now")):
            self.at = begin
            return None
        self._relative()
        if seconds % DAY_S == 0 and (times := self.take_times()):
            day = SpokenDate(days_later(self._today, seconds // DAY_S), relative=True)
            return self._once(day, times)
        return Once(self._now + timedelta(seconds=_bounded(seconds)))

    def _once(self, spoken: SpokenDate, times: list[tuple[int, int]]) -> Once:
        if not times:
            raise TimingError(self._without_times("time"))
        if len(times) > 1:
            raise TimingError(
                f"{self.understood!r} has {len(times)} times on one date: add one schedule"
                " for each of them"
            )
        if spoken.relative:
            self._relative()
        instant = self._instant(spoken.day, times[0])
        if instant <= self._past and spoken.again:
            instant = self._instant(_again(spoken), times[0])
        return Once(future(instant, self._past))

    def _instant(self, day: date, at: tuple[int, int]) -> datetime:
        try:
            return local_instant(datetime.combine(day, time(*at)), self._zone)
        except OverflowError:
            raise TimingError("the date is out of range") from None

    # Repeated, and what is common to both.

    def _timing(self) -> Timing | None:
        times = self.take_times(bare=False)
        self._has_times = bool(times)
        recurrence = self._recurrence()
        if recurrence is None:
            return self._dated(times)
        self._check_part(recurrence.part)
        if not times:
            times = self._times_with_bounds(recurrence)
        self._bounds(recurrence)
        if not times:
            return self._interval(recurrence)
        if recurrence.count and len(times) != recurrence.count:
            raise TimingError(
                f"{self.understood!r} has {len(times)} times of the day and says {recurrence.count}"
            )
        return self._cron(recurrence, times)

    def _dated(self, times: list[tuple[int, int]]) -> Timing | None:
        spoken = self.take_date(self._today)
        if spoken is not None:
            self._check_part(spoken.part)
            return self._once(spoken, times or self._times_in(spoken.part))
        if not times:
            return None
        today = SpokenDate(self._today, relative=True)
        self._relative()
        if len(times) == 1 and self._instant(self._today, times[0]) <= self._past:
            today = msgspec.structs.replace(today, day=days_later(self._today, 1))
        return self._once(today, times)

    def _times_in(self, part: Part | None, *, is_daily: bool = False) -> list[tuple[int, int]]:
        """Read times of the day. Raises TimingError for the midnight of an evening, which belongs
        to the next day, unless each day has one.
        """
        times = self.take_times(part)
        if (0, 0) in times and part in ("evening", "night") and not is_daily:
            raise TimingError(
                f"{self.understood!r} does not say which day: write 0:00, and the day that"
                " begins then"
            )
        return times

    def _check_part(self, part: Part | None) -> None:
        """Refuse `at 8 every evening`: the part of the day comes after the time."""
        if part is not None and self._has_times:
            raise TimingError(
                f"{self.understood!r} names a part of the day after the time: write the"
                " time as in 21:30"
            )

    def _times_with_bounds(self, recurrence: _Recurrence) -> list[tuple[int, int]]:
        self._bounds(recurrence)
        self.take(",")
        is_daily = recurrence.days == _ANY_DAY and recurrence.every == 1
        times = self._times_in(recurrence.part, is_daily=is_daily)
        self._has_times = bool(times)
        return times

    def _bounds(self, recurrence: _Recurrence) -> None:
        """Read `except sunday`, `until friday` and `starting on monday`."""
        while True:
            begin = self.at
            self.take(",")
            if self.take("(?:except|excluding|but not|but|other than|apart from)(?: for)?(?: on)?"):
                found = self.take_days() if recurrence.days is not None else None
                if found is not None and found.part is None and found.numbers != _ANY_DAY:
                    self._without |= found.numbers
                    continue
            elif self.take("until|till|til|up to|through") and self._before is None:
                if self._until(recurrence):
                    continue
            elif self.take("starting|beginning|from|as of") and self._since is None:
                self.take("from|on")
                if self._starting(recurrence):
                    continue
            self.at = begin
            return

    def _until(self, recurrence: _Recurrence) -> bool:
        spoken = self.take_date(self._today)
        if spoken is None:
            at = self.take_time() if recurrence.seconds and recurrence.seconds < DAY_S else None
            if at is None:
                return False
            self._relative()
            self._before = self._next(at.hour, at.minute) + timedelta(seconds=1)
            return True
        if spoken.relative:
            self._relative()
        day = spoken.day
        if spoken.again and (day < self._today or (spoken.again == "week" and day == self._today)):
            day = _again(spoken)
        # In `every day until friday at 9` the time is that of each day.
        has_times = self._has_times or recurrence.days is None
        at = self.take_time(spoken.part) if has_times and self.take("at") else None
        if at is not None:
            self._before = self._instant(day, (at.hour, at.minute)) + timedelta(seconds=1)
        elif spoken.part is not None:
            return False
        else:  # that day is included
            self._before = self._instant(days_later(day, 1), (0, 0))
        if self._before <= self._past:
            raise PassedError(f"{self.understood!r} has passed")
        return True

    def _starting(self, recurrence: _Recurrence) -> bool:
        spoken = self.take_date(self._today)
        if spoken is None:
            return False
        if spoken.relative:
            self._relative()
        self._since = _again(spoken) if spoken.day < self._today and spoken.again else spoken.day
        if recurrence.days is None and recurrence.seconds and recurrence.seconds % WEEK_S == 0:
            # `every 2 weeks starting friday at 9` has a time of the day, which no interval keeps.
            recurrence.days = frozenset((self._since.isoweekday() % 7,))
            recurrence.weeks, recurrence.seconds = recurrence.seconds // WEEK_S, 0
        at = self.take_time(spoken.part) if recurrence.days is None else None
        if at is not None:
            self._start = self._instant(self._since, (at.hour, at.minute))
            if self._start <= self._past:
                raise PassedError(f"{self.understood!r} has passed")
        return True

    def _next(self, hour: int, minute: int) -> datetime:
        instant = self._instant(self._today, (hour, minute))
        if instant > self._now:
            return instant
        return self._instant(days_later(self._today, 1), (hour, minute))

    def _interval(self, recurrence: _Recurrence) -> Timing:
        if not recurrence.seconds or (self._since and not self._start) or self._without:
            raise TimingError(self._without_times("times"))
        seconds = _bounded(recurrence.seconds)
        start = self._start or self._now + timedelta(seconds=seconds)
        if self._before is not None and start >= self._before:
            raise TimingError(f"{self.understood!r} never fires")
        return checked_timing(Every(seconds, start, self._before))

    def _cron(self, recurrence: _Recurrence, times: list[tuple[int, int]]) -> Timing:
        if recurrence.seconds and recurrence.days is None:
            raise TimingError(
                f"{self.understood!r} is an interval with times of the day: write for"
                f" example {EXAMPLES}"
            )
        hours = dict[int, list[str]]()
        for hour, minute in times:
            hours.setdefault(minute, []).append(str(hour))
        month_day, week_day = recurrence.of_month or "*", "*"
        if not recurrence.of_month:
            left = (recurrence.days or _ANY_DAY) - self._without
            if not left:
                raise TimingError(f"{self.understood!r} leaves no day")
            week_day = _CRON_DAYS.get(left) or ",".join(map(str, sorted(left)))
        expressions = [
            f"{minute} {','.join(at)} {month_day} * {week_day}{recurrence.nth}"
            for minute, at in hours.items()
        ]
        timing = Cron(
            expressions[0],
            self._zone_name,
            others=tuple(expressions[1:]),
            since=self._since,
            before=self._before,
        )
        if recurrence.weeks > 1 or recurrence.every > 1:
            first = next_after(timing, self._now)
            timing = msgspec.structs.replace(
                timing,
                weeks=recurrence.weeks,
                days=recurrence.every,
                since=None if first is None else first.astimezone(self._zone).date(),
            )
        if self._before is not None and next_after(timing, self._past) is None:
            raise PassedError(f"{self.understood!r} never fires")
        return checked_timing(timing)

    # On which days.

    def _recurrence(self) -> _Recurrence | None:
        begin = self.at
        if self.take("every|each"):
            if (found_after := self._every()) is None:
                self.at = begin
            return found_after
        if self.take("daily"):
            return _Recurrence(_ANY_DAY, seconds=DAY_S)
        if self.take("hourly"):
            return _Recurrence(seconds=HOUR_S)
        if self.take("weekly"):
            return self._weeks(1)
        if self.take("monthly"):
            if (found_after := self._monthly()) is None:
                self.at = begin
            return found_after
        if (count := self._count()) and self.take(r"(?:a|per|every|each) day|daily"):
            return _Recurrence(_ANY_DAY, count=count)
        self.at = begin
        self.take("on")
        if (month_day := self._of_every_month()) is not None:
            return month_day
        found = self.take_days()
        if found is None or not (found.plural and (found.numbers != _ANY_DAY or found.part)):
            self.at = begin
            return None
        return _Recurrence(found.numbers, part=found.part)

    def _count(self) -> int:
        if found := self.take("(?P<said>once|twice)"):
            return 1 if found["said"].lower() == "once" else 2
        count = self.take_number()
        return count if count and self.take("times") else 0

    def _every(self) -> _Recurrence | None:
        begin = self.at
        if (month_day := self._of_every_month()) is not None:
            return month_day
        if found := self.take(rf"(?P<n>{'|'.join(ORDINALS)}|last)"):
            made = self._every_nth(found["n"].lower())
            if made is not None:
                return made
            self.at = begin
        if self.take("month"):
            return self._monthly()
        count_at = self.at
        count = self.take_number() or 1
        if self.take("days?"):
            return self._days(count)
        if self.take("weeks?"):
            return self._weeks(count)
        self.at = count_at
        seconds = self.take_duration()
        if seconds is not None:
            return _Recurrence(seconds=seconds)
        found_days = self.take_days()
        if found_days is not None:
            return self._of_days(found_days)
        word = re.match(r"\s*([a-z]+)", self.text[self.at :], re.IGNORECASE)
        if word is not None:
            raise TimingError(
                f"{self.text[:SHOWN]!r} is not understood, because {word[1]!r} is not a day of"
                f" the week or a unit of time: write for example {EXAMPLES}"
            )
        return None

    def _of_days(self, found: DaysOfWeek, weeks: int = 1) -> _Recurrence:
        return _Recurrence(found.numbers, weeks=weeks, part=found.part)

    def _days(self, count: int) -> _Recurrence:
        if not 1 <= count <= _LARGEST_INTERVAL:
            # Only an interval without times: `every 5000 days`.
            return _Recurrence(seconds=count * DAY_S)
        return _Recurrence(_ANY_DAY, every=count, seconds=count * DAY_S)

    def _weeks(self, count: int) -> _Recurrence:
        begin = self.at
        self.take("on")
        found = self.take_days() if count <= _LARGEST_INTERVAL else None
        if found is None or found.numbers == _ANY_DAY:
            self.at = begin
            return _Recurrence(seconds=count * WEEK_S)
        return self._of_days(found, count)

    def _every_nth(self, said: str) -> _Recurrence | None:
        """`every other day`, `every second friday`, `every last friday of the month`."""
        count = ORDINALS.get(said, 0)
        if count > 1:
            if self.take("days?"):
                return self._days(count)
            if self.take("weeks?"):
                return self._weeks(count)
            if found := self.take(rf"(?P<unit>{UNIT})"):
                return _Recurrence(seconds=count * unit_of(found["unit"]))
        days = self.take_days()
        if days is None:
            return None
        if said in ("first", "1st", "last"):
            return _nth_of_month(days, said)
        if count > 2:
            raise TimingError(
                f"{self.understood!r} may mean every {count} weeks, or once a month: write every"
                f" {count} weeks on a day, or add of the month"
            )
        if days.numbers == frozenset(range(1, 6)):
            raise TimingError(f"{self.understood!r} is not clear: name the days of the week")
        return self._of_days(days, count)

    def _monthly(self) -> _Recurrence | None:
        """What follows `every month`: `on the 15th`, `on the last day`, `on the first monday`."""
        if self.take("on(?: the)?") is None:
            raise TimingError(
                f"{self.understood!r} is understood, and does not say on which day: write"
                " for example every month on the 15th at 9"
            )
        return self._day_of_month()

    def _of_every_month(self) -> _Recurrence | None:
        """`the 15th of every month`, `first monday of the month`."""
        begin = self.at
        self.take("the")
        found = self._day_of_month()
        if found is None or not self.take("(?:of|in) (?:every|each|the|a) month"):
            self.at = begin
            return None
        return found

    def _day_of_month(self) -> _Recurrence | None:
        if self.take("last day"):
            return _Recurrence(of_month="L")
        begin = self.at
        if found := self.take(rf"(?P<n>{'|'.join(ORDINALS)}|last)"):
            said = found["n"].lower()
            days = self.take_days()
            if days is not None and days.numbers == _ANY_DAY and said in ORDINALS:
                return _Recurrence(of_month=str(ORDINALS[said]))
            if days is not None:
                return _nth_of_month(days, said)
            self.at = begin
        if found := self.take(r"(?P<n>\d{1,2})(?:st|nd|rd|th)?(?: day)?"):
            day = number_of(found["n"])
            if 1 <= day <= 31:
                return _Recurrence(of_month=str(day))
            self.at = begin
            return None
        if (found := self.take("(?P<n>first|second|third|fourth|fifth|sixth)")) is not None:
            return _Recurrence(of_month=str(ORDINALS[found["n"].lower()]))
        return None


def _nth_of_month(days: DaysOfWeek, said: str) -> _Recurrence | None:
    if len(days.numbers) != 1 or (said != "last" and ORDINALS[said] > 5):
        return None
    nth = "L" if said == "last" else f"#{ORDINALS[said]}"
    return _Recurrence(days.numbers, nth=nth, part=days.part)


def _bounded(seconds: int) -> int:
    if not 1 <= seconds <= _LONGEST_S:
        raise TimingError("an interval is between one second and ten years")
    return seconds


def _again(spoken: SpokenDate) -> date:
    if spoken.again == "week":
        return days_later(spoken.day, 7)
    try:
        return spoken.day.replace(year=spoken.day.year + 1)
    except ValueError:
        raise TimingError(f"there is no {spoken.day:%d %B} next year: give the year") from None


def future(instant: datetime, now: datetime) -> datetime:
    """Return the instant. Raises TimingError if it is not after `now`, or too far ahead."""
    if instant <= now:
        raise PassedError(f"{instant:%Y-%m-%d %H:%M} UTC has passed")
    if instant.year > _LAST_YEAR:
        raise TimingError(f"the year {instant.year} is too far ahead")
    return instant

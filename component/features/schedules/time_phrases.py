"""Reads the parts of a time in English words: numbers, durations, times of the day, days and dates.

Each method of `Phrase` reads one part at the current position, or returns None and reads nothing.
It raises TimingError for a part that means no time, or more than one.
"""

import re
from datetime import date, timedelta
from functools import lru_cache
from typing import Final, Literal, TypeAlias

import msgspec

from component.features.schedules.timing import DAY_S, HOUR_S, MINUTE_S, WEEK_S, TimingError

Part: TypeAlias = Literal["morning", "afternoon", "evening", "night"]
"""A part of the day, which says which of two times an hour of a clock with twelve hours is."""

_SMALL: Final = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    "nineteen",
)
_TENS: Final = {
    name: 10 * number
    for number, name in enumerate(
        ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"), start=2
    )
}
_NUMBER_WORD: Final = (
    rf"(?:{'|'.join(_TENS)})(?:[ -](?:{'|'.join(_SMALL[1:10])}))?|{'|'.join(_SMALL[:0:-1])}"
)
_NUMBER: Final = rf"\d{{1,9}}|{_NUMBER_WORD}"
_UNITS: Final = {"s": 1, "m": MINUTE_S, "h": HOUR_S, "d": DAY_S, "w": WEEK_S}
UNIT: Final = r"s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?"
ORDINALS: Final = {
    one: number
    for number, names in enumerate(
        ("first 1st", "other second 2nd", "third 3rd", "fourth 4th", "fifth 5th", "sixth 6th"),
        start=1,
    )
    for one in names.split()
}
_DAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_MONTHS: Final = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
)
_EVERY_DAY: Final = frozenset(range(7))
_GROUPS: Final = {
    r"(?:week|work|working|business)[ -]?days?": frozenset((1, 2, 3, 4, 5)),
    r"weekends?": frozenset((6, 0)),
    r"days?": _EVERY_DAY,
}
PART: Final = r"(?P<part>morning|afternoon|evening|night)s?"


@lru_cache(256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"\s*(?:{pattern})(?!\w)", re.ASCII | re.IGNORECASE)


# Numbers and durations.


def number_of(text: str) -> int:
    """Return the value of a number in digits or English words."""
    if text.isdigit():
        return int(text)
    tens, _, ones = text.lower().replace("-", " ").partition(" ")
    if tens in _TENS:
        return _TENS[tens] + (_SMALL.index(ones) if ones else 0)
    return _SMALL.index(tens)


def unit_of(text: str) -> int:
    """Return the seconds of a unit of time, by its first letter."""
    return _UNITS[text[0].lower()]


_COUNTED: Final = re.compile(
    rf"(?P<join>\s*(?:,? and|,)? ?)(?:(?P<n>\d{{1,9}}) ?|(?P<word>{_NUMBER_WORD}|an?) )?"
    rf"(?P<unit>{UNIT})(?=\W|\d|$)",
    re.ASCII | re.IGNORECASE,
)
"""A count of a unit. Without a space another one may follow at once: 1h30m."""


def _whole(unit: int, count: float, said: str) -> int:
    seconds = unit * count
    if seconds != int(seconds):
        raise TimingError(f"{said.strip()!r} is not a whole number of seconds")
    return int(seconds)


# Times of the day.


class TimeOfDay(msgspec.Struct, frozen=True):
    """A local time. `marked`: a person wrote in which half of the day it is. `unclear`: nobody did,
    and it could be in either.
    """

    hour: int
    minute: int
    marked: bool = False
    unclear: bool = False


HOUR_WORD: Final = "|".join(_SMALL[12:0:-1])
_PAST: Final = (
    rf"(?P<part>half|(?:a )?quarter|{_NUMBER})(?: minutes?)? past"
    rf"|(?P<to>(?:a )?quarter|(?:{_NUMBER}) minutes?|(?!\d)(?:{_NUMBER})) to"
)
"""`9 to 17` is a range, and not 16:51."""
_HALF: Final = r"(?P<half>[ap])\.?m\.?"
_CLOCK: Final = (
    rf"(?P<hour>\d{{1,2}})(?:[:.h](?P<minute>\d{{2}})|h)?(?:{_HALF})?|(?P<word>{HOUR_WORD})"
)


class _Marks(msgspec.Struct):
    """What follows a time: am or pm, and the part of the day."""

    half: str = ""
    part: Part | None = None
    said: bool = False


def _part(found: re.Match[str]) -> Part:
    part: Part = found["part"].lower()  # type: ignore[assignment]  # the pattern has no others
    return part


def _beside(past: re.Match[str], hour: int) -> tuple[int, int]:
    """The time that is some minutes before or after a whole hour."""
    said = (past["part"] or past["to"]).lower().removeprefix("a ")
    count = said.removesuffix("s").removesuffix(" minute")
    minutes = {"half": 30, "quarter": 15}.get(said) or number_of(count)
    if not 0 < minutes < 60:
        raise TimingError(f"{past[0].strip()!r} is not a time of the day")
    if past["part"]:
        return hour, minutes
    return 12 if hour == 1 else (hour - 1) % 24, 60 - minutes


def _time(hour: int, minute: int, marks: _Marks, part: Part | None) -> TimeOfDay:
    if marks.half:
        if not 1 <= hour <= 12:
            raise TimingError(f"there is no hour {hour} {marks.half}")
        hour = hour % 12 + (12 if marks.half == "pm" else 0)
    if hour > 23 or minute > 59:
        raise TimingError(f"there is no time {hour}:{minute:02}")
    part = marks.part or part
    if part is not None:
        hour = _in_part(hour, minute, part, is_24=bool(marks.half))
    marked = bool(marks.half or part)
    return TimeOfDay(hour, minute, marked, unclear=not marked and 1 <= hour <= 12)


_HOURS_OF: Final[dict[Part, range]] = {
    "morning": range(12),
    "afternoon": range(12, 19),
    "evening": range(16, 24),
    "night": range(18, 24),
}


def _in_part(hour: int, minute: int, part: Part, *, is_24: bool) -> int:
    hours = (hour,) if is_24 or hour >= 12 else (hour, hour + 12)
    fitting = [one for one in hours if one in _HOURS_OF[part]]
    if len(fitting) != 1:
        raise TimingError(
            f"{hour}:{minute:02} and {part!r} do not say one time: write it as in 21:30"
        )
    return fitting[0]


# Days and dates.


def day_number(word: str) -> int | None:
    """The number of a day of the week, Sunday is 0, from its name or at least three letters."""
    name = word.lower()
    for number, day in enumerate(_DAYS):
        if len(name) >= 3 and day.startswith((name, name.removesuffix("s"))):
            return number
    return None


class DaysOfWeek(msgspec.Struct, frozen=True):
    """Days of the week, Sunday is 0. `plural` says that they, or the part of the day, are named in
    the plural, so that they are meant every week. `part` is the part of the day that was said.
    """

    numbers: frozenset[int]
    plural: bool
    part: Part | None = None


class SpokenDate(msgspec.Struct, frozen=True):
    """A local day. If its time has passed, a day of the week or of the year is `again` a week or a
    year later. `relative` says that it depends on the current day. `part` is the part of the day.
    """

    day: date
    again: Literal["", "week", "year"] = ""
    relative: bool = False
    part: Part | None = None


_MONTH: Final = "|".join(rf"{name[:3]}(?:{name[3:]})?\.?" if name[3:] else name for name in _MONTHS)
_OF_MONTH: Final = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR: Final = r"(?:,? (?P<year>\d{4}))?"


def days_later(day: date, days: int) -> date:
    """Return the date so many days later. Raises TimingError if it is out of range."""
    try:
        return day + timedelta(days)
    except OverflowError:
        raise TimingError("the date is out of range") from None


def _calendar_date(found: re.Match[str], today: date) -> SpokenDate:
    month = next(
        number
        for number, name in enumerate(_MONTHS, start=1)
        if name.startswith(found["month"].lower().rstrip(".")[:3])
    )
    year = int(found["year"]) if found["year"] else today.year
    try:
        day = date(year, month, int(found["day"]))
    except ValueError as error:
        raise TimingError(f"{found[0].strip()!r} is not a date: {error}") from None
    if found["year"]:
        return SpokenDate(day)
    return SpokenDate(day, "year", relative=True)


class Phrase:
    """A text that is read from its beginning. `at` is the current position."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def take(self, pattern: str) -> re.Match[str] | None:
        """Read what matches a pattern, as whole words in any case; None if nothing does."""
        found = _compiled(pattern).match(self.text, self.at)
        if found is not None:
            self.at = found.end()
        return found

    def take_sign(self, signs: str) -> bool:
        """Read one of these characters; return whether it is there. It may be directly before a
        number, so unlike a word it has no boundary after it.
        """
        rest = self.text[self.at :].lstrip()
        if rest[:1] not in tuple(signs):
            return False
        self.at = len(self.text) - len(rest[1:].lstrip())
        return True

    @property
    def understood(self) -> str:
        """What was read."""
        return self.text[: self.at].strip(" ,")

    @property
    def rest(self) -> str:
        """What was not read."""
        return self.text[self.at :].strip(" ,")

    def take_number(self) -> int | None:
        """Read a number."""
        found = self.take(rf"(?P<number>{_NUMBER})")
        return None if found is None else number_of(found["number"])

    def take_duration(self) -> int | None:
        """Read a duration such as `90 minutes`, `an hour and a half` or `1h30`, in seconds."""
        if found := self.take(rf"half (?:an? )?(?P<unit>{UNIT})"):
            return _whole(unit_of(found["unit"]), 0.5, found[0])
        if self.take("(?:a )?quarter of an hour"):
            return 15 * MINUTE_S
        if self.take("three[ -]quarters of an hour"):
            return 45 * MINUTE_S
        if found := self.take(rf"(?P<n>{_NUMBER}|an?) and a half (?P<unit>{UNIT})"):
            count = 1 if found["n"].lower().startswith("a") else number_of(found["n"])
            return _whole(unit_of(found["unit"]), count + 0.5, found[0])
        if found := self.take(rf"(?P<n>\d{{1,6}}[.,]\d{{1,3}}) ?(?P<unit>{UNIT})"):
            return _whole(unit_of(found["unit"]), float(found["n"].replace(",", ".")), found[0])
        if found := self.take(r"(?P<h>\d{1,3})h(?P<m>\d{1,2})(?:m|min)?"):
            return int(found["h"]) * HOUR_S + int(found["m"]) * MINUTE_S
        return self._added()

    def _added(self) -> int | None:
        """Read counts of units from the largest to the smallest: `1 hour and 30 minutes`."""
        total, unit, at = 0, 0, self.at
        while found := _COUNTED.match(self.text, at):
            said = found["n"] or found["word"]
            smaller = unit_of(found["unit"])
            if unit and (said is None or smaller >= unit):
                break
            if not unit and found["join"].strip():
                return None
            unit, at = smaller, found.end()
            total += unit * (1 if said is None or said.lower() in ("a", "an") else number_of(said))
        if not unit or re.compile(r"\w").match(self.text, at):
            return None
        self.at = at
        if total == unit and self.take("and a half"):
            return total + _whole(unit, 0.5, self.understood)
        return total

    def take_time(self, part: Part | None = None, *, bare: bool = True) -> TimeOfDay | None:
        """Read a time of the day: `at 9`, `9:30 pm`, `noon` or `half past nine`. `bare` says
        whether a mere number is a time without `at`.
        """
        begin = self.at
        is_bare = self.take("(?:at )?exactly|at") is None and not bare
        if found := self.take(r"(?:12 )?(?P<name>noon|midday|midnight)"):
            return TimeOfDay(0 if found["name"].lower() == "midnight" else 12, 0)
        past = self.take(_PAST)
        clock = self.take(_CLOCK)
        if clock is None:
            self.at = begin
            return None
        hour = int(clock["hour"]) if clock["hour"] else number_of(clock["word"])
        minute = int(clock["minute"] or 0)
        spoken = None
        if clock["word"] and (spoken := self.take(r"(?P<m>fifteen|thirty|forty[ -]five)")):
            minute = number_of(spoken["m"])
        marks = self._marks(clock["half"])
        if past is not None:
            said = self.text[begin : self.at].strip()
            if clock["minute"] or spoken or (past["to"] and hour == 12 and marks.half):
                raise TimingError(
                    f"{said!r} is not clearly a time of the day: write it as in 21:30"
                )
            hour, minute = _beside(past, hour)
        if is_bare and not (past or clock["minute"] or marks.said):
            self.at = begin
            return None
        return _time(hour, minute, marks, part)

    def _marks(self, half: str | None) -> _Marks:
        marks = _Marks() if half is None else _Marks(half.lower() + "m", said=True)
        while True:
            if not marks.half and (found := self.take(_HALF)):
                marks.half = found["half"].lower() + "m"
            elif marks.part is None and (found := self.take(rf"(?:in the|at) {PART}")):
                marks.part = _part(found)
            elif not self.take(r"o['\u2019]?clock|sharp"):
                return marks
            marks.said = True

    def take_times(self, part: Part | None = None, *, bare: bool = True) -> list[tuple[int, int]]:
        """Read times of the day, as hours and minutes: `at 9, 12 and 18`; empty for none."""
        first = self.take_time(part, bare=bare)
        if first is None:
            return []
        found = [first]
        while True:
            begin = self.at
            has_comma = self.take_sign(",")
            if self.take("and|&") is None and not has_comma:
                break
            another = self.take_time(part)
            if another is None:
                self.at = begin
                break
            found.append(another)
        if any(one.marked for one in found) and any(one.unclear for one in found):
            raise TimingError(
                f"{self.understood!r} says am or pm for some of its times: write each as in 21:30"
            )
        return sorted({(one.hour, one.minute) for one in found})

    def take_days(self) -> DaysOfWeek | None:
        """Read days of the week: `monday and friday`, `mon-fri`, `weekdays`, `monday morning`."""
        for group, numbers in _GROUPS.items():
            if said := self.take(rf"(?:the )?(?:{group})"):
                found = DaysOfWeek(numbers, plural=said[0].endswith("s"))
                break
        else:
            if part := self.take(PART):
                plural = part[0].endswith("s")
                return DaysOfWeek(_EVERY_DAY, plural=plural, part=_part(part))
            named = self._named_days()
            if named is None:
                return None
            found = named
        part = self.take(PART)
        if part is None:
            return found
        plural = found.plural or part[0].endswith("s")
        return DaysOfWeek(found.numbers, plural=plural, part=_part(part))

    def _named_days(self) -> DaysOfWeek | None:
        numbers = set[int]()
        last: int | None = None
        plural = False
        while True:
            begin = self.at
            through = False
            if last is not None:
                through = self.take("to|through|thru") is not None or self.take_sign("-\u2013")
                if not through:
                    self.take_sign(",")
                    self.take("and|or|&|/")
            word = self.take(r"(?P<day>[a-z]{3,10})\.?")
            number = None if word is None else day_number(word["day"])
            if word is None or number is None:
                self.at = begin
                break
            if through and last is not None:
                numbers |= {(last + one) % 7 for one in range((number - last) % 7 + 1)}
            plural |= word["day"].lower().endswith("s") and len(word["day"]) > 5
            numbers.add(number)
            last = number
        return DaysOfWeek(frozenset(numbers), plural) if numbers else None

    def take_date(self, today: date) -> SpokenDate | None:
        """Read a date, such as `tomorrow`, `on friday`, `2026-12-24` or `24 december`."""
        if found := self.take(r"tonight|this (?P<part>morning|afternoon|evening)"):
            part: Part = "evening" if found["part"] is None else _part(found)
            return SpokenDate(today, relative=True, part=part)
        for words, later in ((r"(?:the )?day after tomorrow", 2), ("today", 0), ("tomorrow", 1)):
            if self.take(words):
                spoken = SpokenDate(days_later(today, later), relative=True)
                return self._with_part(spoken)
        if found := self.take(r"(?:on )?next [a-z]+"):
            raise TimingError(f"{found[0].strip()!r} does not say which day: give the date")
        begin = self.at
        self.take("on")
        if found := self.take(r"(?P<iso>\d{4}-\d{2}-\d{2})"):
            try:
                return self._with_part(SpokenDate(date.fromisoformat(found["iso"])))
            except ValueError as error:
                raise TimingError(f"{found['iso']!r} is not a date: {error}") from None
        found = self.take(rf"(?:the )?{_OF_MONTH} (?:of )?(?P<month>{_MONTH}){_YEAR}") or self.take(
            rf"(?P<month>{_MONTH}) {_OF_MONTH}{_YEAR}"
        )
        if found is not None:
            return self._with_part(_calendar_date(found, today))
        word = self.take(r"(?:this |the coming )?(?P<day>[a-z]{3,9})")
        number = None if word is None else day_number(word["day"])
        if word is None or number is None or word["day"].lower().endswith("days"):
            self.at = begin
            return None
        ahead = (number - today.isoweekday()) % 7
        return self._with_part(SpokenDate(days_later(today, ahead), "week", relative=True))

    def _with_part(self, spoken: SpokenDate) -> SpokenDate:
        found = self.take(PART)
        return spoken if found is None else msgspec.structs.replace(spoken, part=_part(found))

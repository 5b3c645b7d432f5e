"""Dates and times in texts: whether a date and time in ISO 8601 is one that somebody wrote.

People write *May 19th 2024 at noon for one hour*, and skills take `2024-05-19 12:00`. So a date is
also found in English words, and a time next to any date of the same text. A time is also found if
it follows a written one by a written duration: the end of what begins at 12:00 and takes one hour.
Nothing else is computed, so a model cannot choose any other time.
"""

import re
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from typing import Final, TypeVar

_T = TypeVar("_T")
_VALUE: Final = r"(?a)(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2})(?::00)?)?"
"""Without an offset from UTC: with one it is another time than the one that was written."""
_MONTHS: Final = (
    *("jan", "feb", "mar", "apr", "may", "jun"),
    *("jul", "aug", "sep", "oct", "nov", "dec"),
)
_MONTH: Final = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY: Final = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_SPOKEN: Final = (
    rf"(?a)\b{_MONTH}\s+{_DAY}\b",
    rf"(?a)\b{_DAY}\s+(?:of\s+)?{_MONTH}\b",
)
_ISO: Final = r"(?a)(?<![\w-])(\d{4})-(\d{2})-(\d{2})(?![\d-])"
_YEAR: Final = r"(?a)(?<![\w./:-])((?:19|20)\d\d)(?![\w/:-])"
_TIME: Final = (
    r"(?a)(?<![\w.:-])(\d{1,2})(?::(\d{2}))?(?::00)?\s*([ap])\.?m\b|(?<![\w.:])(\d{1,2}):(\d{2})(?![\d:])"
    r"|\b(noon|midnight)\b"
)
_COUNTED: Final = "one two three four five six seven eight nine ten eleven twelve"
_NUMBERS: Final = {"a": 1, "an": 1} | {word: n for n, word in enumerate(_COUNTED.split(), 1)}
_DURATION: Final = (
    rf"(?a)(?<![\w.:-])(\d{{1,3}}|{'|'.join(_NUMBERS)})[\s-]*(hours?|hrs?|h|minutes?|mins?)\b"
)
_MOST: Final = 32
"""The maximum number of dates, of times and of durations that are taken from a text."""


class Times:
    """The dates, times and durations in a text."""

    def __init__(self, text: str) -> None:
        lower = text.lower()
        self._dates = _first(_dates(lower))
        self._times = _first(_times(lower))
        self._durations = _first(_durations(lower))

    def contain(self, value: str) -> bool:
        """Return whether a value is a date, or a date and time, that the text has in some form."""
        found = re.fullmatch(_VALUE, value)
        if found is None:
            return False
        try:
            day = date.fromisoformat(found[1])
            at = time.fromisoformat(found[2]) if found[2] else None
        except ValueError:
            return False
        if day in self._dates and (at is None or at in self._times):
            return True
        return at is not None and any(
            datetime.combine(day, at) - duration == datetime.combine(one, start)
            for duration in self._durations
            for one in self._dates
            for start in self._times
        )


def is_time(value: str) -> bool:
    """Return whether a value is a date, or a date and time, in ISO 8601."""
    return re.fullmatch(_VALUE, value) is not None


def _first(values: Iterator[_T]) -> frozenset[_T]:
    distinct = dict[_T, None]()
    for value in values:
        distinct[value] = None
        if len(distinct) == _MOST:
            break
    return frozenset(distinct)


def _dates(text: str) -> Iterator[date]:
    for year, month, day in re.findall(_ISO, text):
        yield from _date(int(year), int(month), int(day))
    years = sorted({int(year) for year in re.findall(_YEAR, text)})[:_MOST]
    for form in _SPOKEN:
        for found in re.finditer(form, text):
            month = _MONTHS.index(found["month"][:3]) + 1
            for year in years:
                yield from _date(year, month, int(found["day"]))


def _date(year: int, month: int, day: int) -> Iterator[date]:
    try:
        yield date(year, month, day)
    except ValueError:  # no such day
        return


def _times(text: str) -> Iterator[time]:
    for half_hour, half_minute, half, hour, minute, name in re.findall(_TIME, text):
        if name:
            yield time(12 if name == "noon" else 0)
        elif half and 1 <= int(half_hour) <= 12 and int(half_minute or 0) < 60:
            yield time(int(half_hour) % 12 + (12 if half == "p" else 0), int(half_minute or 0))
        elif hour and int(hour) < 24 and int(minute) < 60:
            yield time(int(hour), int(minute))


def _durations(text: str) -> Iterator[timedelta]:
    for number, unit in re.findall(_DURATION, text):
        count = _NUMBERS[number] if number in _NUMBERS else int(number)
        yield timedelta(hours=count) if unit.startswith("h") else timedelta(minutes=count)

"""Reads when a schedule fires, as people and models write it, and writes it for people.

0 9 * * mon            a cron expression; also @hourly, @daily, @weekly, @monthly, @yearly
every 30 minutes       an interval, from now on
every day at 8         also: every monday and friday at 17:30, every weekday at 9
in 20 minutes          once
tomorrow at 7:15       once; also: today at 18, 2026-12-24 at 18:00
2026-12-24T18:00+01:00 once, with an offset from UTC
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from component.proactive.timing import (
    MACROS,
    Cron,
    Every,
    Once,
    Timing,
    TimingError,
    checked,
    local_instant,
    zone_of,
)

EXAMPLES: Final = (
    "every monday at 9, every 30 minutes, in 20 minutes, tomorrow at 7:15, 2026-12-24 at 18:00, or"
    " a cron expression such as 0 9 * * mon"
)
_LONGEST: Final = 200
_MOST_WORDS: Final = 16
"""Maximum number of words that say when, at the beginning of a text."""
_LONGEST_S: Final = 10 * 366 * 86400
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_YEAR: Final = 2999
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_GROUPS: Final = {"day": "*", "weekday": "1-5", "weekend": "6,0"}
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_UNIT: Final = r"(?P<unit>s|sec|secs|seconds?|m|min|mins|minutes?|h|hrs?|hours?|d|days?|w|weeks?)"
_TIME: Final = r"(?:at\s+)?(?P<hour>\d{1,2})(?:[:.](?P<minute>\d{2}))?(?:\s*(?P<half>am|pm))?"
_DURATION: Final = re.compile(rf"(?P<how>in|every)\s+(?:(?P<count>\d{{1,9}})\s*|an?\s+)?{_UNIT}")
_WEEKLY: Final = re.compile(rf"every\s+(?P<days>[a-z][a-z,\s]*?)\s+{_TIME}")
_DATE: Final = re.compile(rf"(?P<date>today|tomorrow|\d{{4}}-\d{{2}}-\d{{2}})\s+{_TIME}")
_INSTANT: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}[t ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?\s*(z|[+-]\d{2}:?\d{2})?"
)


def read_timing(text: str, zone: str, now: datetime, *, declared: bool = False) -> Timing:
    """Read when a schedule fires.

    Args:
        text: what a person, a model or the settings say.
        zone: the IANA time zone of local times.
        now: the current time, from which intervals are counted.
        declared: the text is in the settings, which are read at each start. Then a time that has
            passed is valid, and one that depends on the current time is not.

    Raises TimingError.
    """
    said = " ".join(text.split()).rstrip(".").casefold()
    if len(said) > _LONGEST:
        raise TimingError(f"it has more than {_LONGEST} characters; write for example {EXAMPLES}")
    now = now.astimezone(UTC).replace(microsecond=0)
    if said in MACROS or (len(said.split()) == 5 and said[:1] in "*0123456789"):
        return checked(Cron(said, zone))
    if declared and said.startswith(("in ", "today", "tomorrow")):
        raise TimingError(f"{text[:60]!r} depends on when it is read: give the date")
    past = _LONG_AGO if declared else now
    if found := _DURATION.fullmatch(said):
        return _duration(found, now)
    if found := _INSTANT.fullmatch(said):
        return Once(_future(_instant(said, zone), past))
    if found := _DATE.fullmatch(said):
        return Once(_future(_date(found, zone, now), past))
    if found := _WEEKLY.fullmatch(said):
        hour, minute = _time(found)
        return checked(Cron(f"{minute} {hour} * * {_days(found['days'])}", zone))
    raise TimingError(f"{text[:60]!r} does not say when: write for example {EXAMPLES}")


def described(timing: Timing) -> str:
    """When a timing fires, for people."""
    if isinstance(timing, Once):
        return f"once at {timing.at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    if isinstance(timing, Cron):
        return f"{timing.expression} ({timing.zone})"
    units = (("w", "week"), ("d", "day"), ("h", "hour"), ("m", "minute"), ("s", "second"))
    unit, name = next(one for one in units if timing.seconds % _UNITS[one[0]] == 0)
    count = timing.seconds // _UNITS[unit]
    return f"every {name}" if count == 1 else f"every {count} {name}s"


def _duration(found: re.Match[str], now: datetime) -> Timing:
    seconds = int(found["count"] or 1) * _UNITS[found["unit"][0]]
    if not 1 <= seconds <= _LONGEST_S:
        raise TimingError("an interval is between one second and ten years")
    if found["how"] == "in":
        return Once(now + timedelta(seconds=seconds))
    return Every(seconds, now + timedelta(seconds=seconds))


def _instant(said: str, zone: str) -> datetime:
    try:
        moment = datetime.fromisoformat(said.upper().replace(" +", "+").replace(" Z", "Z"))
    except ValueError as error:
        raise TimingError(f"{said!r} is not a date and time: {error}") from None
    where = zone_of(zone)
    try:
        if moment.tzinfo is None:
            return local_instant(moment, where)
        return moment.astimezone(UTC)
    except OverflowError:
        raise TimingError("the date is out of range") from None


def _date(found: re.Match[str], zone: str, now: datetime) -> datetime:
    where, (hour, minute) = zone_of(zone), _time(found)
    if found["date"] in ("today", "tomorrow"):
        day = now.astimezone(where).replace(tzinfo=None)
        day += timedelta(days=found["date"] == "tomorrow")
    else:
        try:
            day = datetime.fromisoformat(found["date"])
        except ValueError as error:
            raise TimingError(f"{found['date']!r} is not a date: {error}") from None
    try:
        return local_instant(day.replace(hour=hour, minute=minute, second=0, microsecond=0), where)
    except OverflowError:
        raise TimingError("the date is out of range") from None


def _future(instant: datetime, now: datetime) -> datetime:
    if instant <= now:
        raise TimingError(f"{instant:%Y-%m-%d %H:%M} UTC has passed")
    if instant.year > _LAST_YEAR:
        raise TimingError(f"the year {instant.year} is too far ahead")
    return instant


def _time(found: re.Match[str]) -> tuple[int, int]:
    hour, minute, half = int(found["hour"]), int(found["minute"] or 0), found["half"]
    if half is not None:
        if not 1 <= hour <= 12:
            raise TimingError(f"there is no hour {hour} {half}")
        hour = hour % 12 + (12 if half == "pm" else 0)
    if hour > 23 or minute > 59:
        raise TimingError(f"there is no time {hour}:{minute:02}")
    return hour, minute


def _days(said: str) -> str:
    names = [one for one in re.split(r",|\band\b|\s", said) if one]
    if len(names) == 1 and names[0].removesuffix("s") in _GROUPS:
        return _GROUPS[names[0].removesuffix("s")]
    numbers = []
    for name in names:
        matching = [
            number
            for number, day in enumerate(_DAYS, start=1)
            if len(name) >= 3 and day.startswith(name.removesuffix("s"))
        ]
        if len(matching) != 1:
            raise TimingError(f"{name!r} is not a day of the week")
        numbers.append(matching[0] % 7)
    if not numbers:
        raise TimingError("a day of the week is missing")
    return ",".join(map(str, sorted(set(numbers))))


def split_timing(text: str) -> tuple[str, str]:
    """Split a text such as `every monday at 9: sum up my week` into when, and what.

    The longest beginning that says when counts; a colon or a comma may follow it. Raises
    TimingError if the text does not begin with a time, or nothing follows it.
    """
    words = text.split(maxsplit=_MOST_WORDS)
    found = None
    for count in range(1, min(len(words), _MOST_WORDS) + 1):
        said = " ".join(words[:count]).rstrip(":,")
        if _says_when(said):
            found = said, " ".join(words[count:])
    if found is None:
        raise TimingError(f"{text[:60]!r} does not begin with a time: write for example {EXAMPLES}")
    when, what = found
    if not what.strip():
        raise TimingError("it says when, and not what: write for example in 20 minutes: tea")
    return when, what.strip()


def _says_when(said: str) -> bool:
    try:
        read_timing(said, "UTC", _LONG_AGO)
    except TimingError:
        return False
    return True

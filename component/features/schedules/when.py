"""Reads when a schedule fires, as people and models write it, and writes it for people.

0 9 * * mon                 cron expressions; also @hourly, @daily, @weekly, @monthly, @yearly
every 30 minutes            an interval, from now on; also: every hour and a half
every day at 9, 12 and 18   times of the day; also: every weekday at noon, daily at half past nine
every second friday at 9    every so many weeks or days; also: every 2 weeks on friday at 9
every day at 9 except sunday, until 24 december
on the 15th of every month at 9, every last friday of the month at 9
in 20 minutes               once; also: in an hour and a half, in 3 days at 9
tomorrow at 7:15            once; also: today at 18, friday at 9 am, at noon, 2026-12-24 at 18:00
2026-12-24T18:00+01:00      once, with an offset from UTC

A time zone may follow: `every day at 9 Europe/Paris`. A text is understood whole or refused, with
the part that was understood, so that no word of a time is lost.
"""

import contextlib
import re
from datetime import UTC, datetime
from typing import Final

from component.features.schedules.timing import (
    DAY_S,
    EXAMPLES,
    HOUR_S,
    MACROS,
    MINUTE_S,
    SHOWN,
    WEEK_S,
    Cron,
    NoTimeError,
    Once,
    PassedError,
    Timing,
    TimingError,
    checked_timing,
    local_instant,
    zone_of,
)
from component.zones import spoken_time

_LONGEST: Final = 200
_MOST_WORDS: Final = 32
"""Maximum number of words that say when, at the beginning of a text."""
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT: Final = r"\d{4}-\d{2}-\d{2}[t ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?\s*(z|[+-]\d{2}:?\d{2})?"
_ZONE: Final = (
    r"(?i)\s+(?:in\s+)?\(?(?:(?P<name>[A-Za-z_]+(?:/[A-Za-z0-9_+-]+)+)"
    r"|(?:UTC|GMT)(?P<offset>[+-]\d{1,2}(?::?\d{2})?)?)(?:\s+time)?\)?$"
)


def read_timing(text: str, zone: str, now: datetime, *, declared: bool = False) -> Timing:
    """Read when a schedule fires. `zone` is the time zone of local times, if the text names none;
    see `timing.zone_of`. `declared` says that the text is in the settings, which are read at each
    start. Then a time that has passed is valid, and one that depends on the current time is not.
    Raises TimingError.
    """
    # Most services read no time in words when they start.
    from component.features.schedules.timing_reader import TimingReader, future  # noqa: PLC0415

    said = plain_text(text)
    if len(said) > _LONGEST:
        raise TimingError(f"it has more than {_LONGEST} characters; write for example {EXAMPLES}")
    said, zone = split_zone(said, zone)
    now = now.astimezone(UTC).replace(microsecond=0)
    plain = said.casefold()
    if plain in MACROS or (len(plain.split()) == 5 and re.match(r"[*0-9][^ ]* [*0-9]", plain)):
        return checked_timing(Cron(plain, zone))
    past = _LONG_AGO if declared else now
    if re.fullmatch(_INSTANT, plain):
        return Once(future(_instant(plain, zone), past))
    return TimingReader(said, zone, now, past, declared=declared).read()


def plain_text(text: str) -> str:
    """Return a time without surplus spaces and a period at the end."""
    return " ".join(text.split()).rstrip(".")


def split_zone(text: str, zone: str) -> tuple[str, str]:
    """Split a time such as `every day at 9 Europe/Paris` into the time and the time zone that it
    names; `zone` if it names none. Raises TimingError: there is no such time zone.
    """
    found = re.search(_ZONE, text)
    if found is None:
        return text, zone
    offset = found["offset"]
    named = found["name"] or str(zone_of(f"UTC{offset or '+0'}"))
    zone_of(named)
    return text[: found.start()], named


def timing_text(timing: Timing, zone: str = "UTC", when: str = "") -> str:
    """When a timing fires, for people, in the time zone of its schedule. `when` is as written."""
    if isinstance(timing, Once):
        return f"once at {local_time(timing.at, zone)}"
    if isinstance(timing, Cron):
        cron = ", ".join((timing.expression, *timing.others))
        written = split_zone(when, "")[0].strip() if when else cron
        same = written.casefold() == cron
        return f"{cron if same else f'{written}, {cron}'} ({timing.zone})"
    if timing.before is not None:
        return f"{_interval(timing.seconds)} until {local_time(timing.before, zone)}"
    return _interval(timing.seconds)


def timing_words(timing: Timing, when: str, now: datetime, zone: str) -> str:
    """When a timing fires, for a person in a time zone; `when` is as written."""
    if isinstance(timing, Once):
        return "once"
    if isinstance(timing, Cron):
        written = split_zone(when, "")[0].strip() if when else ""
        words = written or ", ".join((timing.expression, *timing.others))
        return words if timing.zone == zone else f"{words} ({timing.zone})"
    if timing.before is not None:
        return f"{_interval(timing.seconds)} until {spoken_time(timing.before, now, zone)}"
    return _interval(timing.seconds)


def local_time(instant: datetime, zone: str) -> str:
    """Return an instant in a time zone, with its name: `2026-12-24 18:00 Europe/Paris`."""
    return f"{instant.astimezone(zone_of(zone)):%Y-%m-%d %H:%M} {zone}"


def _interval(seconds: int) -> str:
    units = (("week", WEEK_S), ("day", DAY_S), ("hour", HOUR_S), ("minute", MINUTE_S))
    name, unit = next((one for one in units if seconds % one[1] == 0), ("second", 1))
    count = seconds // unit
    return f"every {name}" if count == 1 else f"every {count} {name}s"


def split_timing(text: str) -> tuple[str, str]:
    """Split a text such as `every monday at 9: sum up my week` into when, and what.

    Everything before a colon says when. Without a colon the longest beginning that says when does,
    unless the words after it could belong to the time. Raises TimingError if a part of the time is
    not understood, the text does not begin with a time, or nothing follows it.
    """
    colon = re.search(r":(?=\s|$)|\uff1a", text)
    if colon is not None:
        when, what = text[: colon.start()], text[colon.end() :]
        if len(when.split()) > _MOST_WORDS:
            raise TimingError(_no_beginning(text))
        try:
            _understand(when)
        except NoTimeError:
            raise TimingError(_no_beginning(text)) from None
        except TimingError as error:
            if _whole_beginning(when)[0]:
                raise TimingError(f"{error}; put the colon directly after the time") from None
            raise TimingError(f"{when[:SHOWN]!r} does not begin with a time: {error}") from None
        return _parts(when, what)
    when, what = _whole_beginning(text)
    if not when:
        raise TimingError(_no_beginning(text))
    if re.match(_BELONGS, what) or re.search(_BOUNDS, what):
        raise TimingError(
            f"only {when!r} is clearly the time, and {what[:SHOWN]!r} may belong to it: put a"
            " colon between when and what"
        )
    return _parts(when, what)


_NUMBERS: Final = "twelve|eleven|ten|nine|eight|seven|six|five|four|three|two|one|half|quarter"
_DAY_NAMES: Final = (
    r"(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:days?)?|weekdays?|weekends?"
    r"|days?|weeks?|months?|years?"
)
_BELONGS: Final = (
    rf"(?i)(?:\d|(?:{_NUMBERS}|{_DAY_NAMES}|and|or|but|then|plus|except|excluding|unless|until|till|til"
    r"|from|starting|beginning|ending|between|on|at|in|every|each|during|for|after|before|within"
    r"|while|when|whenever|if|daily|hourly|weekly|monthly|yearly|once|twice|noon|midnight|morning"
    r"|afternoon|evening|night|am|pm|a\.m|p\.m|o['\u2019]?clock|sharp|today|tomorrow|tonight|next"
    r"|about|around|utc|gmt)\b)"
)
"""A beginning of the words after a time that may belong to the time."""
_BOUNDS: Final = (
    r"(?i)\b(?:except|excluding|but not|until|till)\s+(?:for\s+|on\s+|the\s+)*"
    rf"(?:\d|{_NUMBERS}|{_DAY_NAMES}|noon|midnight|today|tomorrow|tonight|next|[a-z]+ \d)\b"
)


def _parts(when: str, what: str) -> tuple[str, str]:
    if not what.strip():
        raise TimingError("it says when, and not what: write for example in 20 minutes: tea")
    return " ".join(when.split()), what.strip()


def _no_beginning(text: str) -> str:
    return f"{text[:SHOWN]!r} does not begin with a time: write for example {EXAMPLES}"


def _whole_beginning(text: str) -> tuple[str, str]:
    """The longest beginning that says when, and what follows it; both empty if there is none."""
    words = text.split(maxsplit=_MOST_WORDS)
    for count in range(min(len(words), _MOST_WORDS), 0, -1):
        said = " ".join(words[:count]).rstrip(":,")
        try:
            _understand(said)
        except TimingError:
            continue
        return said, " ".join(words[count:])
    return "", ""


def _understand(said: str) -> None:
    """Raise TimingError unless a text says when, even if that has passed."""
    with contextlib.suppress(PassedError):
        read_timing(said, "UTC", _LONG_AGO)


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

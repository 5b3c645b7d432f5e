"""Time zones by their names, and times in words.

Names are those of the IANA database, and fixed offsets from UTC.
"""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

_OFFSET: Final = r"(?a)UTC([+-])(\d{1,2})(?::?(\d{2}))?"


def zone_named(name: str) -> tzinfo | None:
    """The time zone of an IANA name, or of an offset such as `UTC+09:00`; None if there is none."""
    if found := re.fullmatch(_OFFSET, name):
        offset = timedelta(hours=int(found[2]), minutes=int(found[3] or 0))
        if offset < timedelta(days=1) and int(found[3] or 0) < 60:
            return timezone(-offset if found[1] == "-" else offset)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # OSError: the name of a directory, such as Europe
        return None


def is_offset(name: str) -> bool:
    """Whether the name of a time zone is only a fixed offset from UTC, without summer time."""
    return re.fullmatch(_OFFSET, name) is not None


def person_zone(chosen: str | None, offset: timedelta | None, default: str, now: datetime) -> str:
    """Return the name of the time zone of a person.

    It is the one that the person has chosen. Otherwise it follows from the offset from UTC that a
    client has reported: if that is the current offset of the default zone, the person is taken to
    be in that zone, so that summer time is right; if not, the zone is the offset, as `UTC+09:00`.
    """
    if chosen is not None and zone_named(chosen) is not None:
        return chosen
    if offset is None or offset == now.astimezone(zone_named(default)).utcoffset():
        return default
    return str(timezone(offset))


def in_local_time(time: datetime, now: datetime, zone: timezone) -> str:
    """Return a time in that time zone: `10:15 (UTC+01:00)`, with the date if it is not today."""
    local = time.astimezone(zone)
    seconds = f":{local:%S}" if local.second else ""
    date = "" if local.date() == now.astimezone(zone).date() else f"{local:%Y-%m-%d} "
    return f"{date}{local:%H:%M}{seconds} ({zone})"


def spoken_time(moment: datetime, now: datetime, zone: str) -> str:
    """Return a time for a person in the time zone of this name: `today at 14:03`, `on Friday, 24
    December at 9:00`. The year is named if it is not this one, and the zone if it is UTC.
    """
    where = zone_named(zone) or UTC
    local, today = moment.astimezone(where), now.astimezone(where).date()
    clock = f"{local.hour}:{local:%M}{' UTC' if where is UTC or zone == 'UTC' else ''}"
    near = {-1: "yesterday", 0: "today", 1: "tomorrow"}.get((local.date() - today).days)
    if near is not None:
        return f"{near} at {clock}"
    year = "" if local.year == today.year else f" {local.year}"
    return f"on {local:%A}, {local.day} {local:%B}{year} at {clock}"


def exact_time(moment: datetime, zone: str) -> str:
    """Return a time for a model: by the clock in the time zone of this name, with the date and the
    name of the zone, and in UTC.
    """
    utc = f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    where = zone_named(zone)
    if where is None or zone == "UTC":
        return f"{moment.astimezone(UTC):%A}, {utc}"
    local = moment.astimezone(where)
    offset = "" if is_offset(zone) else f", {timezone(local.utcoffset() or timedelta())}"
    return f"{local:%A}, {local:%Y-%m-%d %H:%M} for the person (time zone {zone}{offset}; {utc})"


def duration(time: timedelta) -> str:
    """Return a duration in one unit, rounded down: `2 hours`, `45 minutes`.

    Up to half a minute is added to hours and days before rounding, because a message was in transit
    for some time.
    """
    seconds = max(0, int(time.total_seconds()))
    if seconds < 120:
        return _counted(seconds, "second")
    minutes = (seconds + 30) // 60
    if minutes < 120:
        return _counted(minutes, "minute")
    hours = minutes // 60
    return _counted(hours, "hour") if hours < 48 else _counted(hours // 24, "day")


def _counted(count: int, unit: str) -> str:
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"

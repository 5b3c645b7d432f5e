"""Time zones by their names: those of the IANA database, and fixed offsets from UTC."""

import re
from datetime import timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

_OFFSET: Final = re.compile(r"UTC([+-])(\d{1,2})(?::?(\d{2}))?", re.ASCII)


def zone_named(name: str) -> tzinfo | None:
    """The time zone of an IANA name, or of an offset such as `UTC+09:00`; None if there is none."""
    if found := _OFFSET.fullmatch(name):
        offset = timedelta(hours=int(found[2]), minutes=int(found[3] or 0))
        if offset < timedelta(days=1) and int(found[3] or 0) < 60:
            return timezone(-offset if found[1] == "-" else offset)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # OSError: the name of a directory, such as Europe
        return None


def is_offset(name: str) -> bool:
    """Whether the name of a time zone is only a fixed offset from UTC, without summer time."""
    return _OFFSET.fullmatch(name) is not None

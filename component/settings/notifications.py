"""The section about notifications: messages about work that an agent started by itself."""

import functools
import re
from datetime import time
from typing import Annotated, Final
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, Field

from component.settings.kinds import Count, Seconds, Section, refusal

_HOURS: Final = re.compile(r"(\d{1,2}):(\d{2})\s*[-\u2013]\s*(\d{1,2}):(\d{2})")


def quiet_hours(text: str) -> tuple[time, time] | None:
    """Return the start and end of quiet hours such as `22:00-07:00`; None if the text has another
    form, or both times are equal.
    """
    found = _HOURS.fullmatch(text.strip())
    if found is None:
        return None
    try:
        begin, end = time(int(found[1]), int(found[2])), time(int(found[3]), int(found[4]))
    except ValueError:
        return None
    return None if begin == end else (begin, end)


def time_zone(name: str) -> ZoneInfo | None:
    """Return a time zone by its name in the IANA database, such as `Europe/Paris`; None
    if unknown.
    """
    return ZoneInfo(name) if name in _time_zones() else None


@functools.cache
def _time_zones() -> frozenset[str]:
    # Listing them reads hundreds of files.
    return frozenset(available_timezones())


def _quiet(value: str) -> str:
    if value and quiet_hours(value) is None:
        raise refusal("must be two different times, such as 22:00-07:00, or empty for none")
    return value


class Notifications(Section):
    """Notifications: messages about work that an agent started by itself."""

    quiet: Annotated[str, AfterValidator(_quiet)] = Field(
        default="22:00-07:00",
        description="Hours in which nobody is notified unless they choose others with /quiet, in"
        " the time zone of each person. Empty for none.",
    )
    window_s: Seconds = Field(default=600, description="Seconds to which per_window refers.")
    per_window: Count = Field(
        default=5,
        description="Maximum number of notifications that one person gets from one agent within"
        " window_s. Further ones are gathered and sent as one digest.",
    )
    held_per_person: Count = Field(
        default=500,
        description="Maximum number of notifications that are held for one person by one agent."
        " Beyond it the least urgent and oldest one is dropped, and the person is told how many"
        " were.",
    )
    repeat_high_s: Seconds = Field(
        default=300,
        description="Seconds without a receipt after which a notification of high priority is sent"
        " once more.",
    )
    repeat_s: Seconds = Field(
        default=3600,
        description="Seconds without a receipt after which a notification of normal priority is"
        " sent once more, to people whose clients send receipts.",
    )

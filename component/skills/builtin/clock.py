"""A skill that returns the time in any time zone."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from zoneinfo import ZoneInfo

import msgspec

from component.skills.declare import skill
from component.skills.errors import InvalidParam, SkillError


@skill(
    name="time",
    title="Time",
    read_only=True,
    idempotent=True,
    open_world=False,
    tags=("time",),
    examples=("Europe/Paris",),
    typical_duration=0.0,
    cost_usd=0.0,
    inline=True,
)
def current_time(
    zone: Annotated[
        str, msgspec.Meta(description="An IANA time zone, such as Europe/Paris.", max_length=64)
    ] = "UTC",
) -> str:
    """Return the date and time in a time zone, in ISO 8601 with its offset from UTC."""
    return datetime.now(_zone(zone)).isoformat(timespec="seconds")


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        # OSError: the name of a directory of zones, such as Europe.
        pass
    try:
        ZoneInfo("UTC")
    except KeyError:
        raise SkillError(
            "This system has no time zone data: install Debian's tzdata or the Python package of "
            "the same name where the service runs."
        ) from None
    raise InvalidParam("zone", "expected an IANA time zone, such as Europe/Paris")

"""The skills of every installation."""

from __future__ import annotations

from datetime import tzinfo
from typing import Annotated

import msgspec

from component import system
from component.skills.declare import own_skill
from component.skills.errors import InvalidParam, SkillError
from component.skills.skill import Skill
from component.zones import zone_named


@own_skill(
    name="time",
    title="Time",
    question="May I look up the time[ in {zone}]?",
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
        str,
        msgspec.Meta(
            description="An IANA time zone, such as Europe/Paris, or an offset such as UTC+09:00.",
            max_length=64,
        ),
    ] = "UTC",
) -> str:
    """Return the date and time in a time zone, in ISO 8601 with its offset from UTC."""
    return system.now().astimezone(_zone(zone)).isoformat(timespec="seconds")


def _zone(name: str) -> tzinfo:
    found = zone_named(name)
    if found is not None:
        return found
    if zone_named("UTC") is None:
        raise SkillError(
            "This system has no time zone data: install Debian's tzdata or the Python package of "
            "the same name where the service runs."
        )
    raise InvalidParam("zone", "expected an IANA time zone, such as Europe/Paris, or UTC+09:00")


@own_skill(
    question="May I repeat {text}?",
    read_only=True,
    idempotent=True,
    open_world=False,
    tags=("test",),
    examples=("hello",),
    typical_duration=0.0,
    cost_usd=0.0,
    inline=True,
)
def echo(text: Annotated[str, msgspec.Meta(description="What to say back.")]) -> str:
    """Return the text that was given, unchanged."""
    return text


def builtin_skills() -> tuple[Skill, ...]:
    """Return the built-in skills, for the service to offer."""
    return (echo, current_time)

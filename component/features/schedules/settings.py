"""The sections about schedules."""

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from component.config.kinds import Count, Section, Zone, different_names
from component.config.model import Settings
from component.config.sections import Top, list_of_tables, table
from component.config.work import WorkEntry, known_agents_only


class ScheduleLimits(Section):
    """Schedules that people add in the chat, by forms and on the command line."""

    per_person: Annotated[int, Field(ge=0)] = 50
    """Maximum number of schedules of one person. Those in `[[schedule]]` do not count."""
    shortest_s: Count = 60
    """Shortest interval between two firings of a schedule, in seconds."""


class _Timing(Section):
    # The first fields of a schedule: those of a base class come before its own.

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")] = Field(
        examples=["weekly-report"]
    )
    """Name of the schedule; it must be unique."""
    when: str = Field(min_length=1, examples=["every monday at 9"])
    """When it fires: a cron expression (`0 9 * * mon`, `@daily`), an interval (`every 30 minutes`),
    times of the week (`every weekday at 9:30`) or one date and time (`2026-12-24 18:00`).
    """
    zone: Zone = Field(default="", examples=["Europe/Paris"])
    """IANA time zone of `when`. Default: agent.zone."""


class ScheduleEntry(WorkEntry, _Timing):
    """A schedule: work that starts at certain times. See docs/how-to/schedules.md."""

    missed: Literal["skip", "once", "all"] = "once"
    """How to handle firings that were missed while the service was stopped: skip drops them, once
    runs the latest one, all runs each of them.
    """
    missed_most: Annotated[int, Field(ge=1, le=100)] = 10
    """Maximum number of missed firings with `missed = "all"`."""


LIMITS: Final = table("schedules", ScheduleLimits)
ENTRIES: Final = list_of_tables("schedule", ScheduleEntry, different_names("schedules"))
SECTIONS: Final[tuple[Top[Any], ...]] = (LIMITS, ENTRIES)


def check(settings: Settings) -> None:
    """Raise a refusal if a schedule names an agent that is not known."""
    known_agents_only(settings.agent_names, "schedule", settings[ENTRIES])
    known_agents_only(settings.agent_names, "skills.schedule", settings.skills.schedule)

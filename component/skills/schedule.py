"""The schedule that a skill brings: at which times it is to run, and with which parameters."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec


class SkillSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """When a skill is to run by itself. It does so only where the settings enable it
    (`[[skills.schedule]]`), and the settings can say otherwise for each member.

    The members are those of the table `[skill.schedule]` of a manifest.

    Attributes:
        when: a cron expression of five fields, or times as in `[[schedule]]`: `every monday at 9`.
        zone: the IANA time zone of local times; empty for that of the settings.
        params: the parameters of the skill.
        principal: the bare JID of the person whose rights it has and who is told the result; empty
            if the settings must name one.
        missed: what becomes of firings that were missed while the service was stopped: none of
            them takes place, the latest one does, or all of them do.
    """

    when: str
    zone: str = ""
    params: Mapping[str, Any] = msgspec.field(default_factory=dict)
    principal: str = ""
    missed: Literal["skip", "once", "all"] = "once"

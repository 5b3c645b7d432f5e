"""Checks, before each call of a skill, that what it declares to access is approved."""

from __future__ import annotations

from component.audit.protocol import AuditEvent, Recorder
from component.policy.flows import covers
from component.skills.errors import CapabilityMissing
from component.skills.skill import Skill
from component.skills.spec import SkillSpec


class CapabilityCheck:
    """Compares the capabilities of skills with those that are approved, whoever calls them.

    The skills of the service, and those of the modules in its settings, are trusted: they have what
    they declare. For all others an admin has approved it (`Skill.granted`).

    Args:
        recorder: records each comparison.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._record = recorder.record

    def check(
        self, skill: Skill, principal: str, *, agent: str = "", trace: str = "", task: str = ""
    ) -> None:
        """Check a call, and record it.

        A skill that declares nothing accesses nothing, and one that nobody has to approve is part
        of the service: neither is checked. Raises CapabilityMissing.
        """
        if not skill.capabilities or skill.granted is None:
            return
        missing = covers(skill.granted(), skill.capabilities)
        self._record(
            AuditEvent(
                kind="capability",
                outcome="allowed" if missing is None else "refused",
                principal=principal,
                agent=agent,
                trace=trace,
                task=task,
                subject=skill.name,
                detail=_listed(skill) if missing is None else missing,
            )
        )
        if missing is not None:
            raise CapabilityMissing(skill.name, missing)


def _listed(skill: SkillSpec) -> str:
    return ", ".join(skill.capabilities)

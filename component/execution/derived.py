"""The gate for calls that other calls start: they have no more rights than what started them."""

from typing import Final

from component.audit.protocol import AuditEvent, Recorder
from component.execution.joint_confirmation import asker_of
from component.policy.flows import Flows
from component.skills import Skill, SkillError
from component.tasks.protocol import Asker, Call

_MISLED: Final = (
    "{skill} was not started. The model that asked for this has read text of strangers, and what a"
    " skill starts after that must not reach other services."
)


class DerivedCalls:
    """Decides about the calls that skills start (`Context.start`).

    The limits of the agent whose model caused them apply, and so do the flows of what that model
    has read: its arguments may be in those of the child, in any form. An approval does not apply:
    the person has approved another call.

    Args:
        flows: which skills the data of strangers may reach.
        recorder: records refusals.
    """

    def __init__(self, flows: Flows, recorder: Recorder) -> None:
        self._flows = flows
        self._recorder = recorder

    def asker(self, parent: Call, skill: Skill) -> Asker:
        """Return who asks for a skill that `parent` starts. Raises SkillError: it must not."""
        context, notes = parent.caller_context, skill.annotations
        refusal = context.limits.refusal(skill.name, skill.capabilities)
        if refusal is not None:
            raise self._refused(parent, skill, "capability", refusal)
        decision = self._flows.decide(
            context.taints,
            skill.capabilities,
            read_only=notes.read_only,
            open_world=notes.open_world,
            chosen=lambda: ("its parameters",),
        )
        if decision.verdict == "refuse":
            raise self._refused(parent, skill, "taint", _MISLED.format(skill=skill.name))
        return asker_of(decision)

    def _refused(self, parent: Call, skill: Skill, kind: str, text: str) -> SkillError:
        context = parent.caller_context
        self._recorder.record(
            AuditEvent(
                kind=kind,  # type: ignore[arg-type]  # one of two, written above
                outcome="refused",
                principal=str(parent.principal),
                agent=context.agent,
                trace=context.trace,
                subject=skill.name,
                detail=f"started by {parent.skill.name}",
            )
        )
        return SkillError(text)

"""urn:fluux:agent:0#plan, the steps of a task that is a plan."""

from typing import Annotated, Final, Literal

import msgspec

from xep.binding import Attr, Child, Name, Payload, TextChild
from xep.fluux_agent import NAMESPACE as AGENT

NAMESPACE: Final = f"{AGENT}#plan"
MOST_STEPS: Final = 20
"""The maximum number of steps of a plan (PLN-003)."""

StepKind = Literal["call", "agent", "ask"]
StepState = Literal["waiting", "running", "done", "skipped", "failed", "unknown", "cancelled"]


class PlanStep(Payload, frozen=True, kw_only=True):
    """A step of a plan: what it is, how it stands, and the task that it is, once it has begun.

    ``after`` are the ids of the steps and the names of the groups that it waits for, separated by
    spaces. ``otherwise`` is the id of the step that runs in its place if it fails.
    """

    xml = Name(NAMESPACE, "step")

    id: Annotated[str, Attr()]
    title: Annotated[str, Attr()]
    kind: Annotated[StepKind, Attr()]
    state: Annotated[StepState, Attr()]
    task: Annotated[str | None, Attr()] = None
    after: Annotated[str | None, Attr()] = None
    group: Annotated[str | None, Attr()] = None
    otherwise: Annotated[str | None, Attr()] = None


class PlanSteps(Payload, frozen=True, kw_only=True):
    """The steps of a task that is a plan. ``revision`` counts the revisions of the plan from 1, and
    ``digest`` is the SHA-256 of its document, as hex digits. ``paused`` says why no step begins.
    """

    xml = Name(NAMESPACE, "plan")

    title: Annotated[str, Attr()]
    revision: Annotated[int, Attr()]
    digest: Annotated[str, Attr()]
    paused: Annotated[str | None, TextChild()] = None
    steps: Annotated[tuple[PlanStep, ...], Child(at_least=1, at_most=MOST_STEPS)]

    def ended(self) -> "PlanSteps":
        """Return the steps of a plan that ends now: those that run are cancelled with it."""
        replace = msgspec.structs.replace
        steps = [
            replace(one, state="cancelled") if one.state == "running" else one for one in self.steps
        ]
        return replace(self, steps=tuple(steps))

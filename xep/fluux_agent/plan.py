"""urn:fluux:agent:0#plan, the steps of a task that is a plan."""

from typing import Annotated, Final, Literal

from xep.binding import Attr, Child, Name, Payload, TextChild
from xep.fluux_agent import NAMESPACE as AGENT

NAMESPACE: Final = f"{AGENT}#plan"

StepState = Literal["waiting", "running", "done", "skipped", "failed", "unknown"]


class PlanStep(Payload, frozen=True, kw_only=True):
    """A step of a plan: what it is, how it stands, and the task that it is, once it has begun.

    ``after`` are the ids of the steps and groups that it waits for, separated by spaces.
    """

    xml = Name(NAMESPACE, "step")

    id: Annotated[str, Attr()]
    title: Annotated[str, Attr()]
    kind: Annotated[Literal["call", "agent", "ask"], Attr()]
    state: Annotated[StepState, Attr()]
    task: Annotated[str | None, Attr()] = None
    after: Annotated[str | None, Attr()] = None


class PlanSteps(Payload, frozen=True, kw_only=True):
    """The steps of a task that is a plan. ``revision`` counts the revisions of the plan from 1, and
    ``digest`` is the SHA-256 of its document, as hex digits. ``paused`` says why no step begins.
    """

    xml = Name(NAMESPACE, "plan")

    title: Annotated[str, Attr()]
    revision: Annotated[int, Attr()]
    digest: Annotated[str, Attr()]
    paused: Annotated[str | None, TextChild()] = None
    steps: Annotated[tuple[PlanStep, ...], Child(at_least=1)]

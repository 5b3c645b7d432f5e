"""Judges a plan before it starts: what its steps would ask, take and cost."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from component.plans.checks import PARAMS
from component.plans.document import Plan, Step
from component.plans.templates import fill, roots_in
from component.plans.wording import MOST_CHARACTERS, steps_text
from component.policy.flows import TRUSTED
from component.policy.taint import Taint
from component.skills.context import Context
from component.skills.operations import ChildTerms

_WILD: Final = re.compile(r"[*?\[]")
"""In the name of a skill: it is a pattern."""


class Judgement(msgspec.Struct, frozen=True):
    """What is said about a plan before it starts: its faults, whether the principal is asked, and
    an estimate.
    """

    faults: tuple[str, ...] = ()
    asks: bool = False
    seconds: float = 0.0
    usd: float = 0.0


async def judge(
    context: Context, plan: Plan, params: Mapping[str, Any], taints: Sequence[Taint]
) -> Judgement:
    """Judge a plan by what its skills, the policy and the flows say."""
    misled = not TRUSTED.issuperset(taints)
    said = None if misled else texts_of(plan, params)
    found: list[str] = []
    asks, usd = misled, 0.0
    durations: dict[str, float] = {}
    for step in plan.steps:
        asks = asks or bool(step.people)
        for skill, values, unfilled in _calls_of(step, params):
            is_known = values is not None and not unfilled
            # The person is asked about a plan of strangers, and sees exactly what is known.
            terms = ChildTerms(taints=tuple(taints), said=said, approved=misled and is_known)
            one = await context.child_tasks.judge(skill, values, terms, unfilled)
            if one.problem:
                found.append(f"The step {step.id}: {one.problem}")
            asks = asks or (one.asks and is_known)
            usd += one.cost_usd or 0.0
            durations[step.id] = one.duration_s or 0.0
    if len(steps_text(plan)) > MOST_CHARACTERS:
        found.append("The plan is too long for one question: use fewer or shorter steps.")
    return Judgement(tuple(found), asks, _longest(plan, durations), usd)


def _calls_of(
    step: Step, params: Mapping[str, Any]
) -> list[tuple[str, Mapping[str, Any] | None, tuple[str, ...]]]:
    """Return the calls of a step that can be judged: the skill, the parameters (None if nothing is
    known of them), and the names of those that have no value yet.
    """
    if step.kind == "agent":
        return [(name, None, ()) for name in step.skills if not _WILD.search(name)]
    if step.kind != "call":
        return []
    unfilled = tuple(name for name, value in step.params.items() if roots_in(value) - {PARAMS})
    values: Mapping[str, Any] = step.params
    if not unfilled:
        values = fill(dict(step.params), {PARAMS: params})
    return [(step.skill, values, unfilled)]


def _longest(plan: Plan, durations: Mapping[str, float]) -> float:
    """Return the seconds of the longest path through a plan."""
    found: dict[str, float] = {}

    def of(step: Step) -> float:
        if step.id not in found:
            found[step.id] = 0.0
            before = [
                of(one) for name in step.after for one in (plan.members(name) or (plan.step(name),))
            ]
            found[step.id] = durations.get(step.id, 0.0) + max(before, default=0.0)
        return found[step.id]

    return max(map(of, plan.steps))


def texts_of(plan: Plan, params: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the texts that no stranger has chosen: those of the plan."""
    return (*_strings(msgspec.to_builtins(plan)), *_strings(params))


def _strings(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case bool() | None:
            return []
        case int() | float():
            return [str(value)]
        case dict():
            return [text for each in value.values() for text in _strings(each)]
        case list() | tuple():
            return [text for each in value for text in _strings(each)]
    return []

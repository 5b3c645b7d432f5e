"""A plan in words: its steps as a person reads them, what a revision changes, and its report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from component.plans.advance import Situation
from component.plans.document import Plan, Step

MOST_CHARACTERS: Final = 15_000
"""The maximum size of the steps in words: what one question can show."""
_SITUATIONS: Final[Mapping[Situation, str]] = {
    "waiting": "waits",
    "running": "is running",
    "done": "is done",
    "skipped": "was skipped",
    "lost": "failed, and is not needed",
    "failed": "failed",
    "in doubt": "was interrupted, and its outcome is not known",
}


def name_of(step: Step) -> str:
    """Return a step in a few words."""
    if step.title:
        return step.title
    match step.kind:
        case "call":
            return f"run {step.skill}"
        case "agent":
            return f"let a {step.role or 'sub-agent'} work"
    return step.question if len(step.question) <= 100 else f"{step.question[:99]}…"


def steps_text(plan: Plan) -> str:
    """Return all steps with all that they do, for the person who approves the plan."""
    lines: list[str] = []
    for number, step in enumerate(plan.steps, 1):
        lines += _step_lines(plan, number, step)
    for group, policy in plan.groups.items():
        names = ", ".join(one.id for one in plan.members(group))
        lines.append(f"Group {group} ({names}): {_POLICIES[policy]}.")
    if plan.done_when:
        lines.append(f"Done when: {plan.done_when}")
    if plan.budget_usd is not None:
        lines.append(f"Budget: {plan.budget_usd:g} USD")
    if plan.deadline is not None:
        lines.append(f"Deadline: {plan.deadline.isoformat(timespec='minutes')}")
    if plan.result:
        lines.append(f"Report: {plan.result}")
    return "\n".join(lines)


_POLICIES: Final = {
    "all": "if one fails, all fail",
    "best-effort": "goes on with what succeeds",
    "first": "ends with the first that succeeds",
}


def _step_lines(plan: Plan, number: int, step: Step) -> Iterator[str]:
    notes = "; ".join(_notes(plan, step))
    yield f"{number}. {step.id}: {name_of(step)}{f' ({notes})' if notes else ''}"
    match step.kind:
        case "call":
            if step.title:
                yield f"   runs {step.skill}"
            for name, value in step.params.items():
                yield f"   {name}: {_value(value)}"
        case "agent":
            who = step.role or "sub-agent"
            may = ", ".join(step.skills) or "nothing"
            model = f", {step.tier} model" if step.tier else ""
            yield f"   {who} (may use: {may}{model}): {step.instructions}"
        case "ask":
            if step.title:
                yield f"   {step.question}"
            for label, said in (
                ("shows", step.show),
                ("answers", ", ".join(step.choices)),
                (
                    "asks",
                    ", ".join(step.people) if not isinstance(step.people, str) else step.people,
                ),
            ):
                if said:
                    yield f"   {label}: {said}"


def _notes(plan: Plan, step: Step) -> Iterator[str]:
    if step.after:
        yield f"after {', '.join(step.after)}"
    if step.id in plan.fallbacks:
        yield f"only if {next(one.id for one in plan.steps if one.otherwise == step.id)} fails"
    if step.otherwise:
        yield f"if it fails: {step.otherwise}"
    if step.group:
        yield f"in the group {step.group}"
    if step.retries:
        yield f"tried again {step.retries} {'time' if step.retries == 1 else 'times'}"
    if step.optional:
        yield "optional"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def difference(before: Plan, after: Plan, again: Sequence[str] = ()) -> str:
    """Return what a revision changes, with all that the new steps do. `again` are the steps that
    have begun, stay as they are, and will run once more.
    """
    old = {one.id: one for one in before.steps}
    new = {one.id: one for one in after.steps}
    lines: list[str] = []
    for name, said in (
        ("Title", "title"),
        ("Goal", "goal"),
        ("Done when", "done_when"),
        ("Report", "result"),
    ):
        if getattr(before, said) != getattr(after, said):
            lines.append(f"{name}: {getattr(after, said) or 'none'}")
    if before.budget_usd != after.budget_usd:
        most = "none" if after.budget_usd is None else f"{after.budget_usd:g} USD"
        lines.append(f"Budget: {most}")
    if before.deadline != after.deadline:
        when = "none" if after.deadline is None else after.deadline.isoformat(timespec="minutes")
        lines.append(f"Deadline: {when}")
    lines += [f"Removed: {id_} ({name_of(one)})" for id_, one in old.items() if id_ not in new]
    for number, step in enumerate(after.steps, 1):
        if old.get(step.id) == step:
            if step.id in again:
                lines.append(f"Runs again: {step.id} ({name_of(step)})")
            continue
        first, *rest = _step_lines(after, number, step)
        lines += [f"{'Changed' if step.id in old else 'New'}: {first}", *rest]
    for group in sorted({*before.groups, *after.groups}):
        policy = after.groups.get(group)
        if policy != before.groups.get(group):
            lines.append(f"Group {group}: {_POLICIES[policy] if policy else 'removed'}.")
    return "\n".join(lines)


def state_text(plan: Plan, situations: Mapping[str, Situation], reasons: Mapping[str, str]) -> str:
    """Return how each step stands, a line each."""
    fallbacks = plan.fallbacks
    lines = []
    for number, step in enumerate(plan.steps, 1):
        stands = situations.get(step.id, "waiting")
        if step.id in fallbacks and stands == "waiting":
            continue
        why = reasons.get(step.id, "")
        reason = f" ({why})" if why and stands in ("failed", "lost", "skipped") else ""
        lines.append(f"{number}. {name_of(step)}: {_SITUATIONS[stands]}{reason}")
    return "\n".join(lines)


def estimate_text(seconds: float | None, usd: float | None, budget: float | None) -> str:
    """Return the estimate of a plan in words; empty if nothing is known."""
    said = []
    if seconds:
        said.append(f"about {_duration(seconds)}")
    if usd:
        said.append(f"about {usd:.2f} USD")
    if budget is not None:
        said.append(f"at most {budget:g} USD")
    return f"Estimate: {', '.join(said)}." if said else ""


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5_400:
        return f"{round(seconds / 60)} minutes"
    return f"{round(seconds / 3_600)} hours"

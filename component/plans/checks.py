"""Checks a plan without a model and without knowing any skill: its ids, its order, its references.

What the skills of a plan say is checked when it is started (`component.plans.run.faults_of`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from component.plans.document import Kind, Plan, Step, fault_of_size
from component.plans.templates import TemplateError, roots_in
from xep.jid import JID, JIDError

PARAMS: Final = "params"
"""The name by which the expressions of a plan that is a skill refer to its parameters."""
_NEEDED: Final[Mapping[Kind, str]] = {
    "call": "skill",
    "agent": "instructions",
    "ask": "question",
}
_FIELDS: Final[Mapping[str, Kind]] = {
    "skill": "call",
    "params": "call",
    "role": "agent",
    "instructions": "agent",
    "skills": "agent",
    "tier": "agent",
    "question": "ask",
    "show": "ask",
    "choices": "ask",
    "people": "ask",
}
_MOST_PEOPLE: Final = 10


def faults(plan: Plan, *, has_params: bool = False) -> list[str]:
    """Return what is wrong with a plan, each fault as a sentence that says how to correct it.

    With `has_params`, it is that of a skill, and may refer to the parameters of the skill.
    """
    if problem := fault_of_size(plan):
        return [problem]
    found = [*_of_names(plan), *(fault for step in plan.steps for fault in _of_fields(step))]
    if found:
        return found
    found = [*_of_order(plan), *_of_fallbacks(plan)]
    if found:
        return found
    return list(_of_references(plan, has_params=has_params))


def ancestors(plan: Plan) -> Mapping[str, frozenset[str]]:
    """Return, for each step, the steps and groups that are done before it begins; for a step that
    runs in place of another one, those of that one.
    """
    direct = {step.id: _before(plan, step.after) for step in plan.steps}
    for step in plan.steps:
        if step.otherwise in direct:
            direct[step.otherwise] = direct[step.id]
    found: dict[str, frozenset[str]] = {}

    def of(step: str) -> frozenset[str]:
        if step not in found:
            found[step] = frozenset()  # a cycle is reported elsewhere
            mine = direct.get(step, frozenset())
            found[step] = mine.union(*(of(one) for one in mine if one in direct))
        return found[step]

    return {step.id: of(step.id) for step in plan.steps}


def _before(plan: Plan, after: Iterable[str]) -> frozenset[str]:
    found = set(after)
    for name in after:
        found |= {one.id for one in plan.members(name)}
    return frozenset(found)


def _of_names(plan: Plan) -> Iterator[str]:
    counts = Counter(step.id for step in plan.steps)
    for id_, count in counts.items():
        if count > 1:
            yield f"There are {count} steps with the id {id_}: give each its own."
        if id_ == PARAMS:
            yield f"No step can have the id {PARAMS}: give it another one."
        if id_ in plan.groups:
            yield f"{id_} is a step and a group: give one of them another name."
    for name in plan.groups:
        if not plan.members(name):
            yield f"The group {name} has no steps: remove it, or set group of its steps."
    for step in plan.steps:
        if step.group and step.group not in plan.groups:
            yield (
                f"The step {step.id} is in the group {step.group}, which does not exist: add it to"
                " groups, with all, best-effort or first."
            )


def _of_fields(step: Step) -> Iterator[str]:
    needed = _NEEDED[step.kind]
    if not getattr(step, needed):
        yield f"The step {step.id} lacks {needed}, which a step of the kind {step.kind} needs."
    for field, kind in _FIELDS.items():
        if kind != step.kind and getattr(step, field):
            yield (
                f"The step {step.id} of the kind {step.kind} has {field}, which is for the kind"
                f" {kind}: remove it, or change the kind."
            )
    if step.kind == "ask" and step.retries:
        yield f"The step {step.id} asks a question, which is not repeated: remove retries."
    if len(set(step.choices)) < len(step.choices):
        yield f"The step {step.id} has the same choice twice: remove one."
    if isinstance(step.people, str):
        return  # the people are those of a parameter
    if len(step.people) > _MOST_PEOPLE:
        yield f"The step {step.id} asks more than {_MOST_PEOPLE} people: use several steps."
    for person in step.people:
        if not _is_person(person):
            yield f"The step {step.id} asks {person!r}: write the address of a person."


def _is_person(text: str) -> bool:
    try:
        found = JID.parse(text)
    except JIDError:
        return False
    return found.local is not None and found.resource is None


def _of_order(plan: Plan) -> Iterator[str]:
    known = {step.id for step in plan.steps} | set(plan.groups)
    fallbacks = plan.fallbacks
    is_ordered = True
    for step in plan.steps:
        for name in step.after:
            wrong = None
            if name not in known:
                wrong = "there is no step or group of this name"
            elif name in fallbacks:
                wrong = "it runs only in place of another step: name that one"
            elif name in (step.id, step.group):
                wrong = "it would wait for itself"
            if wrong is not None:
                is_ordered = False
                yield f"The step {step.id} is after {name}: {wrong}."
    if is_ordered:
        cycle = _cycle(plan)
        if cycle:
            yield f"These steps wait for each other: {', '.join(cycle)}. Remove one of their after."


def _cycle(plan: Plan) -> list[str]:
    """Return the steps that can never begin, in the order of the plan."""
    before = {step.id: _before(plan, step.after) - set(plan.groups) for step in plan.steps}
    while free := [id_ for id_, those in before.items() if not those & before.keys()]:
        for id_ in free:
            del before[id_]
    return list(before)


def _of_fallbacks(plan: Plan) -> Iterator[str]:
    counts = Counter(step.otherwise for step in plan.steps if step.otherwise)
    known = {step.id: step for step in plan.steps}
    for step in plan.steps:
        name = step.otherwise
        if not name:
            continue
        other = known.get(name)
        if other is None:
            yield f"The step {step.id} has otherwise={name}, and there is no such step: add it."
        elif other is step:
            yield f"The step {step.id} cannot run in its own place: name another step."
        elif counts[name] > 1:
            yield f"The step {name} runs in place of {counts[name]} steps: give each its own."
        elif other.after or other.group:
            yield (
                f"The step {name} runs in place of {step.id}, and begins when that fails: remove"
                " its after and group."
            )
    if all(_leads_out(plan, step, known) for step in plan.steps):
        return
    yield "Some steps run in place of each other: remove one otherwise."


def _leads_out(plan: Plan, step: Step, known: Mapping[str, Step]) -> bool:
    seen = {step.id}
    while step.otherwise in known:
        step = known[step.otherwise]
        if step.id in seen:
            return False
        seen.add(step.id)
    return True


def _of_references(plan: Plan, *, has_params: bool) -> Iterator[str]:
    before = ancestors(plan)
    always = {PARAMS} if has_params else set[str]()
    for step in plan.steps:
        try:
            roots = roots_in(templated(step))
        except TemplateError as error:
            yield f"The step {step.id}: {error}."
            continue
        if isinstance(step.people, str) and roots_in(step.people) != always:
            yield f"The step {step.id} has people={step.people!r}: write a list of addresses."
        for root in sorted(roots - before[step.id] - always):
            yield (
                f"The step {step.id} refers to {root}, which is not done before it: add it to"
                " after, or write {{ and }} for braces."
            )
    try:
        roots = roots_in(plan.result)
    except TemplateError as error:
        yield f"result: {error}."
        return
    known = {step.id for step in plan.steps} - plan.fallbacks | set(plan.groups) | always
    for root in sorted(roots - known):
        yield f"result refers to {root}, and there is no such step: name one, or write {{ and }}."


def templated(step: Step) -> dict[str, Any]:
    """Return the parts of a step that may have expressions, by name."""
    return {
        "params": step.params,
        "instructions": step.instructions,
        "question": step.question,
        "show": step.show,
        "choices": step.choices,
    }

"""Plans of any shape, for hypothesis."""

from typing import Any

from hypothesis import strategies as st

from component.plans.document import Plan, plan_of

POLICIES = ("all", "best-effort", "first")


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Return a plan without faults: steps in any order of dependence, groups, and fallbacks."""
    count = draw(st.integers(1, 7))
    groups = draw(st.dictionaries(st.sampled_from(("g", "h")), st.sampled_from(POLICIES)))
    steps: list[dict[str, Any]] = []
    fallbacks: list[dict[str, Any]] = []
    for number in range(count):
        before = [one["id"] for one in steps]
        step: dict[str, Any] = {
            "id": f"s{number}",
            "kind": "call",
            "skill": "work",
            "after": draw(st.lists(st.sampled_from(before), unique=True)) if before else [],
            "retries": draw(st.integers(0, 2)),
            "optional": draw(st.booleans()),
        }
        if groups and draw(st.booleans()):
            # Members of a group do not wait for each other, nor for what waits for the group.
            name = draw(st.sampled_from(sorted(groups)))
            step |= {"group": name, "after": []}
        if draw(st.booleans()):
            step["otherwise"] = f"f{number}"
            fallbacks.append({"id": f"f{number}", "kind": "call", "skill": "work"})
        steps.append(step)
    used = {one.get("group") for one in steps}
    return plan_of(
        {
            "title": "A plan",
            "goal": "Work",
            "steps": draw(st.permutations([*steps, *fallbacks])),
            "groups": {name: policy for name, policy in groups.items() if name in used},
        }
    )

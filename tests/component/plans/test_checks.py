"""What is wrong with a plan is said in sentences."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.plans.checks import faults
from component.plans.document import MOST_BYTES, Plan, PlanError, plan_json, plan_of, read_plan
from tests.component.plans.strategies import plans


def plan(*steps: dict[str, Any], **more: Any) -> Plan:
    """Return a plan with these steps, which are calls unless they say otherwise."""
    given = [
        ({"kind": "call", "skill": "work"} if "kind" not in one else {}) | one for one in steps
    ]
    return plan_of({"title": "A plan", "goal": "Work", "steps": given, **more})


@pytest.mark.parametrize(
    ("steps", "more", "fault"),
    [
        ([{"id": "a"}, {"id": "a"}], {}, "There are 2 steps with the id a: give each its own."),
        ([{"id": "params"}], {}, "No step can have the id params"),
        ([{"id": "a"}], {"groups": {"g": "all"}}, "The group g has no steps"),
        ([{"id": "a", "group": "g"}], {}, "is in the group g, which does not exist"),
        ([{"id": "a", "kind": "call"}], {}, "The step a lacks skill"),
        ([{"id": "a", "question": "Why?"}], {}, "of the kind call has question"),
        ([{"id": "a", "after": ["b"]}], {}, "The step a is after b: there is no step or group"),
        ([{"id": "a", "after": ["a"]}], {}, "The step a is after a: it would wait for itself."),
        (
            [{"id": "a", "after": ["b"]}, {"id": "b", "after": ["a"]}],
            {},
            "These steps wait for each other: a, b.",
        ),
        ([{"id": "a", "otherwise": "b"}], {}, "otherwise=b, and there is no such step"),
        (
            [{"id": "a", "otherwise": "b"}, {"id": "b"}, {"id": "c", "after": ["b"]}],
            {},
            "The step c is after b: it runs only in place of another step",
        ),
        (
            [{"id": "a", "params": {"x": "{b.text}"}}, {"id": "b"}],
            {},
            "The step a refers to b, which is not done before it: add it to after",
        ),
        ([{"id": "a", "params": {"x": "{params.y}"}}], {}, "The step a refers to params"),
        ([{"id": "a", "params": {"x": "{b."}}], {}, "The step a: '{b.' has a single {"),
        ([{"id": "a", "params": {"x": "{b..c}"}}], {}, "{b..c} is not a JMESPath expression"),
        ([{"id": "a", "params": {"x": "{@}"}}], {}, "{@} refers to all outputs"),
        ([{"id": "a"}], {"result": "{b.text}"}, "result refers to b, and there is no such step"),
    ],
)
def test_a_fault_is_a_sentence_that_names_the_step(
    steps: list[dict[str, Any]], more: dict[str, Any], fault: str
) -> None:
    found = faults(plan(*steps, **more))
    assert any(fault in one for one in found), found
    assert all(one.endswith(".") for one in found)


def test_a_step_may_refer_to_what_is_done_before_it() -> None:
    good = plan(
        {"id": "a", "group": "g", "otherwise": "z"},
        {"id": "b", "group": "g"},
        {"id": "c", "after": ["g"], "params": {"x": "{a.data.n} of {length(g)}, {{not}}"}},
        {"id": "d", "kind": "agent", "instructions": "Read {c.text}", "after": ["c"]},
        {"id": "e", "kind": "ask", "question": "Send {a.text}?", "after": ["d"]},
        {"id": "z", "params": {"x": "{params.topic}"}},
        groups={"g": "best-effort"},
        result="{e.text} [{length(g)}]",
    )
    assert faults(good, has_params=True) == []


@given(plans(), st.data())
def test_a_plan_whose_steps_wait_for_later_ones_has_a_fault(made: Plan, data: Any) -> None:
    """An edge that closes a circle is found wherever it is."""
    found = data.draw(st.sampled_from(made.steps))
    before = set(found.after)
    while (
        more := {
            name
            for id_ in before
            for one in (made.members(id_) or [made.step(id_)])
            for name in one.after
        }
        - before
    ):
        before |= more
    ids = sorted(one for one in before if one not in made.groups)
    if not ids:
        return
    closes = data.draw(st.sampled_from(ids))
    value = {
        "title": "A",
        "goal": "B",
        "groups": made.groups,
        "steps": [
            {
                "id": one.id,
                "kind": "call",
                "skill": "work",
                "group": one.group,
                "after": [*one.after, *([found.id] if one.id == closes else [])],
                "otherwise": one.otherwise,
            }
            for one in made.steps
        ],
    }
    assert faults(plan_of(value))


@given(plans())
def test_a_plan_is_the_same_after_it_is_written_and_read(made: Plan) -> None:
    assert read_plan(plan_json(made)) == made


def test_a_plan_can_be_written_as_toml() -> None:
    text = """
        title = "A plan"
        goal = "Work"
        [[steps]]
        id = "a"
        kind = "ask"
        question = "Why?"
    """
    assert read_plan(text).steps[0].question == "Why?"


def _document(steps: list[dict[str, Any]]) -> str:
    return json.dumps({"title": "A", "goal": "B", "steps": steps})


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "The plan is not JSON"),
        ("title =", "The plan is not TOML"),
        ('{"title": "A", "goal": "B", "steps": []}', "length >= 1"),
        ('{"title": "A", "goal": "B", "steps": [{"id": "A"}]}', "lower-case letters, digits and _"),
        ('{"title": "A", "goal": "B", "steps": [{"id": "a"}]}', "missing required field `kind`"),
        ('{"title": "A", "goal": "B", "stepz": []}', "unknown field `stepz`"),
        (
            _document([{"id": "a", "kind": "ask", "question": "?"}] * 21),
            "length <= 20",
        ),
        (
            _document([{"id": "a", "kind": "ask", "question": "x" * 4000}] * 5),
            f"at most {MOST_BYTES} can be read",
        ),
        ("{" * 60_000, "The plan is not JSON"),
    ],
)
def test_a_text_that_is_no_plan_is_refused_with_the_reason(text: str, fault: str) -> None:
    with pytest.raises(PlanError, match=fault):
        read_plan(text)

"""Pictures of plans: whole, readable, and of what the plan says."""

from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from component.plans.layout import depths_of, lay_out, without_detours
from component.plans.picture import svg, text
from tests.profiles import examples
from xep.binding.escaping import without_forbidden
from xep.fluux_agent.plan import PlanStep, PlanSteps

SVG = "{http://www.w3.org/2000/svg}"
SHOWN = Path(__file__).parents[3] / "docs" / "pictures" / "plan.svg"
NAMES = tuple(f"s{number}" for number in range(20))
STATES = ("waiting", "running", "done", "skipped", "failed", "unknown", "cancelled")
few = examples(10, 1000)


def step(id_: str, title: str, state: Any = "waiting", kind: Any = "call", **more: str) -> PlanStep:
    return PlanStep(id=id_, title=title, kind=kind, state=state, **more)


def plan(*steps: PlanStep, title: str = "A plan") -> PlanSteps:
    return PlanSteps(title=title, revision=1, digest="0" * 64, steps=steps)


DELIVERY = plan(
    step("north", "Read the terms of North", "done", group="sources", task="1"),
    step("south", "Read the terms of South", "running", group="sources", task="2"),
    step("west", "Read the terms of West", "failed", group="sources", task="3"),
    step("table", "Compare the delivery times", kind="agent", after="sources"),
    step("check", "Is the table right?", kind="ask", after="table"),
    step("mail", "Mail the table to Romeo", after="check"),
    title="Delivery times",
)


@st.composite
def any_plans(draw: st.DrawFn) -> PlanSteps:
    """Return a plan of another agent: what its steps wait for may not exist, or go in circles."""
    names = NAMES[: draw(st.integers(1, 20))]
    others = st.sampled_from((*names, "g", "h", "nowhere"))
    steps = [
        PlanStep(
            id=name,
            title=draw(st.text(max_size=60)),
            kind=draw(st.sampled_from(("call", "agent", "ask"))),
            state=draw(st.sampled_from(STATES)),
            after=draw(st.none() | st.lists(others, max_size=4).map(" ".join)),
            group=draw(st.none() | st.sampled_from(("g", "h"))),
            otherwise=draw(st.none() | others),
        )
        for name in names
    ]
    paused = draw(st.none() | st.text(max_size=200))
    return PlanSteps(
        title=draw(st.text(max_size=200)),
        revision=1,
        digest="0" * 64,
        paused=paused,
        steps=tuple(steps),
    )


@few
@given(any_plans())
def test_a_picture_is_well_formed_and_has_each_step(made: PlanSteps) -> None:
    root = ET.fromstring(svg(made))
    told = [one.findtext(f"{SVG}title") or "" for one in root.iter(f"{SVG}g")]
    for one in made.steps:
        assert any(title.startswith(f"{one.id}: ") for title in told), one
    assert {one.tag for one in root.iter()} <= {
        f"{SVG}{name}"
        for name in (
            *("svg", "title", "desc", "style", "defs", "marker", "path", "rect", "g", "text"),
            *("polygon", "circle"),
        )
    }
    assert not [
        name for one in root.iter() for name in one.attrib if "href" in name or name[:2] == "on"
    ]
    assert svg(made) == svg(made)


@few
@given(any_plans())
def test_a_drawing_in_text_has_each_step(made: PlanSteps) -> None:
    drawn = text(made)
    for one in made.steps:
        assert f" {one.id}: {one.title} (" in drawn


@few
@given(any_plans())
def test_boxes_do_not_overlap(made: PlanSteps) -> None:
    arrows = [
        (other.id, one.id)
        for one in made.steps
        for other in made.steps
        if other.id in (one.after or "").split()
    ]
    widths = {one.id: 10.0 + len(one.title) for one in made.steps}
    found = lay_out(widths, arrows)
    assert sorted(name for row in found.rows for name in row) == sorted(widths)
    for row in found.rows:
        for one, other in combinations(row, 2):
            assert abs(found.x[one] - found.x[other]) >= (widths[one] + widths[other]) / 2
    row_of = {name: number for number, row in enumerate(found.rows) for name in row}
    assert all(row_of[source] < row_of[target] for source, target in found.paths)
    for name, width in widths.items():
        assert found.x[name] - width / 2 >= -0.001
        assert found.x[name] + width / 2 <= found.width + 0.001


def test_arrows_lead_from_what_is_done_before() -> None:
    arrows = [("a", "b"), ("b", "c"), ("a", "c"), ("c", "d"), ("a", "d")]
    assert without_detours(arrows) == [("a", "b"), ("b", "c"), ("c", "d")]
    assert depths_of("dcba", arrows) == {"a": 0, "b": 1, "c": 2, "d": 3}
    assert list(lay_out(dict.fromkeys("abcd", 1.0), [*arrows, ("d", "a")]).rows) == [
        *(["a"], ["b"], ["c"], ["d"])
    ]


def test_a_title_is_shortened_and_escaped() -> None:
    title = f"Fish & <chips> {'and so on ' * 30}"
    root = ET.fromstring(svg(plan(step("a", title))))
    words = [one.text or "" for one in root.iter(f"{SVG}text")]
    assert any(line.startswith("Fish & <chips>") for line in words)
    assert all(len(line) < 60 for line in words)


def test_characters_that_xml_cannot_have_are_replaced() -> None:
    root = ET.fromstring(svg(plan(step("a", "bell\x07"))))
    assert without_forbidden("bell\x07") in [one.text for one in root.iter(f"{SVG}text")]


def test_a_state_is_a_word_and_a_symbol() -> None:
    made = plan(*(step(state, "Work", state) for state in STATES))
    root = ET.fromstring(svg(made))
    words = [one.text for one in root.iter(f"{SVG}text")]
    assert "tool · outcome unknown" in words
    marks = {
        ET.tostring(box[2 if box[2].tag != f"{SVG}text" else 1]).split(b"transform")[-1]
        for box in root.findall(f"{SVG}g")
    }
    assert len(marks) == len(STATES)


def test_the_picture_of_the_documentation_is_what_is_drawn() -> None:
    assert SHOWN.read_text("utf-8") == svg(DELIVERY)


def test_a_plan_is_drawn_in_text() -> None:
    south = step("south", "Ask South", "running")
    steps = [step("north", "Ask North", "failed", otherwise="south"), south]
    made = plan(*steps, step("choose", "Which?", kind="ask", after="north"), title="Offers")
    assert text(made) == (
        "Offers (0 of 2 steps done)\n"
        "✗ north: Ask North (failed)\n"
        "   ▶ south: Ask South (running; if north fails)\n"
        "   ○ choose: Which? (waiting; after north)"
    )

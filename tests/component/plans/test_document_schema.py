"""The JSON Schema of plans that other programs read."""

import json
from pathlib import Path

import jsonschema_rs
import pytest
from hypothesis import given

import protocol_schemas
from component.plans.checks import faults
from component.plans.document import MOST_BYTES, Plan, Step, plan_json, schema_text
from component.skills.schema import ordered_schema
from tests.component.plans.strategies import plans
from tests.profiles import examples

VALIDATOR = jsonschema_rs.validator_for(json.loads(schema_text()))
few = examples(10, 500)


def test_the_published_schema_is_the_declaration() -> None:
    path = Path(protocol_schemas.__file__).with_name("plan.schema.json")
    assert path.read_text("utf-8") == schema_text()  # python -m component.plans.document


@few
@given(plans())
def test_a_plan_fits_the_schema(made: Plan) -> None:
    VALIDATOR.validate(json.loads(plan_json(made)))


@pytest.mark.parametrize("id_", ["", "A", "1a", "a b", "a\n", "aZ", "a" * 33])
def test_an_id_of_another_form_does_not_fit_the_schema(id_: str) -> None:
    step = {"id": id_, "kind": "ask", "question": "Why?"}
    assert not VALIDATOR.is_valid({"title": "A", "goal": "B", "steps": [step]})


def test_patterns_are_those_of_json_schema() -> None:
    r"""`\Z` is the letter Z there."""
    assert "\\Z" not in json.dumps(ordered_schema(Plan))


def test_a_plan_that_is_too_large_has_a_fault() -> None:
    step = Step(id="a", kind="call", skill="work", params={"x": "y" * MOST_BYTES})
    (fault,) = faults(Plan(title="A", goal="B", steps=(step,)))
    assert fault.endswith("bytes of JSON, and at most 16384 can be read by a person: use fewer or"
                          " shorter steps.")  # fmt: skip

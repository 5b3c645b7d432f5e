"""Skills that a JSON Schema alone describes: their parameters are checked against it."""

import time
from typing import Any

import pytest

from component.skills import InvalidParam, Skill, prepare
from component.skills.errors import DeclarationError
from component.skills.inputs import schema_inputs
from component.skills.params import prepare_texts

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Where."},
        "days": {"type": "integer", "minimum": 1, "default": 3},
        "tags": {"type": "array", "items": {"type": "string"}},
        "unit": {"enum": ["c", "f"]},
        "where": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
    },
    "required": ["city"],
    "additionalProperties": False,
}


def of_schema(schema: dict[str, Any]) -> Skill:
    return Skill(
        name="weather",
        input_schema=schema,
        inputs=schema_inputs(schema),
        kind="async",
        wants_context=True,
        invoke=lambda arguments, _: arguments,
    )


class _Text:
    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text


def test_texts_become_values_of_the_schema() -> None:
    texts = [("city", "Rome"), ("days", "2"), ("tags", "a"), ("tags", "b"), ("unit", "f")]
    expected = {"city": "Rome", "days": 2, "tags": ["a", "b"], "unit": "f"}
    assert prepare(of_schema(SCHEMA), texts) == expected
    assert prepare_texts(of_schema(SCHEMA), [_Text(*each) for each in texts]) == expected


def test_what_only_json_can_express_comes_as_json_and_defaults_are_added() -> None:
    made = prepare(of_schema(SCHEMA), [("city", "Rome")], b'{"where": {"x": 1.5}}')
    assert made == {"city": "Rome", "where": {"x": 1.5}, "days": 3}


def test_only_valid_defaults_are_added_and_none_where_somebody_else_has_written_them() -> None:
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "zone": {"type": "string", "default": None},
            "days": {"type": "integer", "minimum": 1, "default": 0},
            "unit": {"enum": ["c", "f"], "default": "c"},
        },
        "required": ["city"],
    }
    own, strange = schema_inputs(schema), schema_inputs(schema, adds_defaults=False)
    assert own.complete is not None
    assert strange.complete is not None
    assert own.complete({"city": "Rome"}) == {"city": "Rome", "unit": "c"}
    assert strange.complete({"city": "Rome"}) == {"city": "Rome"}
    assert strange.complete({"city": "Rome", "days": 2}) == {"city": "Rome", "days": 2}
    with pytest.raises(InvalidParam):
        strange.complete({"city": "Rome", "zone": None})


@pytest.mark.parametrize(
    ("json", "name", "path"),
    [
        (b"{}", "city", "city"),
        (b'{"city": 1}', "city", "city"),
        (b'{"city": "Rome", "days": 0}', "days", "days"),
        (b'{"city": "Rome", "where": {"x": "y"}}', "where", "where.x"),
        (b'{"city": "Rome", "tags": ["a", 1]}', "tags", "tags[1]"),
        (b'{"city": "Rome", "other": 1}', "other", "other"),
        (b"[]", None, None),
    ],
)
def test_a_value_that_does_not_fit_is_named(
    json: bytes, name: str | None, path: str | None
) -> None:
    with pytest.raises(InvalidParam) as caught:
        prepare(of_schema(SCHEMA), (), json)
    assert (caught.value.name, caught.value.path) == (name, path)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": "nothing"},
        {"properties": {"a": {"$ref": "http://127.0.0.1:1/schema"}}},
        {"properties": {"a": {"$ref": "file:///etc/passwd"}}},
        {"$schema": "http://127.0.0.1:1/draft"},
        {"properties": {"a": {"pattern": "("}}},
        {"description": "x" * 70_000},
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError, match="The schema"):
        schema_inputs(schema)


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|aa)+$", r"^(?=(a+)+$)b", r"(a|aa)+\1$"])
def test_no_pattern_takes_long(pattern: str) -> None:
    hostile = of_schema({"properties": {"a": {"type": "string", "pattern": pattern}}})
    before = time.thread_time()
    with pytest.raises(InvalidParam):
        prepare(hostile, [("a", "a" * 50_000 + "!")])
    assert time.thread_time() - before < 5


def test_defaults_are_added_for_a_schema_of_an_old_draft() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "integer", "default": 3}},
        "required": ["a"],
    }
    complete = schema_inputs(schema).complete
    assert complete is not None
    assert complete({"a": "x"}) == {"a": "x", "b": 3}

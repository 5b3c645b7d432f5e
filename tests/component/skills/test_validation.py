"""Schemas of strangers: validating a value against one takes a bounded time, or it is refused."""

import time
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.skills.errors import DeclarationError
from component.skills.validation import SchemaValidator, check_bounds

_ANY_JSON = {
    "$defs": {
        "value": {
            "anyOf": [
                {"type": ["string", "number", "boolean", "null"]},
                {"type": "array", "items": {"$ref": "#/$defs/value"}},
                {"type": "object", "additionalProperties": {"$ref": "#/$defs/value"}},
            ]
        }
    },
    "type": "object",
    "additionalProperties": {"$ref": "#/$defs/value"},
}
_TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "left": {"$ref": "#/$defs/node"},
                "right": {"$ref": "#/$defs/node"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
        }
    },
    "$ref": "#/$defs/node",
}


def doubled(depth: int) -> dict[str, Any]:
    """Each definition refers twice to the next one."""
    definitions: dict[str, Any] = {
        f"d{at}": {"allOf": [{"$ref": f"#/$defs/d{at + 1}"}, {"$ref": f"#/$defs/d{at + 1}"}]}
        for at in range(depth)
    }
    definitions[f"d{depth}"] = {"type": "integer"}
    return {"$defs": definitions, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize("schema", [_ANY_JSON, _TREE, doubled(5), {"items": {"$ref": "#"}}])
def test_recursive_schemas_as_people_write_them_are_used(schema: dict[str, Any]) -> None:
    SchemaValidator(schema)


@pytest.mark.parametrize(
    "schema",
    [
        doubled(40),
        {"$ref": "#"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"allOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]},
        {"properties": {"x": {"$ref": "#"}}, "allOf": [{"properties": {"x": {"$ref": "#"}}}]},
        {"patternProperties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}},
        {"prefixItems": [{"$ref": "#"}], "contains": {"$ref": "#"}},
        {"dependentSchemas": {"a": doubled(40)}},
        {"if": doubled(40)},
        {"$dynamicRef": "#a", "$dynamicAnchor": "a"},
        {"properties": {"a": {"$id": "https://a.example/b", "$ref": "#"}}},
    ],
)
def test_schemas_that_take_exponential_time_are_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError, match="The schema cannot be used"):
        SchemaValidator(schema)


_NAMES = st.sampled_from(["a", "b", "c"])
_LEAVES = st.sampled_from(
    [{}, {"type": "integer"}, {"type": "string", "maxLength": 2}, {"enum": ["a", 1, None]}, True]
)


def _combined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.fixed_dictionaries({"properties": st.dictionaries(_NAMES, inner, max_size=3)}),
        st.fixed_dictionaries({"items": inner}),
        st.fixed_dictionaries({"additionalProperties": inner}),
        st.fixed_dictionaries({"anyOf": several}),
        st.fixed_dictionaries({"allOf": several}),
        st.fixed_dictionaries({"not": inner}),
        st.fixed_dictionaries({"$ref": st.sampled_from(["#", "#/$defs/x", "#/$defs/y"])}),
    )


_SCHEMAS = st.builds(
    lambda root, x, y: {**(root if isinstance(root, dict) else {}), "$defs": {"x": x, "y": y}},
    *(st.recursive(_LEAVES, _combined, max_leaves=6) for _ in range(3)),
)
_VALUES = st.recursive(
    st.none() | st.integers(0, 3) | st.sampled_from(["a", "bcd"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=10,
)


@given(_SCHEMAS, _VALUES)
def test_what_is_used_agrees_with_another_validator(schema: dict[str, Any], value: Any) -> None:
    try:
        ours = SchemaValidator(schema)
    except DeclarationError:
        return
    assert (ours.mismatch(value) is None) is jsonschema.Draft202012Validator(schema).is_valid(value)


@given(_SCHEMAS)
def test_what_is_used_takes_a_bounded_time(schema: dict[str, Any]) -> None:
    deep: Any = 1
    for _ in range(60):
        deep = {"a": [deep], "b": 1}
    try:
        check_bounds(schema)
    except DeclarationError:
        return
    validator = SchemaValidator(schema)
    before = time.thread_time()
    validator.mismatch(deep)
    assert time.thread_time() - before < 2


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        ({"anyOf": [{"type": "integer", "minimum": 3}, {"type": "null"}]}, 1, "minimum of 3"),
        ({"oneOf": [{"type": "string", "maxLength": 1}, {"type": "null"}]}, "ab", "longer than 1"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "a", "anyOf"),
        ({"type": "string", "format": "date"}, "2026-13-01", "date"),
        ({"type": "string", "format": "uuid"}, "no", "uuid"),
    ],
)
def test_the_reason_is_that_of_the_alternative_that_is_meant(
    schema: dict[str, Any], value: Any, reason: str
) -> None:
    found = SchemaValidator(schema).mismatch(value)
    assert found is not None
    assert reason in found.reason


def test_a_format_that_nobody_knows_is_ignored() -> None:
    assert SchemaValidator({"format": "colour"}).mismatch("red") is None

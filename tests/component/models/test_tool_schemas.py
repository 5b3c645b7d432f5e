"""Schemas of tools as model APIs take them, and arguments translated both ways."""

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.models.tool_schemas import Adapted, Keywords, adapt, translated

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def adapted(schema: Any, keywords: Keywords = "all") -> Adapted:
    return adapt(msgspec.Raw(json.dumps(schema).encode()), keywords)


def schema_of(schema: Any, keywords: Keywords = "all") -> Any:
    return json.loads(bytes(adapted(schema, keywords).parameters))


def test_a_schema_that_every_api_takes_keeps_its_bytes() -> None:
    raw = msgspec.Raw(b'{ "type":"object", "properties": {"a": {"type": "string"}} }')
    assert adapt(raw).parameters is raw
    assert adapt(raw).renamed is None


@pytest.mark.parametrize("schema", [{}, True, None, [], {"type": None}, {"type": "string"}])
def test_what_is_no_object_at_the_top_becomes_one(schema: Any) -> None:
    assert schema_of(schema) == {"type": "object", "properties": {}}


def test_alternatives_at_the_top_become_properties_and_a_sentence() -> None:
    by_id = {"properties": {"id": {"type": "string"}}, "required": ["id", "to"]}
    by_name = {"properties": {"name": {"type": "string"}}, "required": ["name", "to"]}
    schema = {"properties": {"to": {"type": "string"}}, "oneOf": [by_id, {"$ref": "#/$defs/n"}],
              "$defs": {"n": by_name}, "not": {"required": ["x"]}}  # fmt: skip
    assert schema_of(schema) == {
        "type": "object",
        "properties": {"to": {"type": "string"}, "id": {"type": "string"},
                       "name": {"type": "string"}},
        "required": ["to"],
        "description": "Give exactly one of: (id, to) or (name, to).",
    }  # fmt: skip


def test_all_of_at_the_top_requires_what_each_part_requires() -> None:
    parts = [{"properties": {n: {}}, "required": [n]} for n in "ab"]
    schema = schema_of({"allOf": parts})
    assert (schema["required"], list(schema["properties"])) == (["a", "b"], ["a", "b"])


def test_references_are_replaced_and_those_to_themselves_end() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
    schema = schema_of({"properties": {"list": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}})
    assert "$" not in json.dumps(schema)
    assert schema["properties"]["list"]["properties"]["next"] == {"type": "object"}


def test_references_that_would_grow_without_end_are_bounded() -> None:
    levels = {
        f"d{i}": {"properties": {n: {"$ref": f"#/$defs/d{i + 1}"} for n in "abcdefgh"}}
        for i in range(12)
    }
    schema = {"properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": levels}
    assert len(bytes(adapted(schema).parameters)) < 500_000


def test_boolean_schemas_and_older_forms_are_written_as_newer_ones() -> None:
    schema = schema_of(
        {
            "properties": {
                "any": True,
                "none": False,
                "pair": {"type": "array", "items": [{"type": "string"}, {"type": "number"}]},
                "some": {"type": "array"},
                "above": {"type": "number", "minimum": 3, "exclusiveMinimum": True},
                "left_out": {"anyOf": [{"not": {}}, {"type": "string"}]},
                "text": "object",
                "many": {"type": ["string", "array"]},
                "wrong": {"type": "int", "required": True, "enum": [], "description": 7},
            },
            "required": ["any", "none"],
        }
    )
    assert schema["properties"] == {
        "any": {},
        "pair": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "number"}]}},
        "some": {"type": "array", "items": {}},
        "above": {"type": "number", "exclusiveMinimum": 3},
        "left_out": {"type": "string"},
        "text": {},
        "many": {"type": ["string", "array"], "items": {}},
        "wrong": {"type": "integer"},
    }
    assert schema["required"] == ["any"]


def test_plain_schemas_have_no_keyword_that_gemini_refuses() -> None:
    schema = schema_of(
        {
            "properties": {
                "a": {"type": ["string", "null"], "format": "uri"},
                "b": {"enum": [1, 2]},
                "c": {"oneOf": [{"const": "x"}, {"type": ["integer", "string"]}]},
                "d": {"type": "object", "additionalProperties": False, "patternProperties": {}},
                "e": {"allOf": [{"type": "object", "properties": {"f": {"type": "string"}}}]},
            },
            "additionalProperties": False,
        },
        "plain",
    )
    assert schema["properties"] == {
        "a": {"type": "string", "nullable": True, "description": 'format: "uri".'},
        "b": {"description": "enum: [1, 2]."},
        "c": {"anyOf": [{"enum": ["x"]}, {"anyOf": [{"type": "integer"}, {"type": "string"}]}]},
        "d": {"type": "object"},
        "e": {"type": "object", "properties": {"f": {"type": "string"}}},
    }
    assert "additionalProperties" not in schema


def test_null_among_alternatives_is_nullable_in_a_plain_schema() -> None:
    name = {"anyOf": [{"type": "string", "maxLength": 9}, {"type": "null"}], "default": None}
    either = {"oneOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]}
    schema = {"type": "object", "properties": {"name": name, "either": either}}
    assert schema_of(schema, "plain")["properties"] == {
        "name": {"type": "string", "maxLength": 9, "default": None, "nullable": True},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}], "nullable": True},
    }


def test_a_name_is_required_once() -> None:
    schema = {"type": "object", "properties": {"a": {}}, "required": ["a", "a"]}
    assert schema_of(schema)["required"] == ["a"]


def test_llama_cpp_gets_a_type_for_each_schema() -> None:
    schema = schema_of({"properties": {"a": {"description": "Anything."}}}, "typed")
    assert "string" in schema["properties"]["a"]["type"]


def test_names_that_no_api_takes_are_translated_at_every_place() -> None:
    inner = {"type": "object", "properties": {"größe": {}, "ok": {}}}
    one = adapted(
        {
            "properties": {
                "filter[]": {"type": "array", "items": inner},
                "filter": {},
                "page[size]": {"anyOf": [inner, {"properties": {"$top": {}}}]},
                "x" * 80: {},
            },
            "required": ["filter[]"],
        }
    )
    schema = json.loads(bytes(one.parameters))
    assert list(schema["properties"])[:3] == ["filter_2", "filter", "page_size"]
    assert schema["required"] == ["filter_2"]
    assert one.renamed is not None
    written = {"filter_2": [{"gr__e": 1, "ok": 2}], "filter": 3, "page_size": {"_top": 4}}
    ours = translated(json.dumps(written), one.renamed, to_ours=True)
    assert json.loads(ours) == {
        "filter[]": [{"größe": 1, "ok": 2}], "filter": 3, "page[size]": {"$top": 4},
    }  # fmt: skip
    assert json.loads(translated(ours, one.renamed, to_ours=False)) == written
    assert translated("{broken", one.renamed, to_ours=True) == "{broken"


PROPERTY = st.text(max_size=70) | st.sampled_from(["a", "a[]", "a()", "a_", "a_2", "ä"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "properties", "items", "anyOf", "oneOf", "allOf", "$ref", "required",
                 "enum", "const", "additionalProperties", "not", "prefixItems", "$defs", "format"]
            ),
            inner,
            max_size=4,
        )
        | st.just({"$ref": "#"})
    ),
    max_leaves=12,
)  # fmt: skip


@given(VALUES, st.sampled_from(["all", "typed", "plain"]))
def test_any_schema_becomes_an_object(schema: Any, keywords: Keywords) -> None:
    found = schema_of(schema, keywords)
    assert found["type"] == "object"
    assert isinstance(found["properties"], dict)
    assert not {"anyOf", "oneOf", "allOf", "not", "$ref"} & found.keys()


@given(st.dictionaries(PROPERTY, st.integers(), max_size=8))
def test_translated_names_are_distinct_and_come_back(arguments: dict[str, int]) -> None:
    one = adapted({"properties": {name: {} for name in arguments}})
    names = list(json.loads(bytes(one.parameters))["properties"])
    assert len(names) == len(arguments)
    assert all(map(NAME.fullmatch, names))
    if one.renamed is not None:
        theirs = translated(json.dumps(arguments), one.renamed, to_ours=False)
        assert set(json.loads(theirs)) == set(names)
        assert json.loads(translated(theirs, one.renamed, to_ours=True)) == arguments

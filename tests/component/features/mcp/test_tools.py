"""What a server says of its tools is a claim: no claim makes a rule less strict."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.features.mcp.connection import ToolDescription
from component.features.mcp.contents import cleaned
from component.features.mcp.questions import schema_of
from component.features.mcp.settings import McpServer, ToolAnnotations
from component.features.mcp.tools import annotations_of, distinct_names, skill_name, skills_of
from component.skills.foreign_texts import clean, clean_schema
from component.skills.forms import InvalidForm, form_values, schema_form
from component.skills.skill import Invoke
from component.skills.spec import Annotations
from xep.data_forms import Field, Form

READS = Annotations(read_only=True, destructive=False)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
HINTS = st.dictionaries(
    st.sampled_from(["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"]),
    st.booleans(),
)


def tool(name: str = "get", **claims: bool) -> ToolDescription:
    return ToolDescription(name, "", "", {"type": "object"}, None, claims)


def entry(**settings: Any) -> McpServer:
    return McpServer(command=("x",), **settings)


def strictness(found: Annotations) -> tuple[bool, ...]:
    return (not found.read_only, found.destructive, not found.idempotent, found.open_world)


@given(HINTS)
def test_without_trust_claims_change_nothing(claims: dict[str, bool]) -> None:
    assert annotations_of("s", entry(), tool(**claims)) == Annotations()


@given(HINTS, st.sampled_from([(), ("get",), ("*",), ("other",)]))
def test_a_claim_never_makes_a_tool_less_strict(
    claims: dict[str, bool], read_only: tuple[str, ...]
) -> None:
    found = annotations_of("s", entry(read_only=read_only), tool(**claims))
    silent = annotations_of("s", entry(read_only=read_only), tool())
    pairs = zip(strictness(found), strictness(silent), strict=True)
    assert all(here >= there for here, there in pairs)


@given(HINTS)
def test_annotations_of_the_settings_come_first(claims: dict[str, bool]) -> None:
    given = {"g*": ToolAnnotations(read_only=True), "*": ToolAnnotations(destructive=True)}
    found = annotations_of("s", entry(annotations=given, trusted_annotations=True), tool(**claims))
    assert found == READS


@pytest.mark.parametrize(
    ("claims", "found"),
    [
        ({}, Annotations()),
        ({"readOnlyHint": True}, READS),
        ({"readOnlyHint": True, "destructiveHint": True}, READS),
        ({"destructiveHint": False, "openWorldHint": False, "idempotentHint": True},
         Annotations(destructive=False, open_world=False, idempotent=True)),
    ],
)  # fmt: skip
def test_trusted_claims_count(claims: dict[str, bool], found: Annotations) -> None:
    assert annotations_of("s", entry(trusted_annotations=True), tool(**claims)) == found


@given(st.text(max_size=300), st.integers(1, 200))
def test_texts_are_bounded_and_visible(text: str, longest: int) -> None:
    made = clean(text, longest)
    assert len(made) <= longest
    assert all(char.isprintable() or char.isspace() for char in made)
    assert clean(made, longest) == made


@given(JSON_VALUES)
def test_a_cleaned_schema_has_the_same_shape(schema: Any) -> None:
    made = clean_schema(schema, 1000)
    assert type(made) is type(schema)
    if isinstance(schema, dict):
        assert made.keys() == schema.keys()


@given(
    st.lists(
        JSON_VALUES
        | st.fixed_dictionaries(
            {},
            optional={
                "name": st.text() | st.integers(),
                "title": JSON_VALUES,
                "inputSchema": st.just({"type": "object"}) | JSON_VALUES,
                "outputSchema": JSON_VALUES,
                "annotations": JSON_VALUES | HINTS,
                "icons": JSON_VALUES,
            },
        )
    )
)
def test_any_list_of_tools_can_be_read(tools: list[Any]) -> None:
    from mcp_types import Tool

    left_out: list[str] = []
    found = cleaned(tools, lambda name, reason: left_out.append(reason))
    assert len(found) + len(left_out) == len(tools)
    for each in found:
        Tool.model_validate(each)


@pytest.mark.parametrize(
    ("prefix", "tool", "name"),
    [("s", "a", "s.a"), ("", "a.b", "a.b"), ("s", "a b/c", "s.a_b_c"), ("s", "..x..", "s.x")],
)
def test_an_mcp_skill_is_named_after_its_prefix_and_tool(prefix: str, tool: str, name: str) -> None:
    assert skill_name(prefix, tool) == name


TITLES = (("low", "Low priority"), ("high", "High priority"))
TITLED = [{"const": value, "title": title} for value, title in TITLES]


@pytest.mark.parametrize(
    ("described", "labels"),
    [
        ({"type": "string", "enum": ["low", "high"]}, False),
        ({"enum": ["low", "high"]}, False),
        ({"type": "string", "oneOf": TITLED}, True),
        ({"type": "string", "anyOf": TITLED}, True),
        ({"type": "string", "enum": ["low", "high"], "enumNames": [t for _, t in TITLES]}, True),
        ({"type": "string", "enum": ["low", "high"], "enumNames": ["only one"]}, False),
        ({"type": "array", "items": {"type": "string", "enum": ["low", "high"]}}, False),
        ({"type": "array", "items": {"anyOf": TITLED}, "maxItems": 2}, True),
        ({"type": "array", "items": {"type": "string", "oneOf": TITLED}}, True),
        ({"anyOf": [{"enum": ["low", "high"], "type": "string"}, {"type": "null"}]}, False),
        ({"anyOf": [*TITLED, {"type": "null"}]}, True),
        ({"type": ["string", "null"], "enum": ["low", "high"]}, False),
    ],
)
def test_the_choices_of_a_question_are_those_of_its_form(described: Any, labels: bool) -> None:
    properties = {"a": described | {"title": "Priority", "default": described.get("default")}}
    schema = schema_of({"requestedSchema": {"properties": properties, "required": ["a"]}})
    (field,) = schema_form(schema, None).fields
    several = described.get("type") == "array"
    assert field.type == ("list-multi" if several else "list-single")
    assert (field.label, field.required) == ("Priority", True)
    shown = [(each.value, each.label) for each in field.options if each.label != "(none)"]
    assert shown == [(value, title if labels else value) for value, title in TITLES]
    if labels:
        said = Field(var="a", values=("HIGH priority",))
        values = msgspec.json.decode(form_values(Form(type="submit", fields=(said,)), schema))
        assert values == {"a": ["high"] if several else "high"}


@pytest.mark.parametrize(
    ("described", "right", "wrong"),
    [
        ({"type": "string", "format": "email"}, "ann@a.example", "ann"),
        ({"type": "string", "format": "uri"}, "https://a.example/", "a b"),
        ({"type": "string", "format": "date"}, "2026-03-01", "1 March"),
        ({"type": "string", "format": "date-time"}, "2026-03-01T10:00:00Z", "2026-03-01"),
        ({"type": "string", "minLength": 2, "maxLength": 3}, "ab", "a"),
        ({"type": "integer", "minimum": 1, "maximum": 5}, "3", "6"),
        ({"type": "number", "minimum": 0.5}, "0.75", "0.25"),
        ({"type": "boolean"}, "true", "perhaps"),
        ({"type": "array", "items": {"anyOf": TITLED}, "minItems": 1}, "low", "medium"),
    ],
)
def test_what_a_question_asks_of_a_value_is_checked(described: Any, right: str, wrong: str) -> None:
    properties = {"a": described}
    schema = schema_of({"requestedSchema": {"properties": properties, "required": ["a"]}})
    submitted = Form(type="submit", fields=(Field(var="a", values=(right,)),))
    assert form_values(submitted, schema)
    with pytest.raises(InvalidForm):
        form_values(Form(type="submit", fields=(Field(var="a", values=(wrong,)),)), schema)


@pytest.mark.parametrize(
    ("described", "default", "shown"),
    [
        ({"type": "string", "oneOf": TITLED}, "high", ("high",)),
        ({"type": "string", "oneOf": TITLED}, "other", ("(none)",)),
        ({"type": "array", "items": {"anyOf": TITLED}}, ["low"], ("low",)),
        ({"type": "integer", "minimum": 1}, 2, ("2",)),
        ({"type": "integer", "minimum": 1}, 0, ()),
        ({"type": "boolean"}, True, ("true",)),
        ({"type": "string"}, None, ()),
    ],
)
def test_a_form_shows_the_default_of_a_question_if_it_is_valid(
    described: Any, default: Any, shown: tuple[str, ...]
) -> None:
    properties = {"a": {**described, "default": default}}
    (field,) = schema_form(schema_of({"requestedSchema": {"properties": properties}}), None).fields
    assert field.values == shown
    assert not field.required


@given(JSON_VALUES)
def test_any_question_becomes_a_form_or_is_refused(schema: Any) -> None:
    try:
        schema_of({"requestedSchema": schema})
    except ValueError:
        return


@pytest.mark.parametrize(
    "described",
    [
        {"type": "object"},
        {"type": ["string", "integer"]},
        {"type": {}},
        {"type": "string", "oneOf": [{"pattern": "a"}]},
        {"type": "string", "enum": []},
        {"type": "string", "enum": ["a", None]},
        {"type": "string", "enum": ["a\x00"]},
        "string",
        None,
    ],
)
def test_fields_that_no_form_has_are_refused(described: Any) -> None:
    with pytest.raises(ValueError, match="field"):
        schema_of({"requestedSchema": {"properties": {"a": described}}})


TOOL_NAMES = st.lists(st.text(st.sampled_from("ab._ é/-"), min_size=1, max_size=12), max_size=8)


@given(TOOL_NAMES, st.sampled_from(("", "server")), st.randoms(use_true_random=False))
def test_two_tools_of_a_server_never_become_one(
    tools: list[str], prefix: str, order: random.Random
) -> None:
    names = distinct_names(prefix, set(tools))
    assert len(set(names.values())) == len(set(tools))
    shuffled = list(tools)
    order.shuffle(shuffled)
    assert distinct_names(prefix, set(shuffled)) == names


def test_tools_whose_names_become_the_same_are_all_offered_and_called_by_their_own() -> None:
    tools = [tool("read file"), tool("read_file"), tool("read/file")]
    invoked: list[str] = []

    def invoke_of(one: ToolDescription, _annotations: Annotations) -> Invoke:
        return lambda _arguments, _context: invoked.append(one.name)

    skills = {one.name: one for one in skills_of("s", entry(), tools, invoke_of)}
    assert sorted(skills) == ["s.read_file", "s.read_file_2", "s.read_file_3"]
    for each in sorted(skills):
        skills[each].invoke({}, None)
    assert invoked == ["read_file", "read file", "read/file"]


def test_the_question_for_a_tool_comes_from_the_settings() -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    tools = [ToolDescription(name, "", "", schema, None, {}) for name in ("delete_a", "other")]
    asking = entry(questions={"delete_*": "May I delete {path}?", "other": "May I {go}?"})
    (skill,) = skills_of("s", asking, tools, lambda _tool, _effects: lambda *_: "")
    assert skill.question == "May I delete {path}?"  # one that names no parameter is not offered

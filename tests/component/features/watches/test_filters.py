"""Filters of watches, and parameters that are filled from events."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.features.watches.filters import (
    Condition,
    FilterError,
    ItemFilter,
    fill_params,
    json_text,
    payload_text,
)
from xep.binding import RawXML, encode
from xep.json_containers import Json
from xep.tree import Tree, tree_of

BUILD = tree_of(
    RawXML(
        "<build xmlns='urn:b' state='failed'><name>core</name><took unit='s'>31.5</took>"
        "<step xmlns='urn:s'>compile</step><step xmlns='urn:s'>Test it</step></build>"
    )
)


def as_json(value: Any) -> Tree:
    return tree_of(RawXML(encode(Json(value=msgspec.Raw(msgspec.json.encode(value))))))


@pytest.mark.parametrize(
    ("condition", "met"),
    [
        (Condition(attribute="state", equals="failed"), True),
        (Condition(attribute="state", equals="passed"), False),
        (Condition(element="build", attribute="state", exists=True), True),
        (Condition(element="other", exists=True), False),
        (Condition(element="other", exists=False), True),
        (Condition(element="build/name", equals="core"), True),
        (Condition(element="build/name", contains="CO"), True),
        (Condition(element="build/step", equals="Test it"), True),
        (Condition(element="build/step", namespace="urn:s", contains="compile"), True),
        (Condition(element="build/step", namespace="urn:b", contains="compile"), False),
        (Condition(element="build/*", equals="core"), True),
        (Condition(element="*/took", above=31, below=32), True),
        (Condition(element="build/took", above=31.5), False),
        (Condition(element="build/name", above=0), False),
        (Condition(element="build/took", attribute="unit", equals="s"), True),
        (Condition(element="build/took/deeper", exists=True), False),
    ],
)
def test_conditions_compare_elements_attributes_and_numbers(
    condition: Condition, met: bool
) -> None:
    assert ItemFilter([condition]).accepts(BUILD) is met


def test_all_conditions_must_hold() -> None:
    failed = Condition(attribute="state", equals="failed")
    assert ItemFilter([failed, Condition(element="build/name", equals="core")]).accepts(BUILD)
    assert not ItemFilter([failed, Condition(element="build/name", equals="web")]).accepts(BUILD)
    assert ItemFilter().accepts(None)
    assert not ItemFilter([failed]).accepts(None)
    assert ItemFilter([Condition(element="build", exists=False)]).accepts(None)


@pytest.mark.parametrize(
    ("expression", "value", "met"),
    [
        ("status == 'failed'", {"status": "failed"}, True),
        ("status == 'failed'", {"status": "passed"}, False),
        ("status == 'failed'", [1], False),
        ("count", {"count": 0}, True),
        ("count", {"count": None}, False),
        ("flag", {"flag": False}, False),
        ("items[?price > `10`]", {"items": [{"price": 9}]}, False),
        ("items[?price > `10`]", {"items": [{"price": 11}]}, True),
        ("length(@) > `2`", 5, False),  # a type error of the expression
    ],
)
def test_jmespath_decides_on_json(expression: str, value: Any, met: bool) -> None:
    assert ItemFilter(json=expression).accepts(as_json(value)) is met


def test_json_is_found_in_the_payload_or_in_its_first_level() -> None:
    wrapped = tree_of(RawXML("<e xmlns='urn:e'><json xmlns='urn:xmpp:json:0'>{\"a\":1}</json></e>"))
    assert json_text(wrapped) == '{"a":1}'
    assert ItemFilter(json="a").accepts(wrapped)
    assert not ItemFilter(json="a").accepts(BUILD)
    assert not ItemFilter(json="a").accepts(
        tree_of(RawXML("<json xmlns='urn:xmpp:json:0'>{</json>"))
    )


@pytest.mark.parametrize(
    "wrong",
    [
        Condition(),
        Condition(element="a//b", equals="x"),
        Condition(element="/a", equals="x"),
        Condition(element="/".join("a" * 20), exists=True),
    ],
)
def test_a_condition_that_compares_nothing_is_refused(wrong: Condition) -> None:
    with pytest.raises(FilterError, match=r"."):
        ItemFilter([wrong])


@pytest.mark.parametrize("wrong", ["a ==", "[", "x" * 2000, "a" + ".a" * 600])
def test_a_wrong_expression_is_refused(wrong: str) -> None:
    with pytest.raises(FilterError):
        ItemFilter(json=wrong)


texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=20)
trees = st.recursive(
    st.builds(Tree, texts, texts, st.dictionaries(texts, texts, max_size=3), texts),
    lambda inner: st.builds(
        Tree,
        texts,
        texts,
        st.dictionaries(texts, texts, max_size=3),
        texts,
        st.lists(inner, max_size=3).map(tuple),
    ),
    max_leaves=8,
)


@given(trees, st.builds(Condition, element=st.sampled_from(["", "a", "*/*"]), equals=texts))
def test_any_payload_can_be_filtered(payload: Tree, condition: Condition) -> None:
    assert ItemFilter([condition], "a.b[0] == `1`").accepts(payload) in (True, False)
    assert "\n" not in payload_text(payload)


EVENT = json.dumps(
    {"item": "i1", "text": "Hello", "json": {"n": 7, "list": [1, 2]}, "publisher": None}
).encode()


@pytest.mark.parametrize(
    ("params", "filled"),
    [
        ({}, {}),
        ({"a": "plain"}, {"a": "plain"}),
        ({"a": "{item}"}, {"a": "i1"}),
        ({"a": "{ json.n }"}, {"a": 7}),
        ({"a": {"b": ["{json.list}", "x {item}"]}}, {"a": {"b": [[1, 2], "x {item}"]}}),
        ({"a": "{publisher}", "b": "{nothing.at.all}", "c": 1}, {"c": 1}),
    ],
)
def test_parameters_are_filled(params: Any, filled: Any) -> None:
    raw = json.dumps(params).encode()
    assert json.loads(fill_params(raw, EVENT)) == filled


values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=5), values, max_size=4))
def test_parameters_without_expressions_stay_as_they_are(params: dict[str, Any]) -> None:
    raw = json.dumps(params).encode()
    if "{" not in json.dumps(params)[1:]:
        assert json.loads(fill_params(raw, EVENT)) == params
    else:
        fill_params(raw, EVENT)

"""Expressions in the texts and parameters of steps."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from component.plans.templates import TemplateError, bound, fill, names_after, roots_in

DATA = {"a": {"text": "tea", "data": {"items": [{"n": 1}, {"n": 2}]}}, "g": [{"text": "x"}]}
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet="ab c", max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("xy"), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("value", "filled"),
    [
        ("{a.data.items[1].n}", 2),
        ("{ a.data.items[*].n }", [1, 2]),
        ("Have {a.text}, {a.data.items[0].n}.", "Have tea, 1."),
        ("{a.nothing}", None),
        ("No {a.nothing}", "No "),
        ("{{a}} {a.text}", "{a} tea"),
        ({"x": ["{a.text}", 3]}, {"x": ["tea", 3]}),
        ("{length(g)}", 1),
        ("{g[0].text}", "x"),
    ],
)
def test_an_expression_is_replaced_by_what_it_finds(value: Any, filled: Any) -> None:
    assert fill(value, DATA) == filled


@given(PLAIN)
def test_a_value_without_expressions_stays_as_it_is(value: Any) -> None:
    assert fill(value, DATA) == value
    assert roots_in(value) == frozenset()


@settings(max_examples=30)
@given(st.text(max_size=20), PLAIN)
def test_what_an_output_has_is_never_an_expression(text: str, more: Any) -> None:
    """An output with braces is not evaluated in turn."""
    data = {"a": {"text": f"{text}{{b.text}}", "more": more}, "b": {"text": "secret"}}
    assert fill("{a.text}", data) == f"{text}{{b.text}}"
    assert fill("see {a.text}", data) == f"see {text}{{b.text}}"
    assert fill("{a.more}", data) == more


@pytest.mark.parametrize(
    ("expression", "roots"),
    [
        ("a.b.c", {"a"}),
        ("a[0].b", {"a"}),
        ("a[?b == c].d", {"a"}),
        ("[a.x, b.y]", {"a", "b"}),
        ("a.x || b.y", {"a", "b"}),
        ("join(', ', g[*].text)", {"g"}),
        ("sort_by(a.items, &n)", {"a"}),
        ("a.items | [0].b", {"a"}),
        ("!a.x && b.y", {"a", "b"}),
        ("`1`", set()),
    ],
)
def test_the_steps_that_an_expression_refers_to_are_known(expression: str, roots: set[str]) -> None:
    assert roots_in(f"{{{expression}}}") == roots


@pytest.mark.parametrize("expression", ["@", "*", "[0]", "*.a", "@.a", "length(@)", "a && @"])
def test_an_expression_that_reads_everything_is_refused(expression: str) -> None:
    with pytest.raises(TemplateError, match="refers to all outputs"):
        roots_in(f"{{{expression}}}")


def test_an_expression_that_does_not_fit_the_output_says_so() -> None:
    with pytest.raises(TemplateError, match=r"\{sum\(a.text\)\} cannot be applied"):
        fill("{sum(a.text)}", DATA)


@given(PLAIN, st.text(alphabet="{}a ", max_size=8))
def test_a_bound_value_is_what_the_parameter_was(value: Any, text: str) -> None:
    """Whatever a parameter has, it is not an expression of the plan afterwards."""
    try:
        made = bound(
            {"x": "{params.v}", "y": "see {params.t} and {a.text}"},
            "params",
            {
                "v": [value, text],
                "t": text,
            },
        )
    except TemplateError as error:  # a parameter that is nested too deep
        raise AssertionError from error
    assert roots_in(made) == {"a"}
    found = fill(made, {"a": {"text": "tea"}})
    assert found == {"x": [value, text], "y": f"see {text} and tea"}


def test_the_parameters_that_a_plan_refers_to_are_known() -> None:
    plan = {"x": "{params.a} {join(', ', params.b)}", "y": ["{params.c.d[0]}", "{other.e}"]}
    assert names_after("params", plan) == {"a", "b", "c"}

"""The depth and size of JSON text, measured without decoding it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.models.answer_limits import (
    ARGUMENTS_CHARACTERS,
    ARGUMENTS_DEPTH,
    JSON_VALUES,
    too_complex,
)

TEXTS = st.text(alphabet='{}[]"\\a\n', max_size=100)
INNER = st.recursive(
    TEXTS | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


@given(INNER, st.integers(0, ARGUMENTS_DEPTH + 2))
def test_depth_is_that_of_objects_and_arrays(inner: Any, wraps: int) -> None:
    value = inner
    for _ in range(wraps):
        value = [value]
    assert too_complex(json.dumps(value)) == (depth(value) > ARGUMENTS_DEPTH)


@given(st.text(alphabet='{}[]"\\a') | TEXTS)
def test_any_text_can_be_measured(text: str) -> None:
    too_complex(text * 30)


@pytest.mark.parametrize(
    ("text", "is_so"),
    [
        ("[" * 100_000, True),
        ('{"a":' * 100_000, True),
        ("[]" * (JSON_VALUES + 1), True),
        (json.dumps("[{" * 10_000), False),
        ("}" * 100_000, False),
    ],
)
def test_nesting_and_many_values_outside_strings_are_too_complex(text: str, is_so: bool) -> None:
    assert too_complex(text) is is_so


@pytest.mark.parametrize("unit", ['\\"', '"', '"\\', "\\\\"])
def test_unterminated_strings_take_linear_time(unit: str) -> None:
    """In quadratic time each takes minutes."""
    brackets = "[" * (ARGUMENTS_DEPTH + 1)
    too_complex('"' + brackets + unit * (ARGUMENTS_CHARACTERS // len(unit)))

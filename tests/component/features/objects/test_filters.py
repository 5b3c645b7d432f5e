"""Filters, compared with an interpreter that follows their description word for word."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.features.objects.filters import MOST_CONDITIONS, filter_of
from component.features.objects.stored import ObjectError
from tests.profiles import examples

_MISSING = object()
_names = st.sampled_from(["a", "b", "0", "1"])
_plain = st.sampled_from([None, True, False, 0, 1, 1.0, -2, 2.5, "", "a", "ab", "B", "1"])
_values = st.recursive(
    _plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3),
    max_leaves=6,
)
_objects = st.dictionaries(_names, _values, max_size=3)
_patterns = st.sampled_from(["^a", "b$", "a.?b", "[Bb]", "", "(?i)B", "^$"])
_ordered = st.sampled_from([0, 1, 1.5, "", "a", "b"])
_paths = st.lists(_names, min_size=1, max_size=3).map(".".join)


def _pairs(names: list[str], values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda name, value: {name: value}, st.sampled_from(names), values)


_tests = st.one_of(
    _pairs(["$eq", "$ne", "$contains"], _values),
    _pairs(["$gt", "$gte", "$lt", "$lte"], _ordered),
    _pairs(["$in", "$nin"], st.lists(_values, max_size=3)),
    _pairs(["$exists"], st.booleans()),
    _pairs(["$regex"], _patterns),
    _patterns.map(lambda pattern: {"$regex": pattern, "$options": "i"}),
)
_operators = _tests | st.builds(lambda one, other: one | {"$not": other}, _tests, _tests)
_members = st.dictionaries(_paths, _operators | _plain | st.lists(_plain, max_size=2), max_size=2)
_filters = st.recursive(
    _members,
    lambda inner: (
        _pairs(["$and", "$or", "$nor"], st.lists(inner, min_size=1, max_size=3))
        | _pairs(["$not"], inner)
    ),
    max_leaves=4,
)


def some(value: Any, names: list[str], test: Callable[[Any], bool]) -> bool:
    """Whether a test holds for something to which a path leads."""
    if not names:
        return test(value) or (isinstance(value, list) and any(map(test, value)))
    name, rest = names[0], names[1:]
    if isinstance(value, dict):
        return some(value[name], rest, test) if name in value else test(_MISSING)
    if not isinstance(value, list):
        return test(_MISSING)
    at_position = (
        int(name) < len(value) and some(value[int(name)], rest, test)
        if (name.isdecimal())
        else False
    )
    return at_position or any(some(one, names, test) for one in value if isinstance(one, dict))


def canonical(value: Any) -> Any:
    """A value that Python compares as JSON values are compared."""
    if isinstance(value, dict):
        return "object", {name: canonical(each) for name, each in value.items()}
    if isinstance(value, list):
        return "array", list(map(canonical, value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number", float(value)
    return type(value).__name__, value


_WANTED = {"$gt": (1,), "$gte": (0, 1), "$lt": (-1,), "$lte": (-1, 0)}
"""What the order of a value and an operand may be."""


def compares(value: Any, operand: Any, orders: tuple[int, ...]) -> bool:
    (kind, one), (other_kind, other) = canonical(value), canonical(operand)
    if kind != other_kind or kind not in ("number", "str"):
        return False
    return (one > other) - (one < other) in orders


def equals(value: Any, operand: Any) -> bool:
    return operand is None if value is _MISSING else canonical(value) == canonical(operand)


def contains(value: Any, operand: Any) -> bool:
    if isinstance(value, str) and isinstance(operand, str):
        return operand.lower() in value.lower()
    return isinstance(value, list) and any(equals(one, operand) for one in value)


def member(data: Any, path: str, operators: dict[str, Any]) -> bool:
    def any_is(test: Callable[[Any], bool]) -> bool:
        return some(data, path.split("."), test)

    def one(name: str, operand: Any) -> bool:
        match name:
            case "$eq" | "$ne":
                return any_is(lambda value: equals(value, operand)) == (name == "$eq")
            case "$in" | "$nin":
                found = any(any_is(lambda value: equals(value, one)) for one in operand)  # noqa: B023
                return found == (name == "$in")
            case "$exists":
                return any_is(lambda value: value is not _MISSING) == operand
            case "$contains":
                return any_is(lambda value: contains(value, operand))
            case "$regex":
                flags = re.IGNORECASE if "$options" in operators else 0
                return any_is(
                    lambda value: isinstance(value, str) and bool(re.search(operand, value, flags))
                )
            case "$not":
                return not member(data, path, operand)
            case "$options":
                return True
        return any_is(lambda value: compares(value, operand, _WANTED[name]))

    return all(one(*each) for each in operators.items())


def fits(data: Any, wanted: dict[str, Any]) -> bool:
    for name, operand in wanted.items():
        match name:
            case "$and":
                found = all(fits(data, each) for each in operand)
            case "$or":
                found = any(fits(data, each) for each in operand)
            case "$nor":
                found = not any(fits(data, each) for each in operand)
            case "$not":
                found = not fits(data, operand)
            case _:
                has = isinstance(operand, dict) and any(key.startswith("$") for key in operand)
                found = member(data, name, operand if has else {"$eq": operand})
        if not found:
            return False
    return True


@examples(100)
@given(wanted=_filters, data=_objects)
def test_a_filter_finds_what_its_description_says(wanted: dict[str, Any], data: Any) -> None:
    assert filter_of(wanted)(data) == fits(data, wanted)


@pytest.mark.parametrize(
    ("wanted", "data"),
    [
        ({"guests.name": "Ann"}, {"guests": [{"name": "Bob"}, {"name": "Ann"}]}),
        ({"guests.1.name": "Ann"}, {"guests": [{"name": "Bob"}, {"name": "Ann"}]}),
        ({"tags": "red"}, {"tags": ["green", "red"]}),
        ({"tags": ["green", "red"]}, {"tags": ["green", "red"]}),
        ({"due": None}, {}),
        ({"due": {"$gte": "2026-01-01", "$lt": "2027-01-01"}}, {"due": "2026-12-24"}),
        ({"title": {"$contains": "REPORT"}}, {"title": "The report"}),
        ({"title": {"$regex": "^the", "$options": "i"}}, {"title": "The report"}),
        ({"amount": 1.0}, {"amount": 1}),
    ],
)
def test_what_fits(wanted: dict[str, Any], data: dict[str, Any]) -> None:
    assert filter_of(wanted)(data)


@pytest.mark.parametrize(
    ("wanted", "data"),
    [
        ({"amount": {"$gt": 5}}, {"amount": "6"}),
        ({"amount": {"$lt": 5}}, {"amount": None}),
        ({"amount": 1}, {"amount": True}),
        ({"done": {"$ne": True}}, {"done": [False, True]}),
        ({"address": {"city": "Verona"}}, {"address": {"city": "Verona", "zip": 1}}),
        ({"a.b": 1}, {"a": [[{"b": 1}]]}),
    ],
)
def test_what_does_not_fit(wanted: dict[str, Any], data: dict[str, Any]) -> None:
    assert not filter_of(wanted)(data)


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"$foo": []}, "There is no operator '$foo'. The operators there are $and, $or"),
        ({"a": {"$elemMatch": {}}}, "There is no operator '$elemMatch' of 'a'."),
        ({"a": {"$gt": 1, "b": 2}}, "There is no operator 'b' of 'a'."),
        ({"$eq": 1}, '$eq is about a member: write {"member"'),
        ({"$or": {"a": 1}}, "$or needs an array of filters"),
        ({"$and": []}, "$and needs an array of filters"),
        ({"$or": [1]}, "A filter is a JSON object"),
        ({"a": {"$gt": None}}, "$gt of 'a' needs a number or a text"),
        ({"a": {"$in": "b"}}, "$in of 'a' needs an array"),
        ({"a": {"$exists": 1}}, "$exists of 'a' needs true or false"),
        ({"a": {"$not": 1}}, "$not of 'a' needs operators"),
        ({"a": {"$regex": "("}}, "$regex of 'a' has '(', which cannot be used"),
        ({"a": {"$regex": r"(a)\1"}}, "lookaround or references"),
        ({"a": {"$regex": "a" * 501}}, "at most 500 characters"),
        ({"a": {"$regex": "a", "$options": "g"}}, "$options that are not known"),
        ({"a": {"$options": "i"}}, "needs a $regex beside it"),
        ({"a..b": 1}, "'a..b' is not a path"),
        ({"a": {"$in": [0] * 1001}}, "has more than 1000 values"),
        ({"$or": [{"a": 1}] * (MOST_CONDITIONS + 1)}, "more than 100 conditions"),
    ],
)
def test_a_filter_that_cannot_be_used_says_why(wanted: dict[str, Any], why: str) -> None:
    with pytest.raises(ObjectError, match=re.escape(why)) as raised:
        filter_of(wanted)
    assert raised.value.param == "filter"


def test_a_filter_has_a_bounded_depth() -> None:
    deep: dict[str, Any] = {"a": 1}
    for _ in range(30):
        deep = {"$not": deep}
    with pytest.raises(ObjectError, match="inside each other"):
        filter_of(deep)


def test_a_pattern_takes_time_that_is_linear_in_the_text() -> None:
    """With backtracking, this would take longer than the universe has existed."""
    assert not filter_of({"a": {"$regex": "(a+)+$"}})({"a": "a" * 50_000 + "b"})

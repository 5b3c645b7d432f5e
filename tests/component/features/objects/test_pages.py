"""The order of objects, pages of them, and selected members."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.features.objects.filters import path_of
from component.features.objects.pages import order_of, page_of, selected
from component.features.objects.stored import Author, Content, ObjectError, StoredObject
from tests.profiles import examples

ANN = Author("ann@example.com")
_values = st.sampled_from([None, True, 0, 1, 2.5, "", "a", "b", [1]])
_orders = st.sampled_from(["data.rank", "-data.rank", "created", "-created", "id", "-id"])


def object_(id_: str, rank: Any, created: int = 0, type_: str = "task") -> StoredObject:
    content = Content(data={"rank": rank}, created=created, updated=0, creator=ANN, author=ANN)
    return StoredObject(type_, id_, 1, 1, content)


def ids(found: list[StoredObject]) -> str:
    return "".join(one.id for one in found)


def page(found: list[StoredObject], order: str, cursor: str = "", most: int = 2) -> tuple[Any, str]:
    left = iter([True] * most)
    return page_of(found, order_of(order), cursor, lambda _: next(left, False))


@pytest.mark.parametrize(
    ("order", "wanted"),
    [
        ("data.rank", "bacd"),
        ("-data.rank", "cabd"),
        ("id", "abcd"),
        ("-id", "dcba"),
        ("created", "badc"),
    ],
)
def test_numbers_come_before_texts_and_other_values_last(order: str, wanted: str) -> None:
    found = [
        object_("c", "x", 4),
        object_("d", None, 3),
        object_("a", 2, 2),
        object_("b", 1, 1),
    ]
    assert ids(page(found, order, most=9)[0]) == wanted


@examples(60)
@given(
    objects=st.dictionaries(st.sampled_from("abcdefgh"), st.tuples(_values, st.integers(0, 3))),
    order=_orders,
    gone=st.sets(st.sampled_from("abcdefgh")),
    size=st.integers(1, 3),
)
def test_pages_have_each_object_once_although_some_are_deleted_meanwhile(
    objects: dict[str, tuple[Any, int]], order: str, gone: set[str], size: int
) -> None:
    found = [object_(id_, *each) for id_, each in objects.items()]
    whole, cursor = page(found, order, most=99)
    assert cursor == ""
    first, cursor = page(found, order, most=size)
    seen = list(first)
    left = [one for one in found if one.id not in gone]
    while cursor and len(seen) < 50:
        more, cursor = page(left, order, cursor, size)
        seen += more
    wanted = [one for one in whole if one in first or one.id not in gone]
    assert seen == wanted


def test_objects_of_different_types_can_have_one_id() -> None:
    found = [object_("a", 1, type_=name) for name in ("note", "task", "event")]
    first, cursor = page(found, "id")
    second, end = page(found, "id", cursor)
    assert [one.type for one in (*first, *second)] == ["event", "note", "task"]
    assert end == ""


def test_a_cursor_is_short_although_objects_are_ordered_by_long_texts() -> None:
    found = [object_("a", "x" * 10_000), object_("b", "x" * 10_000)]
    assert len(page(found, "data.rank", most=1)[1]) < 400


@pytest.mark.parametrize(
    ("order", "cursor", "why"),
    [
        ("due", "", "'due' is no order: write created, updated, id or data."),
        ("data.", "", "'' is not a path"),
        ("created", "nonsense", "The cursor is not one that a query has returned"),
        ("created", "é", "The cursor is not one that a query has returned"),
        ("created", page([object_("a", 1), object_("b", 2)], "id", most=1)[1], "the order 'id'"),
    ],
)
def test_an_order_or_a_cursor_that_cannot_be_used_says_why(
    order: str, cursor: str, why: str
) -> None:
    with pytest.raises(ObjectError, match=re.escape(why)):
        page([], order, cursor)


def test_selected_members_are_those_of_nested_objects_and_arrays_too() -> None:
    data = {"title": "x", "address": {"city": "Verona", "zip": 1}, "guests": [{"name": "Ann"}, 5]}
    paths = [path_of(each) for each in ("title", "address.city", "guests.name", "none", "title.x")]
    assert selected(data, paths) == {
        "title": "x",
        "address": {"city": "Verona"},
        "guests": [{"name": "Ann"}],
    }

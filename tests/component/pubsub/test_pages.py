"""Which items an answer holds: following pages gives every item once, in order."""

from hypothesis import given
from hypothesis import strategies as st

from component.pubsub.items import Key, choose
from xep.result_sets import PAGE_ROOM, ResultSet

keys = st.lists(st.integers(0, 2 * PAGE_ROOM // 3), max_size=30).map(
    lambda sizes: [(str(number), size) for number, size in enumerate(sizes)]
)
sizes = st.none() | st.integers(1, 7)


@given(keys, sizes)
def test_pages_forwards_and_backwards_hold_each_item_once(
    keys: list[Key], size: int | None
) -> None:
    every = [key for key, _ in keys]
    forwards: list[str] = []
    while True:
        asked = ResultSet(max=size, after=forwards[-1] if forwards else None)
        ids, page = choose(keys, asked, None)
        if not ids:
            break
        assert page is not None
        assert (page.count, page.last) == (len(keys), ids[-1])
        assert page.first is not None
        assert (page.first.key, page.first.index) == (ids[0], len(forwards))
        forwards += ids
    backwards: list[str] = []
    while ids := choose(keys, ResultSet(max=size, before=backwards[0] if backwards else ""), None)[
        0
    ]:
        backwards = ids + backwards
    assert forwards == backwards == every


@given(keys, st.none() | st.integers(1, 40))
def test_without_a_page_the_newest_are_returned_and_what_is_missing_is_said(
    keys: list[Key], most: int | None
) -> None:
    ids, page = choose(keys, None, most)
    every = [key for key, _ in keys]
    assert ids == every[len(every) - len(ids) :]
    wanted = len(every) if most is None else min(most, len(every))
    assert len(ids) <= wanted
    assert (page is None) == (len(ids) == wanted)
    assert sum(size for key, size in keys if key in ids[1:]) <= PAGE_ROOM
    assert ids or not every

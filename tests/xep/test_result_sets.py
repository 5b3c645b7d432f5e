"""XEP-0059: walking a set in pages shows every entry once, whatever comes and goes meanwhile."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xep.binding import ContentError, decode, encode
from xep.result_sets import First, ResultSet, page_answer, page_bounds

key_sets = st.lists(st.text("abcé☃", min_size=1, max_size=3), unique=True, max_size=20).map(sorted)
limits = st.integers(1, 7)
KEYS = ["a", "b", "c", "d", "e"]


def page(keys: list[str], request: ResultSet | None, limit: int) -> list[str]:
    start, stop = page_bounds(keys, request, limit)
    return keys[start:stop]


@given(key_sets, limits)
def test_forwards_every_entry_comes_once_in_order(keys: list[str], limit: int) -> None:
    seen: list[str] = []
    request = None
    while True:
        start, stop = page_bounds(keys, request, limit)
        answer = page_answer(keys, start, stop)
        assert answer.count == len(keys)
        if answer.last is None:
            break
        assert answer.first == First(key=keys[start], index=len(seen))
        seen += keys[start:stop]
        request = ResultSet(max=limit, after=answer.last)
    assert seen == keys


@given(key_sets, limits)
def test_backwards_every_entry_comes_once(keys: list[str], limit: int) -> None:
    seen: list[str] = []
    before = ""
    while found := page(keys, ResultSet(max=limit, before=before), limit):
        seen = found + seen
        before = found[0]
    assert seen == keys


@given(key_sets, limits, st.data())
def test_what_stays_is_neither_lost_nor_seen_twice_when_other_entries_go(
    keys: list[str], limit: int, data: st.DataObject
) -> None:
    staying = [key for key in keys if data.draw(st.booleans())]
    seen = page(keys, None, limit)
    while found := page(staying, ResultSet(after=seen[-1]) if seen else None, limit):
        seen += found
    assert len(set(seen)) == len(seen)
    assert set(staying) <= set(seen)


@given(
    key_sets,
    st.builds(
        ResultSet,
        max=st.none() | st.integers(0, 100),
        after=st.none() | st.text(max_size=2),
        before=st.none() | st.text(max_size=2),
    ),
    limits,
)
def test_a_page_is_never_bigger_than_the_limit_or_what_was_asked_for(
    keys: list[str], request: ResultSet, limit: int
) -> None:
    found = page(keys, request, limit)
    assert len(found) <= min(limit, limit if request.max is None else request.max)
    assert all(request.after is None or key > request.after for key in found)
    assert all(not request.before or key < request.before for key in found)


@pytest.mark.parametrize(
    ("request_", "found"),
    [
        (None, ["a", "b", "c"]),
        (ResultSet(), ["a", "b", "c"]),
        (ResultSet(max=2), ["a", "b"]),
        (ResultSet(max=100), ["a", "b", "c"]),
        (ResultSet(max=0), []),
        (ResultSet(after="b", max=2), ["c", "d"]),
        (ResultSet(after="bb", max=2), ["c", "d"]),
        (ResultSet(after="e"), []),
        (ResultSet(before="", max=2), ["d", "e"]),
        (ResultSet(before="d", max=2), ["b", "c"]),
        (ResultSet(before="a"), []),
        (ResultSet(after="a", before="e", max=2), ["c", "d"]),
        (ResultSet(after="d", before="b"), []),
        (ResultSet(index=3, max=1), ["d"]),
        (ResultSet(index=9), []),
    ],
)
def test_a_page_holds_the_entries_that_were_asked_for(
    request_: ResultSet | None, found: list[str]
) -> None:
    assert page(KEYS, request_, 3) == found


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (ResultSet(max=-1), "<max/>"),
        (ResultSet(index=-1), "<index/>"),
        (ResultSet(index=1, after="a"), "<index/> cannot stand beside"),
        (ResultSet(index=1, before=""), "<index/> cannot stand beside"),
    ],
)
def test_an_invalid_page_request_is_refused_with_the_reason(
    request_: ResultSet, reason: str
) -> None:
    with pytest.raises(ContentError, match=reason):
        page_bounds(KEYS, request_, 3)


def test_the_answer_to_a_count() -> None:
    assert page_answer(KEYS, 0, 0) == ResultSet(count=5)


def test_before_that_is_empty_is_not_before_that_is_absent() -> None:
    from xml.etree.ElementTree import fromstring

    last = "<set xmlns='http://jabber.org/protocol/rsm'><max>10</max><before/></set>"
    assert decode(ResultSet, fromstring(last), strict=True) == ResultSet(max=10, before="")
    assert "<before></before>" in encode(ResultSet(before=""))
    assert "before" not in encode(ResultSet(max=1))

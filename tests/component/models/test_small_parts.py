"""Names, ids and estimates."""

import re

from hypothesis import given
from hypothesis import strategies as st

from component.models.messages import ToolCall, with_distinct_ids
from component.models.tool_schemas import ToolNames
from component.models.usage import estimate

NAMES = st.lists(st.text(st.sampled_from("ab._:é-"), min_size=1, max_size=90), unique=True)


@given(NAMES)
def test_names_are_restored(names: list[str]) -> None:
    both = ToolNames(names)
    theirs = [both.theirs(name) for name in names]
    assert len(set(theirs)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in theirs)
    assert [both.ours(name) for name in theirs] == names


@given(st.lists(st.sampled_from(["", "a", "b", "c"])), st.sets(st.sampled_from("ab")))
def test_ids_are_unique_and_kept_if_possible(ids: list[str], used: set[str]) -> None:
    calls = with_distinct_ids([ToolCall(id_, "x", "{}") for id_ in ids], used)
    got = [call.id for call in calls]
    assert len(set(got)) == len(ids)
    assert "" not in got
    assert not set(got) & used
    for id_ in set(ids) - used - {""}:
        assert id_ in got


@given(st.text(), st.text())
def test_more_text_never_has_fewer_tokens(one: str, other: str) -> None:
    assert 0 <= estimate(one) <= estimate(one + other) <= estimate(one) + estimate(other)


def test_the_estimate_is_rather_too_high_for_short_texts() -> None:
    prose = "The quick brown fox jumps over the lazy dog. " * 10
    assert 100 <= estimate(prose) <= 200  # 100 with most tokenizers
    assert estimate("3.14159") >= 7
    assert estimate("日本語のテキスト") >= 8


@given(NAMES, NAMES)
def test_names_that_are_not_offered_any_more_stay_distinct_too(
    offered: list[str], earlier: list[str]
) -> None:
    both = ToolNames(offered)
    names = list(dict.fromkeys((*offered, *earlier)))
    theirs = [both.theirs(name) for name in names]
    assert len(set(theirs)) == len(names)
    assert [both.ours(name) for name in theirs] == names


def test_the_name_of_an_earlier_tool_is_not_that_of_another_one() -> None:
    both = ToolNames(["files_read"])
    assert both.theirs("files.read") == "files_read_2"
    assert both.theirs("files:read") == "files_read_3"
    assert both.ours("files_read_2") == "files.read"

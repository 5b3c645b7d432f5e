"""Whether what is asked for is within what one has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.policy.flows import covers, narrowed_capabilities
from component.policy.globs import common, narrowed, pattern, within

GLOBS = st.lists(st.text(alphabet="ab*?:", min_size=1, max_size=4), max_size=3)
NAMES = st.text(alphabet="ab:", max_size=5)


@given(GLOBS, GLOBS, NAMES)
def test_what_is_within_never_reaches_beyond(asked: list[str], had: list[str], name: str) -> None:
    if within(asked, had) is None and pattern(asked).fullmatch(name):
        assert pattern(had).fullmatch(name)


@pytest.mark.parametrize(
    ("asked", "had", "beyond"),
    [
        ([], [], None),
        (["memory:read"], ["*"], None),
        (["*"], ["*"], None),
        (["memory:*"], ["memory:*", "network:*"], None),
        (["memory:read", "network:a"], ["memory:*"], "network:a"),
        (["*"], ["memory:*"], "*"),
        (["a*"], ["a?"], "a*"),
        (["a?"], ["a?"], None),
        (["x"], [], "x"),
    ],
)
def test_the_first_pattern_beyond_the_permitted_ones_is_named(
    asked: list[str], had: list[str], beyond: str | None
) -> None:
    assert within(asked, had) == beyond


@given(GLOBS, GLOBS, st.lists(NAMES, unique=True))
def test_what_is_narrowed_matches_the_names_that_match_both(
    asked: list[str], had: list[str], names: list[str]
) -> None:
    found = pattern(narrowed(asked, had, names))
    for name in names:
        both = pattern(asked).fullmatch(name) and pattern(had).fullmatch(name)
        assert bool(found.fullmatch(name)) == bool(both)


@given(GLOBS, GLOBS, st.lists(NAMES, unique=True))
def test_common_patterns_match_only_names_that_both_lists_match(
    one: list[str], other: list[str], names: list[str]
) -> None:
    assert common(one, one) == tuple(dict.fromkeys(one))
    found = pattern(common(one, other))
    for name in filter(found.fullmatch, names):
        assert pattern(one).fullmatch(name)
        assert pattern(other).fullmatch(name)


def test_patterns_that_are_within_stay() -> None:
    names = ["web_fetch", "web_search", "note_search", "clock"]
    assert narrowed(["web_*"], ["*"], names) == ("web_*",)
    assert narrowed(["*"], ["clock"], names) == ("clock",)
    assert narrowed(["*_search", "clock"], ["web_*", "clock"], names) == ("clock", "web_search")
    assert narrowed([], ["*"], names) == ()
    assert narrowed(["*"], [], names) == ()


@given(GLOBS, GLOBS, NAMES)
def test_narrowed_capabilities_cover_nothing_that_both_lists_do_not_cover(
    asked: list[str], had: list[str], name: str
) -> None:
    if covers(narrowed_capabilities(asked, had), (name,)) is None:
        assert covers(asked, (name,)) is None
        assert covers(had, (name,)) is None


def test_a_capability_is_covered_by_its_kind() -> None:
    asked = ("network:a", "memory:read", "network")
    assert narrowed_capabilities(asked, ("network",)) == ("network:a", "network")

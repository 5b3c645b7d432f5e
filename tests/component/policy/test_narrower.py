"""Whether what is asked for is within what one has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.policy.globs import pattern
from component.policy.narrower import within

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
def test_examples(asked: list[str], had: list[str], beyond: str | None) -> None:
    assert within(asked, had) == beyond

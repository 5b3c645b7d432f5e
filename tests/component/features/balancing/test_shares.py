"""How the connections are divided among instances."""

from hypothesis import given
from hypothesis import strategies as st

from component.features.balancing.connections import share_of

HELD = st.dictionaries(st.text("abcdef", min_size=1), st.integers(0, 8), min_size=1, max_size=6)


@given(HELD, st.integers(1, 12))
def test_all_connections_are_divided_evenly(held: dict[str, int], connections: int) -> None:
    shares = [share_of(me, held, connections) for me in held]
    assert sum(shares) == connections
    assert max(shares) - min(shares) <= 1


@given(HELD, st.integers(1, 12))
def test_a_division_that_is_reached_does_not_change(held: dict[str, int], connections: int) -> None:
    shares = {me: share_of(me, held, connections) for me in held}
    assert {me: share_of(me, shares, connections) for me in held} == shares


def test_a_new_instance_gets_a_connection_of_the_one_that_has_most() -> None:
    held = {"old": 2, "other": 1, "new": 0}
    assert {me: share_of(me, held, 3) for me in held} == {"old": 1, "other": 1, "new": 1}


def test_who_has_a_connection_keeps_it_when_there_are_more_instances_than_connections() -> None:
    held = {"b": 1, "c": 1, "a": 0}
    assert {me: share_of(me, held, 2) for me in held} == {"b": 1, "c": 1, "a": 0}

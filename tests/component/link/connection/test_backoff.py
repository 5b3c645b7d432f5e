from hypothesis import given
from hypothesis import strategies as st

from component.link.connection.connection import BackOff

seconds = st.floats(0.001, 1000)


@given(min_s=seconds, max_s=seconds, draws=st.lists(st.floats(0, 1, exclude_max=True)))
def test_every_pause_stays_within_its_bounds(
    min_s: float, max_s: float, draws: list[float]
) -> None:
    left = iter(draws)
    back_off = BackOff(min_s, max_s, lambda: next(left))
    for _ in draws:
        assert min_s <= back_off.pause() <= max(min_s, max_s)


def test_the_longest_pause_doubles_up_to_the_bound() -> None:
    back_off = BackOff(1, 10, lambda: 1.0)
    assert [back_off.pause() for _ in range(5)] == [2, 4, 8, 10, 10]


def test_the_whole_range_is_used() -> None:
    back_off = BackOff(1, 10, lambda: 0.0)
    assert [back_off.pause() for _ in range(5)] == [1, 1, 1, 1, 1]


def test_reset_begins_again() -> None:
    back_off = BackOff(1, 10, lambda: 1.0)
    first = [back_off.pause() for _ in range(3)]
    back_off.reset()
    assert [back_off.pause() for _ in range(3)] == first

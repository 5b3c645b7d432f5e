"""For how long the clock of the storage has certainly made no leap."""

from hypothesis import given
from hypothesis import strategies as st

from component.tasks.recent import SteadyClock


class Clocks:
    """A monotonic clock in seconds, and the wall clock of a storage in milliseconds."""

    def __init__(self) -> None:
        self.monotonic = 1000.0
        self.wall = 1_795_521_600_000
        self.steady = SteadyClock(lambda: self.monotonic)
        self.look()

    def look(self) -> int:
        return self.steady.steady_ms(self.steady.read(), self.wall)

    def wait(self, seconds: float) -> None:
        self.monotonic += seconds
        self.wall += round(seconds * 1000)


def test_time_before_the_process_is_not_known() -> None:
    clocks = Clocks()
    clocks.wait(3)
    assert clocks.look() == 3_000
    clocks.wait(3600)
    assert clocks.look() == 3_603_000


def test_a_leap_forward_begins_it_anew() -> None:
    clocks = Clocks()
    clocks.wait(3600)
    clocks.wall += 60_000
    assert clocks.look() == 0
    clocks.wait(10)
    assert clocks.look() == 10_000


def test_a_leap_back_is_no_reason_to_doubt_and_does_not_hide_the_next() -> None:
    clocks = Clocks()
    clocks.wait(100)
    clocks.wall -= 3_600_000
    assert clocks.look() == 100_000
    clocks.wait(1)
    clocks.wall += 3_600_000
    assert clocks.look() == 0


def test_a_clock_that_is_slewed_is_steady() -> None:
    clocks = Clocks()
    for _ in range(100):
        clocks.wait(60)
        clocks.wall += 30  # 500 parts in a million
        clocks.look()
    assert clocks.look() == 6_000_000


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(-100_000, 100_000)), max_size=20))
def test_it_never_promises_more_than_has_passed(steps: list[tuple[float, int]]) -> None:
    clocks = Clocks()
    since = clocks.monotonic
    for seconds, leap in steps:
        clocks.wait(seconds)
        clocks.wall += leap
        before = since
        if leap > 1_500:
            since = clocks.monotonic
        promised = clocks.look()
        assert promised <= round((clocks.monotonic - before) * 1000) + 1
        assert promised <= round((clocks.monotonic - since) * 1000) + 1

"""What becomes of events above the rate of a watch, for any times at which they come."""

from hypothesis import given
from hypothesis import strategies as st

from component.features.watches.events import HOUR_MS, RateCounters, decide_start
from component.features.watches.watch import StartRate, Thinning, Watch
from xep.jid import JID

gaps = st.lists(st.integers(0, 5_000), min_size=1, max_size=200)
policies: st.SearchStrategy[Thinning] = st.sampled_from(["latest", "digest", "drop"])
JULIET = JID.parse("juliet@example.com")


def watch(rate: StartRate, thinning: Thinning, starts_per_hour: int = 10_000) -> Watch:
    return Watch(
        name="builds",
        agent="assistant",
        principal=JULIET,
        service=JULIET,
        node="builds",
        rate=rate,
        thinning=thinning,
        starts_per_hour=starts_per_hour,
    )


rates = st.builds(StartRate, st.integers(1, 5), st.sampled_from([0.5, 1.0, 3.0]))


@given(gaps, rates, policies, st.booleans())
def test_no_window_has_more_starts_than_the_rate(
    gaps: list[int], rate: StartRate, thinning: Thinning, has_room: bool
) -> None:
    counters, limits = RateCounters(), watch(rate, thinning)
    now, due = 1_000_000, list[int]()
    for gap in gaps:
        now += gap
        verdict, at = decide_start(counters, limits, now, has_room=has_room)
        if verdict == "start":
            assert at >= now or at == now
            due.append(at)
        elif verdict == "join":
            assert thinning != "drop"
            assert due[-1] > now, "it joins a start that has not begun"
            assert counters.waiting == len(due)
        else:
            assert verdict == "drop"
            assert thinning == "drop"
    window = int(rate.seconds * 1000)
    assert due == sorted(due)
    # Windows begin when an event opens them, so any such span holds at most two windows' starts.
    for first in range(len(due)):
        within = [at for at in due[first:] if at < due[first] + window]
        assert len(within) <= 2 * rate.events


@given(gaps, policies, st.integers(1, 5000))
def test_an_event_after_the_clock_has_gone_back_a_little_is_as_one_at_the_same_moment(
    gaps: list[int], thinning: Thinning, back: int
) -> None:
    limits = watch(StartRate(2, 1.0), thinning)
    counters, twin = RateCounters(), RateCounters()
    now = 1_000_000
    for gap in (0, *gaps):
        now += gap
        for one in (counters, twin):
            decide_start(one, limits, now, has_room=True)
    if not counters.waiting:
        opened = max(counters.window_at, now - back)
        found = decide_start(counters, limits, now - back, has_room=True)
        assert found == decide_start(twin, limits, opened, has_room=True)


@given(gaps, policies)
def test_the_last_event_is_never_lost_unless_it_is_dropped_by_policy(
    gaps: list[int], thinning: Thinning
) -> None:
    counters, limits = RateCounters(), watch(StartRate(1, 1.0), thinning)
    now = 1_000_000
    for gap in gaps:
        now += gap
        verdict, _ = decide_start(counters, limits, now, has_room=True)
    if thinning != "drop":
        assert verdict in ("start", "join")


def test_the_breaker_counts_the_starts_of_an_hour() -> None:
    counters, limits = RateCounters(), watch(StartRate(100, 1.0), "drop", starts_per_hour=3)
    now = 10 * HOUR_MS
    assert [decide_start(counters, limits, now, has_room=True)[0] for _ in range(4)] == [
        *("start", "start", "start", "trip")
    ]
    assert decide_start(counters, limits, now + HOUR_MS, has_room=True)[0] == "start"

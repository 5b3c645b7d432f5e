"""Answers in memory: bounds, windows, conflicts, and any sequence of requests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from component.tasks.replay import Flight, ReplayCache
from component.tasks.request import UNNAMED_WINDOW_S, RequestKey
from xep.fluux_agent import errors
from xep.fluux_agent.errors import Conflict
from xep.fluux_agent.execute import Output, Result
from xep.stanza_error import StanzaError

REPLAY_S = 3600.0


def named(text: str, digest: str = "d") -> RequestKey:
    return RequestKey(text, digest)


def unnamed(text: str) -> RequestKey:
    return RequestKey(text, text, named=False)


def result(text: str) -> Result:
    return Result(skill="s", outputs=(Output(name="o", text=text),))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_it_is_bounded_in_number() -> None:
    cache = ReplayCache(REPLAY_S, entries=6, size=2**20)
    for name in "abcd":
        cache.put(named(name), result(name))
    assert len(cache) == 3
    assert cache.get(named("a")) is None
    assert cache.get(named("b")) == result("b")


def test_it_is_bounded_in_bytes_and_what_is_too_big_alone_pushes_nothing_out() -> None:
    cache = ReplayCache(REPLAY_S, entries=6, size=40_000)
    cache.put(named("a"), result("a"))
    cache.put(named("bigger"), result("x" * 20_000))
    assert cache.get(named("bigger")) is None
    assert cache.get(named("a")) == result("a")
    cache.put(named("big"), result("x" * 9_500))
    assert len(cache) == 1


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 6000)), max_size=30))
def test_it_never_has_more_than_its_bounds(puts: list[tuple[str, int]]) -> None:
    cache = ReplayCache(REPLAY_S, entries=6, size=20_000)
    for key, size in puts:
        if cache.get(named(key)) is None:
            cache.put(named(key), result("x" * size))
        kept = [one for one in "abcde" if cache.get(named(one)) is not None]
        assert len(kept) == len(cache) <= 3
        texts = [cache.get(named(one)) for one in kept]
        assert sum(len(one.outputs[0].text) for one in texts if isinstance(one, Result)) <= 5_000


def test_a_name_is_recognised_for_the_replay_window_and_an_id_for_a_minute() -> None:
    clock = Clock()
    cache = ReplayCache(REPLAY_S, clock=clock)
    cache.put(named("n"), result("n"))
    cache.put(unnamed("u"), result("u"))
    clock.now = 59.9
    assert cache.get(unnamed("u")) == result("u")
    clock.now = 60.0
    assert cache.get(unnamed("u")) is None
    clock.now = REPLAY_S - 0.1
    assert cache.get(named("n")) == result("n")
    clock.now = REPLAY_S
    assert cache.get(named("n")) is None


def test_what_has_expired_leaves_memory_before_the_cache_is_full() -> None:
    clock = Clock()
    cache = ReplayCache(REPLAY_S, clock=clock)
    cache.put(named("n"), result("n"))
    for number in range(100):
        cache.put(unnamed(f"old-{number}"), result("u"))
    clock.now = 60.0
    for number in range(60):
        cache.put(unnamed(f"new-{number}"), result("u"))
    assert len(cache) == 61
    assert cache.get(named("n")) == result("n")
    assert cache.get(unnamed("new-0")) == result("u")


def test_the_minute_begins_with_the_request_and_not_with_its_answer() -> None:
    clock = Clock()
    cache = ReplayCache(REPLAY_S, clock=clock)
    flight = cache.begin(unnamed("u"))
    clock.now = 50.0
    assert cache.flight(unnamed("u")) is flight
    assert flight.expires(1_000_000) == 1_010_000
    flight.land(result("u"))
    clock.now = 59.9
    assert cache.get(unnamed("u")) == result("u")
    clock.now = 60.0
    assert cache.get(unnamed("u")) is None


def test_what_is_under_way_for_longer_than_a_minute_is_no_repetition_any_more() -> None:
    clock = Clock()
    cache = ReplayCache(REPLAY_S, clock=clock)
    first, long_named = cache.begin(unnamed("u")), cache.begin(named("n"))
    clock.now = 60.0
    assert cache.flight(unnamed("u")) is None
    assert not cache.knows(unnamed("u"))
    assert cache.flight(named("n")) is long_named
    second = cache.begin(unnamed("u"))
    # The end of the first hides nothing of the second.
    first.land(result("first"))
    assert cache.get(unnamed("u")) is None
    assert cache.flight(unnamed("u")) is second
    second.land(result("second"))
    assert cache.get(unnamed("u")) == result("second")


def test_other_content_under_a_name_is_a_conflict() -> None:
    cache = ReplayCache(REPLAY_S)
    cache.put(named("k"), result("k"))
    flight = cache.begin(named("f"))
    for name in "kf":
        with pytest.raises(StanzaError) as refused:
            cache.get(named(name, "other"))
        assert (refused.value.condition, refused.value.application) == ("conflict", (Conflict(),))
    assert cache.get(named("k")) == result("k")
    flight.land(None)
    assert cache.get(named("f", "other")) is None


def test_each_error_is_raised_anew() -> None:
    cache = ReplayCache(REPLAY_S)
    cache.put(named("k"), errors.internal())
    raised = []
    for _ in range(2):
        with pytest.raises(StanzaError) as caught:
            cache.get(named("k"))
        raised.append(caught.value)
    assert raised[0] is not raised[1]
    assert [error.encode() for error in raised] == [errors.internal().encode()] * 2


def test_only_the_first_landing_counts() -> None:
    cache = ReplayCache(REPLAY_S)
    flight = cache.begin(named("k"))
    flight.land(result("1"))
    flight.land(result("2"))
    assert cache.get(named("k")) == result("1")
    assert cache.flight(named("k")) is None


class Requests(RuleBasedStateMachine):
    """Requests that come, land and come again while time passes: what is said is never wrong, nor
    later than the window; and of so few nothing is forgotten.
    """

    @initialize()
    def begin(self) -> None:
        self.clock = Clock()
        self.cache = ReplayCache(REPLAY_S, clock=self.clock)
        self.flights: list[Flight] = []
        self.begun: dict[str, tuple[Flight, float]] = {}
        self.answers: dict[str, tuple[Result, float]] = {}
        self.number = 0

    @rule(name=st.sampled_from("abc"), has_name=st.booleans(), at_once=st.booleans())
    def request(self, name: str, has_name: bool, at_once: bool) -> None:
        key = named(name) if has_name else unnamed(f"u{name}")
        now = self.clock.now
        answer, until = self.answers.get(key.text, (None, 0.0))
        if answer is not None and now < until:
            assert self.cache.get(key) == answer
            return
        assert self.cache.get(key) is None
        flight, since = self.begun.get(key.text, (None, 0.0))
        if flight is not None and not flight.landed and (has_name or now < since + 60):
            assert self.cache.flight(key) is flight
            return
        assert self.cache.flight(key) is None
        self.number += 1
        if at_once:
            answer = result(str(self.number))
            self.cache.put(key, answer)
            self.answers[key.text] = answer, now + (REPLAY_S if has_name else UNNAMED_WINDOW_S)
        else:
            flight = self.cache.begin(key)
            self.flights.append(flight)
            self.begun[key.text] = flight, now

    @rule(pick=st.integers(0, 100), refused=st.booleans())
    def land(self, pick: int, refused: bool) -> None:
        if not self.flights:
            return
        flight = self.flights.pop(pick % len(self.flights))
        answer = None if refused else result(f"landed {pick}")
        flight.land(answer)
        latest, since = self.begun[flight.key.text]
        if latest is flight and answer is not None:
            until = self.clock.now + REPLAY_S if flight.key.named else since + UNNAMED_WINDOW_S
            self.answers[flight.key.text] = answer, until

    @rule(seconds=st.sampled_from((0.5, 10.0, 30.0, 59.9, 60.0, 3600.0)))
    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds

    @invariant()
    def nothing_under_way_is_lost(self) -> None:
        assert len(self.cache._flights) <= len(self.flights)


TestRequests = Requests.TestCase

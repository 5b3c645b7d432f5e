"""Each principal gets the same share of the time; of one principal everything keeps its order."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from component.link.router import router
from component.link.router.fair_queue import FairQueue, StanzaEvent
from component.link.router.table import Request
from tests.component.link.router.wire import (
    DOMAIN,
    Bench,
    Do,
    Done,
    Wire,
    do,
    element,
    error_of,
    request,
)
from xep.fluux_agent.errors import Retry
from xep.stanza_stream import StanzaReceived
from xep.stream import StreamLimits

_FLOOD = "flood@a.example"


@pytest.fixture(scope="module", autouse=True)
def shared() -> Iterator[None]:
    """Time is shared from the first stanza on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(router, "_IN_ORDER_S", -1.0)
        yield


def echo(asked: Request[Do]) -> Done:
    return Done(text=asked.payload.what)


def _put(bench: Bench) -> list[tuple[str, str]]:
    """Principal and number of each reply, in the order in which they were put."""
    return [
        ((reply.get("to") or "").partition("/")[0], reply.get("id") or "")
        for reply in bench.replies
    ]


@given(before=st.integers(4, 200), after=st.integers(0, 50))
def test_a_flood_does_not_hold_up_somebody_else(before: int, after: int) -> None:
    bench = Bench([do(echo)])
    bench.router._clock = bench.router._processor_clock = lambda: 0.0  # slices as large as may be
    flood = [request(id_=str(n), from_=f"{_FLOOD}/{n % 3}") for n in range(before + after)]
    bench.receive(*flood[:before], request(id_="one", from_="other@b.example"), *flood[before:])
    assert _put(bench)[:2] == [(_FLOOD, "0"), ("other@b.example", "one")]
    # The first round is on its way before the second begins.
    assert bench.output.flushed == [2]


@given(
    senders=st.lists(
        st.sampled_from(["a@x.example", "b@x.example", "x.example", "@", "a@y.example"]),
        max_size=60,
    ),
    resources=st.lists(st.sampled_from(["", "/1", "/2"]), min_size=60, max_size=60),
    over=st.sets(st.integers(0, 59), max_size=5),
)
def test_each_principal_keeps_its_order_and_has_its_turn(
    senders: list[str], resources: list[str], over: set[int]
) -> None:
    bench = Bench([do(echo)], limits=StreamLimits(bytes=4_000))
    bench.receive(
        *(
            request("x" * 5_000 if n in over else "", id_=str(n), from_=sender + resource)
            for n, (sender, resource) in enumerate(zip(senders, resources, strict=False))
        )
    )
    put = _put(bench)
    assert len(put) == len(senders)
    by_principal = defaultdict(list)
    for position, (principal, id_) in enumerate(put):
        by_principal[principal].append((position, int(id_)))
    for turns in by_principal.values():
        assert [id_ for _, id_ in turns] == sorted(id_ for _, id_ in turns)
    if len(senders) > 4:
        # Nobody has a second turn before everybody has had the first.
        firsts = [turns[0][0] for turns in by_principal.values()]
        seconds = [turns[1][0] for turns in by_principal.values() if len(turns) > 1]
        assert not seconds or max(firsts) < min(seconds)


def test_a_read_is_handled_in_its_order_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "_IN_ORDER_S", 7.5)
    bench = Bench([do(echo)])
    bench.router._clock = count().__next__  # type: ignore[method-assign] # a second each time
    bench.receive(
        *(request(id_=str(n), from_=f"{_FLOOD}/phone") for n in range(20)),
        request(id_="one", from_="other@b.example"),
    )
    ids = [id_ for _, id_ in _put(bench)]
    assert ids[:7] == [str(n) for n in range(7)]
    assert "one" in ids[7:9], "then the others have their turn"


def test_the_wait_for_a_processor_is_charged_to_nobody() -> None:
    now = 0.0

    def interrupted(asked: Request[Do]) -> Done:
        nonlocal now
        now += 10.0 if asked.sender.domain == "b.example" else 0.0
        return echo(asked)

    bench = Bench([do(interrupted)], limits=StreamLimits(bytes=9_000))
    bench.router._clock = lambda: now
    bench.router._processor_clock = lambda: 0.0
    bench.receive(
        request("x" * 8_000, id_="first", from_=_FLOOD),  # so that the others are not in order
        *(request(id_=str(n), from_=_FLOOD) for n in range(10)),
        *(request(id_=id_, from_="other@b.example") for id_ in ("one", "two", "three")),
    )
    places = [place for place, (principal, _) in enumerate(_put(bench)) if "other" in principal]
    assert places == [1, 3, 5]


def test_answers_that_are_finished_soon_after_others_were_sent_are_sent_together() -> None:
    now = 0.0

    def tenth(asked: Request[Do]) -> Done:
        nonlocal now
        now += 0.0001
        return echo(asked)

    bench = Bench([do(tenth)])
    bench.router._clock = bench.router._processor_clock = lambda: now
    flood = [request(id_=str(n), from_=_FLOOD) for n in range(8)]
    others = [request(id_=name, from_=f"{name}@b.example") for name in ("one", "two", "three")]
    bench.receive(flood[0], *others, *flood[1:])
    # The first of the others at once; the next ones 0.25 ms later, by then with the flood's second.
    assert bench.output.flushed == [2, 5]
    assert [id_ for _, id_ in _put(bench)][:5] == ["0", "one", "two", "three", "1"]


def test_one_principal_alone_is_not_flushed_for() -> None:
    bench = Bench([do(echo)])
    bench.receive(*(request(id_=str(n)) for n in range(20)))
    assert [id_ for _, id_ in _put(bench)] == [str(n) for n in range(20)]
    assert bench.output.flushed == []


@given(backlog=st.integers(40, 200))
def test_who_comes_while_a_flood_waits_has_the_next_turn(backlog: int) -> None:
    bench = Bench([do(echo)])
    stanzas = [request(id_=str(n), from_=f"{_FLOOD}/phone") for n in range(backlog)]
    waiting = bench.router.received(bench.wire.events("".join(stanzas)))
    assert waiting > 0, "a flood is handled a slice at a time"
    handled = len(bench.replies)
    bench.router.received(bench.wire.events(request(id_="one", from_="other@b.example")))
    senders = [principal for principal, _ in _put(bench)[handled:]]
    assert senders.index("other@b.example") <= 1
    while bench.router.received(()):
        pass
    mine = [number for principal, number in _put(bench) if principal == _FLOOD]
    assert mine == [str(n) for n in range(backlog)]


def test_answers_are_sent_before_work_on_a_large_stanza() -> None:
    """Of two that came together, the one who sent little does not wait for the other's work."""
    bench = Bench([do(echo)])
    flood = [request("x" * 20_000, id_=str(n), from_=f"{_FLOOD}/phone") for n in range(4)]
    bench.receive(*flood, request(id_="one", from_="other@b.example"))
    assert _put(bench)[0] == ("other@b.example", "one")
    assert bench.output.flushed[0] == 1


# -- the queue by itself -------------------------------------------------------------------------


def _event(wire: Wire, who: str, number: int, size: int = 0) -> StanzaReceived:
    (event,) = wire.events(request("x" * size, id_=str(number), from_=f"{who}@a.example"))
    assert isinstance(event, StanzaReceived)
    return event


def _who(event: StanzaEvent) -> str:
    assert isinstance(event, StanzaReceived)
    return (event.stanza.sender or "").partition("@")[0]


@given(
    costs=st.dictionaries(st.sampled_from("abcd"), st.integers(1, 50), min_size=2),
    steps=st.integers(1, 350),
)
def test_of_those_that_wait_nobody_is_ahead_by_more_than_one_stanza(
    costs: dict[str, int], steps: int
) -> None:
    """Time is shared, not turns: the dearer a stanza, the fewer there are of them."""
    wire, queue = Wire(), FairQueue()
    for who in costs:
        assert queue.add([_event(wire, who, number) for number in range(400)]) == []
    served = dict.fromkeys(costs, 0)
    for _ in range(steps):
        who = _who(queue.take())
        queue.charge(costs[who])
        served[who] += costs[who]
        assert max(served.values()) - min(served.values()) <= max(costs.values())


@given(before=st.integers(1, 30), cost=st.floats(0.001, 10))
def test_who_was_idle_is_next_and_has_saved_nothing(before: int, cost: float) -> None:
    wire, queue = Wire(), FairQueue()
    queue.add([_event(wire, "flood", number) for number in range(before + 20)])
    for _ in range(before):
        queue.take()
        queue.charge(cost)
    queue.add([_event(wire, "late", number) for number in range(20)])
    order = []
    for _ in range(10):
        order.append(_who(queue.take()))
        queue.charge(cost)
    assert order[0] == "late"
    assert order.count("late") == 5


def test_who_sends_one_dear_stanza_at_a_time_is_charged_all_the_same() -> None:
    wire, queue = Wire(), FairQueue()
    queue.add([_event(wire, "modest", number) for number in range(100)])
    order = []
    for number in range(30):
        if "dear" not in queue._lines:
            queue.add([_event(wire, "dear", number)])
        order.append(_who(queue.take()))
        queue.charge(10 if order[-1] == "dear" else 1)
    assert order.count("dear") == 3


def test_no_principal_owes_time_when_nothing_waits() -> None:
    wire, queue = Wire(), FairQueue()
    queue.add([_event(wire, "dear", 0), _event(wire, "modest", 0)])
    assert _who(queue.take()) == "dear"
    queue.charge(10)
    assert _who(queue.take()) == "modest"
    queue.charge(1)
    queue.add([_event(wire, who, number) for who in ("dear", "modest") for number in (1, 2)])
    order = []
    while queue.waiting:
        order.append(_who(queue.take()))
        queue.charge(1)
    assert order == ["dear", "modest"] * 2


@given(
    sizes=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3_000)), max_size=60),
    taken=st.integers(0, 60),
)
@example(sizes=[("a", 3_000)] * 12, taken=0)  # bytes are what is lacking
@example(sizes=[("a", 3_000), ("b", 3_000)] * 8, taken=9)
def test_what_waits_is_bounded_and_leaves_room_for_a_newcomer(
    sizes: list[tuple[str, int]], taken: int
) -> None:
    wire, queue = Wire(), FairQueue(stanzas=16, bytes_=20_000)
    held: dict[str, list[int]] = {}
    for number, (who, size) in enumerate(sizes):
        event = _event(wire, who, number, size)
        own, others = held.setdefault(who, []), [s for each in held.values() for s in each]
        room = len(own) < 16 - len(others) and (
            sum(own) + event.stanza.size <= 20_000 - sum(others)
        )
        assert (queue.add([event]) == []) == room
        if room:
            own.append(event.stanza.size)
        if number < taken and queue.waiting:
            held[_who(queue.take())].pop(0)
            queue.charge(1)
    assert queue.waiting == sum(map(len, held.values())) <= 16
    assert len(queue._lines) == sum(map(bool, held.values()))
    while queue.waiting:
        queue.take()
        queue.charge(1)
    assert queue.add([_event(wire, "z", n, 900) for n in range(8)]) == []


def test_the_bytes_of_stanzas_that_were_taken_are_free_again() -> None:
    wire, queue = Wire(), FairQueue(stanzas=16, bytes_=20_000)
    events = [_event(wire, "a", number, 3_000) for number in range(5)]
    assert queue.add(events[:4]) == [events[3]], "a principal may use as much as is still free"
    for _ in range(2):
        queue.take()
        queue.charge(1)
    assert queue.add(events[4:]) == []


# -- more than fits ------------------------------------------------------------------------------


@given(extra=st.integers(1, 50))
def test_who_sends_more_than_may_wait_is_refused_and_nobody_else(extra: int) -> None:
    bench = Bench([do(echo)], retry_after_s=7)
    bench.router._queue = FairQueue(stanzas=40)
    flood = [request(id_=str(n), from_=f"{_FLOOD}/phone") for n in range(20 + extra)]
    other = request(id_="one", from_="other@b.example")
    result = element("iq", type="result", id="nothing", from_=f"{_FLOOD}/phone", to=DOMAIN)
    bench.receive(*flood, result, other)
    replies = {reply.get("id"): reply for reply in bench.replies}
    assert len(replies) == len(bench.replies) == 21 + extra, "each request is answered once"
    assert replies["one"].get("type") == "result"
    for number in range(20 + extra):
        reply = replies[str(number)]
        if number < 20:
            assert reply.get("type") == "result"
        else:
            error = error_of(reply)
            assert (error.condition, error.type) == ("resource-constraint", "wait")
            assert error.application == (Retry(after=7),)

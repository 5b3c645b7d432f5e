"""In one read each principal has its turn; of one principal everything keeps its order."""

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from component.router.table import Request
from tests.component.router.wire import Bench, Do, Done, do, request
from xep.stream import Limits

_FLOOD = "flood@a.example"


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
    bench = Bench([do(echo)], limits=Limits(bytes=4_000))
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

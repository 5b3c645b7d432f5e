"""Compares ten skills with ten thousand: the cost of executing one, and of listing a page."""

from __future__ import annotations

from collections.abc import Iterator
from time import thread_time

from benchmarks.inprocess import InProcess
from benchmarks.report import Line, Target
from benchmarks.traffic import SENDERS, Traffic
from benchmarks.wire_end import DOMAIN
from component.skills import Skill, skill

FEW, MANY = 10, 10_000
_SIZES = (100, 1_000, 10_000)
_PAGES = 40
_FACES = {
    "skills query": "<query xmlns='urn:fluux:agent:0#skills'>{set}</query>",
    "disco#items": "<query xmlns='http://jabber.org/protocol/disco#items'"
    " node='urn:fluux:agent:0#skills'>{set}</query>",
}
_SET = "<set xmlns='http://jabber.org/protocol/rsm'><max>50</max><after>{after}</after></set>"


def measure(runs: int) -> Iterator[Line]:
    """Yield the additional cost of more skills for a request."""
    services = {size: InProcess(numbered(size)) for size in (FEW, *_SIZES)}
    yield _executing(services, runs)
    for face, payload in _FACES.items():
        yield from _paging(services, runs, face, payload)


def _executing(services: dict[int, InProcess], runs: int) -> Line:
    costs: dict[int, list[float]] = {FEW: [], MANY: []}
    for run in range(runs * 4):
        # New ids each time, because a repetition is not executed.
        traffic = Traffic(DOMAIN, 64 * 20, first=f"r{run:03}-")
        order = (FEW, MANY) if run % 2 else (MANY, FEW)
        for size in order:
            costs[size].append(_cost(services[size], traffic.bytes, traffic.count))
    few, many = (_quartets(costs[size], runs) for size in (FEW, MANY))
    return Line(f"execute, {MANY:,} skills / {FEW}", "µs CPU", many, few, Target(1.1, "at most"))


def _quartets(costs: list[float], runs: int) -> list[float]:
    """Return the minimum of each four: other load on the machine can only add to a cost."""
    return [min(costs[run * 4 : run * 4 + 4]) for run in range(runs)]


def _paging(services: dict[int, InProcess], runs: int, face: str, payload: str) -> Iterator[Line]:
    """Yield the cost of pages from the middle of the list, each requested by a new requester."""
    asked = {size: _requests(size, payload) for size in _SIZES}
    first = {size: _cost(services[size], asked[size][:1][0], 1) for size in _SIZES}
    costs: dict[int, list[float]] = {size: [] for size in _SIZES}
    for _ in range(runs):
        for size in _SIZES:
            whole = b"".join(asked[size])
            costs[size].append(
                min(_cost(services[size], whole, len(asked[size])) for _ in range(3))
            )
    for size in _SIZES[1:]:
        yield Line(
            f"a page of {face}, {size:,} skills / {_SIZES[0]}",
            "µs CPU",
            costs[size],
            costs[_SIZES[0]],
            Target(1.1, "at most"),
            note=f"{face}: the first page ever of {size:,} skills took {first[size] / 1000:.1f} ms"
            f" (of {_SIZES[0]} {first[_SIZES[0]] / 1000:.1f} ms): the list is made then, once.",
        )


def _requests(size: int, payload: str) -> list[bytes]:
    """IQs for pages of 50, spread over the second half of the list, as far as pages are full."""
    last = size - 50 - 1
    starts = [size // 2 - 1 + (last - size // 2 + 1) * n // _PAGES for n in range(_PAGES)]
    return [
        (
            f"<iq id='p{number}' type='get' to='{DOMAIN}' from='{SENDERS[0]}'>"
            + payload.format(set=_SET.format(after=f"skill-{start:05}"))
            + "</iq>"
        ).encode()
        for number, start in enumerate(starts)
    ]


def _cost(service: InProcess, data: bytes | memoryview, count: int) -> float:
    """Return the microseconds of CPU time for each of `count` requests."""
    before = thread_time()
    replies = service.receive(data)
    used = thread_time() - before
    assert replies.count(b"type='result'") == count, replies[:2000]
    return used / count * 1e6


def numbered(size: int) -> list[Skill]:
    """Return `size` skills of the usual length, beside the built-in ones."""

    def one(number: int) -> Skill:
        @skill(name=f"skill-{number:05}", tags=("numbered",), inline=True, destructive=False)
        def work(text: str) -> str:
            """Do what skills do, with a description of a usual length, so that it says something.

            Args:
                text: What to do it with.
            """
            return text

        return work

    return [one(number) for number in range(size)]

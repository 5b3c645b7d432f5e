"""Measures the component with a loopback acceptor: the whole path, without a server."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import processes
from benchmarks.report import Line, Target
from benchmarks.traffic import Traffic, canonical
from benchmarks.wire_end import DOMAIN, Acceptor, drive

LOOPS = ("trio", "asyncio", "uvloop")
_TARGETS = {
    64: dict.fromkeys(LOOPS, Target(4, "at least")),
    1: {"trio": Target(1.5, "at least")},
}
_COUNTS = {64: 10_000, 1: 2_000}


def measure(runs: int) -> Iterator[Line]:
    """Yield the execute IQs answered per second, and the CPU time of one."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        ends = {loop: _connected(stack, Path(name), loop) for loop in (*LOOPS, "slixmpp")}
        _check_alike([acceptor for acceptor, _ in ends.values()])
        for in_flight, count in _COUNTS.items():
            rates: dict[str, list[float]] = {loop: [] for loop in ends}
            costs: dict[str, list[float]] = {loop: [] for loop in ends}
            for acceptor, _ in ends.values():  # to warm up
                drive(
                    acceptor.socket, Traffic(DOMAIN, count // 10, first=f"w{in_flight}-"), in_flight
                )
            for run in range(runs):
                # New ids each time, because a repetition is not executed.
                traffic = Traffic(DOMAIN, count, first=f"r{in_flight}-{run:03}-")
                for loop, (acceptor, pid) in ends.items():
                    before = processes.cpu_seconds(pid)
                    seconds, replies = drive(acceptor.socket, traffic, in_flight)
                    used = processes.cpu_seconds(pid) - before
                    traffic.check(replies)
                    rates[loop].append(count / seconds)
                    costs[loop].append(used / count * 1e6)
            for loop in LOOPS:
                yield Line(
                    f"loopback, {in_flight} in flight, {loop}",
                    "IQ/s",
                    rates[loop],
                    rates["slixmpp"],
                    _TARGETS[in_flight].get(loop),
                )
            for loop in LOOPS:
                yield Line(
                    f"loopback, {in_flight} in flight, {loop}, CPU",
                    "µs/IQ",
                    costs[loop],
                    costs["slixmpp"],
                )


def _connected(stack: contextlib.ExitStack, directory: Path, loop: str) -> tuple[Acceptor, int]:
    """Start the component in its own process; return its acceptor and its process id."""
    acceptor = stack.enter_context(Acceptor())
    if loop == "slixmpp":
        command = processes.slixmpp(acceptor.port)
    else:
        backend = "trio" if loop == "trio" else "asyncio"
        config = processes.agent_toml(directory, acceptor.port, backend=backend)
        command = processes.service(config, loop)
    process = stack.enter_context(processes.running(command))
    acceptor.accept()
    return acceptor, process.pid


def _check_alike(acceptors: list[Acceptor]) -> None:
    """Raise AssertionError unless all give the same replies, except for quotes and their order."""
    traffic = Traffic(DOMAIN, 50)
    replies = [canonical(drive(acceptor.socket, traffic, in_flight=1)[1]) for acceptor in acceptors]
    for other in replies[1:]:
        assert other == replies[0], f"not the same replies: {other[0]} and {replies[0][0]}"

"""Durable work beside DBOS doing the same, on SQLite and on PostgreSQL.

One piece of work is accepted, and runs one step: with effects on our side (its begin is a commit of
its own), recorded once on DBOS's. The two run in processes of their own, one after the other.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.report import Line, Target
from tests.servers.postgres import Postgres

_COUNTS = {"ours": {1: 400, 64: 2_000}, "peer": {1: 60, 64: 320}}
_PARTS = {"ours": 60, "peer": 20}
_ANSWERS = 100
_SLOWEST_MS = 50.0
_GAP = "accepted → first line"


class Worker:
    """One side in a process of its own."""

    def __init__(self, stack: contextlib.ExitStack, module: str, *arguments: str | Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)],
            cwd=processes.ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(self._end)

    def do(self, what: str, **how: int) -> Any:
        """Have it do something, and return what it found."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": what, **how}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process has ended instead of answering; its reason stands above"
        return json.loads(answer)

    def _end(self) -> None:
        self._process.communicate()  # it ends when nothing more is asked
        assert self._process.returncode == 0, "a side did not end well"


def measure(runs: int) -> Iterator[Line]:
    """Yield what both databases give."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sides = {
            "ours": Worker(stack, "durable_ours", directory / "ours"),
            "peer": Worker(stack, "durable_peer", f"sqlite:///{directory / 'peer.db'}"),
        }
        yield from _measured("SQLite", sides, runs)
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(Postgres())
        ours, peer = server.new_database(), server.new_database()
        sides = {
            "ours": Worker(stack, "durable_ours", directory / "ours", "--postgres", ours),
            "peer": Worker(stack, "durable_peer", peer),
        }
        yield from _measured("PostgreSQL", sides, runs)


def _measured(database: str, sides: dict[str, Worker], runs: int) -> Iterator[Line]:
    for side, worker in sides.items():  # to warm up
        worker.do("admit", count=_COUNTS[side][1], in_flight=16)
    for in_flight in (1, 64):
        title = f"{database}, {in_flight} in flight"
        yield from _admitting(title, sides, runs, in_flight)
        yield from _beginning(title, sides, runs, in_flight)
        yield from _telling(title, sides, runs, in_flight)
    taken = [sides["ours"].do("answers", count=_ANSWERS) for _ in range(runs)]
    for name in ("p50", "p99"):
        yield Line(f"{database}, answer → completed, {name}", "ms", _each(taken, name))


def _admitting(title: str, sides: dict[str, Worker], runs: int, in_flight: int) -> Iterator[Line]:
    found = _alternately(
        sides,
        runs,
        lambda side: sides[side].do("admit", count=_COUNTS[side][in_flight], in_flight=in_flight),
    )
    for key, name, unit in (
        ("accepted/s", "accepted", "tasks/s"),
        ("finished/s", "completed", "tasks/s"),
        ("cpu ms", "CPU", "ms/task"),
    ):
        ours, peer = ([each[key] for each in found[side]] for side in ("ours", "peer"))
        yield Line(f"{title}, {name}", unit, ours, peer)


def _beginning(title: str, sides: dict[str, Worker], runs: int, in_flight: int) -> Iterator[Line]:
    """Each waits for its task to end before it asks for the next."""
    found = _alternately(
        sides,
        runs,
        lambda side: sides[side].do("closed", count=_COUNTS[side][in_flight], in_flight=in_flight),
    )
    for name, target in (("p50", None), ("p99", Target(_SLOWEST_MS, "at most", "ours"))):
        ours, peer = (_each(found[side], name) for side in ("ours", "peer"))
        yield Line(f"{title}, {_GAP}, {name}", "ms", ours, peer, target)


def _telling(title: str, sides: dict[str, Worker], runs: int, in_flight: int) -> Iterator[Line]:
    """Parts of artifacts, of which each is an event; the peer writes to its durable streams."""
    found = _alternately(
        sides,
        runs,
        lambda side: sides[side].do(
            "events",
            count=max(4, in_flight),
            in_flight=in_flight,
            parts=_PARTS[side],
        ),
    )
    for key, name, unit in (
        ("events/s", "events committed and told", "events/s"),
        ("cpu ms", "an event, CPU", "ms/event"),
    ):
        ours, peer = ([each[key] for each in found[side]] for side in ("ours", "peer"))
        yield Line(f"{title}, {name}", unit, ours, peer)


def _alternately(sides: dict[str, Worker], runs: int, work: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {side: [] for side in sides}
    for _ in range(runs):
        for side in sides:
            found[side].append(work(side))
    return found


def _each(runs: Sequence[Sequence[float]], name: str) -> list[float]:
    at = {"p50": 49, "p99": 98}[name]
    return [statistics.quantiles(run, n=100)[at] for run in runs]

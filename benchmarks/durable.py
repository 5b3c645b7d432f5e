"""Compares durable work with DBOS, on SQLite and on PostgreSQL.

A task is accepted and runs one step, or three: with effects on our side (the beginning of each is a
commit), recorded once on the side of DBOS. The two run in separate processes, one after the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.report import Line, Target, percentile
from tests.servers.postgres import Postgres

_COUNTS = {"ours": {1: 400, 64: 2_000}, "peer": {1: 60, 64: 320}}
_STEPPED = {"ours": {1: 200, 32: 1_000}, "peer": {1: 60, 32: 320}}
_PARTS = {"ours": 60, "peer": 20}
_ANSWERS = 100
_SLOWEST_MS = 50.0
_GAP = "accepted → first line"


class Worker:
    """One side in its own process; with `tree`, that of another checkout, with `python`, in another
    environment.
    """

    def __init__(
        self,
        stack: contextlib.ExitStack,
        module: str,
        *arguments: str | Path,
        tree: Path = processes.ROOT,
        python: str | Path = sys.executable,
    ) -> None:
        self._process = subprocess.Popen(
            [python, "-m", f"benchmarks.{module}", *map(str, arguments)],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(self._end)

    def do(self, what: str, **how: int) -> Any:
        """Let it run an operation, and return the result."""
        self.send(what, **how)
        return self.answer()

    def send(self, what: str, **how: int) -> None:
        """Let it run an operation without waiting."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **how}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Wait for the operation, and return the result."""
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        assert answer, "the process has ended instead of answering; its reason stands above"
        return json.loads(answer)

    def _end(self) -> None:
        self._process.communicate()  # it ends when its input ends
        assert self._process.returncode == 0, "a side did not end well"


def measure(runs: int) -> Iterator[Line]:
    """Yield the results of both databases."""
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
        counts = {side: {"count": _COUNTS[side][in_flight]} for side in sides}
        found = _alternately(sides, runs, "admit", counts, in_flight)
        yield _line(f"{title}, accepted", "tasks/s", found, "accepted/s")
        yield _line(f"{title}, completed", "tasks/s", found, "finished/s")
        yield _line(f"{title}, CPU", "ms/task", found, "cpu ms")
        # Each waits for its task to end before it starts the next.
        found = _alternately(sides, runs, "closed", counts, in_flight)
        for name, target in (("p50", None), ("p99", Target(_SLOWEST_MS, "at most", "ours"))):
            ours, peer = ([percentile(run, name) for run in found[side]] for side in sides)
            yield Line(f"{title}, {_GAP}, {name}", "ms", ours, peer, target)
        # Parts of artifacts, each with an event; the peer writes to its durable streams.
        parts = {side: {"count": max(4, in_flight), "parts": _PARTS[side]} for side in sides}
        found = _alternately(sides, runs, "events", parts, in_flight)
        yield _line(f"{title}, events committed and told", "events/s", found, "events/s")
        yield _line(f"{title}, an event, CPU", "ms/event", found, "cpu ms")
    for in_flight in (1, 32):
        title = f"{database}, {in_flight} in flight, three steps"
        # Each task has three steps, and the next task starts when it has ended.
        counts = {side: {"count": _STEPPED[side][in_flight]} for side in sides}
        found = _alternately(sides, runs, "steps", counts, in_flight)
        yield _line(title, "tasks/s", found, "tasks/s")
        yield _line(f"{title}, CPU", "ms/task", found, "cpu ms")
    taken = [sides["ours"].do("answers", count=_ANSWERS) for _ in range(runs)]
    for name in ("p50", "p99"):
        figures = [percentile(run, name) for run in taken]
        yield Line(f"{database}, answer → completed, {name}", "ms", figures)


def _alternately(
    sides: dict[str, Worker],
    runs: int,
    what: str,
    counts: dict[str, dict[str, int]],
    in_flight: int,
) -> dict[str, list[Any]]:
    """Let both sides run the operation alternately; `counts` are the numbers of each."""
    found: dict[str, list[Any]] = {side: [] for side in sides}
    for _ in range(runs):
        for side, worker in sides.items():
            found[side].append(worker.do(what, in_flight=in_flight, **counts[side]))
    return found


def _line(name: str, unit: str, found: dict[str, list[Any]], key: str) -> Line:
    ours, peer = ([each[key] for each in found[side]] for side in ("ours", "peer"))
    return Line(name, unit, ours, peer)

"""Measures whether one principal, with the maximum number of requests, delays another one.

Juliet has one request in flight at a time. She is measured alone and together with Romeo, who keeps
64 slow skills in flight, or a flood of quick ones. Two measurements are made at once: at the
acceptor, from her first byte sent to her last byte received, including the time in sockets; and
inside the component, from the read of her first byte to the write of her last.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import processes
from benchmarks.report import Line, Target, percentile
from benchmarks.traffic import Traffic
from benchmarks.wire_end import DOMAIN, Acceptor, beside

JULIET, ROMEO = ("juliet@localhost/balcony",), ("romeo@localhost/orchard",)
_SLOW = 64
_FLOODS = (64, 256)
_SAMPLES = 1_500
_MOST_RATIO = Target(5, "at most")


def measure(runs: int) -> Iterator[Line]:
    """Yield the median and the 99th percentile of Juliet's waiting time, with Romeo and alone."""
    scenes: dict[str, tuple[Callable[[int], Traffic | None], int]] = {
        "alone": (lambda _: None, 0),
        f"{_SLOW} slow skills": (_sleeping, _SLOW),
    } | {f"a flood of {size}": (_flood, size) for size in _FLOODS}
    outside: dict[str, list[list[float]]] = {scene: [] for scene in scenes}
    inside: dict[str, list[list[float]]] = {scene: [] for scene in scenes}
    rates: dict[str, list[float]] = {scene: [] for scene in scenes}
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ends = {}
        for scene in scenes:
            acceptor = stack.enter_context(Acceptor())
            config = processes.agent_toml(directory, acceptor.port)
            tap = directory / f"{acceptor.port}.json"
            process = stack.enter_context(processes.running(processes.service(config, tap=tap)))
            acceptor.accept()
            ends[scene] = (acceptor, process, tap)
        for run in range(runs):
            # New ids each time, because a repetition is not executed.
            juliet = Traffic(DOMAIN, _SAMPLES, senders=JULIET, first=f"b{run:03}-")
            for scene, (crowd, size) in scenes.items():
                latencies, answered = beside(ends[scene][0].socket, crowd(run), size, juliet)
                outside[scene].append(latencies)
                rates[scene].append(answered / sum(latencies))
        for scene, (acceptor, process, tap) in ends.items():
            acceptor.hang_up()
            process.terminate()
            process.wait(60)
            taken = json.loads(tap.read_text())
            inside[scene] = [
                [seconds for id_, seconds in taken if id_.startswith(f"b{n:03}-")]
                for n in range(runs)
            ]
    for where, found in (("at the acceptor", outside), ("inside", inside)):
        for scene in list(scenes)[1:]:
            for name, target in (("p50", None), ("p99", _MOST_RATIO)):
                yield Line(
                    f"{name} {where}, {scene} / alone",
                    "µs",
                    [percentile(each, name) * 1e6 for each in found[scene]],
                    [percentile(each, name) * 1e6 for each in found["alone"]],
                    target,
                )


def _flood(run: int) -> Traffic:
    return Traffic(DOMAIN, 20_000, senders=ROMEO, first=f"a{run:03}-")


def _sleeping(run: int) -> Traffic:
    return Traffic(
        DOMAIN,
        6_400,
        senders=ROMEO,
        first=f"a{run:03}-",
        skill="conformance.sleep",
        param="seconds",
        text="1",
    )

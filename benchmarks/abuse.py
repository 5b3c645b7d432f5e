"""How long somebody else's ping takes while one principal sends the worst it can.

Juliet pings, one request at a time. Romeo keeps 64 requests of one kind unanswered. Both share the
component's stream, as all users of a server do: what Romeo has sent stands before Juliet's ping in
the sockets. So the time is taken at the acceptor, from the moment at which her ping is queued to
the moment at which its result is read, and again inside the component, where nothing waits in
sockets: from the read that brought her ping to the write that took its result.

Each kind has a component of its own, so that none inherits what another left behind.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from benchmarks import abuse_traffic, processes
from benchmarks.abuse_end import Crowd, beside
from benchmarks.report import Line, Target
from benchmarks.wire_end import Acceptor

_SAMPLES: Final = 300
_IDLE_SAMPLES: Final = 300
_MOST_RATIO: Final = Target(5, "at most")
_MOST_MS: Final = Target(100, "at most", of="ours")
_SCRIPT: Final = [{"text": "The tide is high at noon."}]


def measure(runs: int) -> Iterator[Line]:
    """Yield median and 99th percentile of Juliet's ping beside each kind of abuse, and alone."""
    for name, crowd in abuse_traffic.KINDS.items():
        beside_it, alone, inside, inside_alone = _measured(name, crowd, runs)
        for percentile in ("p50", "p99"):
            for where, ours, peer in (
                ("at the acceptor", beside_it, alone),
                ("inside", inside, inside_alone),
            ):
                figures = [_percentile(each, percentile) for each in ours]
                others = [_percentile(each, percentile) for each in peer]
                target = _MOST_RATIO if percentile == "p99" else None
                yield Line(f"{name} · {percentile} {where} / idle", "ms", figures, others, target)
        worst = [_percentile(each, "p99") for each in beside_it]
        yield Line(f"{name} · p99 at the acceptor", "ms", worst, target=_MOST_MS)


def _measured(name: str, crowd: Callable[[], Crowd], runs: int) -> tuple[list[list[float]], ...]:
    """Latencies in seconds, run by run: beside the crowd and alone, at the acceptor and inside."""
    outside: list[list[float]] = []
    outside_alone: list[list[float]] = []
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        acceptor = stack.enter_context(Acceptor())
        config = processes.agent_toml(directory, acceptor.port)
        if name in abuse_traffic.WANT_A_MODEL:
            url = _endpoint(stack, directory)
            with config.open("a") as file:
                file.write(f'\n[llm]\nprovider = "vllm"\nmodel = "scripted"\nbase_url = "{url}"\n')
        tap = directory / "tap.json"
        process = stack.enter_context(processes.running(processes.service(config, tap=tap)))
        acceptor.accept()
        beside(acceptor.socket, None, 50, first="w")
        beside(acceptor.socket, crowd(), 20, first="v")  # what is loaded when first needed is
        for run in range(runs):
            outside_alone.append(beside(acceptor.socket, None, _IDLE_SAMPLES, first=f"b{run}-i"))
            outside.append(beside(acceptor.socket, crowd(), _SAMPLES, first=f"b{run}-c"))
        acceptor.hang_up()
        process.terminate()
        process.wait(60)
        taken = json.loads(tap.read_text())
    inside, inside_alone = (
        [
            [seconds for id_, seconds in taken if id_.startswith(f"b{run}-{scene}")]
            for run in range(runs)
        ]
        for scene in ("c", "i")
    )
    return outside, outside_alone, inside, inside_alone


def _percentile(latencies: list[float], name: str) -> float:
    if name == "p50":
        return statistics.median(latencies) * 1e3
    return statistics.quantiles(latencies, n=100)[98] * 1e3


def _endpoint(stack: contextlib.ExitStack, directory: Path) -> str:
    """Start a scripted model; its URL."""
    script = directory / "script.json"
    script.write_text(json.dumps(_SCRIPT))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.component.models.endpoint", str(script)],
        cwd=processes.ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )

    def end() -> None:
        process.terminate()
        process.communicate()

    stack.callback(end)
    assert process.stdout is not None
    return process.stdout.readline().strip()

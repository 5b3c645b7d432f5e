"""Measures how long another principal's ping takes while one principal sends the worst it can.

Juliet pings, one request at a time. Romeo keeps 64 requests of one kind unanswered. Both share the
component's stream, like all users of a server: Romeo's stanzas are ahead of Juliet's ping in the
sockets. So the time is measured at the acceptor, from queueing her ping to reading its result, and
also inside the component, without the time in sockets: from the read of her ping to the write of
its result.

Each kind has its own component, so that none is affected by another.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from benchmarks import abuse_traffic, processes
from benchmarks.abuse_end import Crowd, beside
from benchmarks.report import Line, Target, percentile
from benchmarks.wire_end import Acceptor

_SAMPLES: Final = 300
_IDLE_SAMPLES: Final = 300
MOST_RATIO: Final = Target(5, "at most")
MOST_MS: Final = Target(100, "at most", of="ours")
_SCRIPT: Final = [{"text": "The tide is high at noon."}]


def measure(runs: int) -> Iterator[Line]:
    """Yield median and 99th percentile of Juliet's ping during each kind of abuse, and alone."""
    for name, crowd in abuse_traffic.KINDS.items():
        beside_it, alone, inside, inside_alone = _measured(name, crowd, runs)
        for figure in ("p50", "p99"):
            for where, ours, peer in (
                ("at the acceptor", beside_it, alone),
                ("inside", inside, inside_alone),
            ):
                figures = [percentile(each, figure) * 1e3 for each in ours]
                others = [percentile(each, figure) * 1e3 for each in peer]
                target = MOST_RATIO if figure == "p99" else None
                yield Line(f"{name} · {figure} {where} / idle", "ms", figures, others, target)
        worst = [percentile(each, "p99") * 1e3 for each in beside_it]
        yield Line(f"{name} · p99 at the acceptor", "ms", worst, target=MOST_MS)


def _measured(name: str, crowd: Callable[[], Crowd], runs: int) -> tuple[list[list[float]], ...]:
    """Return latencies in seconds, per run: with the crowd and alone, at the acceptor and
    inside.
    """
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
        beside(acceptor.socket, crowd(), 20, first="v")  # loads the modules that are imported late
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


def _endpoint(stack: contextlib.ExitStack, directory: Path) -> str:
    """Start a scripted model; return its URL."""
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

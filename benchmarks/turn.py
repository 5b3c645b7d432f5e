"""A turn of two model calls and one tool call, beside others doing the same.

The model is a scripted endpoint on a socket that answers at once. Ours takes the message in
durably, keeps the session, recalls memories, guards, pays and records; the bare loop is the openai
SDK and nothing else; the two frameworks run their agents with one tool and no memory. Each side is
a process of its own, and they take turns, a few turns of talk at a time: so what a machine does
besides slows all of them.

Then ten thousand people have talked with ours, and a hundred of them talk at once.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.durable import Worker
from benchmarks.report import Line, Target

_TURNS = 30  # at a time
_BLOCKS = 10  # in a run
_KNOWN = 10_000
_ACTIVE = 100
_SCRIPT = [{"calls": [["lookup", {"word": "tide"}]]}, {"text": "The tide is high at noon."}]
_BOUNDS = {"asyncio": 1.3, "trio": 1.5}


def measure(runs: int) -> Iterator[Line]:
    """Yield what each of the others takes beside ours."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = scripted_model(stack, directory, _SCRIPT)
        names = (
            ("ours", "trio"),
            ("bare", "trio"),
            ("ours", "asyncio"),
            ("bare", "asyncio"),
            ("streamed", "asyncio"),
            ("agents", "asyncio"),
            ("pydantic", "asyncio"),
        )
        sides = {
            name: Worker(stack, "turn_side", *name, url, directory / "-".join(name))
            for name in names
        }
        took: dict[tuple[str, str], list[float]] = {name: [] for name in names}
        for worker in sides.values():
            worker.do("turns", count=3 * _TURNS)  # to warm up
        for _ in range(runs):
            blocks: dict[tuple[str, str], list[float]] = {name: [] for name in names}
            for _ in range(_BLOCKS):
                for name, worker in sides.items():
                    blocks[name].append(worker.do("turns", count=_TURNS))
            for name in names:
                took[name].append(statistics.median(blocks[name]))
        ours = sides["ours", "asyncio"]
        ours.do("active", sessions=_ACTIVE)
        before = [ours.do("active", sessions=_ACTIVE) for _ in range(runs)]
        idle = [ours.do("idle", sessions=_KNOWN)]
        ours.do("active", sessions=_ACTIVE)
        after = [ours.do("active", sessions=_ACTIVE) for _ in range(runs)]
    for loop in ("asyncio", "trio"):
        yield Line(
            f"turn: 2 model calls, 1 tool call · bare openai SDK loop · {loop}",
            "ms",
            took["ours", loop],
            took["bare", loop],
            Target(_BOUNDS[loop], "at most"),
        )
    for peer, title in (
        ("streamed", "bare openai SDK loop, streaming"),
        ("agents", "openai-agents"),
        ("pydantic", "pydantic-ai"),
    ):
        bound = {"agents": Target(1.0, "at most"), "pydantic": Target(0.6, "at most")}.get(peer)
        yield Line(
            f"turn: 2 model calls, 1 tool call · {title}",
            "ms",
            took["ours", "asyncio"],
            took[peer, "asyncio"],
            bound,
        )
    yield Line(
        f"memory per idle session · {_KNOWN:,} known",
        "bytes",
        idle,
        target=Target(4096, "at most", of="ours"),
    )
    yield Line(
        f"turn: {_ACTIVE} sessions active · {_KNOWN:,} known · beside those alone",
        "ms",
        after,
        before,
    )


def scripted_model(stack: contextlib.ExitStack, directory: Path, steps: list[Any]) -> str:
    """Run a model that gives these answers in turn; return its base URL."""
    script = directory / "script.json"
    script.write_text(json.dumps(steps))
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

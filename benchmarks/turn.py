"""A turn of two model calls and one tool call, beside others doing the same.

The model is a scripted endpoint on a socket that answers at once. Ours takes the message in
durably, keeps the session, recalls memories, guards, pays and records; the bare loop is the openai
SDK and nothing else; the two frameworks run their agents with one tool and no memory. Each side is
a process of its own, and they take turns.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import processes
from benchmarks.durable import Worker
from benchmarks.report import Line, Target

_TURNS = 200
_SCRIPT = [{"calls": [["lookup", {"word": "tide"}]]}, {"text": "The tide is high at noon."}]
_BOUND = 1.5


def measure(runs: int) -> Iterator[Line]:
    """Yield what each of the others takes beside ours."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = _endpoint(stack, directory)
        names = (
            ("ours", "asyncio"),
            ("ours", "trio"),
            ("bare", "asyncio"),
            ("bare", "trio"),
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
            worker.do("turns", count=_TURNS // 2)  # to warm up
        for _ in range(runs):
            for name, worker in sides.items():
                took[name].append(worker.do("turns", count=_TURNS))
        idle = [sides["ours", "asyncio"].do("idle", sessions=1_000, active=150)]
    for loop in ("asyncio", "trio"):
        yield Line(
            f"turn: 2 model calls, 1 tool call · bare openai SDK loop · {loop}",
            "ms",
            took["ours", loop],
            took["bare", loop],
            Target(_BOUND, "at most"),
        )
    for peer, title in (
        ("streamed", "bare openai SDK loop, streaming"),
        ("agents", "openai-agents"),
        ("pydantic", "pydantic-ai"),
    ):
        bound = Target(1.0, "at most") if peer != "streamed" else None
        yield Line(
            f"turn: 2 model calls, 1 tool call · {title}",
            "ms",
            took["ours", "asyncio"],
            took[peer, "asyncio"],
            bound,
        )
    yield Line(
        "memory per idle session · 1,000 known, 150 others before them",
        "bytes",
        idle,
        target=Target(4096, "at most", of="ours"),
    )


def _endpoint(stack: contextlib.ExitStack, directory: Path) -> str:
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

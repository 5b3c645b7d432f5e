"""Compares steps of plans with DBOS and LangGraph on SQLite: 20 in a chain, and 20 side by side.

Our step is a task of its own, with its row, its events and its record before it begins, and
its end wakes the plan. The step of DBOS is a child workflow; in LangGraph it is a node of a graph
whose state is stored after each round. The three run in separate processes, one after the other.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.durable import Worker
from benchmarks.report import Line

STEPS: Final = 20
_PLANS: Final = 5
_PACKAGES: Final = ("langgraph==1.2.24", "langgraph-checkpoint-sqlite==3.1.2")


def measure(runs: int) -> Iterator[Line]:
    """Yield the milliseconds of a step."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sides = {
            "ours": Worker(stack, "durable_ours", directory / "ours"),
            "DBOS": Worker(stack, "durable_peer", f"sqlite:///{directory / 'peer.db'}"),
            "LangGraph": Worker(
                stack, "plans_langgraph", directory / "graph.db", python=_langgraph()
            ),
        }
        for order in ("chain", "beside"):
            for worker in sides.values():  # to warm up
                worker.do(order, plans=1, steps=STEPS)
            found: dict[str, list[float]] = {side: [] for side in sides}
            for _ in range(runs):
                for side, worker in sides.items():
                    found[side].append(worker.do(order, plans=_PLANS, steps=STEPS))
            title = "in a chain" if order == "chain" else "side by side"
            for peer in ("DBOS", "LangGraph"):
                name = f"a step of a plan, {STEPS} {title}, beside {peer}"
                yield Line(name, "ms", found["ours"], found[peer])


def _langgraph() -> Path:
    """Return the Python of an environment with LangGraph; make it if necessary. It needs dozens of
    packages that this project does not use.
    """
    default = Path(__file__).parents[1] / ".langgraph"
    home = Path(os.environ.get("LANGGRAPH_HOME", default)).absolute()
    python = home / "bin" / "python"
    if not (home / "complete").exists():
        print(f"installing {', '.join(_PACKAGES)} in {home}", file=sys.stderr, flush=True)
        venv.create(home, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *_PACKAGES], check=True)
        (home / "complete").touch()
    return python

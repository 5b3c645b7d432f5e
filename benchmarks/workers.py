"""Measures calls of a skill through a worker, beside jobs of procrastinate alone.

One worker process each, on one PostgreSQL. Our call is that of a read-only skill: from the call of
the skill to its result. The peer's job notifies its caller, so that both wait for an answer; it has
no parameters to validate, no result, and no record of either.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
from pydantic import SecretStr

from benchmarks import workers_peer
from benchmarks.report import Line, percentile
from component.features.workers.settings import WorkersEntry
from component.skills import Context, Skill, call, prepare
from component.skills.calling import Threads
from tests.component.features.workers.support import WorkerProgram, offering
from tests.servers.postgres import Postgres

_WARM_UP = 50
_COUNTS = {1: 100, 64: 1000}
_SKILL = '''\
from xmpp_agent import skill


@skill(read_only=True, destructive=False)
async def echo(number: int) -> int:
    """Return a number."""
    return number
'''


def measure(runs: int) -> Iterator[Line]:
    """Yield calls per second, and the time of a call."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Postgres())
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ours, peer = server.new_database(), server.new_database()
        (directory / "echo.py").write_text(_SKILL)
        worker = WorkerProgram(
            directory, ours, modules=["./echo.py"], concurrency=workers_peer.CONCURRENCY
        )
        stack.callback(worker.kill)
        worker.start()
        workers_peer.prepare(peer)
        process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", workers_peer.__name__, peer], stdout=subprocess.PIPE
            )
        )
        stack.callback(process.kill)
        assert process.stdout is not None
        process.stdout.readline()
        for in_flight, count in _COUNTS.items():
            mine, theirs = [], []
            for run in range(runs + 1):
                number = count if run else _WARM_UP
                mine.append(anyio.run(_calls, ours, number, in_flight, backend="trio"))
                theirs.append(asyncio.run(workers_peer.calls(peer, number, in_flight)))
            yield Line(
                f"calls through a worker, {in_flight} in flight",
                "1/s",
                [count / seconds for seconds, _ in mine[1:]],
                [count / seconds for seconds, _ in theirs[1:]],
            )
            for name in ("p50", "p99"):
                yield Line(
                    f"a call through a worker, {in_flight} in flight, {name}",
                    "ms",
                    [1000 * percentile(times, name) for _, times in mine[1:]],
                    [1000 * percentile(times, name) for _, times in theirs[1:]],
                )


async def _calls(url: str, count: int, in_flight: int) -> tuple[float, list[float]]:
    """Call the skill, so many times at a time; return the seconds for all, and those of each."""
    times: list[float] = []
    free, threads = anyio.Semaphore(in_flight), Threads(1, 1)

    async def one(skill: Skill, number: int) -> None:
        async with free:
            began = time.perf_counter()
            context = Context(principal="a@b.example", sender="a@b.example/c", skill="echo")
            arguments = prepare(skill, [("number", str(number))])
            await call(skill, arguments, context, threads.share("a@b.example"))
            times.append(time.perf_counter() - began)

    async with offering(WorkersEntry(database=SecretStr(url)), "echo") as registry:
        skill = registry.get("echo")
        assert skill is not None
        began = time.perf_counter()
        async with anyio.create_task_group() as group:
            for number in range(count):
                group.start_soon(one, skill, number)
        return time.perf_counter() - began, times

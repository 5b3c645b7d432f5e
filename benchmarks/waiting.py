"""Measures what ten thousand tasks that wait for a person cost a service with other work.

Three services, each with its acceptor: without a task, so without the engine; with one waiting
task; and with 10,000.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import anyio

from benchmarks import processes
from benchmarks.durable_ours import leave_waiting
from benchmarks.report import Line, Target
from benchmarks.traffic import Traffic
from benchmarks.wire_end import DOMAIN, Acceptor, drive

MANY = 10_000
_NONE, _ONE, _ALL = "no task", "1 task", f"{MANY:,} tasks"
_COUNTS = {1: 300, 64: 2_000}
_ROUNDS = 12
_IDLE_S = 20.0
_PROGRAM = Path(sys.executable).parent / "xmpp-agent"


@dataclass(frozen=True, slots=True)
class _Service:
    acceptor: Acceptor
    pid: int


def measure(runs: int) -> Iterator[Line]:
    """Yield latency, memory and CPU time with waiting tasks, and the start with them."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        waiting = {_NONE: 0, _ONE: 1, _ALL: MANY}
        for scene, count in waiting.items():
            if count:
                anyio.run(leave_waiting, directory / scene, count)
        with contextlib.ExitStack() as stack:
            services = {scene: _started(stack, directory, scene) for scene in waiting}
            yield from _resting(services, runs)  # first, because answered requests take memory too
            yield from _executing(services, runs)
        yield from _starting(directory, runs)


def _started(stack: contextlib.ExitStack, directory: Path, scene: str) -> _Service:
    acceptor = stack.enter_context(Acceptor())
    config = _configured(directory, acceptor, scene)
    command = [str(_PROGRAM), "run", "--config", str(config)]
    pid = stack.enter_context(processes.running(command)).pid
    acceptor.accept()
    return _Service(acceptor, pid)


def _configured(directory: Path, acceptor: Acceptor, scene: str) -> Path:
    """Return a configuration whose data directory holds a copy of the tasks of the scene."""
    config = processes.agent_toml(directory, acceptor.port)
    data = processes.data_of(directory, acceptor.port)
    if scene != _NONE:
        shutil.copytree(directory / scene, data)
    return config


def _executing(services: dict[str, _Service], runs: int) -> Iterator[Line]:
    """Yield the cost of skills that are answered at once and do not use tasks.

    Rounds are short and alternate between the services, and the best of a run counts: other load on
    the machine can only add to it.
    """
    scenes = (_NONE, _ALL)
    for in_flight, count in _COUNTS.items():
        # not counted: the engine is loaded in the meantime
        _rounds(services, scenes, in_flight, count, "w")
        found = [
            _rounds(services, scenes if run % 2 else scenes[::-1], in_flight, count, f"{run:02}")
            for run in range(runs)
        ]
        for name, place in (("", 0), (", CPU", 1)):
            yield Line(
                f"inline execute, {in_flight} in flight, {_ALL} waiting / {_NONE}{name}",
                "µs",
                [each[_ALL][place] for each in found],
                [each[_NONE][place] for each in found],
                Target(1.1, "at most"),
            )


def _rounds(
    services: dict[str, _Service], scenes: tuple[str, ...], in_flight: int, count: int, name: str
) -> dict[str, tuple[float, float]]:
    """Return the microseconds of an IQ, in latency and CPU time, in the best of the rounds of each
    service.
    """
    found: dict[str, list[tuple[float, float]]] = {scene: [] for scene in scenes}
    for number in range(_ROUNDS):
        for scene in scenes:
            acceptor, pid = services[scene].acceptor, services[scene].pid
            # New ids each time, because a repetition is not executed.
            traffic = Traffic(DOMAIN, count, first=f"{in_flight:02}-{name}-{number:02}-")
            before = processes.cpu_seconds(pid)
            seconds, replies = drive(acceptor.socket, traffic, in_flight)
            used = processes.cpu_seconds(pid) - before
            traffic.check(replies)
            found[scene].append((seconds / count * in_flight * 1e6, used / count * 1e6))
    return {
        scene: (min(wire for wire, _ in each), min(cpu for _, cpu in each))
        for scene, each in found.items()
    }


def _resting(services: dict[str, _Service], runs: int) -> Iterator[Line]:
    used: dict[str, list[float]] = {scene: [] for scene in services}
    for _ in range(runs):
        before = {scene: processes.cpu_seconds(one.pid) for scene, one in services.items()}
        time.sleep(_IDLE_S)
        for scene, one in services.items():
            used[scene].append(processes.cpu_seconds(one.pid) - before[scene])
    memory = {scene: processes.resident_megabytes(one.pid) for scene, one in services.items()}
    yield Line(
        f"CPU in {_IDLE_S:.0f} s at rest, {_ALL} waiting (peer: {_NONE})",
        "ms",
        [each * 1e3 for each in used[_ALL]],
        [each * 1e3 for each in used[_NONE]],
        Target(100, "at most", "ours"),
    )
    for scene in (_ONE, _ALL):
        yield Line(
            f"resident, engine loaded, {scene} waiting (peer: {_NONE}, without engine)",
            "MB",
            [memory[scene]],
            [memory[_NONE]],
            Target(110, "at most", "ours"),
        )


def _starting(directory: Path, runs: int) -> Iterator[Line]:
    """Yield the time to the handshake, which does not wait for stored tasks."""
    seconds: dict[str, list[float]] = {_NONE: [], _ALL: []}
    with contextlib.ExitStack() as stack:
        ends = {}
        for scene in seconds:
            acceptor = stack.enter_context(Acceptor())
            ends[scene] = acceptor, _configured(directory, acceptor, scene)
        for run in range(runs + 1):  # the first one is not counted: files are read from disk
            for scene, (acceptor, config) in ends.items():
                os.sync()
                start = time.perf_counter()
                with processes.running([str(_PROGRAM), "run", "--config", str(config)]):
                    taken = acceptor.accept() - start
                acceptor.hang_up()
                if run:
                    seconds[scene].append(taken)
    yield Line(
        f"start to accepted handshake, {_ALL} waiting / {_NONE}", "s", seconds[_ALL], seconds[_NONE]
    )

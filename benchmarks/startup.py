"""From nothing to an accepted handshake, and what the service takes while it has nothing to do."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import processes
from benchmarks.report import Line, Target
from benchmarks.traffic import Traffic
from benchmarks.wire_end import DOMAIN, Acceptor, drive

PEER = "import trio, pydantic_settings, msgspec"
_PROGRAM = Path(sys.executable).parent / "xmpp-agent"


def measure(runs: int) -> Iterator[Line]:
    """Yield the seconds of a start against those of the imports alone, and the memory when idle."""
    ours: list[float] = []
    peer: list[float] = []
    ours_cpu: list[float] = []
    peer_cpu: list[float] = []
    memory: list[float] = []
    with tempfile.TemporaryDirectory() as name, Acceptor() as acceptor:
        config = processes.agent_toml(Path(name), acceptor.port)
        for run in range(runs + 1):  # the first one is not counted: it writes .pyc files
            seconds, used, resident = _start(acceptor, config)
            alone, alone_used = _imports()
            if run:
                ours.append(seconds)
                ours_cpu.append(used)
                memory.append(resident)
                peer.append(alone)
                peer_cpu.append(alone_used)
    yield Line("start to accepted handshake / its imports", "s", ours, peer, Target(2, "at most"))
    yield Line("the same, CPU", "s", ours_cpu, peer_cpu)
    yield Line("resident when idle", "MB", memory, (), Target(60, "at most", "ours"))


def _start(acceptor: Acceptor, config: Path) -> tuple[float, float, float]:
    """Seconds to the handshake, CPU seconds, and megabytes after a thousand requests and a rest."""
    start = time.perf_counter()
    with processes.running([str(_PROGRAM), "run", "--config", str(config)]) as process:
        seconds = acceptor.accept() - start
        used = processes.cpu_seconds(process.pid)
        drive(acceptor.socket, Traffic(DOMAIN, 1_000), in_flight=64)
        time.sleep(0.5)
        resident = processes.resident_megabytes(process.pid)
        acceptor.hang_up()
    return seconds, used, resident


def _imports() -> tuple[float, float]:
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", PEER], cwd=processes.ROOT)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"python -c {PEER!r} failed"
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime

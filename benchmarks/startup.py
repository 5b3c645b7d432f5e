"""Measures the start, up to an accepted handshake, and the memory of an idle service."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks import processes
from benchmarks.report import Line, Target
from benchmarks.traffic import Traffic
from benchmarks.wire_end import DOMAIN, Acceptor, drive

PEER = "import trio, pydantic_settings, msgspec"
_PROGRAM = Path(sys.executable).parent / "xmpp-agent"


def measure(runs: int) -> Iterator[Line]:
    """Yield the seconds of a start, compared with the imports alone, and the memory when idle."""
    ours: list[float] = []
    peer: list[float] = []
    ours_cpu: list[float] = []
    peer_cpu: list[float] = []
    memory: list[float] = []
    with tempfile.TemporaryDirectory() as name, Acceptor() as acceptor:
        config = processes.agent_toml(Path(name), acceptor.port)
        compiled = compiled_modules(Path(name))
        for run in range(runs + 1):  # the first one is not counted: it writes .pyc files
            seconds, used, resident = start(acceptor, config, compiled)
            alone, alone_used = _imports(compiled)
            if run:
                ours.append(seconds)
                ours_cpu.append(used)
                memory.append(resident)
                peer.append(alone)
                peer_cpu.append(alone_used)
    yield Line("start to accepted handshake / its imports", "s", ours, peer, Target(1.5, "at most"))
    yield Line("the same, CPU", "s", ours_cpu, peer_cpu)
    yield Line("resident when idle", "MB", memory, (), Target(60, "at most", "ours"))


def compiled_modules(directory: Path) -> Mapping[str, str]:
    """Return an environment in which modules are compiled once, as pip does it.

    Where PYTHONDONTWRITEBYTECODE is set, those of a checkout would be compiled at every start, and
    those of its libraries would not.
    """
    return {
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(directory / "compiled"),
    }


def start(
    acceptor: Acceptor, config: Path, environment: Mapping[str, str]
) -> tuple[float, float, float]:
    """Seconds to the handshake, CPU seconds, and megabytes after a thousand requests and a rest."""
    start = time.perf_counter()
    command = [str(_PROGRAM), "run", "--config", str(config)]
    with processes.running(command, environment) as process:
        seconds = acceptor.accept() - start
        used = processes.cpu_seconds(process.pid)
        drive(acceptor.socket, Traffic(DOMAIN, 1_000), in_flight=64)
        time.sleep(0.5)
        resident = processes.resident_megabytes(process.pid)
        acceptor.hang_up()
    return seconds, used, resident


def _imports(environment: Mapping[str, str]) -> tuple[float, float]:
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", PEER], cwd=processes.ROOT, env={**os.environ, **environment}
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"python -c {PEER!r} failed"
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime

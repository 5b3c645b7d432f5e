"""The processes under test, the service and its peer, and their resource usage."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.wire_end import DOMAIN, SECRET

ROOT = Path(__file__).parents[1]
_STOP_S = 20.0
_TOML = """\
backend = "{backend}"

[server]
host = "127.0.0.1"
port = {port}
component_domain = "{domain}"
component_secret = "{secret}"

[agent]
allowed_domains = ["localhost"]

[conformance]
enabled = true

[storage]
path = "{data}"

[log]
level = "warning"
"""


def agent_toml(directory: Path, port: int, *, backend: str = "trio", domain: str = DOMAIN) -> Path:
    """Write a configuration with as many defaults as possible."""
    file = directory / f"agent-{backend}-{port}.toml"
    data = data_of(directory, port, backend)
    file.write_text(
        _TOML.format(backend=backend, port=port, domain=domain, secret=SECRET, data=data)
    )
    return file


def data_of(directory: Path, port: int, backend: str = "trio") -> Path:
    """Return the data directory of such a configuration."""
    return directory / f"data-{backend}-{port}"


def service(config: Path, loop: str = "trio", *, tap: Path | None = None) -> list[str]:
    """Return the command of the service on `trio`, `asyncio` or `uvloop`."""
    command = [sys.executable, "-m", "benchmarks.ours", "--config", str(config), "--loop", loop]
    return command if tap is None else [*command, "--tap", str(tap)]


def slixmpp(port: int, domain: str = DOMAIN) -> list[str]:
    """Return the command of the peer."""
    return [sys.executable, "-m", "benchmarks.peer", domain, str(port)]


@contextlib.contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command until the block ends; its output goes to our stderr."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "AGENT_SECRET": SECRET, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def cpu_seconds(pid: int) -> float:
    """Return the CPU time, user and system, that a process has used in all its threads."""
    # clock_getcpuclockid(3): the clock of a process is its number, turned over, and a 2. It counts
    # nanoseconds, where /proc/PID/stat counts hundredths of a second.
    return time.clock_gettime((~pid << 3) | 2)


def resident_megabytes(pid: int) -> float:
    """Return the resident memory of a process (VmRSS)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ValueError(f"process {pid} shows no VmRSS")

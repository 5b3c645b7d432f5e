"""Tries to escape from a confinement: `python -m component.sandbox.probe WHAT…`, run confined.

It writes a JSON object of the names of the guarantees, each true if the attempt was stopped. That a
system call for a confinement succeeded says little; that an escape fails says what is needed.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Final

MEMORY: Final = 256 << 20
TASKS: Final = 24
WORK: Final = 4 << 20
"""The limits with which it is run: bytes, tasks, bytes."""


def main(arguments: Sequence[str]) -> None:
    """Try everything, with a file that it must not read, the process to signal, and two ports."""
    secret, process, user = arguments[0], int(arguments[1]), int(arguments[2])
    ports = [int(port) for port in arguments[3:]]
    if ports:
        found = {"ports": _connects(ports[0]) and not _connects(ports[1])}
    else:
        found = {
            "files": _fails(lambda: os.open(secret, os.O_RDONLY)),
            "names": _fails(lambda: os.stat(secret)),
            "others": _fails(lambda: os.open(f"/proc/{process}/environ", os.O_RDONLY)),
            "network": not any(map(_socket, _SOCKETS)),
            "signals": _fails(lambda: os.kill(process, 0)),
            "fork": _fails(_fork),
            "privileges": _no_privileges(),
            "user": os.getuid() != user,
            "memory": _fails(lambda: bytearray(MEMORY)),
            "space": _fails(_fill),
            "tasks": _threads() <= TASKS,
        }
    sys.stdout.write(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)


_SOCKETS: Final = (
    (socket.AF_INET, socket.SOCK_STREAM),
    (socket.AF_INET, socket.SOCK_DGRAM),
    (socket.AF_INET6, socket.SOCK_STREAM),
    (socket.AF_UNIX, socket.SOCK_STREAM),
    (socket.AF_UNIX, socket.SOCK_DGRAM),
    (socket.AF_NETLINK, socket.SOCK_RAW),
    (socket.AF_PACKET, socket.SOCK_RAW),
)


def _fails(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except (OSError, ValueError, MemoryError):
        return True
    return False


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def _socket(kind: tuple[int, int]) -> bool:
    return not _fails(lambda: socket.socket(*kind))


def _connects(port: int) -> bool:
    return not _fails(lambda: socket.create_connection(("127.0.0.1", port), 10).close())


def _no_privileges() -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    no_new = libc.prctl(39, 0, 0, 0, 0) == 1  # PR_GET_NO_NEW_PRIVS
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1] + 1
    exceeds = not _fails(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)))
    mounts = libc.mount(b"none", b"/", b"tmpfs", 0, None) == 0
    unshares = libc.unshare(0x10000000) == 0
    traces = libc.ptrace(16, os.getppid(), 0, 0) == 0
    return no_new and not (exceeds or mounts or unshares or traces)


def _fill() -> None:
    """Write more to the working directory than it may hold. Raises OSError."""
    for number in range(2 * WORK >> 20):
        with open(f"{os.environ['TMPDIR']}/{number}", "wb") as file:
            file.write(bytes(1 << 20))


def _threads() -> int:
    """Return how many threads it can have at the same time."""
    threading.stack_size(1 << 16)
    wait = threading.Event()
    found = 1
    try:
        while found <= TASKS:
            threading.Thread(target=wait.wait, daemon=True).start()
            found += 1
    except RuntimeError:
        pass
    wait.set()
    return found


if __name__ == "__main__":
    signal.alarm(60)
    main(sys.argv[1:])

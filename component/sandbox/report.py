"""What the kernel and the rights of this service guarantee about confined processes.

Each guarantee is found by an attempt to break it, in a process that is confined:
`python -m component.sandbox.report WHAT…` writes a JSON object of the names of the guarantees, each
true if the attempt was stopped. That a system call for a confinement succeeded says little; that an
escape fails says what is needed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import anyio
import msgspec
import structlog

from component.sandbox.launch import confined_command
from component.sandbox.profile import ConfinementError, Limits, Profile
from component.sandbox.program import run_program

_log = structlog.get_logger("component.sandbox")

_PROBE_S: Final = 60.0
_MOST_SAID: Final = 65_536
_TEXTS: Final = {
    "files": (True, "read and change only the files of their profile"),
    "network": (True, "open no sockets without a declaration"),
    "others": (True, "read nothing of other processes"),
    "signals": (True, "send no signals to other processes"),
    "fork": (True, "start no processes without a declaration"),
    "privileges": (True, "gain no privileges"),
    "memory": (True, "use no more memory than allowed"),
    "ports": (False, "connect only to declared TCP ports"),
    "tasks": (False, "have no more threads and processes than allowed"),
    "space": (False, "fill no more of the disk than allowed"),
    "names": (False, "see no names and sizes of other files"),
    "user": (False, "have a user id of their own"),
}

_MEMORY: Final = 256 << 20
_TASKS: Final = 24
_WORK: Final = 4 << 20
"""The limits with which it is run: bytes, tasks, bytes."""


class Guarantee(msgspec.Struct, frozen=True):
    """Something that confined processes cannot do here.

    Attributes:
        holds: whether it holds on this kernel, with the rights of this service.
        needed: whether code that is not trusted must not run without it.
        text: what confined processes do, after "they".
    """

    name: str
    holds: bool
    needed: bool
    text: str


class ConfinementReport(msgspec.Struct, frozen=True):
    """What holds here. `problem` says why nothing can be confined at all, or is empty."""

    guarantees: tuple[Guarantee, ...] = ()
    problem: str = ""

    @property
    def missing(self) -> tuple[Guarantee, ...]:
        """The guarantees that do not hold."""
        return tuple(one for one in self.guarantees if not one.holds)

    @property
    def safe(self) -> bool:
        """Whether code that is not trusted may run."""
        return not self.problem and not any(one.needed for one in self.missing)


async def confinement_report() -> ConfinementReport:
    """Try to break each guarantee, and return which hold."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        secret, work = directory / "secret", directory / "work"
        secret.write_text("secret")
        work.mkdir()
        given = [str(secret), str(os.getpid()), str(os.getuid())]
        limits = Limits(memory=_MEMORY, tasks=_TASKS, work_bytes=_WORK)
        try:
            found = await _probed(Profile(work=str(work), limits=limits), given)
        except ConfinementError as error:
            return ConfinementReport(problem=str(error))
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        ports: list[int] = [server.getsockname()[1] for server in servers]
        with contextlib.suppress(ConfinementError):  # a kernel that knows no ports refuses
            profile = Profile(network="tcp", ports=(ports[0],))
            found |= await _probed(profile, [*given, *map(str, ports)])
    return ConfinementReport(
        tuple(
            Guarantee(name, found.get(name, False), needed, text)
            for name, (needed, text) in _TEXTS.items()
        )
    )


async def log_confinement() -> None:
    """Log what confined processes could do here, once when the service starts."""
    report = await confinement_report()
    if report.problem:
        _log.error("no process can be confined", reason=report.problem)
    for one in report.missing:
        write = _log.error if one.needed else _log.warning
        write("a confined process is not bounded here", lacks=one.text)


async def _probed(profile: Profile, arguments: Sequence[str]) -> dict[str, bool]:
    python = [sys.executable, "-I", "-m", "component.sandbox.report"]
    with anyio.move_on_after(_PROBE_S):
        command = confined_command(profile, [*python, *arguments])
        ended = await run_program(command, most=_MOST_SAID)
        try:
            return msgspec.json.decode(ended.output, type=dict[str, bool])
        except msgspec.MsgspecError:
            reason = ended.errors.decode(errors="replace").strip()[-300:]
            raise ConfinementError(reason or f"the probe ended with {ended.code}") from None
    raise ConfinementError(f"the probe did not end within {_PROBE_S:g} s")


# What follows runs confined.


def _main(arguments: Sequence[str]) -> None:
    """Try everything, with a file that it must not read, the process to signal, and two ports."""
    secret, process, user = arguments[0], int(arguments[1]), int(arguments[2])
    ports = [int(port) for port in arguments[3:]]
    if ports:
        found = {"ports": _connects(ports[0]) and not _connects(ports[1])}
    else:
        found = {
            "files": _fails(lambda: os.open(secret, os.O_RDONLY)),
            "names": _fails(Path(secret).stat),
            "others": _fails(lambda: os.open(f"/proc/{process}/environ", os.O_RDONLY)),
            "network": not any(map(_socket, _SOCKETS)),
            "signals": _fails(lambda: os.kill(process, 0)),
            "fork": _fails(_fork),
            "privileges": _no_privileges(),
            "user": os.getuid() != user,
            "memory": _fails(lambda: bytearray(_MEMORY)),
            "space": _fails(_fill),
            "tasks": _threads() <= _TASKS,
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
    for number in range(2 * _WORK >> 20):
        Path(os.environ["TMPDIR"], str(number)).write_bytes(bytes(1 << 20))


def _threads() -> int:
    threading.stack_size(1 << 16)
    wait = threading.Event()
    found = 1
    try:
        while found <= _TASKS:
            threading.Thread(target=wait.wait, daemon=True).start()
            found += 1
    except RuntimeError:
        pass
    wait.set()
    return found


if __name__ == "__main__":
    signal.alarm(60)
    _main(sys.argv[1:])

"""What the kernel and the rights of this service guarantee about confined processes.

Each guarantee is found by an attempt to break it, in a process that is confined.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio
import msgspec
import structlog

from component.sandbox import probe
from component.sandbox.launch import confined_command
from component.sandbox.profile import ConfinementError, Limits, Profile

_log = structlog.get_logger("component.sandbox")

_PROBE_S: Final = 60.0
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


class Guarantee(msgspec.Struct, frozen=True):
    """Something that confined processes cannot do here.

    Attributes:
        name: identifies it.
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
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        secret, work = _made(Path(directory))
        given = [str(secret), str(os.getpid()), str(os.getuid())]
        limits = Limits(memory=probe.MEMORY, tasks=probe.TASKS, work_bytes=probe.WORK)
        try:
            found = await _probed(Profile(work=str(work), limits=limits), given)
        except ConfinementError as error:
            return ConfinementReport(problem=str(error))
        ports = [str(_listening(stack)) for _ in range(2)]
        with contextlib.suppress(ConfinementError):  # a kernel that knows no ports refuses
            found |= await _probed(Profile(network="tcp", ports=(int(ports[0]),)), given + ports)
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
    """Run the probe. Raises ConfinementError if it cannot be confined."""
    python = [sys.executable, "-I", "-m", "component.sandbox.probe"]
    with anyio.move_on_after(_PROBE_S):
        done = await anyio.run_process(
            confined_command(profile, [*python, *arguments]),
            check=False,
            env={},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return msgspec.json.decode(done.stdout, type=dict[str, bool])
        except msgspec.MsgspecError:
            reason = done.stderr.decode(errors="replace").strip()[-300:]
            raise ConfinementError(reason or f"the probe ended with {done.returncode}") from None
    raise ConfinementError(f"the probe did not end within {_PROBE_S:g} s")


def _made(directory: Path) -> tuple[Path, Path]:
    """Make a file that must not be read, and a working directory."""
    secret, work = directory / "secret", directory / "work"
    secret.write_text("secret")
    work.mkdir()
    return secret, work


def _listening(stack: contextlib.ExitStack) -> int:
    import socket  # noqa: PLC0415 - only here

    server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    port: int = server.getsockname()[1]
    return port

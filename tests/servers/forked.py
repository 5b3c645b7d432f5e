"""Services as forks of a process that has imported what they need (`forking.py`).

Each is a process as the program is: it has its own group, directory, environment and streams.
"""

import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

_PARENT: Final = Path(__file__).with_name("forking.py")


class _Parent:
    """The process that forks; it ends with ours."""

    def __init__(self) -> None:
        self._orders, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_PARENT)],
                stdin=its.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._one_at_a_time = threading.Lock()

    def do(self, streams: Sequence[int] = (), **order: object) -> int:
        with self._one_at_a_time:
            packet = json.dumps(order).encode()
            socket.send_fds(self._orders, [packet], streams)
            answer = self._orders.recv(100)
        assert answer, "the process that forks has ended"
        return int(answer)

    def close(self) -> None:
        self._orders.close()
        self._process.wait()


@functools.cache
def _parent() -> _Parent:
    return _Parent()


def close() -> None:
    """End the process that forks, if there is one."""
    if _parent.cache_info().currsize:
        _parent().close()
        _parent.cache_clear()


class Forked:
    """A service that was started; what tests do with `subprocess.Popen` they do with this."""

    def __init__(
        self, words: Sequence[str], directory: Path, environment: Mapping[str, str]
    ) -> None:
        (out, its_out), (err, its_err) = os.pipe(), os.pipe()
        self._parent = _parent()
        try:
            self.pid = self._parent.do(
                (its_out, its_err),
                words=[str(word) for word in words],
                directory=str(directory),
                environment=dict(environment),
            )
        finally:
            os.close(its_out)
            os.close(its_err)
        self._end = os.pidfd_open(self.pid)
        weakref.finalize(self, os.close, self._end)
        self._code: int | None = None
        self._reaping = threading.Lock()
        self.stdout: IO[str] | None = os.fdopen(out, encoding="utf-8")
        self.stderr: IO[str] | None = os.fdopen(err, encoding="utf-8")

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; return the exit code. Raises subprocess.TimeoutExpired."""
        if not select.select([self._end], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("xmpp-agent", timeout or 0)
        with self._reaping:
            if self._code is None:
                self._code = self._parent.do(ends=self.pid)
            return self._code

    def wait_stopped(self) -> None:
        """Wait until a SIGSTOP has arrived."""
        self._parent.do(stops=self.pid)

    def send_signal(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

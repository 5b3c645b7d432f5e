"""A command in a pseudoterminal: what a person types, sees, and has afterwards."""

import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.servers.watchdog import Watchdog

LIMIT_S = 120.0
INTERRUPT, END_OF_INPUT = "\x03", "\x04"
_CONTROLLED = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell ignores it for what runs in the background
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class PseudoTerminal:
    """Runs `command` with the pseudoterminal as its controlling terminal, within the context."""

    def __init__(self, *command: str | Path, env: Mapping[str, str] | None = None) -> None:
        self._command = [sys.executable, "-c", _CONTROLLED, *map(str, command)]
        self._env = env
        self._unread = ""
        self.shown = ""

    def __enter__(self) -> Self:
        self._ours, self._theirs = pty.openpty()
        self._modes = termios.tcgetattr(self._theirs)
        self._process = subprocess.Popen(
            self._command,
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            env=self._env,
            start_new_session=True,
        )
        self._watchdog = Watchdog(self._process.pid)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._watchdog.kill_group()
        self._process.wait()
        os.close(self._ours)
        os.close(self._theirs)

    def until(self, text: str) -> None:
        """Wait until the text is shown, after what was waited for before."""
        deadline = time.monotonic() + LIMIT_S
        while text not in self._unread:
            assert time.monotonic() < deadline, f"no {text!r} in {self.shown!r}"
            has_ended = self._process.poll() is not None
            if select.select([self._ours], [], [], 0.5)[0]:
                self._read()
            else:
                assert not has_ended, f"no {text!r} before the end: {self.shown!r}"
        self._unread = self._unread.partition(text)[2]

    def types(self, text: str | bytes, after: str) -> None:
        """Type the text when `after` is shown."""
        self.until(after)
        os.write(self._ours, text if isinstance(text, bytes) else text.encode())

    def ends(self) -> int:
        """Wait for the end; return the exit code. The terminal is as it was before, and the next
        line that is typed is there for the shell.
        """
        code = self._process.wait(LIMIT_S)
        os.write(self._ours, b"next\n")
        while "next" not in self._unread:  # the echo comes after all that the command wrote
            self._read()
        assert os.read(self._theirs, 100) == b"next\n"
        modes: list[Any] = termios.tcgetattr(self._theirs)
        assert modes == self._modes
        return code

    def _read(self) -> None:
        text = os.read(self._ours, 4096).decode(errors="replace").replace("\r\n", "\n")
        self.shown += text
        self._unread += text

"""profanity, a client for people, in a terminal of its own: the tests type, and read its screen."""

import errno
import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import termios
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
from anyio import to_thread

LIMIT = 60.0  # seconds; a bound for a busy machine, not an expectation
_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[()][0-9A-Za-z]|[=>78M])")


class Profanity:
    """Keeps everything below `directory`, so that nobody's own settings or contacts are touched."""

    def __init__(self, directory: Path) -> None:
        program = shutil.which("profanity")
        assert program, "profanity is missing: apt-get install profanity"
        self._program = program
        self._directory = directory
        self._screen = b""

    async def __aenter__(self) -> Self:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 120, 200, 0, 0))
        home = str(self._directory)
        environment = {
            "HOME": home,
            "XDG_CONFIG_HOME": f"{home}/config",
            "XDG_DATA_HOME": f"{home}/data",
            "PATH": os.environ["PATH"],
            "TERM": "vt100",
            "LC_ALL": "C.UTF-8",
        }
        self._terminal = ours
        self._process = subprocess.Popen(  # noqa: ASYNC220 - it returns at once
            [self._program],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            cwd=home,
            start_new_session=True,
        )
        os.close(theirs)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(self._process.wait)
        os.close(self._terminal)

    async def types(self, line: str, *, until: str = "") -> None:
        """Type a line and, if asked to, wait until a match of `until` was written."""
        os.write(self._terminal, line.encode() + b"\r")
        if until:
            await self.shows(until)

    async def shows(self, pattern: str) -> None:
        """Wait until a match was written to the screen since the last one."""
        with anyio.move_on_after(LIMIT):
            while (found := re.search(pattern, self._text())) is None:
                await anyio.wait_readable(self._terminal)
                try:
                    self._screen += os.read(self._terminal, 65536)
                except OSError as gone:
                    if gone.errno != errno.EIO:
                        raise
                    break
            else:
                self._screen = self._text()[found.end() :].encode()
                return
        raise AssertionError(f"profanity did not show {pattern!r} but: {self._text()[-4000:]}")

    def _text(self) -> str:
        return _SEQUENCE.sub(b" ", self._screen).decode(errors="replace")

"""The process of a local model, as the service sees it: started, told, heard, ended."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio
import msgspec

_WORKER = Path(__file__).with_name("local_worker.py")
_READ_BYTES = 1 << 16
_CHATTER_BYTES = 1 << 20
_ENDING_S = 10


class WorkerProcess:
    """A running process that answers. Not for several tasks at once.

    Starting it takes some milliseconds and loads nothing yet. It is gone after `end`, and with
    this process at the latest.
    """

    def __init__(self) -> None:
        # A file, not a pipe: nobody has to read it for the process to go on.
        self._chatter = tempfile.TemporaryFile("a+b")  # noqa: SIM115 closed by `end`
        self._process = subprocess.Popen(  # noqa: S603 our own script
            [sys.executable, "-P", str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._chatter,
            start_new_session=True,  # Ctrl-C is for the service, which then ends this one
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        self._heard = b""

    async def say(self, message: dict[str, Any]) -> None:
        """Send one message whole, even if cancelled; the process always reads.

        Raises BrokenPipeError: it is gone.
        """
        rest = memoryview(msgspec.json.encode(message) + b"\n")
        with anyio.CancelScope(shield=True):
            while rest:
                try:
                    rest = rest[os.write(self._in, rest) :]
                except BlockingIOError:
                    await anyio.wait_writable(self._in)

    async def hear(self) -> dict[str, Any] | None:
        """Wait for the next message; None when the process is gone. Cancelled, it loses nothing."""
        while True:
            line, newline, rest = self._heard.partition(b"\n")
            if newline:
                self._heard = rest
                said: dict[str, Any] = msgspec.json.decode(line)
                return said
            await anyio.wait_readable(self._out)
            if not (data := os.read(self._out, _READ_BYTES)):
                return None
            self._heard += data

    def chatter(self) -> list[str]:
        """Give the lines that llama.cpp has printed since the last call."""
        self._chatter.seek(0)
        lines = self._chatter.read(_CHATTER_BYTES).decode(errors="replace").splitlines()
        self._chatter.truncate(0)
        return lines

    def kill(self) -> None:
        """Make it end now; whoever hears it hears that it is gone."""
        self._process.kill()

    def end(self, *, gone: bool = False) -> signal.Signals | None:
        """Make it end and give back all it had, which waits for it.

        With `gone` it is ending by itself; what signal ended it is told, if one did.
        """
        with self._process, self._chatter:
            if gone:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_ENDING_S)
            self._process.kill()
            code = self._process.wait()
        return signal.Signals(-code) if gone and code < 0 else None

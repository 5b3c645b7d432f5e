"""The process of a local model, as the service sees it: started, ready, ended."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from component.unix_sockets import UnixStream

_SCRIPT: Final = Path(__file__).with_name("local_server.py")
_OUTPUT_BYTES: Final = 1 << 20
_ENDING_S: Final = 10.0
_RESPONSE_S: Final = 30.0
_SOCKET_BYTES: Final = 80
"""Maximum length of the directory: the path of a socket has at most 107 bytes (unix(7))."""
_BROKEN: Final = (OSError, anyio.EndOfStream, anyio.BrokenResourceError)
_ALIVE: Final = b"GET /slots HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


class ServerProcess:
    """llama.cpp's server in its own process. It must not be used by several tasks at the same time.

    Starting it takes some milliseconds; it then loads the model. It exits when this process does.

    Attributes:
        socket: the path of the Unix socket on which it serves HTTP. Its directory is new and can
            be entered by this user only.

    Args:
        config: the arguments of `local_server`, without `socket`.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        parent = tempfile.gettempdir()
        if len(os.fsencode(parent)) > _SOCKET_BYTES:
            parent = "/tmp"  # noqa: S108 - mkdtemp makes a directory that nobody else can enter
        self._directory = tempfile.mkdtemp(prefix="llama-", dir=parent)
        self.socket = f"{self._directory}/http.sock"
        # A file instead of a pipe, so that the process never blocks if nobody reads.
        self._output = tempfile.TemporaryFile("a+b")  # noqa: SIM115 - closed by `end`
        argument = msgspec.json.encode({**config, "socket": self.socket})
        self._process = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, "-P", str(_SCRIPT), argument],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._output,
            start_new_session=True,  # Ctrl-C is for the service, which then ends this process
        )
        assert self._process.stdout is not None
        self._stdout = self._process.stdout.fileno()
        self.pid = self._process.pid

    async def ready(self) -> bool:
        """Wait until it serves the model; False if it exits instead. Can be called again if it was
        cancelled.
        """
        await anyio.wait_readable(self._stdout)
        return bool(os.read(self._stdout, 1))

    async def responds(self) -> bool:
        """Whether the model's own loop responds within some seconds: `/slots` is answered by it,
        between two batches of tokens.
        """
        with anyio.move_on_after(_RESPONSE_S), contextlib.suppress(*_BROKEN):
            async with await UnixStream.connect(self.socket) as stream:
                await stream.send(_ALIVE)
                return bool(await stream.receive())
        return False

    def output(self) -> list[str]:
        """The lines that llama.cpp has printed since the last call."""
        self._output.seek(0)
        lines = self._output.read(_OUTPUT_BYTES).decode(errors="replace").splitlines()
        self._output.truncate(0)
        return lines

    def kill(self) -> None:
        """Kill it. Does not wait."""
        self._process.kill()

    def end(self, *, broken: bool = False) -> int | None:
        """Kill the process, and free its resources. Blocks until it has exited.

        With `broken` the process has some seconds to exit by itself. If it does, this returns its
        exit code, or the negative number of the signal that killed it.
        """
        code = None
        with self._process, self._output:
            if broken:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = self._process.wait(_ENDING_S)
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)
        return code


def signal_of(code: int | None) -> signal.Signals | None:
    """Return the signal in an exit code, if the process was killed by one."""
    return signal.Signals(-code) if code is not None and code < 0 else None

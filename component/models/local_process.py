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

from component.models.answer_limits import EVENT_BYTES, TooMuchError
from component.models.chat_wire import Function
from component.models.tolerant_json import decode_as

_WORKER = Path(__file__).with_name("local_worker.py")
_READ_BYTES = 1 << 16
_CHATTER_BYTES = 1 << 20
_ENDING_S = 10
_TAKING_S = 30


class LocalCall(Function):
    """A tool call of a local model, whole."""

    id: str = ""


class End(msgspec.Struct):
    """How an answer ended.

    `finish` is the reason of chat completions, `usage` its counts. If it did not come to an end:
    `over` is the number of tokens of a question that is too long, `error` the reason of any other
    failure.
    """

    finish: str | None = None
    usage: Any = None
    calls: list[LocalCall] = []
    over: int | None = None
    error: str | None = None


class Heard(msgspec.Struct):
    """One message of the process; `local_worker` says which there are."""

    ready: bool = False
    refused: str | None = None
    id: int | None = None
    text: str | None = None
    end: End | None = None


_decoder = msgspec.json.Decoder(Heard)


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
        self._heard = bytearray()
        self._looked = 0  # bytes of it in which no line ends

    async def say(self, message: dict[str, Any]) -> None:
        """Send one message whole, even if cancelled. One that does not take it in time is killed.

        Raises BrokenPipeError: it is gone.
        """
        rest = memoryview(msgspec.json.encode(message) + b"\n")
        with anyio.move_on_after(_TAKING_S, shield=True):
            while rest:
                try:
                    rest = rest[os.write(self._in, rest) :]
                except BlockingIOError:
                    await anyio.wait_writable(self._in)
            return
        self.kill()
        raise BrokenPipeError

    async def hear(self) -> Heard | None:
        """Wait for the next message; None when the process is gone. Cancelled, it loses nothing.

        Raises TooMuchError or BadJSONError: it does not keep to the protocol, and is of no use.
        """
        while True:
            end = self._heard.find(b"\n", self._looked)
            if end >= 0:
                line = bytes(self._heard[:end])
                del self._heard[: end + 1]
                self._looked = 0
                return decode_as(_decoder, line)
            self._looked = len(self._heard)
            if self._looked > EVENT_BYTES:
                raise TooMuchError(f"a line of more than {EVENT_BYTES:,} bytes")
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

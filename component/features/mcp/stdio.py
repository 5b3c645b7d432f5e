"""An MCP server in a child process that speaks on its standard input and output: one JSON-RPC
message on each line (MCP 2025-11-25, Transports, stdio).

The SDK has such a transport too. This one bounds the length of a line, ignores output that is not a
message, and keeps the last lines of the error output for the log.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import structlog
from anyio.abc import Process
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from component.features.mcp.errors import ServerFailed
from component.features.mcp.guard import MOST_DEPTH
from component.sandbox.launch import confined_command
from component.sandbox.process import signal_name
from component.sandbox.profile import ConfinementError, Limits, Profile
from component.skills.foreign_texts import line
from xep.binding.json_bounds import MOST_VALUES_OUTSIDE, TooManyValuesError, checked_json

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from component.features.mcp.guard import Streams
    from component.features.mcp.settings import McpServer

_log = structlog.get_logger("component.features.mcp")

_GRACE_S: Final = 2.0
"""Seconds for a server to end after its input is closed, and again after SIGTERM."""
_CPU_S: Final = 3600
_TASKS: Final = 64
_FILES: Final = 1024  # Node.js opens all modules at the same time
_CHUNK: Final = 65_536
_ERROR_LINES: Final = 20
_LONGEST_LINE: Final = 300
_MOST_GARBAGE: Final = 200
"""Number of lines in a row that are not messages, after which the connection is closed."""


async def launch(entry: McpServer, home: str) -> Process:
    """Start the program of a server confined, in a session of its own; `home` is its working
    directory.

    Raises OSError, ValueError and ConfinementError.
    """
    env = {name: value.get_secret_value() for name, value in entry.env.items()}
    command = confined_command(_profile(entry, home), entry.command)
    return await anyio.open_process(command, env=env, start_new_session=True)


def _profile(entry: McpServer, home: str) -> Profile:
    return Profile(
        read=(*map(str, entry.readable), *installed_at(entry.command[0])),
        write=tuple(map(str, entry.writable)),
        work=home,
        environment=tuple(entry.env),
        network="any" if entry.network else "none",
        processes=entry.processes,
        # It lives as long as it is used; Node.js reserves more addresses than it uses.
        limits=Limits(
            memory=entry.memory_bytes, address_space=False, cpu_s=_CPU_S, tasks=_TASKS, files=_FILES
        ),
    )


def installed_at(name: str) -> Iterator[str]:
    """Yield the directories of a program that it must read: its environment of Python with the
    interpreter, or its packages of Node.js.
    """
    found = shutil.which(name)
    if found is None:
        return
    for path in {Path(found).absolute(), Path(found).resolve()}:
        folder = path.parent
        if (folder.parent / "pyvenv.cfg").exists():
            yield str(folder.parent)
            yield str((folder / "python").resolve().parent.parent)
        modules = [above for above in path.parents if above.name == "node_modules"]
        yield str(modules[-1] if modules else path)


@asynccontextmanager
async def stdio_streams(server: str, entry: McpServer) -> AsyncIterator[Streams]:
    """Start a server, and yield the streams of its messages. At the end it is stopped.

    The stream of received messages ends with a ServerFailed as an item, which says why. Raises
    ServerFailed if the program cannot be started.
    """
    async with AsyncExitStack() as stack:
        home = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="mcp-", ignore_cleanup_errors=True)
        )
        try:
            process = await launch(entry, home)
        except (OSError, ValueError, ConfinementError) as error:
            raise ServerFailed(f"{entry.command[0]} cannot be started: {error}") from error
        child = _Child(server, process, entry.max_message_bytes)
        stack.push_async_callback(child.stop)
        received, receive = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        send, sent = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as group:
            group.start_soon(child.read, received)
            group.start_soon(child.write, sent)
            group.start_soon(child.read_errors)
            try:
                yield receive, send
            finally:
                group.cancel_scope.cancel()
                for stream in (received, receive, send, sent):
                    stream.close()


class _Child:
    def __init__(self, server: str, process: Process, longest: int) -> None:
        self._server = server
        self._process = process
        self._longest = longest
        self._errors: deque[str] = deque(maxlen=_ERROR_LINES)
        self._garbage = 0

    async def read(self, received: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Pass on the messages that the server writes, then the reason why there are no more."""
        reason = ""
        try:
            async with aclosing(self._lines()) as lines:
                async for text in lines:
                    message = self._message(text)
                    if message is not None:
                        await received.send(message)
        except ServerFailed as error:
            reason = str(error)
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await received.send(ServerFailed(reason or await self._exit()))
        received.close()

    async def _lines(self) -> AsyncGenerator[bytes, None]:
        assert self._process.stdout is not None
        rest = bytearray()
        while True:
            try:
                chunk = await self._process.stdout.receive(_CHUNK)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return
            begin = len(rest)
            rest += chunk
            while (end := rest.find(b"\n", begin)) >= 0:
                text = bytes(rest[:end])
                del rest[: end + 1]
                begin = 0
                if len(text) > self._longest:
                    break
                yield text
            else:
                if len(rest) <= self._longest:
                    continue
            raise ServerFailed(f"it sent a message of more than {self._longest} bytes")

    def _message(self, text: bytes) -> SessionMessage | None:
        if not text.strip():
            return None
        try:
            checked_json(text, MOST_VALUES_OUTSIDE, MOST_DEPTH)
            message = SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
        except TooManyValuesError:
            most = f"{MOST_VALUES_OUTSIDE} values"
            raise ServerFailed(f"it sent a message of more than {most}") from None
        except ValueError:
            self._garbage += 1
            if self._garbage == 1:
                shown = line(text[:1000].decode(errors="replace"), _LONGEST_LINE)
                _log.warning(
                    "an MCP server writes lines that are not messages",
                    server=self._server,
                    line=shown,
                )
            if self._garbage > _MOST_GARBAGE:
                raise ServerFailed("it writes lines that are not messages") from None
            return None
        self._garbage = min(self._garbage, 1)
        return message

    async def _exit(self) -> str:
        """Return how the server ended, which has closed its output."""
        with anyio.move_on_after(_GRACE_S):
            await self._process.wait()
        code = self._process.returncode
        if code is None:
            return "it closed its output"
        errors = [each for each in self._errors if "rror" in each] or list(self._errors)
        said = f": {errors[-1]}" if errors else ""
        if code < 0:
            return f"it was ended by {signal_name(-code)}{said}"
        return f"it ended with exit code {code}{said}"

    async def write(self, sent: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Write messages to the server."""
        assert self._process.stdin is not None
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            async for one in sent:
                text = one.message.model_dump_json(by_alias=True, exclude_unset=True)
                await self._process.stdin.send(text.encode(errors="replace") + b"\n")
        sent.close()

    async def read_errors(self) -> None:
        """Keep the last lines of the server's error output."""
        assert self._process.stderr is not None
        rest = b""
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for chunk in self._process.stderr:
                *lines, rest = (rest + chunk[-_CHUNK:])[-_CHUNK:].split(b"\n")
                for each in lines[-_ERROR_LINES:]:
                    if text := line(each[:1000].decode(errors="replace"), _LONGEST_LINE):
                        self._errors.append(text)

    async def stop(self) -> None:
        """End the process, and all that it has started in its session."""
        process = self._process
        with anyio.CancelScope(shield=True):
            assert process.stdin is not None
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                await process.stdin.aclose()
            for sent in (None, signal.SIGTERM, signal.SIGKILL):
                if sent is not None:
                    _kill(process.pid, sent)
                with anyio.move_on_after(_GRACE_S):
                    await process.wait()
                if process.returncode is not None:
                    break
            _kill(process.pid, signal.SIGKILL)  # what it has started and left behind
            with anyio.move_on_after(_GRACE_S), suppress(OSError, anyio.BrokenResourceError):
                await process.aclose()


def _kill(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)

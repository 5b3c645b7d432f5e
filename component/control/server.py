"""The server of the control socket."""

import contextlib
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus
from anyio.streams.buffered import BufferedByteReceiveStream

from component.commands import OPERATOR, CommandError, Commands
from component.control.client import (
    MAX_REQUEST_BYTES,
    ControlAnswer,
    ControlError,
    ControlRequest,
    socket_path,
)
from component.store import StorageError
from component.unix_sockets import UnixStream, listen, serve

_log = structlog.get_logger("component.control")

_MOST_CLIENTS = 8
_DECODER = msgspec.json.Decoder(ControlRequest)
_UCRED = struct.Struct("3i")  # pid, uid, gid


def may_control(uid: int) -> bool:
    """Return whether a user may control this service: the one it runs as, and root."""
    return uid in (0, os.geteuid())


def peer_uid(sock: socket.socket) -> int:
    """Return the user id of the process that connected, as the kernel knows it."""
    _, uid, _ = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return int(uid)


class ControlServer:
    """Runs the operator's commands for local processes of the same user.

    Args:
        directory: the data directory, whose lock this process holds.
        idle_s: seconds that a client may take to send a request, or to read an answer.
        command_s: seconds that a command may take.
        may_connect: returns whether a user id is served.
        digest: returns the digest of the settings of the service.
    """

    def __init__(
        self,
        directory: Path,
        commands: Commands,
        *,
        idle_s: float = 30.0,
        command_s: float = 60.0,
        may_connect: Callable[[int], bool] = may_control,
        digest: Callable[[], str] = str,
    ) -> None:
        self._directory = directory
        self._commands = commands
        self._idle_s = idle_s
        self._command_s = command_s
        self._may_connect = may_connect
        self._digest = digest
        self._clients = 0

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled.

        Raises ControlError if the socket cannot be created.
        """
        try:
            with socket_path(self._directory) as path:
                # A socket that an earlier process left behind is replaced: it has no other owner,
                # because this process holds the lock of the directory.
                listener = listen(path, mode=0o600)
        except OSError as error:
            raise ControlError(
                f"The control socket in {self._directory} cannot be made:"
                f" {error.strerror or error}. Remove the file in its place, or correct the"
                " permissions of the directory."
            ) from error
        try:
            with listener:
                task_status.started()
                await serve(listener, self._serve)
        finally:
            with contextlib.suppress(OSError), socket_path(self._directory) as path:
                Path(path).unlink(missing_ok=True)  # noqa: ASYNC240 - one name, and we are leaving

    async def _serve(self, stream: UnixStream) -> None:
        async with stream:
            uid = peer_uid(stream.socket)
            if not self._may_connect(uid):
                _log.warning("rejected a process of another user", uid=uid)
                return
            if self._clients >= _MOST_CLIENTS:
                await self._send(stream, ControlAnswer(error="Too many clients. Try again later."))
                return
            self._clients += 1
            try:
                await self._talk(stream)
            except (anyio.BrokenResourceError, OSError) as error:  # includes TimeoutError
                _log.debug("a client disconnected", reason=str(error))
            finally:
                self._clients -= 1

    async def _talk(self, stream: UnixStream) -> None:
        received = BufferedByteReceiveStream(stream)
        while True:
            try:
                with anyio.fail_after(self._idle_s):
                    line = await received.receive_until(b"\n", MAX_REQUEST_BYTES)
            except anyio.IncompleteRead:
                return
            except anyio.DelimiterNotFound:
                text = f"A request has at most {MAX_REQUEST_BYTES} bytes and ends with a line feed."
                await self._send(stream, ControlAnswer(error=text))
                return
            answer = await self._answer(line)
            await self._send(stream, msgspec.structs.replace(answer, settings=self._digest()))

    async def _send(self, stream: UnixStream, answer: ControlAnswer) -> None:
        with anyio.fail_after(self._idle_s):
            await stream.send(msgspec.json.encode(answer) + b"\n")

    async def _answer(self, line: bytes) -> ControlAnswer:
        try:
            request = _DECODER.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            return ControlAnswer(error=f"The request cannot be read: {error}.")
        try:
            with anyio.fail_after(self._command_s):
                return await run_command(self._commands, request)
        except TimeoutError:
            return ControlAnswer(error="The command exceeded its time limit.")
        except Exception:  # noqa: BLE001 - a fault of one command must not end the service
            _log.exception("a command failed", command=request.command)
            return ControlAnswer(
                error="The command failed because of an internal error; see the log."
            )


async def run_command(commands: Commands, request: ControlRequest) -> ControlAnswer:
    """Run a command for the operator; its result or error becomes the answer."""
    command = commands.get(request.command, OPERATOR)
    if command is None:
        return ControlAnswer(
            error=f"The running service has no command {request.command[:40]!r}: its settings do"
            " not turn on the feature that has it. Commands about agents, conversations and"
            " budgets need [llm], those about installed skills [skills] directories.",
            unknown=True,
        )
    try:
        answer = await command.run(OPERATOR, command.read(json=bytes(request.params)))
    except CommandError as error:
        return ControlAnswer(error=str(error), param=error.param)
    except StorageError as error:
        return ControlAnswer(error=str(error))
    return ControlAnswer(answer.text, msgspec.Raw(msgspec.json.encode(answer.value)))

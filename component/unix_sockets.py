"""Streams over Unix sockets, by readiness events.

anyio's own streams over Unix sockets lose a race on asyncio: if a read is cancelled in the pass of
the loop in which its socket becomes readable, the loop logs an InvalidStateError with a traceback
(anyio 4.16, `_RawSocketMixin._wait_until_readable`). `anyio.wait_readable` does not.
"""

import errno
import socket
import stat
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, NoReturn

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream

_BACKLOG: Final = 64
_PAUSE_S: Final = 0.1
"""Seconds to wait when no descriptor is left for a connection."""


class UnixStream(ByteStream):
    """One connection. One task may receive while another sends.

    Args:
        sock: connected; closed by `aclose`.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.socket = sock

    @classmethod
    async def connect(cls, path: str) -> "UnixStream":
        """Connect to the socket at a path. Raises OSError."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        stream = cls(sock)
        try:
            while True:
                await anyio.lowlevel.checkpoint()
                try:
                    sock.connect(path)
                except BlockingIOError:  # the backlog is full (unix(7)), and nothing reports room
                    await anyio.sleep(_PAUSE_S)
                else:
                    return stream
        except BaseException:
            sock.close()
            raise

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Return received bytes; wait for the first one.

        Raises EndOfStream when the peer has closed, BrokenResourceError or ClosedResourceError.
        """
        await anyio.lowlevel.checkpoint()
        while True:
            try:
                data = self.socket.recv(max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self.socket)
            except OSError as error:
                _fail(error)
            else:
                if not data:
                    raise anyio.EndOfStream
                return data

    async def send(self, item: bytes) -> None:
        """Send all bytes. Raises BrokenResourceError or ClosedResourceError."""
        await anyio.lowlevel.checkpoint()
        left = memoryview(item)
        while left:
            try:
                left = left[self.socket.send(left) :]
            except BlockingIOError:
                await anyio.wait_writable(self.socket)
            except OSError as error:
                _fail(error)

    async def send_eof(self) -> None:
        """End the bytes that are sent; the peer can still send."""
        await anyio.lowlevel.checkpoint()
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            _fail(error)

    async def aclose(self) -> None:
        """Close the connection. A task that waits on it gets ClosedResourceError."""
        if self.socket.fileno() != -1:
            anyio.notify_closing(self.socket)
            self.socket.close()
        await anyio.lowlevel.checkpoint()


def listen(path: str, mode: int) -> socket.socket:
    """Return a listening socket at a path, with these permissions. A socket that an earlier process
    has left there is replaced. Raises OSError.
    """
    place = Path(path)
    try:
        if stat.S_ISSOCK(place.stat().st_mode):
            place.unlink()
    except FileNotFoundError:
        pass
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.bind(path)
        place.chmod(mode)  # before anybody can connect
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


async def serve(
    listener: socket.socket, handle: Callable[[UnixStream], Coroutine[Any, Any, None]]
) -> None:
    """Handle each connection in a task of its own, until cancelled. `handle` closes the stream."""
    async with anyio.create_task_group() as tasks:
        while True:
            await anyio.wait_readable(listener)
            try:
                sock, _ = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                continue
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                await anyio.sleep(_PAUSE_S)
            else:
                tasks.start_soon(handle, UnixStream(sock))


def _fail(error: OSError) -> NoReturn:
    if error.errno == errno.EBADF:
        raise anyio.ClosedResourceError from None
    raise anyio.BrokenResourceError from error

"""A TCP or TLS connection without a buffer of its own.

The socket is driven by readiness, so it is the same code on trio and asyncio, and what the kernel
has not taken is still ours: that is what lets the outbox know which stanzas were handed over.
"""

import contextlib
import errno
import os
import socket
import ssl
import struct
from typing import Final, cast

import anyio
import anyio.lowlevel

from component.connection import failure
from component.connection.options import TLS, ConnectionOptions

_RECORD: Final = 16384
"""Most that one TLS record holds (RFC 8446 §5.1)."""


class Transport:
    """One open connection. One task may receive while another sends.

    Args:
        sock: connected, non-blocking; closed by `close`.
        options: what its failures are described by.
    """

    def __init__(self, sock: socket.socket, options: ConnectionOptions) -> None:
        self._socket = sock
        self._tls = sock if isinstance(sock, ssl.SSLSocket) else None
        self._options = options
        self._more = False  # the last read left something behind, as far as we know
        self._record = 0  # size of the TLS record that OpenSSL has begun to send
        self._send_reads = False  # TLS has to read before it can send
        self._waiting: dict[bool, anyio.Event] = {}

    async def receive(self, max_bytes: int) -> bytes:
        """What has arrived, up to ``max_bytes``; waits for the first byte. Empty at the end.

        It always lets other tasks run, and loses nothing when it is cancelled.

        Raises:
            ConnectionFailed: the connection broke.
        """
        if self._more:
            await anyio.lowlevel.checkpoint()
        else:
            # Nearly always nothing is there yet: waiting first saves a system call that fails.
            await self._ready(readable=True)
        while True:
            try:
                data = self._socket.recv(max_bytes)
            except (BlockingIOError, InterruptedError, ssl.SSLWantReadError):
                await self._ready(readable=True)
            except ssl.SSLWantWriteError:
                await self._ready(readable=False)
            except OSError as error:
                raise failure.lost(self._options, error) from error
            else:
                break
        self._more = len(data) == max_bytes or (self._tls is not None and self._tls.pending() > 0)
        return data

    def receive_now(self, max_bytes: int) -> bytes | None:
        """What has arrived, up to ``max_bytes``; None if nothing has. Empty at the end.

        Raises:
            ConnectionFailed: the connection broke.
        """
        try:
            data = self._socket.recv(max_bytes)
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self._more = False
            return None
        except OSError as error:
            raise failure.lost(self._options, error) from error
        self._more = len(data) == max_bytes or (self._tls is not None and self._tls.pending() > 0)
        return data

    def try_send(self, data: bytes | memoryview) -> int:
        """Hand over what the kernel takes at once; how many bytes that was, 0 if it is full.

        After a short count the next call must begin with the rest: TLS may have begun to send it.

        Raises:
            ConnectionFailed: the connection broke.
        """
        try:
            if self._tls is not None:
                return self._try_send_records(self._tls, memoryview(data))
            return self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise failure.lost(self._options, error) from error

    def _try_send_records(self, tls: ssl.SSLSocket, data: memoryview) -> int:
        sent = 0
        while sent < len(data):
            # A record that was begun has to be offered again in the same size: then its success
            # counts exactly the bytes that left.
            size = self._record or min(_RECORD, len(data) - sent)
            self._record = size
            self._send_reads = False
            try:
                tls.send(data[sent : sent + size])
            except ssl.SSLWantWriteError:
                break
            except ssl.SSLWantReadError:
                self._send_reads = True
                break
            self._record = 0
            sent += size
        return sent

    async def send(self, data: bytes) -> None:
        """Hand over all of ``data``, however long the kernel takes.

        Raises:
            ConnectionFailed: the connection broke.
        """
        rest = memoryview(data)
        while len(rest := rest[self.try_send(rest) :]):
            await self.wait_sendable()

    async def wait_sendable(self) -> None:
        """Wait until `try_send` is worth another attempt."""
        await self._ready(readable=self._send_reads)

    async def _ready(self, *, readable: bool) -> None:
        """Wait for the socket. Under TLS both tasks may have to wait for the same direction: the
        second one then waits for the first, and tries again when it does.
        """
        wait = anyio.wait_readable if readable else anyio.wait_writable
        if self._tls is None:
            await wait(self._socket)
        elif (other := self._waiting.get(readable)) is not None:
            await other.wait()
        else:
            event = self._waiting[readable] = anyio.Event()
            try:
                await wait(self._socket)
            finally:
                del self._waiting[readable]
                event.set()

    @property
    def peer(self) -> str:
        """Address and port at the other end."""
        try:
            host, port = self._socket.getpeername()[:2]
        except OSError:  # it is gone already
            host, port = self._options.host, self._options.port
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def tls_version(self) -> str | None:
        """The version of TLS in use, such as ``TLSv1.3``; None without TLS."""
        return None if self._tls is None else self._tls.version()

    def close(self) -> None:
        """Close, telling a TLS peer so if the kernel takes it. No task may be waiting here.

        What the kernel holds is still delivered. Closing again does nothing.
        """
        if self._tls is not None and self._tls.fileno() != -1 and not self._record:
            # The answer to close_notify is not waited for, and may never come.
            with contextlib.suppress(OSError, ValueError):
                self._tls.unwrap()
        self._socket.close()

    def abort(self) -> None:
        """Close by a reset (RST): the server notices even if it does not read, and what the
        kernel holds is thrown away. No task may be waiting here.
        """
        if self._socket.fileno() != -1:
            linger = struct.pack("ii", 1, 0)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._socket.close()


async def connect(options: ConnectionOptions) -> Transport:
    """Resolve, connect to the first address that answers, and set up TLS if it is asked for.

    Raises:
        ConnectionFailed: ``unresolved``, ``refused``, ``unreachable``, ``timeout`` or ``tls``.
    """
    context = None if options.tls is None else _tls_context(options, options.tls)
    deadline = anyio.current_time() + options.connect_timeout_s
    with anyio.move_on_after(options.connect_timeout_s):
        sock = await _open(options, deadline)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                sock = await _start_tls(sock, context, options)
        except BaseException:
            sock.close()
            raise
        return Transport(sock, options)
    raise failure.connect_timed_out(options)


async def _open(options: ConnectionOptions, deadline: float) -> socket.socket:
    try:
        found = await anyio.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise failure.unresolved(options, error) from error
    last = OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    for tried, (family, kind, protocol, _, address) in enumerate(found):
        # An address that swallows packets must leave time for the others.
        share = (deadline - anyio.current_time()) / (len(found) - tried)
        sock = socket.socket(family, kind, protocol)
        try:
            with anyio.move_on_after(share):
                await _connect_socket(sock, address)
                return sock
        except OSError as error:
            last = error
        except BaseException:
            sock.close()
            raise
        else:
            last = OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        sock.close()
    raise failure.connect_failed(options, last) from last


async def _connect_socket(sock: socket.socket, address: tuple[str, int]) -> None:
    sock.setblocking(False)
    code = sock.connect_ex(address)
    if code == errno.EINPROGRESS:
        await anyio.wait_writable(sock)
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    # A port in the ephemeral range on which nobody listens can be given to this very socket,
    # which then talks to itself.
    if code == 0 and sock.getsockname()[:2] == address[:2]:
        code = errno.ECONNREFUSED
    if code:
        raise OSError(code, os.strerror(code))


def _tls_context(options: ConnectionOptions, tls: TLS) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
    except OSError as error:
        raise failure.tls_failed(options, error) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def _start_tls(
    sock: socket.socket, context: ssl.SSLContext, options: ConnectionOptions
) -> ssl.SSLSocket:
    name = cast("TLS", options.tls).server_name or options.host
    try:
        secured = context.wrap_socket(sock, server_hostname=name, do_handshake_on_connect=False)
    except OSError as error:
        raise failure.tls_failed(options, error) from error
    try:
        while True:
            try:
                secured.do_handshake()
            except ssl.SSLWantReadError:
                await anyio.wait_readable(secured)
            except ssl.SSLWantWriteError:
                await anyio.wait_writable(secured)
            else:
                return secured
    except OSError as error:
        secured.close()
        raise failure.tls_failed(options, error) from error
    except BaseException:
        secured.close()
        raise

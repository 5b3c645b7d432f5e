"""A TCP or TLS connection without its own buffer.

The socket is used with readiness events, so the code is the same on trio and asyncio, and output
that the kernel has not accepted stays with the caller: so the outbox knows which stanzas were sent.
"""

import contextlib
import errno
import os
import socket
import ssl
import struct
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, Final, TypeAlias

import anyio
import anyio.lowlevel
import structlog

from component.config.server import Server
from component.link.connection import failure

_log = structlog.get_logger("component.connection")

_RECORD: Final = 16384
"""The maximum content of one TLS record (RFC 8446 §5.1)."""
READ_BYTES: Final = 65536
"""The maximum number of bytes of one read."""
_UNSENT_BYTES: Final = 65536
"""Bytes that the kernel buffers before they are sent; 4 MiB by default. Their order cannot be
changed any more, so the outbox cannot share the stream fairly while there are many.
"""


class Transport:
    """One open connection. One task may receive while another sends.

    Args:
        sock: connected, non-blocking; closed by `close`.
        server: used to describe failures.
    """

    def __init__(self, sock: socket.socket, server: Server) -> None:
        self._socket = sock
        self._tls = sock if isinstance(sock, ssl.SSLSocket) else None
        self._server = server
        self._more = False  # the last read may have left some input
        self._record = 0  # size of the TLS record that OpenSSL has begun to send
        self._send_reads = False  # TLS has to read before it can send
        self._waiting: dict[bool, anyio.Event] = {}

    async def receive(self, max_bytes: int) -> bytes:
        """Return received bytes, up to ``max_bytes``; wait for the first byte. Empty at the end.

        It always lets other tasks run, and loses nothing when it is cancelled.

        Raises:
            ConnectionFailed: the connection broke.
        """
        if self._more:
            await anyio.lowlevel.checkpoint()
        # There is rarely any input yet: waiting first saves a system call that would fail.
        elif self._tls is None:
            await anyio.wait_readable(self._socket)
        else:
            await self._ready(readable=True)
        while True:
            try:
                data = self._socket.recv(max_bytes)
            except (BlockingIOError, InterruptedError, ssl.SSLWantReadError):
                await self._ready(readable=True)
            except ssl.SSLWantWriteError:
                await self._ready(readable=False)
            except OSError as error:
                raise failure.lost(self._server, error) from error
            else:
                break
        self._more = len(data) == max_bytes or (self._tls is not None and self._tls.pending() > 0)
        return data

    def receive_now(self, max_bytes: int) -> bytes | None:
        """Return received bytes, up to ``max_bytes``; None if there are none. Empty at the end.

        Raises:
            ConnectionFailed: the connection broke.
        """
        try:
            data = self._socket.recv(max_bytes)
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self._more = False
            return None
        except OSError as error:
            raise failure.lost(self._server, error) from error
        self._more = len(data) == max_bytes or (self._tls is not None and self._tls.pending() > 0)
        return data

    def try_send(self, data: bytes | memoryview) -> int:
        """Write as much as the kernel accepts at once; return the number of bytes, 0 if it is full.

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
            raise failure.lost(self._server, error) from error

    def _try_send_records(self, tls: ssl.SSLSocket, data: memoryview) -> int:
        sent = 0
        while sent < len(data):
            # A partly sent record must be offered again with the same size: then its success counts
            # exactly the bytes that were sent.
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
        """Write all of ``data``, however long the kernel takes.

        Raises:
            ConnectionFailed: the connection broke.
        """
        rest = memoryview(data)
        while len(rest := rest[self.try_send(rest) :]):
            await self.wait_sendable()

    async def start_tls(self) -> None:
        """Start TLS on the open connection (RFC 6120 §5). No other task may use it during that.

        Raises:
            ConnectionFailed: ``tls``, or ``timeout`` after the connect time-out.
        """
        server = self._server
        context = _tls_context(server)
        with anyio.move_on_after(server.connect_timeout_s):
            self._socket = self._tls = await _start_tls(self._socket, context, server)
            self._more = False
            return
        raise failure.connect_timed_out(server)

    @property
    def certificate(self) -> bytes | None:
        """The server's certificate (DER); None without TLS."""
        return None if self._tls is None else self._tls.getpeercert(binary_form=True)

    async def wait_sendable(self) -> None:
        """Wait until another `try_send` may succeed."""
        await self._ready(readable=self._send_reads)

    async def _ready(self, *, readable: bool) -> None:
        """Wait for the socket. Under TLS both tasks may have to wait for the same direction: the
        second one then waits for the first, and tries again afterwards.
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
        except OSError:  # it is already closed
            host, port = self._server.host, self._server.port
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def tls_version(self) -> str | None:
        """The version of TLS in use, such as ``TLSv1.3``; None without TLS."""
        return None if self._tls is None else self._tls.version()

    def close(self) -> None:
        """Close the connection, with a TLS close_notify if the kernel accepts it. No task may be
        waiting here.

        What the kernel holds is still delivered. Closing again does nothing.
        """
        if self._tls is not None and self._tls.fileno() != -1 and not self._record:
            # The answer to close_notify is not waited for, and may never come.
            with contextlib.suppress(OSError, ValueError):
                self._tls.unwrap()
        self._socket.close()

    def abort(self) -> None:
        """Reset the connection (RST): the server notices even if it does not read, and what the
        kernel holds is discarded. No task may be waiting here.
        """
        if self._socket.fileno() != -1:
            linger = struct.pack("ii", 1, 0)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._socket.close()


async def connect(server: Server) -> Transport:
    """Resolve the host, connect to the address that answers first, and set up direct TLS if
    configured.

    With `server.srv`, the servers that the domain names are tried in their order.

    Raises:
        ConnectionFailed: ``unresolved``, ``refused``, ``unreachable``, ``timeout`` or ``tls``; of
            several servers, the failure of the last one.
    """
    with anyio.move_on_after(server.connect_timeout_s):
        *others, last = await _targets(server)
        for target in others:
            try:
                return await _connect(target)
            except failure.ConnectionFailed as error:
                _log.info("the next server is tried", host=target.host, reason=str(error))
        return await _connect(last)
    raise failure.connect_timed_out(server)


async def _targets(server: Server) -> list[Server]:
    """Describe each server to try, at least one."""
    if not server.srv:
        return [server]
    from component.link.connection import srv  # noqa: PLC0415 - a component has no SRV records

    domain = server.parent_domain
    try:
        found = await srv.look_up(domain)
    except srv.NotOfferedError as error:
        raise failure.not_offered(domain) from error
    except srv.LookupFailedError as error:
        # The address may resolve by other means, such as /etc/hosts.
        _log.warning("SRV records cannot be looked up", domain=domain, reason=str(error))
        return [server]
    return [
        server.model_copy(
            update={"host": target.host, "port": target.port, "tls": target.direct_tls}
        )
        for target in found
    ] or [server]


async def _connect(server: Server) -> Transport:
    context = _tls_context(server) if server.tls else None
    sock = await _open(server)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # Linux and macOS
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
        if context is not None:
            sock = await _start_tls(sock, context, server)
    except BaseException:
        sock.close()
        raise
    return Transport(sock, server)


async def _open(server: Server) -> socket.socket:
    try:
        found = await anyio.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise failure.unresolved(server, error) from error
    try:
        return await race(found)
    except OSError as error:
        raise failure.connect_failed(server, error) from error


def _tls_context(server: Server) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=server.tls_ca)
    except OSError as error:
        raise failure.tls_failed(server, error) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    if not server.tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def _start_tls(sock: socket.socket, context: ssl.SSLContext, server: Server) -> ssl.SSLSocket:
    name = server.certificate_name
    try:
        secured = context.wrap_socket(sock, server_hostname=name, do_handshake_on_connect=False)
    except OSError as error:
        raise failure.tls_failed(server, error) from error
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
        raise failure.tls_failed(server, error) from error
    except BaseException:
        secured.close()
        raise


AddressInfo: TypeAlias = tuple[Any, Any, int, str, Any]
"""An entry of the result of `socket.getaddrinfo`."""

DELAY_S: Final = 0.25
"""Seconds between one attempt and the next, while none has failed (RFC 8305 §8)."""


async def race(addresses: Iterable[AddressInfo], delay_s: float = DELAY_S) -> socket.socket:
    """Connect to one of the addresses, as returned by `getaddrinfo`; a non-blocking socket.

    Attempts begin one after another in the order of `in_turn`, each ``delay_s`` seconds after the
    one before, or at once when that one fails. The first that succeeds cancels the others.

    Raises:
        OSError: no address took the connection; the error of the last attempt that failed.
    """
    won: list[socket.socket] = []
    last: list[OSError] = [OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))]

    async def attempt(info: AddressInfo, failed: anyio.Event) -> None:
        try:
            sock = await _connect_to(info)
        except OSError as error:
            last.append(error)
            failed.set()
            return
        if won:
            sock.close()  # both answered before the other one could be cancelled
        else:
            won.append(sock)
            tasks.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as tasks:
            for info in in_turn(addresses):
                failed = anyio.Event()
                tasks.start_soon(attempt, info, failed)
                with anyio.move_on_after(delay_s):
                    await failed.wait()
    except BaseException:
        for sock in won:
            sock.close()
        raise
    if not won:
        raise last[-1]
    return won[0]


def in_turn(addresses: Iterable[AddressInfo]) -> Sequence[AddressInfo]:
    """Return the addresses with alternating families, starting with that of the first (RFC 8305
    §4).
    """
    families: dict[object, list[AddressInfo]] = {}
    for info in addresses:
        families.setdefault(info[0], []).append(info)
    return [info for turn in zip_longest(*families.values()) for info in turn if info is not None]


async def _connect_to(info: AddressInfo) -> socket.socket:
    family, kind, protocol, _, address = info
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        code = sock.connect_ex(address)
        if code == errno.EINPROGRESS:
            await anyio.wait_writable(sock)
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        # An ephemeral port on which nobody listens can be assigned to this very socket, which then
        # connects to itself.
        if code == 0 and sock.getsockname()[:2] == address[:2]:
            code = errno.ECONNREFUSED
    except BaseException:
        sock.close()
        raise
    if code:
        sock.close()
        raise OSError(code, os.strerror(code))
    return sock

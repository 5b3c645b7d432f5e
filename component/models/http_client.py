"""The HTTP client for models. Importing this module takes 0.1 seconds."""

import contextlib
import select
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Final

import anyio
import httpcore2
import httpx2
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.tls import TLSStream

from component.models.answer_limits import (
    BODY_BYTES,
    ERROR_BYTES,
    HEADERS,
    PIECE_BYTES,
    PIECES,
    WHOLE_BYTES,
    TooMuchError,
)
from component.unix_sockets import UnixStream

_CONNECTIONS, _IDLE = 1000, 100
_AT_ONCE: Final = 63
"""After this many pieces of a body, and one more, other tasks run: one read of the socket may
contain many small pieces."""


class ModelClient(httpx2.AsyncClient):
    """A client that sends requests faster, and limits responses.

    It has no default headers, authentication, redirects or cookies, so requests go straight to the
    transport, which the base class chooses by the proxies of the environment.

    A response has at most `HEADERS` header fields and `BODY_BYTES` of body, or `WHOLE_BYTES` if it
    is not streamed; of the body of an error `ERROR_BYTES` are read. A compressed response is
    rejected, since a few kilobytes can unpack to gigabytes.

    Args:
        socket: the path of the Unix socket to connect to, for all URLs; None to connect to the
            host of the URL.
    """

    def __init__(self, *, socket: str | None = None, **options: Any) -> None:
        idle = 0 if socket else _IDLE  # connecting to one takes no time, and its server closes them
        limits = httpx2.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=idle)
        if socket is not None:
            options["transport"] = httpx2.AsyncHTTPTransport(
                uds=socket, limits=limits, verify=False
            )
        super().__init__(headers={"Accept-Encoding": "identity"}, limits=limits, **options)
        for each in (self._transport, *self._mounts.values()):
            if isinstance(each, httpx2.AsyncHTTPTransport):
                # httpx2 has no parameter for what connects.
                each._pool._network_backend = _Backend()  # noqa: SLF001

    async def send(
        self, request: httpx2.Request, *, stream: bool = False, **_given: Any
    ) -> httpx2.Response:
        """Send a request. Raises httpx2.HTTPError, and TooMuchError, which reading the body may
        raise, too.
        """
        transport = self._transport_for_url(request.url)
        response = await transport.handle_async_request(request)
        response.request = request
        try:
            _bound(response, BODY_BYTES if stream else WHOLE_BYTES)
            if not stream:
                await response.aread()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await response.aclose()
            raise
        return response


def _bound(response: httpx2.Response, most: int) -> None:
    """Limit a response; `most` is the maximum size of its body. Raises TooMuchError."""
    headers, body = response.headers, response.stream
    assert isinstance(body, httpx2.AsyncByteStream), "the client is asynchronous"
    if len(headers.raw) > HEADERS:
        raise TooMuchError(f"more than {HEADERS} header fields")
    encoding = headers.get("content-encoding", "identity").strip().lower()
    packed = encoding not in ("identity", "")
    if response.is_success:
        if packed:
            raise TooMuchError(f"an answer encoded as {encoding[:40]!a}, though asked for none")
        response.stream = _Bounded(body, most)
        return
    # The body of an error is only quoted. Without this, it would be decoded as these headers say,
    # which may be an archive, or a character set that takes quadratic time.
    headers.pop("content-encoding", None)
    headers["content-type"] = "text/plain; charset=utf-8"
    response.stream = _Bounded(body, 0 if packed else ERROR_BYTES, cut=True)


class _Bounded(httpx2.AsyncByteStream):
    """The body of a response, up to `most` bytes: beyond that it ends, if `cut`, or is refused."""

    def __init__(self, body: httpx2.AsyncByteStream, most: int, *, cut: bool = False) -> None:
        self._body = body
        self._left = most
        self._most = most
        self._cut = cut
        self._count = 0
        self._pieces: AsyncIterator[bytes] | None = None
        self._ended = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        if self._pieces is None:
            self._pieces = aiter(self._body)
            self._next = self._pieces.__anext__
        return self

    async def __anext__(self) -> bytes:
        # Many times in an answer: the usual piece passes by two comparisons.
        if self._left <= 0 and self._cut:
            raise StopAsyncIteration
        try:
            piece = await self._next()
        except StopAsyncIteration:
            self._ended = True
            raise
        self._left -= len(piece)
        if self._left < 0:
            if not self._cut:
                raise TooMuchError(f"an answer of more than {self._most:,} bytes")
            return piece[: self._left]
        self._count += 1
        if not self._count & _AT_ONCE:
            if self._count > PIECES and self._most - self._left < self._count * PIECE_BYTES:
                raise TooMuchError(f"an answer in chunks of fewer than {PIECE_BYTES} bytes")
            await anyio.lowlevel.checkpoint()
        return piece

    async def aclose(self) -> None:
        """Close the connection, unless all was read."""
        if self._pieces is not None and not self._ended:
            await _abandon(self._pieces)
        await self._body.aclose()


async def _abandon(pieces: AsyncIterator[bytes]) -> None:
    """End the generators that yield a body, at any point.

    When cancelled, the innermost one ends at its next read of the socket, and the others with it.
    Closing the outermost one would leave an inner one suspended for the garbage collector (httpx2
    2.16), which trio reports as an error. The rest of the buffers, 64 KiB at most, is skipped.
    """
    count = 0
    with anyio.CancelScope() as scope:
        scope.cancel()
        async for _ in pieces:
            count += 1
            if not count & _AT_ONCE:
                with anyio.CancelScope(shield=True):
                    await anyio.lowlevel.checkpoint()


@contextlib.contextmanager
def _within(
    seconds: float | None, late: type[Exception], failed: type[Exception]
) -> Iterator[None]:
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError as error:
        raise late from error
    except (OSError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
        raise failed(str(error.__cause__ or error)) from error


# ruff: noqa: ASYNC109 - the interface of httpcore2
class _Backend(httpcore2.AsyncNetworkBackend):
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        del socket_options
        with _within(timeout, httpcore2.ConnectTimeout, httpcore2.ConnectError):
            return _Stream(await anyio.connect_tcp(host, port, local_host=local_address))

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        del socket_options
        with _within(timeout, httpcore2.ConnectTimeout, httpcore2.ConnectError):
            return _Stream(await UnixStream.connect(path))


class _Stream(httpcore2.AsyncNetworkStream):
    """A connection that sends the head of a request together with its body.

    Only connecting has a timeout here; `Timeouts` limits the rest.
    """

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._unsent: list[bytes] = []
        self._socket = stream.extra(SocketAttribute.raw_socket, None)  # noqa: S610 - not Django

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._unsent.append(buffer)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            if self._unsent:
                data, self._unsent = b"".join(self._unsent), []
                # A server may answer a request before it has read it, and close the connection.
                with contextlib.suppress(anyio.BrokenResourceError):
                    await self._stream.send(data)
            return await self._stream.receive(max_bytes)
        except anyio.EndOfStream:
            return b""
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise httpcore2.ReadError(str(error.__cause__ or error)) from error

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            with _within(timeout, httpcore2.ConnectTimeout, httpcore2.ConnectError):
                return _Stream(
                    await TLSStream.wrap(
                        self._stream,
                        hostname=server_hostname,
                        ssl_context=ssl_context,
                        standard_compatible=False,
                    )
                )
        except BaseException:
            await anyio.aclose_forcefully(self._stream)
            raise

    def get_extra_info(self, info: str) -> Any:
        """Whether the server has closed an idle connection, which makes it readable."""
        if info != "is_readable" or self._socket is None:
            return None
        if self._socket.fileno() < 0:
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

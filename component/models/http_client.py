"""The HTTP client that the SDKs use. Importing this module takes 0.1 seconds."""

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator
from http.cookiejar import CookieJar
from typing import Any, Final

import anyio
import httpcore2
import httpx2

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

_CONNECTIONS, _IDLE = 1000, 100  # the SDKs' own limits
_AT_ONCE: Final = 63
"""After this many pieces of a body, and one more, other tasks run: one read of the socket may
contain many small pieces."""


class ModelClient(httpx2.AsyncClient):
    """A client that makes requests faster, and limits responses.

    All requests of a client go to a few URLs and have their own headers, so no defaults are merged
    into them: merging and parsing URLs took a tenth of the time of a call.

    A response has at most `HEADERS` header fields and `BODY_BYTES` of body, or `WHOLE_BYTES` if it
    is not streamed; of the body of an error `ERROR_BYTES` are read. A compressed response is
    rejected, since a few kilobytes can unpack to gigabytes. Cookies are ignored.

    Args:
        socket: the path of the Unix socket to connect to, for all URLs; None to connect to the
            host of the URL.
    """

    def __init__(self, *, socket: str | None = None, **options: Any) -> None:
        if socket is not None:
            options["transport"] = UnixTransport(socket)
        super().__init__(
            cookies=_NoCookies(),
            headers={"Accept-Encoding": "identity"},
            limits=httpx2.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_IDLE),
            **options,
        )
        self._urls: dict[str, httpx2.URL] = {}

    def build_request(self, method: str, url: httpx2.URL | str, **given: Any) -> httpx2.Request:
        """Make a request; one with more than bytes and headers is made by the base class."""
        what = {name: value for name, value in given.items() if value is not None}
        if not isinstance(url, str) or what.keys() != {"headers", "content", "timeout"}:
            return super().build_request(method, url, **given)
        if url not in self._urls:
            self._urls[url] = httpx2.URL(url)
        return httpx2.Request(
            method,
            self._urls[url],
            headers=what["headers"],
            content=what["content"],
            extensions={"timeout": httpx2.Timeout(what["timeout"]).as_dict()},
        )

    async def send(
        self, request: httpx2.Request, *, stream: bool = False, **given: Any
    ) -> httpx2.Response:
        """Send a request. Raises TooMuchError, and so may reading the body; see above."""
        response = await super().send(request, stream=True, **given)
        try:
            _bound(response, BODY_BYTES if stream else WHOLE_BYTES)
            if not stream:
                await response.aread()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await response.aclose()
            raise
        return response


class _NoCookies(CookieJar):
    """Stores no cookies: there are no sessions, and a provider could fill the memory with them."""

    def extract_cookies(self, response: Any, request: Any) -> None:
        """Ignore all cookies."""


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
    # The body of an error is only quoted. Without this, the SDK would decode it as these headers
    # say, which may be an archive, or a character set that takes quadratic time.
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


class UnixTransport(httpx2.AsyncHTTPTransport):
    """Connects to the Unix socket at a path for all URLs, and keeps no connection.

    Connecting takes no time, and the server closes idle connections after some seconds.
    """

    def __init__(self, path: str) -> None:
        super().__init__(verify=False)  # there is no TLS
        # httpx2 has no parameter for what connects.
        self._pool = httpcore2.AsyncConnectionPool(
            uds=path, max_keepalive_connections=0, network_backend=_Backend()
        )


@contextlib.contextmanager
def _within(
    seconds: float | None, late: type[Exception], failed: type[Exception]
) -> Iterator[None]:
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError as error:
        raise late from error
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
        raise failed(str(error.__cause__ or error)) from error


class _Backend(httpcore2.AsyncNetworkBackend):
    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 - the interface of httpcore2
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        with _within(timeout, httpcore2.ConnectTimeout, httpcore2.ConnectError):
            return _Stream(await UnixStream.connect(path))


class _Stream(httpcore2.AsyncNetworkStream):
    def __init__(self, stream: UnixStream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        with _within(timeout, httpcore2.ReadTimeout, httpcore2.ReadError):
            try:
                return await self._stream.receive(max_bytes)
            except anyio.EndOfStream:
                return b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        with _within(timeout, httpcore2.WriteTimeout, httpcore2.WriteError):
            await self._stream.send(buffer)

    async def aclose(self) -> None:
        await self._stream.aclose()

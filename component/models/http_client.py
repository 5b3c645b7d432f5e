"""The HTTP client that the openai SDK is given. Importing this loads the SDK, for half a second."""

from collections.abc import AsyncIterator
from http.cookiejar import CookieJar
from typing import Any, Final

import anyio
import httpx2
import openai

from component.models.answer_limits import (
    BODY_BYTES,
    ERROR_BYTES,
    HEADERS,
    PIECE_BYTES,
    PIECES,
    WHOLE_BYTES,
    TooMuchError,
)

_AT_ONCE: Final = 63
"""After this many pieces of a body, and one more, everybody else has a turn: many small pieces may
have come with one read of the socket."""


class Client(openai.DefaultAsyncHttpxClient):
    """The SDK's own client, quicker at making a request, and bounded in what it takes in.

    All requests of one of these go to a few URLs and have headers of their own, so nothing of the
    client's is merged into them: with taking URLs apart that was a tenth of the time of a call.

    A response has at most `HEADERS` header fields and `BODY_BYTES` of body, or `WHOLE_BYTES` if it
    is not streamed; of the body of an error `ERROR_BYTES` are read. It comes as it is: a compressed
    one is refused, since a few kilobytes can unpack to gigabytes. Cookies are not kept.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(cookies=_NoCookies(), headers={"Accept-Encoding": "identity"}, **options)
        self._urls: dict[str, httpx2.URL] = {}

    def build_request(self, method: str, url: httpx2.URL | str, **given: Any) -> httpx2.Request:
        """Make a request; one that is more than bytes and headers is made as everywhere."""
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
    """Keeps no cookies: a provider has no session with us, and could fill the memory with them."""

    def extract_cookies(self, response: Any, request: Any) -> None:
        """Look at none."""


def _bound(response: httpx2.Response, most: int) -> None:
    """Hold a response to the bounds; `most` is that of its body. Raises TooMuchError."""
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
    # What stands in an error is only quoted. The SDK decodes it by what these headers say, be it an
    # archive or a character set that takes quadratic time.
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
    """End the generators that bring a body, wherever they are.

    Cancelled, the innermost one ends at its next read of the socket and the others with it. Closing
    the outermost leaves one of those inside half run for the garbage collector (httpx2 2.16), of
    which trio complains. What is left in the buffers, 64 KiB at most, is passed over.
    """
    count = 0
    with anyio.CancelScope() as scope:
        scope.cancel()
        async for _ in pieces:
            count += 1
            if not count & _AT_ONCE:
                with anyio.CancelScope(shield=True):
                    await anyio.lowlevel.checkpoint()

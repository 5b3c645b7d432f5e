"""The HTTP client for MCP servers over streamable HTTP (MCP 2025-11-25, Transports).

The SDK's transport bounds the size of events, but neither that of other responses nor the number of
JSON values, which this client does before anything is decoded. The transport follows no redirect to
another origin.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Final

import httpx2
import msgspec
from mcp.client.streamable_http import streamable_http_client

from component.sources.mcp.errors import reason_of
from component.sources.mcp.guard import MOST_DEPTH
from xep.binding.json_bounds import MOST_VALUES_OUTSIDE, checked_json, may_have_values

if TYPE_CHECKING:
    from component.sources.mcp.guard import Streams

_CONNECT_S: Final = 15.0
_END_OF_EVENT: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r|\n\r\n")
_DATA: Final = re.compile(rb"^data:([^\n]*)", re.MULTILINE)


class Endpoint(msgspec.Struct, frozen=True):
    """The URL of a server.

    Attributes:
        url: its URL.
        headers: header fields to send.
        authorization: adds what authorizes a request.
        max_message_bytes: maximum size of a message.
    """

    url: str
    headers: Mapping[str, str] = {}
    max_message_bytes: int = 4_194_304
    authorization: httpx2.Auth | None = None


@asynccontextmanager
async def http_streams(
    endpoint: Endpoint, failed: Callable[[str, bool], None]
) -> AsyncIterator[Streams]:
    """Yield the streams of a server's messages.

    A message that cannot be sent ends the streams. Before, `failed` is called with the reason, and
    whether the server was not even reached.
    """
    client = httpx2.AsyncClient(
        transport=_Bounded(httpx2.AsyncHTTPTransport(), endpoint.max_message_bytes, failed),
        headers={**endpoint.headers, "Accept-Encoding": "identity"},
        auth=endpoint.authorization,
        timeout=httpx2.Timeout(_CONNECT_S, read=None),
    )
    async with (
        client,
        streamable_http_client(
            endpoint.url, http_client=client, max_sse_event_size=endpoint.max_message_bytes
        ) as streams,
    ):
        yield streams


class _Bounded(httpx2.AsyncBaseTransport):
    """Refuses responses that are too large, or compressed, which could hide their size."""

    def __init__(
        self,
        inner: httpx2.AsyncBaseTransport,
        longest: int,
        failed: Callable[[str, bool], None],
    ) -> None:
        self._inner = inner
        self._longest = longest
        self._failed = failed

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError as error:
            if request.method == "POST":
                unreached = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
                what = "it cannot be reached" if unreached else "the request failed"
                self._failed(f"{what}: {reason_of(error)}", unreached)
            raise
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        kind = response.headers.get("content-type", "").lower()
        if response.headers.pop("content-encoding", "identity").lower() != "identity":
            response.stream = _Body(response.stream, 0, "the response is compressed")
        elif kind.startswith("text/event-stream"):
            response.stream = _Events(response.stream, self._longest, self._failed)
        else:
            why = f"the response has more than {self._longest} bytes"
            response.stream = _Body(response.stream, self._longest, why)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Body(httpx2.AsyncByteStream):
    """A whole response, which is passed on when it is complete and within the limits."""

    def __init__(self, inner: httpx2.AsyncByteStream, longest: int, why: str) -> None:
        self._inner = inner
        self._longest = longest
        self._why = why

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body = bytearray()
        async for chunk in self._inner:
            body += chunk
            if len(body) > self._longest:
                raise httpx2.StreamError(self._why)
        _check(bytes(body))
        yield bytes(body)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Events(httpx2.AsyncByteStream):
    """Server-sent events, each of which is passed on when it is complete and within the limits."""

    def __init__(
        self, inner: httpx2.AsyncByteStream, longest: int, failed: Callable[[str, bool], None]
    ) -> None:
        self._inner = inner
        self._longest = longest
        self._failed = failed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async with aclosing(self._checked()) as events:
                async for event in events:
                    yield event
        except httpx2.StreamError as error:
            self._failed(str(error), False)
            raise

    async def _checked(self) -> AsyncGenerator[bytes]:
        rest = bytearray()
        async for chunk in self._inner:
            begin = max(0, len(rest) - 3)
            rest += chunk
            while (end := _END_OF_EVENT.search(rest, begin)) is not None:
                event = bytes(rest[: end.end()])
                del rest[: end.end()]
                begin = 0
                _check(event)
                yield event
            if len(rest) > self._longest:
                raise httpx2.StreamError(f"an event has more than {self._longest} bytes")
        if rest:
            _check(bytes(rest))
            yield bytes(rest)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _check(text: bytes) -> None:
    """Raise StreamError if a body or an event has more JSON values than the SDK is to decode."""
    if not may_have_values(text, MOST_VALUES_OUTSIDE):
        return
    data = b"\n".join(_DATA.findall(text.replace(b"\r", b"\n"))) or text
    try:
        checked_json(data, MOST_VALUES_OUTSIDE, MOST_DEPTH)
    except ValueError as error:
        most = f"{MOST_VALUES_OUTSIDE} values"
        raise httpx2.StreamError(f"the server sent a message of more than {most}") from error

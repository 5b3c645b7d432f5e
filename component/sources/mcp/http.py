"""The HTTP client for MCP servers over streamable HTTP (MCP 2025-11-25, Transports).

The SDK's transport bounds the size of events, but not that of other responses, which this client
does. The transport follows no redirect to another origin.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import httpx2
import msgspec
from mcp.client.streamable_http import streamable_http_client

from component.sources.mcp.errors import reason_of

if TYPE_CHECKING:
    from component.sources.mcp.guard import Streams

_CONNECT_S: Final = 15.0


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
            response.stream = _BoundedBody(response.stream, 0, "the response is compressed")
        elif not kind.startswith("text/event-stream"):
            why = f"the response has more than {self._longest} bytes"
            response.stream = _BoundedBody(response.stream, self._longest, why)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedBody(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, longest: int, why: str) -> None:
        self._inner = inner
        self._longest = longest
        self._why = why

    async def __aiter__(self) -> AsyncIterator[bytes]:
        seen = 0
        async for chunk in self._inner:
            seen += len(chunk)
            if seen > self._longest:
                raise httpx2.StreamError(self._why)
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()

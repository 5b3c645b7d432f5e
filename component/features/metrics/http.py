"""A minimal HTTP server for a few pages: GET and HEAD, one request per connection.

The size and duration of requests and the number of connections are limited. At the limit, the
oldest connection that has not sent its request yet is closed for a new one, so idle connections
cannot block the server.
"""

import ipaddress
import re
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final, TypeAlias

import anyio
import msgspec
import structlog
from anyio.abc import SocketAttribute, SocketStream, TaskStatus

_log = structlog.get_logger("component.metrics")

_LONGEST: Final = 8192
"""Maximum size of a request line with its headers, in bytes."""
_TIMEOUT_S: Final = 5.0
"""Time limit for a request and its response."""
_MOST_AT_ONCE: Final = 16
_REQUEST: Final = re.compile(rb"([A-Z]{1,16}) (/[!-~]{0,1000}) HTTP/1\.([01])")
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*)")
_PLAIN: Final = "text/plain; charset=utf-8"


class PageResponse(msgspec.Struct, frozen=True):
    """An HTTP response."""

    status: int
    body: bytes
    content_type: str = _PLAIN


Page: TypeAlias = Callable[[], Awaitable[PageResponse]]
"""Creates the response for one path."""


class MetricsListenError(Exception):
    """The server cannot listen on its address; the message gives the address and the reason."""


class PageServer:
    """Serves pages by their paths. `port` is 0 for any free one; `local` says whether to refuse
    host names other than `localhost`, which prevents DNS rebinding by web pages.
    """

    def __init__(
        self, host: str, port: int, pages: Mapping[str, Page], *, local: bool = True
    ) -> None:
        self._host = host
        self._port = port
        self._pages = pages
        self._local = local
        self._answering = 0
        self._reading: dict[SocketStream, anyio.CancelScope] = {}  # the oldest first
        self.port = port
        """The port that the server listens on, after it has started."""

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; started when it listens. Raises MetricsListenError."""
        try:
            listener = await anyio.create_tcp_listener(local_host=self._host, local_port=self._port)
        except OSError as error:
            raise MetricsListenError(
                f"The metrics cannot be served on {self._host} port {self._port}:"
                f" {error.strerror or error}. Set listen in [metrics] to another address."
            ) from error
        async with listener:
            self.port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - no Django
            task_status.started()
            await listener.serve(self._serve)

    async def _serve(self, stream: SocketStream) -> None:
        try:
            async with stream:
                with anyio.move_on_after(_TIMEOUT_S):
                    head = await self._head(stream)
                    if head is not None:
                        await self._answer(stream, head)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the client closed the connection

    async def _head(self, stream: SocketStream) -> bytes | None:
        """The request line and the headers; None if none were sent, or the slot is needed."""
        if len(self._reading) + self._answering >= _MOST_AT_ONCE and self._reading:
            oldest = next(iter(self._reading))
            self._reading.pop(oldest).cancel()
        head = b""
        scope = self._reading[stream] = anyio.CancelScope()
        try:
            with scope:
                while b"\r\n\r\n" not in head:
                    if len(head) > _LONGEST:
                        await stream.send(_written(PageResponse(431, b"too long\n"), body=True))
                        return None
                    head += await stream.receive(_LONGEST)
                return head.partition(b"\r\n\r\n")[0]
        except anyio.EndOfStream:
            pass
        finally:
            self._reading.pop(stream, None)
        return None

    async def _answer(self, stream: SocketStream, head: bytes) -> None:
        if self._answering >= _MOST_AT_ONCE:
            await stream.send(_written(PageResponse(503, b"too many requests\n"), body=True))
            return
        self._answering += 1
        try:
            method, response = await self._response(head)
            await stream.send(_written(response, body=method != b"HEAD"))
        finally:
            self._answering -= 1

    async def _response(self, head: bytes) -> tuple[bytes, PageResponse]:
        first, *lines = head.split(b"\r\n")
        asked = _REQUEST.fullmatch(first)
        headers = [_HEADER.fullmatch(line) for line in lines]
        if asked is None or len(head) > _LONGEST:
            return b"", PageResponse(400, b"bad request\n")
        method, target, minor = asked.groups()
        hosts = [one[2] for one in headers if one is not None and one[1].lower() == b"host"]
        if None in headers or len(hosts) > 1 or (not hosts and minor == b"1"):
            return method, PageResponse(400, b"bad headers\n")
        if method not in (b"GET", b"HEAD"):
            return method, PageResponse(405, b"only GET and HEAD\n")
        if self._local and hosts and not _is_local(hosts[0].decode("latin-1").strip()):
            return method, PageResponse(421, b"use localhost or an IP address\n")
        page = self._pages.get(target.decode().partition("?")[0])
        if page is None:
            return method, PageResponse(404, b"no such page\n")
        try:
            return method, await page()
        except Exception:  # noqa: BLE001 - an error in a page must not stop the server
            _log.exception("a page failed", path=target.decode())
            return method, PageResponse(500, b"internal error; see the log\n")


def _is_local(host: str) -> bool:
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    if name.lower() == "localhost":
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _written(response: PageResponse, *, body: bool) -> bytes:
    allow = "Allow: GET, HEAD\r\n" if response.status == 405 else ""
    head = (
        f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}\r\n"
        f"Content-Type: {response.content_type}\r\n"
        f"Content-Length: {len(response.body)}\r\n"
        f"Cache-Control: no-store\r\nConnection: close\r\n{allow}\r\n"
    )
    return head.encode("ascii") + (response.body if body else b"")

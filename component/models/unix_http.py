"""HTTP over a Unix socket, for the model server on this machine."""

from collections.abc import Iterable
from typing import Any

import anyio
import httpcore2
import httpx2

from component.unix_sockets import UnixStream


class UnixTransport(httpx2.AsyncHTTPTransport):
    """Connects to one Unix socket for all URLs, and keeps no connection.

    Connecting takes no time, and the server closes idle connections after some seconds.

    Args:
        path: of the socket.
    """

    def __init__(self, path: str) -> None:
        super().__init__(verify=False)  # there is no TLS
        # httpx2 has no parameter for what connects.
        self._pool = httpcore2.AsyncConnectionPool(
            uds=path, max_keepalive_connections=0, network_backend=_Backend()
        )


class _Backend(httpcore2.AsyncNetworkBackend):
    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 - the interface of httpcore2
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            with anyio.fail_after(timeout):
                return _Stream(await UnixStream.connect(path))
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout from error
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error


class _Stream(httpcore2.AsyncNetworkStream):
    def __init__(self, stream: UnixStream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        try:
            with anyio.fail_after(timeout):
                return await self._stream.receive(max_bytes)
        except anyio.EndOfStream:
            return b""
        except TimeoutError as error:
            raise httpcore2.ReadTimeout from error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise httpcore2.ReadError(str(error.__cause__ or error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        try:
            with anyio.fail_after(timeout):
                await self._stream.send(buffer)
        except TimeoutError as error:
            raise httpcore2.WriteTimeout from error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise httpcore2.WriteError(str(error.__cause__ or error)) from error

    async def aclose(self) -> None:
        await self._stream.aclose()

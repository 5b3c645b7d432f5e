"""An HTTP server for tests of the gate: it answers by the path of a request."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.tls import TLSListener


class Server:
    """Answers `/PATH` with `answers[PATH]`, bytes as they go over the wire; keeps the requests."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.answers: dict[str, bytes] = {}
        self.requests: list[bytes] = []
        self.hangs = anyio.Event()

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}/{path}"

    async def serve(self, stream: SocketStream) -> None:
        async with stream:
            received = b""
            while b"\r\n\r\n" not in received:
                try:
                    received += await stream.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    return  # one that does not accept the certificate
            self.requests.append(received)
            path = received.split(b" ")[1].decode().removeprefix("/")
            if path == "hang":
                self.hangs.set()
                await anyio.sleep_forever()
            try:
                await stream.send(self.answers.get(path, plain("no such page", 404)))
                if path == "endless":
                    while True:
                        await stream.send(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return


def plain(body: str, status: int = 200, *headers: str) -> bytes:
    encoded = body.encode()
    lines = [f"HTTP/1.1 {status} OK", f"Content-Length: {len(encoded)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + encoded


def redirect(to: str, status: int = 302) -> bytes:
    return plain("", status, f"Location: {to}")


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    server = Server(listener.extra(SocketAttribute.local_port))
    served = listener if tls is None else TLSListener(listener, tls, standard_compatible=False)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(served.serve, server.serve)
        try:
            yield server
        finally:
            group.cancel_scope.cancel()

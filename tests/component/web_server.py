"""An HTTP server on a real socket whose answers a test writes as a function.

async with serving(lambda request: Response(b"hello")) as server:
    …                                             # let something talk to server.url
    assert server.requests[0].path == "/"
"""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import h11
from anyio.abc import SocketAttribute, SocketStream


@dataclass
class Request:
    """A request that came; header names are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Response:
    """An answer. `wait` is awaited before it is sent."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    wait: anyio.Event | None = None


def as_json(value: Any, status: int = 200, **headers: str) -> Response:
    """An answer in JSON."""
    headers = {name.replace("_", "-"): text for name, text in headers.items()}
    return Response(
        json.dumps(value).encode(), status, {"Content-Type": "application/json"} | headers
    )


def redirect(url: str, status: int = 302) -> Response:
    return Response(status=status, headers={"Location": url})


@dataclass
class Server:
    """The server: its URL, and the requests that came."""

    url: str = ""
    port: int = 0
    requests: list[Request] = field(default_factory=list)


@asynccontextmanager
async def serving(answer: Callable[[Request], Response]) -> AsyncIterator[Server]:
    """Serve on a port of 127.0.0.1."""
    server = Server()

    async def serve(stream: SocketStream) -> None:
        async with stream:
            try:
                await _serve(stream, server, answer)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
                return

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as group,
    ):
        server.port = listener.extra(SocketAttribute.local_port)
        server.url = f"http://127.0.0.1:{server.port}"
        group.start_soon(listener.serve, serve)
        yield server
        group.cancel_scope.cancel()


async def _serve(
    stream: SocketStream, server: Server, answer: Callable[[Request], Response]
) -> None:
    connection = h11.Connection(h11.SERVER)
    head: h11.Request | None = None
    body = b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await stream.receive())
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            break
        else:
            return
    assert head is not None
    headers = {name.decode(): value.decode() for name, value in head.headers}
    request = Request(head.method.decode(), head.target.decode(), headers, body)
    server.requests.append(request)
    response = answer(request)
    if response.wait is not None:
        await response.wait.wait()
    fields = {"Content-Length": str(len(response.body)), "Connection": "close"} | response.headers
    sent = connection.send(h11.Response(status_code=response.status, headers=list(fields.items())))
    await stream.send((sent or b"") + (connection.send(h11.Data(data=response.body)) or b""))
    connection.send(h11.EndOfMessage())

"""HTTP requests to a service, without sockets."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anyio
import msgspec
from anyio.abc import TaskStatus

from component.features.http_listener.listener import HttpListener
from component.kernel.http_routes import HttpRoutes
from tests.kit.process import KilledError
from tests.kit.service import Kit

_listening: Final[list[HttpRoutes]] = []
"""What is listened for at the moment, by all services."""


class Response(msgspec.Struct, frozen=True):
    """The answer to a request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The JSON in the body."""
        return msgspec.json.decode(self.body)


@asynccontextmanager
async def without_sockets() -> AsyncIterator[None]:
    """Let no service of the context listen on a port."""
    before = HttpListener.run

    async def run(
        self: HttpListener, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        _listening.append(self._routes)
        try:
            task_status.started()
            await anyio.sleep_forever()
        finally:
            _listening.remove(self._routes)

    HttpListener.run = run  # type: ignore[method-assign]
    try:
        yield
    finally:
        HttpListener.run = before  # type: ignore[method-assign]


async def post(
    kit: Kit, path: str, headers: Mapping[str, str], body: bytes, *, within_s: float = 60.0
) -> Response | None:
    """Send a request to the service; return its answer, or None if the connection is refused,
    breaks, or takes too long. The connection breaks when the process ends.
    """
    if not kit.is_open or kit.kernel.http not in _listening:
        return None
    process, ended, app = kit.process, kit.ended, kit.kernel.http
    parts = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Mapping[str, Any]] = []
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": path,
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("192.0.2.1", 12345),
    }

    async def receive() -> dict[str, Any]:
        if parts:
            return parts.pop(0)
        await anyio.sleep_forever()
        raise AssertionError("it has not slept")

    async def send(message: Mapping[str, Any]) -> None:
        await anyio.lowlevel.checkpoint()
        if not process.is_alive:
            await anyio.sleep_forever()
        sent.append(message)

    async def serve() -> None:
        process.enter()
        with suppress(KilledError):
            await app(scope, receive, send)
        group.cancel_scope.cancel()

    async def break_off() -> None:
        await ended.wait()
        group.cancel_scope.cancel()

    with anyio.move_on_after(within_s):
        async with anyio.create_task_group() as group:
            group.start_soon(break_off)
            group.start_soon(serve)
    if not sent or sent[-1]["type"] != "http.response.body" or sent[-1].get("more_body"):
        return None
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    content = b"".join(one["body"] for one in sent[1:])
    return Response(sent[0]["status"], found, content)

"""Which feature serves which HTTP request, as an ASGI application."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import msgspec

Message: TypeAlias = dict[str, Any]
"""An event of ASGI (https://asgi.readthedocs.io/en/latest/specs/www.html)."""
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
HttpApp: TypeAlias = Callable[[Mapping[str, Any], Receive, Send], Awaitable[None]]
"""Answers requests: scopes of type `http` only."""


class HttpRoute(msgspec.Struct, frozen=True):
    """An application, and the beginning of the paths that it serves; empty for all others."""

    prefix: str
    app: HttpApp


class HttpRoutes:
    """Passes each request to the application with the longest prefix of its path.

    Attributes:
        routes: what features serve.
    """

    def __init__(self) -> None:
        self.routes: list[HttpRoute] = []

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request. See the ASGI specification for the arguments."""
        match scope["type"]:
            case "http":
                fits = [one for one in self.routes if scope["path"].startswith(one.prefix)]
                app = max(fits, key=lambda one: len(one.prefix)).app if fits else _nothing
                await app(scope, receive, send)
            case "lifespan":
                await _lifespan(receive, send)
            case "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1000})


async def respond(
    send: Send, status: int, text: str, *headers: tuple[bytes, bytes], head: bool = False
) -> None:
    """Send a response with a sentence, or without one for HEAD."""
    body = text.encode()
    plain = (
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    )
    start = {"type": "http.response.start", "status": status, "headers": [*plain, *headers]}
    await send(start)
    await send({"type": "http.response.body", "body": b"" if head else body})


async def _nothing(scope: Mapping[str, Any], _receive: Receive, send: Send) -> None:
    await respond(send, 404, "There is nothing here.\n", head=scope["method"] == "HEAD")


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return

"""A hostile model provider on a real socket: it sends bytes, whatever HTTP says about them.

What it is asked decides what it does: a message `attack: NAME` gets that attack, everything else an
honest answer. So an attack hits the first call of a turn, and the turn can go on.
"""

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import anyio
import anyio.abc
import h11
from anyio.from_thread import start_blocking_portal

from tests.component.models import wire
from tests.component.models.answers import sse

LOOPBACK = "127.0.0.1"
HONEST = "It is noon."
PIECE = 1 << 16
_DRIP_S = 0.02

Attack = Callable[[], Iterator[bytes | None]]
"""Gives what is sent, piece by piece; None is a short silence. The connection ends with it, unless
it has ended the response as HTTP/1.1 does."""


def head(
    content_type: str | None = "text/event-stream",
    status: int = 200,
    length: int | None = None,
    headers: Mapping[str, str] = {},
) -> bytes:
    """The head of a response. Without a length the body is chunked."""
    lines = [f"HTTP/1.1 {status} -"]
    if content_type is not None:
        lines.append(f"Content-Type: {content_type}")
    lines.append("Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}")
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join((*lines, "", "")).encode("latin-1")


def chunked(data: bytes) -> bytes:
    """One chunk of a body (RFC 9112 §7.1)."""
    return b"%x\r\n%s\r\n" % (len(data), data)


END = b"0\r\n\r\n"
DONE = sse("[DONE]")


def body(data: bytes, content_type: str | None = "text/event-stream", **more: Any) -> bytes:
    """A whole response."""
    return head(content_type, length=len(data), **more) + data


def chunk(delta: Any = None, finish: Any = None, **more: Any) -> dict[str, Any]:
    """An event of chat completions."""
    return {"choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}]} | more


def honest(path: str = "/chat/completions") -> bytes:
    """An answer as it should be, in the dialect of a path."""
    if path.endswith("/messages"):
        return body(b"".join(map(wire.event, wire.message_events(wire.Spoken([HONEST])))))
    if path.endswith("/responses"):
        return body(b"".join(map(wire.event, wire.response_events(wire.Spoken([HONEST])))))
    events = sse(chunk({"content": HONEST})) + sse(chunk(finish="stop"))
    return body(events + DONE)


class Provider:
    """Serves. `sent` counts the bytes of the attack that was played last.

    Attributes:
        url: the base URL.
        attacks: what a message `attack: NAME` gets.
        asked: how often it was asked for anything.
    """

    def __init__(self, attacks: Mapping[str, Attack]) -> None:
        self.url = ""
        self.attacks = dict(attacks)
        self.asked = 0
        self.sent = 0

    async def serve(self, stream: anyio.abc.SocketStream) -> None:
        """Serve one connection."""
        async with stream:
            while (asked := await _request(stream)) is not None:
                self.asked += 1
                try:
                    if not await self._answer(stream, asked):
                        return
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return

    async def _answer(self, stream: anyio.abc.SocketStream, asked: dict[str, Any]) -> bool:
        attack = self.attacks.get(_last_text(asked).removeprefix("attack: "))
        if attack is None:
            await stream.send(honest(asked["path"]))
            return True
        self.sent = 0
        ended = b""
        for piece in attack():
            if piece is None:
                await anyio.sleep(_DRIP_S)
                continue
            await stream.send(piece)
            self.sent += len(piece)
            ended = (ended + piece)[-16:] if len(piece) < PIECE else piece[-16:]
        return ended.endswith((END, b"[DONE]\n\n"))


def _last_text(asked: dict[str, Any]) -> str:
    """The last text of a request, in any dialect."""
    messages = asked.get("messages") or asked.get("input") or [{}]
    content = messages[-1].get("content")
    text = str(content[-1].get("text") if isinstance(content, list) else content)
    # What the model is shown before the words of a message ends with an empty line.
    return text.rpartition("\n\n")[2]


async def _request(stream: anyio.abc.SocketStream) -> dict[str, Any] | None:
    http = h11.Connection(h11.SERVER)
    data = bytearray()
    path = ""
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            try:
                http.receive_data(await stream.receive())
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return None
        elif isinstance(event, h11.Data):
            data += event.data
        elif isinstance(event, h11.EndOfMessage):
            asked: dict[str, Any] = json.loads(bytes(data) or b"{}")
            return asked | {"path": path}
        elif isinstance(event, h11.Request):
            path = event.target.decode()
        else:
            return None


@contextlib.asynccontextmanager
async def _serving(provider: Provider) -> AsyncIterator[Provider]:
    listener = await anyio.create_tcp_listener(local_host=LOOPBACK)
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    provider.url = f"http://{LOOPBACK}:{port}/v1"
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, provider.serve)
        yield provider
        group.cancel_scope.cancel()


@contextlib.contextmanager
def provider_in_thread(attacks: Mapping[str, Attack]) -> Iterator[Provider]:
    """Serve in a thread of its own: what it sends must not wait for its reader."""
    provider = Provider(attacks)
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(_serving(provider)),
    ):
        yield provider

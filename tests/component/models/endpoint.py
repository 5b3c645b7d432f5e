"""A scriptable endpoint on a real socket that speaks OpenAI's chat completions and Responses, and
Anthropic's Messages.

    async with serving() as endpoint:                 # or: with in_thread() as endpoint
        endpoint.answers(Calls(("clock", {"zone": "UTC"})), Text("It is noon."))
        endpoint.answers(Refuse(429, retry_after=1), Stall(), Break(after=3))
        …                                             # let something talk to endpoint.url
        assert endpoint.requests[0].body["messages"][-1]["content"] == "What time is it?"

Each request takes the next answer of the script; one may also be a function of the request that
gives the answer. After the last it answers with `otherwise`, or 500 if there is none. As a process:

    python -m tests.component.models.endpoint script.json

where the script is a list of {"text": "…"}, {"calls": [["clock", {"zone": "UTC"}]]} or
{"refuse": 429, "retry_after": 1}, repeated after its end; the first line of output is the URL.
"""

import contextlib
import json
import sys
import traceback
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc
import h11
from anyio.from_thread import start_blocking_portal

from tests.component.models.answers import (
    DIALECTS,
    Answer,
    Break,
    Calls,
    Chunks,
    Dialect,
    End,
    Events,
    Garbage,
    Hold,
    Overflow,
    Refuse,
    Stall,
    Text,
)

__all__ = [
    "DIALECTS",
    "Answer",
    "Break",
    "Calls",
    "Chunks",
    "Dialect",
    "End",
    "Endpoint",
    "Events",
    "Garbage",
    "Hold",
    "Overflow",
    "Refuse",
    "Request",
    "Stall",
    "Text",
    "in_thread",
    "serving",
]

LOOPBACK = "127.0.0.1"
_PATHS = ("/chat/completions", "/responses", "/messages")


@dataclass
class Request:
    """A request that came. `connection` numbers the connections; header names are lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    connection: int

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation."""
        return list(self.body.get("messages", ()))

    @property
    def tools(self) -> list[str]:
        """The names of the tools that are offered."""
        return [tool["function"]["name"] for tool in self.body.get("tools", ())]


Step = Answer | Callable[[Request], Answer]


class Endpoint:
    """The endpoint. `url` is the base URL, path included; `requests` what came, in order.

    Set `key` and only requests with that key are answered; `otherwise` is the answer when the
    script is at its end; `hung_up` counts the clients that left in the middle of an answer.
    `models` are the names that it lists; with None it has no list. `documents` are JSON documents
    at other paths.
    """

    def __init__(self) -> None:
        self.url = ""
        self.key: str | None = None
        self.otherwise: Step | None = None
        self.models: list[str] | None = None
        self.documents: dict[str, Any] = {}
        self.requests: list[Request] = []
        self.connections = 0
        self.hung_up = 0
        self._script: deque[Step] = deque()
        self._changed = anyio.Event()

    def answers(self, *steps: Step) -> None:
        """Put these at the end of the script."""
        self._script += steps

    @property
    def left(self) -> int:
        """The number of answers of the script that were not sent yet."""
        return len(self._script)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on the endpoint is true: `lambda: len(e.requests) == 2`."""
        while not condition():
            await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def _next(self, request: Request) -> Answer:
        path = request.path.partition("?")[0]
        if path in self.documents:
            return Refuse(200, body=self.documents[path])
        listing = path.endswith("/models") and self.models is not None
        if not (listing or path.endswith(_PATHS)):
            return Refuse(404, f"There is nothing at {request.path}.")
        headers = request.headers
        key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        if self.key is not None and key != self.key:
            return Refuse(401, "Incorrect API key provided.", code="invalid_api_key")
        if listing:
            return Refuse(200, body={"data": [{"id": name} for name in self.models or ()]})
        step = self._script.popleft() if self._script else self.otherwise
        if step is None:
            return Refuse(500, "The script is at its end.")
        return step(request) if callable(step) else step

    async def serve(self, stream: anyio.abc.SocketStream) -> None:
        """Serve one connection."""
        self.connections += 1
        link = _Link(stream, self.connections)
        async with stream:
            while (request := await link.request()) is not None:
                self.requests.append(request)
                self._tell()
                link.body, link.path = request.body, request.path.partition("?")[0]
                try:
                    await self._next(request).play(link)
                except anyio.BrokenResourceError:
                    link.left = True
                except Exception:  # noqa: BLE001 - the client must not wait for an answer that has a fault
                    traceback.print_exc()
                    return
                if link.left:
                    self.hung_up += 1
                    self._tell()
                if not link.again():
                    return


@dataclass
class _Link:
    """One connection; an Exchange for each of its requests."""

    stream: anyio.abc.SocketStream
    number: int
    body: dict[str, Any] = field(default_factory=dict)
    path: str = ""
    left: bool = False
    http: h11.Connection = field(default_factory=lambda: h11.Connection(h11.SERVER))
    _cut: bool = False

    async def request(self) -> Request | None:
        head: h11.Request | None = None
        body = bytearray()
        while True:
            try:
                event = self.http.next_event()
            except h11.RemoteProtocolError:  # it left in the middle of its request
                return None
            if event is h11.NEED_DATA:
                try:
                    self.http.receive_data(await self.stream.receive())
                except anyio.EndOfStream:
                    self.http.receive_data(b"")
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return None
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                return Request(
                    head.method.decode(),
                    head.target.decode(),
                    {name.decode().lower(): value.decode() for name, value in head.headers},
                    json.loads(body or b"{}"),
                    self.number,
                )
            else:
                return None

    async def head(
        self,
        status: int = 200,
        content_type: str = "text/event-stream",
        headers: Mapping[str, str] = {},
    ) -> None:
        lines = [("Content-Type", content_type), *headers.items()]
        await self._send(h11.Response(status_code=status, headers=lines, reason=b"-"))

    async def data(self, data: bytes) -> None:
        await self._send(h11.Data(data=data))

    async def end(self) -> None:
        await self._send(h11.EndOfMessage())

    async def gone(self) -> None:
        with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while True:
                await self.stream.receive()
        self.left = True

    def cut(self) -> None:
        self._cut = True

    async def _send(self, event: Any) -> None:
        data = self.http.send(event)
        if data:
            await self.stream.send(data)

    def again(self) -> bool:
        if self._cut or self.left:
            return False
        if self.http.our_state is not h11.DONE or self.http.their_state is not h11.DONE:
            return False
        self.http.start_next_cycle()
        return True


@contextlib.asynccontextmanager
async def serving(port: int = 0) -> AsyncIterator[Endpoint]:
    """Serve in the event loop of the caller, on loopback."""
    endpoint = Endpoint()
    listener = await anyio.create_tcp_listener(local_host=LOOPBACK, local_port=port)
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    endpoint.url = f"http://{LOOPBACK}:{port}/v1"
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, endpoint.serve)
        yield endpoint
        group.cancel_scope.cancel()


@contextlib.contextmanager
def in_thread() -> Iterator[Endpoint]:
    """Serve in another thread, for a service that runs in another process or blocks."""
    with (
        start_blocking_portal("trio") as portal,
        portal.wrap_async_context_manager(serving()) as endpoint,
    ):
        yield endpoint


def _step(said: dict[str, Any]) -> Answer:
    if "text" in said:
        return Text(**said)
    if "calls" in said:
        return Calls(*map(tuple, said["calls"]))
    return Refuse(said["refuse"], retry_after=said.get("retry_after"))


async def _main(path: str) -> None:
    script = [_step(said) for said in json.loads(await anyio.Path(path).read_text())]
    async with serving() as endpoint:
        asked = 0

        def cycle(_: Request) -> Answer:
            nonlocal asked
            asked += 1
            endpoint.requests.clear()
            return script[(asked - 1) % len(script)]

        endpoint.otherwise = cycle
        print(endpoint.url, flush=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        anyio.run(_main, sys.argv[1])

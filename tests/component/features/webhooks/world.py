"""A listener on a free port of this machine, a starter that records its work, and senders."""

import base64
import hmac
import json
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import anyio
import msgspec

from component.features.http_listener.listener import HttpListener
from component.features.webhooks.app import WebhookApp
from component.features.webhooks.rows import DeliveryStore
from component.features.webhooks.settings import WebhookEntry, WebhookLimits
from component.features.webhooks.webhook import Webhook
from component.kernel.http_routes import HttpRoute, HttpRoutes
from component.kernel.triggers import Trigger, Work
from component.store import Storage
from xep.jid import JID

SECRET = b"it is between you and me"
KEY = bytes(range(32))
WINDOW_S = 300.0
JULIET = JID.parse("juliet@example.com")
WORK = Work(agent="assistant", principal=JULIET, skill="report")


class Response(msgspec.Struct):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class RecordingStarter:
    """Records each trigger once, as the real one does."""

    def __init__(self) -> None:
        self.started: list[tuple[Trigger, Work]] = []
        self.error: Exception | None = None
        self.called = 0

    async def start(self, trigger: Trigger, work: Work, also: object = None) -> str | None:
        del also
        self.called += 1
        if self.error is not None:
            raise self.error
        if any((t.name, t.key) == (trigger.name, trigger.key) for t, _ in self.started):
            return None
        self.started.append((trigger, work))
        return f"task-{len(self.started)}"


def github(**options: Any) -> Webhook:
    given = {"name": "gh", "kind": "github", "secret": SECRET.decode(), "skill": "report"}
    return Webhook(WebhookEntry(principal=str(JULIET), **given | options), WINDOW_S)


def generic(**options: Any) -> Webhook:
    secret = f"whsec_{base64.b64encode(KEY).decode()}"
    given = {"name": "any", "kind": "generic", "secret": secret, "skill": "report"}
    return Webhook(WebhookEntry(principal=str(JULIET), **given | options), WINDOW_S)


class Sender:
    """Sends to a listener."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def raw(self, data: bytes, *, eof: bool = False) -> bytes:
        """Send bytes as they are and return all that comes until the connection is closed."""
        async with await anyio.connect_tcp("127.0.0.1", self.port) as stream:
            got = b""
            try:
                await stream.send(data)
                if eof:
                    await stream.send_eof()
                while True:
                    got += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return got

    async def request(
        self, method: str, path: str, headers: Iterable[tuple[str, str]], body: bytes
    ) -> Response:
        head = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close"]
        head += [f"{name}: {value}" for name, value in headers]
        if not any(name.lower() in ("content-length", "transfer-encoding") for name, _ in headers):
            head.append(f"Content-Length: {len(body)}")
        return parsed(await self.raw("\r\n".join(head).encode() + b"\r\n\r\n" + body))

    async def github(
        self, value: Any, event: str = "push", id_: str = "d-1", secret: bytes = SECRET
    ) -> Response:
        body = json.dumps(value).encode()
        return await self.request("POST", "/gh", github_headers(body, event, id_, secret), body)

    async def generic(self, value: Any, id_: str = "msg_1", at: float | None = None) -> Response:
        body = json.dumps(value).encode()
        return await self.request("POST", "/any", generic_headers(body, id_, at), body)


def github_headers(
    body: bytes, event: str = "push", id_: str = "d-1", secret: bytes = SECRET
) -> list[tuple[str, str]]:
    return [
        ("Content-Type", "application/json"),
        ("X-GitHub-Event", event),
        ("X-GitHub-Delivery", id_),
        ("X-Hub-Signature-256", "sha256=" + hmac.new(secret, body, sha256).hexdigest()),
    ]


def generic_headers(
    body: bytes, id_: str = "msg_1", at: float | None = None, key: bytes = KEY
) -> list[tuple[str, str]]:
    when = str(int(time.time() if at is None else at))
    digest = hmac.new(key, b".".join((id_.encode(), when.encode(), body)), sha256).digest()
    return [
        ("Content-Type", "application/json"),
        ("webhook-id", id_),
        ("webhook-timestamp", when),
        ("webhook-signature", "v1," + base64.b64encode(digest).decode()),
    ]


def parsed(data: bytes) -> Response:
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = [line.split(": ", 1) for line in lines]
    headers = {name.lower(): value for name, value in pairs}
    return Response(int(first.split()[1]), headers, body)


class World(msgspec.Struct):
    sender: Sender
    starter: RecordingStarter
    deliveries: DeliveryStore


@asynccontextmanager
async def listening(
    storage: Storage,
    *webhooks: Webhook,
    limits: WebhookLimits = WebhookLimits(),  # noqa: B008
    headers_s: float = 5.0,
    remember_s: float = 3600.0,
) -> AsyncIterator[World]:
    starter = RecordingStarter()
    deliveries = DeliveryStore(storage, remember_s)
    routes = HttpRoutes()
    routes.routes.append(HttpRoute("", WebhookApp(webhooks, starter, deliveries, limits)))
    listener = HttpListener(routes, "127.0.0.1", 0, headers_s=headers_s, silence_s=2)
    async with anyio.create_task_group() as group:
        await group.start(listener.run)
        yield World(Sender(listener.port), starter, deliveries)
        group.cancel_scope.cancel()

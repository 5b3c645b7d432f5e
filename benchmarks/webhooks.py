"""Measures how long a sender waits for the answer to a delivery, and the deliveries per second.

The answer is sent when the task is on disk; here the starter writes one row instead. The peer is
the same listener with an application that answers at once: the cost of Hypercorn alone.
"""

from __future__ import annotations

import base64
import hmac
import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
from pydantic import SecretStr

from benchmarks.report import Line
from component.app.schema import SCHEMA
from component.features.http_listener.listener import HttpListener
from component.features.webhooks.app import WebhookApp
from component.features.webhooks.rows import DeliveryStore
from component.features.webhooks.settings import WebhookEntry, WebhookLimits
from component.features.webhooks.webhook import Webhook
from component.kernel.http_routes import HttpRoute, HttpRoutes, Receive, Send
from component.kernel.triggers import Trigger, Work
from component.store import Storage

_KEY = bytes(32)
_COUNT = 200
_SENDERS = 8
_BODY = json.dumps({"event": "deployed", "services": [{"name": "shop"}] * 50}).encode()


class _Starter:
    """Records each trigger as one row."""

    def __init__(self, storage: Storage) -> None:
        self._store = DeliveryStore(storage, 3600)

    async def start(self, trigger: Trigger, _work: Work) -> str | None:
        await self._store.remember("started", trigger.key, trigger.key)
        return trigger.key


class _AtOnce(WebhookApp):
    """Answers everything with 202."""

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        while (await receive()).get("more_body", False):
            pass
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 202, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})


def measure(runs: int) -> Iterator[Line]:
    """Yield the time to the answer, and deliveries in a second with eight senders."""
    ours: list[tuple[float, float]] = []
    peer: list[tuple[float, float]] = []
    for _ in range(runs):
        ours.append(anyio.run(_run, WebhookApp, backend="trio"))
        peer.append(anyio.run(_run, _AtOnce, backend="trio"))
    yield Line(
        "a delivery to a webhook, until it is accepted",
        "ms",
        [one[0] for one in ours],
        [one[0] for one in peer],
    )
    yield Line(
        f"deliveries accepted in a second, {_SENDERS} senders",
        "1/s",
        [one[1] for one in ours],
        [one[1] for one in peer],
    )


async def _run(kind: type[WebhookApp]) -> tuple[float, float]:
    """Return the median milliseconds of a delivery, and deliveries in a second."""
    secret = SecretStr(f"whsec_{base64.b64encode(_KEY).decode()}")
    webhook = Webhook(
        WebhookEntry(
            name="b",
            secret=secret,
            principal="juliet@example.com",
            skill="report",
            per_minute=1_000_000,
        ),
        300,
    )
    with tempfile.TemporaryDirectory() as directory:
        async with Storage.open(SCHEMA, Path(directory) / "data") as storage:
            starter: Any = _Starter(storage)
            routes = HttpRoutes()
            app = kind([webhook], starter, DeliveryStore(storage, 3600), WebhookLimits())
            routes.routes.append(HttpRoute("", app))
            listener = HttpListener(routes, "127.0.0.1", 0)
            async with anyio.create_task_group() as group:
                await group.start(listener.run)
                times: list[float] = []
                await _send(listener.port, "alone", times)
                started = time.perf_counter()
                async with anyio.create_task_group() as senders:
                    for number in range(_SENDERS):
                        senders.start_soon(_send, listener.port, f"s{number}", [])
                per_second = _SENDERS * _COUNT / (time.perf_counter() - started)
                group.cancel_scope.cancel()
    return sorted(times)[len(times) // 2] * 1000, per_second


async def _send(port: int, name: str, times: list[float]) -> None:
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        for number in range(_COUNT):
            request = _request(f"{name}-{number}")
            before = time.perf_counter()
            await stream.send(request)
            answer = b""
            while b"}" not in answer:
                answer += await stream.receive()
            times.append(time.perf_counter() - before)
            assert b" 202 " in answer.split(b"\r\n")[0] + b" ", answer


def _request(id_: str) -> bytes:
    now = str(int(time.time()))
    digest = hmac.new(_KEY, f"{id_}.{now}.".encode() + _BODY, sha256).digest()
    head = (
        "POST /b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"webhook-id: {id_}\r\nwebhook-timestamp: {now}\r\n"
        f"webhook-signature: v1,{base64.b64encode(digest).decode()}\r\n"
        f"Content-Length: {len(_BODY)}\r\n\r\n"
    )
    return head.encode() + _BODY

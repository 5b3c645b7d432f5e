"""The figures: what was counted is what Prometheus reads, and who asks wrongly hurts nobody."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from component.features.metrics.exposition import Exposition, Pages
from component.features.metrics.http import MetricsListenError, PageResponse, PageServer
from component.kernel.monitoring import Monitoring
from component.metrics.counters import Counters, Gauge
from component.models.protocol import Usage

pytestmark = pytest.mark.anyio


def read(exposition: Exposition) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """As Prometheus does."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(exposition.text().decode())
        for sample in family.samples
    }


def test_what_was_counted_is_read() -> None:
    monitoring = Monitoring()
    counters = monitoring.counters
    counters.stanzas_in += 3
    counters.executes.add(0.002, "echo", "done")
    counters.executes.add(700, "echo", "done")
    monitoring.model_call("gpt", "done", 0.2, Usage(tokens_in=10, tokens_out=5, cost_usd=0.25))
    monitoring.model_call("gpt", "done", 0.2, Usage(cache_read=4, reasoning=3))
    counters.tool_call("made up", "unknown", 0.1)
    counters.turn("assistant", "answered", 2)
    gauges = [
        Gauge("connected", "Whether there is a stream.", {(): 1}),
        Gauge("tasks", "Tasks.", {("running",): 2}, ("state",)),
    ]
    found = read(Exposition(counters, lambda: gauges))
    assert found["xmpp_agent_stanzas_received_total", ()] == 3
    called = (("model", "gpt"), ("outcome", "done"))
    assert found["xmpp_agent_model_call_seconds_count", called] == 2
    done = (("outcome", "done"), ("skill", "echo"))
    assert found["xmpp_agent_execute_seconds_count", done] == 2
    assert found["xmpp_agent_execute_seconds_sum", done] == pytest.approx(700.002)
    assert found["xmpp_agent_execute_seconds_bucket", (("le", "0.005"), *done)] == 1
    assert found["xmpp_agent_execute_seconds_bucket", (("le", "300.0"), *done)] == 1
    assert found["xmpp_agent_execute_seconds_bucket", (("le", "+Inf"), *done)] == 2
    assert found["xmpp_agent_tokens_total", (("direction", "in"), ("model", "gpt"))] == 10
    assert found["xmpp_agent_tokens_total", (("direction", "out"), ("model", "gpt"))] == 5
    assert found["xmpp_agent_tokens_total", (("direction", "cache_read"), ("model", "gpt"))] == 4
    assert found["xmpp_agent_tokens_total", (("direction", "reasoning"), ("model", "gpt"))] == 3
    assert found["xmpp_agent_cost_usd_total", (("model", "gpt"),)] == 0.25
    unknown = (("outcome", "unknown"), ("tool", "other"))
    assert found["xmpp_agent_tool_call_seconds_count", unknown] == 1
    assert found["xmpp_agent_tool_call_seconds_bucket", (("le", "0.1"), *unknown)] == 1
    assert found["xmpp_agent_connected", ()] == 1
    assert found["xmpp_agent_tasks", (("state", "running"),)] == 2
    assert found["process_open_fds", ()] > 0


def test_names_without_bound_do_not_fill_the_memory() -> None:
    counters = Counters()
    for number in range(5000):
        counters.refusals.add(f"reason {number}")
        counters.executes.add(0.1, f"skill {number}", "done")
    assert len(counters.refusals.values) == 1001
    assert counters.refusals.values["other",] == 4000
    assert len(counters.executes.values) == 1001


@given(st.text(), st.floats(min_value=0, max_value=1e6))
def test_any_label_and_number_can_be_read(label: str, seconds: float) -> None:
    counters = Counters()
    counters.executes.add(seconds, label, "done")
    Exposition(counters, list).text()


@asynccontextmanager
async def serving(*, local: bool = True, faults: tuple[str, ...] = ()) -> AsyncIterator[int]:
    async def nothing() -> None: ...

    async def found() -> list[str]:
        return list(faults)

    metrics: Any = SimpleNamespace(refresh=nothing, faults=found)

    async def broken() -> PageResponse:
        raise ValueError("a fault of the page")

    pages = {**Pages(Exposition(Counters(), list), metrics).by_path(), "/broken": broken}
    server = PageServer("127.0.0.1", 0, pages, local=local)
    async with anyio.create_task_group() as group:
        await group.start(server.run)
        yield server.port
        group.cancel_scope.cancel()


async def ask(port: int, request: bytes) -> tuple[int, str, bytes]:
    """Status, headers and body; a status of 0 for being hung up on."""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(request)
        answer = b""
        try:
            while True:
                answer += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            pass
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]) if head else 0, head.decode(), body


def get(path: str, host: str = "127.0.0.1") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


async def test_metrics_health_and_readiness_are_served() -> None:
    async with serving() as port:
        status, head, body = await ask(port, get("/metrics?x=1"))
        assert status == 200
        assert "Content-Type: text/plain; version=0.0.4" in head
        assert f"Content-Length: {len(body)}\r\n" in head
        assert b"# TYPE xmpp_agent_stanzas_received_total counter" in body
        assert await ask(port, get("/healthz")) == (200, *(await ask(port, get("/healthz")))[1:])
        assert (await ask(port, get("/readyz")))[2] == b"ready\n"
        status, _, body = await ask(port, get("/metrics").replace(b"GET", b"HEAD"))
        assert (status, body) == (200, b"")


async def test_who_is_not_ready_says_why() -> None:
    async with serving(faults=("Not connected.",)) as port:
        status, _, body = await ask(port, get("/readyz"))
        assert (status, body) == (503, b"Not connected.\n")
        assert (await ask(port, get("/healthz")))[0] == 200


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/nothing"), 404),
        (get("/broken"), 500),
        (get("/metrics").replace(b"GET", b"POST"), 405),
        (get("/metrics").replace(b"GET ", b"get "), 400),
        (get("/metrics").replace(b"HTTP/1.1", b"HTTP/2"), 400),
        (b"GET /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n folded: x\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
        (b"GET  /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.0\r\n\r\n", 200),
        (get("/healthz", "localhost:9465"), 200),
        (get("/healthz", "[::1]:9465"), 200),
        (get("/healthz", "[::1]"), 200),
        (get("/metrics", "rebound.example.com"), 421),
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    ],
)
async def test_whatever_is_asked_gets_an_answer_of_its_own(request_: bytes, status: int) -> None:
    async with serving() as port:
        assert (await ask(port, request_))[0] == status
        assert (await ask(port, get("/healthz")))[0] == 200


async def test_other_names_are_answered_to_where_that_is_wanted() -> None:
    async with serving(local=False) as port:
        assert (await ask(port, get("/healthz", "agent.example.com")))[0] == 200


async def test_headers_without_an_end_are_not_read_for_ever() -> None:
    async with serving() as port:
        status, _, _ = await ask(port, b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5000)
        assert status in (431, 0)
        assert (await ask(port, get("/healthz")))[0] == 200


async def test_who_says_nothing_is_hung_up_on_and_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("component.features.metrics.http._TIMEOUT_S", 1.0)
    async with serving() as port, await anyio.connect_tcp("127.0.0.1", port) as silent:
        await silent.send(b"GET /hea")
        assert (await ask(port, get("/healthz")))[0] == 200
        with pytest.raises(anyio.EndOfStream):
            await silent.receive()


async def test_idle_connections_make_room_for_one_that_asks() -> None:
    async with serving() as port, contextlib.AsyncExitStack() as stack:
        idle = []
        for number in range(40):
            client = await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port))
            if number % 2:
                await client.send(b"GET /healthz HTTP/1.1\r\n")
            idle.append(client)
        for _ in range(20):
            status, _, _ = await ask(port, get("/healthz"))
            assert status == 200
        for client in idle[:20]:  # the oldest went first
            with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await client.receive()


async def test_an_address_that_is_taken_is_named() -> None:
    async with serving() as port:
        with pytest.raises(MetricsListenError, match=f"port {port}"):
            await PageServer("127.0.0.1", port, {}).run()

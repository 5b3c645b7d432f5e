"""Traces, as a collector gets them by OTLP over HTTP on a real socket."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import anyio
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pydantic import SecretStr

from component.config.service import Traces
from component.metrics.traces import Tracer, TracesError, make_tracer

pytestmark = pytest.mark.anyio


class Collector(HTTPServer):
    def __init__(self) -> None:
        self.paths: list[str] = []
        self.authorizations: list[str | None] = []
        self.spans: list[Any] = []
        self.resources: list[dict[str, str | int]] = []
        super().__init__(("127.0.0.1", 0), _Receiver)


class _Receiver(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        request = ExportTraceServiceRequest.FromString(body)
        self.server.paths.append(self.path)
        self.server.authorizations.append(self.headers.get("Authorization"))
        for each in request.resource_spans:
            self.server.resources.append(attributes(each.resource))
            for scope in each.scope_spans:
                self.server.spans += scope.spans
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_args: object) -> None: ...


def attributes(of: object) -> dict[str, str | int]:
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value"))
        for each in of.attributes  # type: ignore[attr-defined]
    }


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as server:
        yield server


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector, for the time of the context."""
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def test_a_turn_is_a_trace_with_what_happened_in_it(collector: Collector) -> None:
    providers = {"": "openai", "gpt": "openrouter"}
    traces = Traces(
        endpoint=f"http://127.0.0.1:{collector.server_port}/", authorization=SecretStr("Bearer x")
    )
    tracer = make_tracer(traces, "1.2", providers)

    async def tool(name: str) -> None:
        with tracer.span("execute_tool", tool=name, call="c1"):
            await anyio.lowlevel.checkpoint()

    with tracer.span("invoke_agent", agent="assistant", turn="t1"):
        with tracer.span("chat", model="gpt") as span:
            await anyio.lowlevel.checkpoint()
            span.set_attributes(answered_by="gpt-5", tokens_in=11, tokens_out=7)
        async with anyio.create_task_group() as group:
            group.start_soon(tool, "one")
            group.start_soon(tool, "two")
    await tracer.close()

    spans = {span.name: span for span in collector.spans}  # type: ignore[attr-defined]
    assert spans.keys() == {
        "invoke_agent assistant",
        "chat gpt",
        "execute_tool one",
        "execute_tool two",
    }
    turn = spans.pop("invoke_agent assistant")
    assert {span.trace_id for span in spans.values()} == {turn.trace_id}
    assert {span.parent_span_id for span in spans.values()} == {turn.span_id}
    assert attributes(turn) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "assistant",
        "gen_ai.provider.name": "openai",
        "xmpp_agent.turn": "t1",  # as the record has it, as trace
    }
    assert attributes(spans["chat gpt"]) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt",
        "gen_ai.response.model": "gpt-5",
        "gen_ai.provider.name": "openrouter",
        "gen_ai.usage.input_tokens": 11,
        "gen_ai.usage.output_tokens": 7,
    }
    assert attributes(spans["execute_tool one"])["gen_ai.tool.call.id"] == "c1"
    assert collector.paths == ["/v1/traces"]
    assert collector.authorizations == ["Bearer x"]
    assert collector.resources[0] == {
        "service.name": "xmpp-agent-component",
        "service.version": "1.2",
    }


async def test_an_error_is_named_and_not_quoted(collector: Collector) -> None:
    tracer = make_tracer(Traces(endpoint=f"http://127.0.0.1:{collector.server_port}"), "1.2")
    with pytest.raises(ValueError, match="secret"), tracer.span("chat", model="gpt"):
        raise ValueError("what somebody said in secret")
    await tracer.close()
    (span,) = collector.spans
    assert attributes(span)["error.type"] == "ValueError"
    assert b"secret" not in span.SerializeToString()  # type: ignore[attr-defined]
    assert span.status.code == 2  # type: ignore[attr-defined]
    assert collector.authorizations == [None]


async def test_a_part_of_the_turns_is_traced(collector: Collector) -> None:
    traces = Traces(endpoint=f"http://127.0.0.1:{collector.server_port}", sample=0.0)
    tracer = make_tracer(traces, "1.2")
    with tracer.span("invoke_agent", agent="a"), tracer.span("chat", model="gpt"):
        pass
    await tracer.close()
    assert collector.spans == []


def test_nothing_is_traced_without_an_address() -> None:
    tracer = make_tracer(Traces(), "1.2")
    assert type(tracer) is Tracer
    with tracer.span("chat", model="gpt"):
        pass


def test_traces_without_their_extra_name_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "component.metrics.otel", None)
    with pytest.raises(TracesError, match=r"component\[otel\]"):
        make_tracer(Traces(endpoint="http://127.0.0.1:1"), "1.2")


async def test_a_collector_that_is_away_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("component.metrics.otel._LAST_S", 0.05)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        tracer = make_tracer(Traces(endpoint=endpoint), "1.2")
        with tracer.span("chat", model="gpt"):
            pass
        with anyio.fail_after(30):  # it would try for as long as a minute
            await tracer.close()

"""The OpenTelemetry tracer. Needs the `otel` extra; only imported if traces are enabled.

The SDK sends spans from its own thread. The tracer provider is not the global one, and environment
variables of the SDK do not change where spans are sent.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import anyio
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span as OpenSpan
from opentelemetry.trace import SpanKind, Status, StatusCode

from component import system
from component.config.service import Traces
from component.metrics.traces import Span, Tracer

_TIMEOUT_S: Final = 5
_LAST_S: Final = 3.0
"""Time limit for sending the last spans."""
_SOFTWARE: Final = "xmpp-agent-component"
_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    # https://opentelemetry.io/docs/specs/semconv/gen-ai/, gen-ai-spans and gen-ai-agent-spans
    "invoke_agent": {"agent": "gen_ai.agent.name"},
    "chat": {
        "model": "gen_ai.request.model",
        "answered_by": "gen_ai.response.model",
        "tokens_in": "gen_ai.usage.input_tokens",
        "tokens_out": "gen_ai.usage.output_tokens",
        "cache_read": "gen_ai.usage.cache_read.input_tokens",
        "cache_write": "gen_ai.usage.cache_creation.input_tokens",
        "reasoning": "gen_ai.usage.reasoning.output_tokens",
    },
    "execute_tool": {"tool": "gen_ai.tool.name", "call": "gen_ai.tool.call.id"},
}
_TITLES: Final = {"invoke_agent": "agent", "chat": "model", "execute_tool": "tool"}
"""The attribute that follows the operation in the name of a span."""


class _Span(Span):
    """An open span; renames attributes according to the semantic conventions."""

    def __init__(self, span: OpenSpan, names: Mapping[str, str]) -> None:
        self._span = span
        self._names = names

    def set_attributes(self, **attributes: str | int) -> None:
        for key, value in attributes.items():
            self._span.set_attribute(self._names.get(key, f"xmpp_agent.{key}"), value)


class OTelTracer(Tracer):
    """Sends spans to a collector.

    Args:
        settings: where the collector is, and which turns are traced.
        version: the version of this release.
        providers: the provider of each model by its name, that of all others under "".
    """

    def __init__(self, settings: Traces, version: str, providers: Mapping[str, str]) -> None:
        self._providers = providers
        authorization = settings.authorization.get_secret_value()
        headers = {"authorization": authorization} if authorization else {}
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(settings.sample)),
            resource=Resource({"service.name": _SOFTWARE, "service.version": version}),
            shutdown_on_exit=False,
        )
        self._exporter = OTLPSpanExporter(
            endpoint=f"{settings.endpoint.rstrip('/')}/v1/traces",
            headers=headers,
            timeout=_TIMEOUT_S,
        )
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer(_SOFTWARE, version)

    @contextmanager
    def span(self, name: str, **attributes: str) -> Iterator[Span]:
        """See `Tracer`."""
        known = _NAMES.get(name, {})
        title = attributes.get(_TITLES.get(name, ""), "")
        provider = self._providers.get(title) or self._providers.get("")
        described = {known.get(key, f"xmpp_agent.{key}"): text for key, text in attributes.items()}
        if provider and name != "execute_tool":
            described["gen_ai.provider.name"] = provider
        with self._tracer.start_as_current_span(
            f"{name} {title}".rstrip(),
            kind=SpanKind.CLIENT if name == "chat" else SpanKind.INTERNAL,
            attributes={"gen_ai.operation.name": name, **described},
            # The text of an error may contain a message; its type is enough.
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield _Span(span, known)
            except BaseException as error:
                span.set_attribute("error.type", type(error).__qualname__)
                if isinstance(error, Exception):
                    span.set_status(Status(StatusCode.ERROR))
                raise

    async def close(self) -> None:
        """Send the remaining spans, for a few seconds at most. Never raises."""
        done = anyio.Event()

        async def send() -> None:
            await system.in_thread(self._provider.shutdown)
            done.set()

        async with anyio.create_task_group() as group:
            group.start_soon(send)
            with anyio.move_on_after(_LAST_S):
                await done.wait()
            if not done.is_set():
                # It would keep trying to reach an unavailable collector.
                self._exporter.shutdown()  # type: ignore[no-untyped-call]

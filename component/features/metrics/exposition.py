"""The pages: metrics in the Prometheus text format, generated from counters and gauges, and health.

Each `Exposition` has its own registry; importing a module registers nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final

import anyio
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from component.features.metrics.http import Page, PageResponse
from component.features.metrics.service_metrics import ServiceMetrics
from component.metrics.counters import BOUNDS_S, Count, Counters, Durations, Gauge

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX: Final = "xmpp_agent"
_TIMEOUT_S: Final = 2.0


class Exposition:
    """Generates the text. `gauges` is called at each scrape."""

    def __init__(self, counters: Counters, gauges: Callable[[], Iterable[Gauge]]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Counted(counters, gauges))
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """All metrics in the Prometheus text format."""
        return generate_latest(self._registry)


class _Counted(Collector):
    def __init__(self, counters: Counters, gauges: Callable[[], Iterable[Gauge]]) -> None:
        self._counters = counters
        self._gauges = gauges

    def describe(self) -> Iterable[Metric]:
        return ()  # otherwise registering would collect all metrics once

    def collect(self) -> Iterator[Metric]:
        counted = self._counters
        yield _count("stanzas_received", "Received stanzas.", (), {(): float(counted.stanzas_in)})
        yield _count("stream_losses", "Lost streams.", (), {(): float(counted.reconnects)})
        yield _durations(
            "execute", "Requests to execute a skill.", ("skill", "outcome"), counted.executes
        )
        yield _count("refusals", "Refused requests.", ("reason",), counted.refusals)
        yield _durations("turn", "Turns of agents.", ("agent", "outcome"), counted.turns)
        yield _durations("model_call", "Model calls.", ("model", "outcome"), counted.model_calls)
        yield _count(
            "tokens",
            "Tokens in prompts (in; of these cache_read and cache_write) and answers (out; of these"
            " reasoning) of models.",
            ("model", "direction"),
            counted.tokens,
        )
        yield _count("cost_usd", "Cost of model calls in US dollars.", ("model",), counted.usd)
        yield _durations(
            "tool_call", "Tool calls by models.", ("tool", "outcome"), counted.tool_calls
        )
        for gauge in self._gauges():
            kind = CounterMetricFamily if gauge.total else GaugeMetricFamily
            family = kind(f"{_PREFIX}_{gauge.name}", gauge.about, labels=gauge.labels)
            for labels, value in gauge.values.items():
                family.add_metric(labels, value)
            yield family


def _count(
    name: str, about: str, labels: tuple[str, ...], count: Count | Mapping[tuple[str, ...], float]
) -> Metric:
    family = CounterMetricFamily(f"{_PREFIX}_{name}", about, labels=labels)
    for each, value in (count.values if isinstance(count, Count) else count).items():
        family.add_metric(each, value)
    return family


def _durations(name: str, about: str, labels: tuple[str, ...], durations: Durations) -> Metric:
    family = HistogramMetricFamily(f"{_PREFIX}_{name}_seconds", about, labels=labels)
    bounds = [*(str(bound) for bound in BOUNDS_S), "+Inf"]
    for each, (counts, (total,)) in durations.values.items():
        family.add_metric(each, list(zip(bounds, accumulate(counts), strict=True)), total)
    return family


class Pages:
    """Creates the three pages: metrics, liveness and readiness."""

    def __init__(self, exposition: Exposition, metrics: ServiceMetrics) -> None:
        self._exposition = exposition
        self._metrics_of_service = metrics

    def by_path(self) -> Mapping[str, Page]:
        """The pages by path."""
        return {"/metrics": self._metrics, "/healthz": self._health, "/readyz": self._ready}

    async def _metrics(self) -> PageResponse:
        with anyio.move_on_after(_TIMEOUT_S):  # old values are better than none
            await self._metrics_of_service.refresh()
        return PageResponse(200, self._exposition.text(), CONTENT_TYPE)

    async def _health(self) -> PageResponse:
        # A response proves that the process is alive and its event loop runs.
        return PageResponse(200, b"ok\n")

    async def _ready(self) -> PageResponse:
        faults = ["The storage does not answer."]
        with anyio.move_on_after(_TIMEOUT_S):
            faults = await self._metrics_of_service.faults()
        if faults:
            return PageResponse(503, "".join(f"{fault}\n" for fault in faults).encode())
        return PageResponse(200, b"ready\n")

"""The dashboard for Grafana has a panel for each metric of a service, and names no others."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from component.features.metrics.dashboard import text_of
from component.features.metrics.exposition import Exposition
from component.features.metrics.service_metrics import ServiceMetrics
from tests.kit import anyio_backend, service

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

COMMITTED = Path(__file__).parents[4] / "examples" / "grafana-dashboard.json"
NOT_SHOWN = {
    "xmpp_agent_info",
    "process_max_fds",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
}


async def page_of_a_service(directory: Path) -> str:
    async with service(directory) as kit:
        counters = kit.kernel.environment.monitoring.counters
        return Exposition(counters, ServiceMetrics(kit.kernel).gauges).text().decode()


def expressions(dashboard: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


async def test_the_committed_dashboard_is_made_from_the_metrics(tmp_path: Path) -> None:
    made = text_of(await page_of_a_service(tmp_path))
    assert COMMITTED.read_text() == made, (
        "write it again: curl -s http://127.0.0.1:9465/metrics |"
        " python -m component.features.metrics.dashboard > examples/grafana-dashboard.json"
    )


async def test_the_dashboard_shows_every_metric_and_no_other(tmp_path: Path) -> None:
    page = await page_of_a_service(tmp_path)
    ends = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}
    known = {
        f"{family.name}{end}": family.name
        for family in text_string_to_metric_families(page)
        for end in ends[family.type]
    }
    text = " ".join(expressions(json.loads(text_of(page))))
    named = set(re.findall(r"\b(?:xmpp_agent|process)_\w+", text))
    assert named <= known.keys()
    assert {known[name] for name in named} == set(known.values()) - NOT_SHOWN


async def test_panels_have_places_of_their_own(tmp_path: Path) -> None:
    panels = json.loads(text_of(await page_of_a_service(tmp_path)))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24
        assert taken.isdisjoint(cells), panel["title"]
        taken |= cells

"""A dashboard for Grafana, made from the metrics of a service: a panel for each.

`curl -s http://127.0.0.1:9465/metrics | python -m component.features.metrics.dashboard` prints it.
`examples/grafana-dashboard.json` is the one for all metrics of this release; a test compares them.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

_PREFIX: Final = "xmpp_agent_"
_ROWS: Final[Mapping[str, tuple[str, ...]]] = {
    "State": (),
    "Stream": ("stanzas", "iq", "outbox", "requests", "stream", "refusals"),
    "Skills and tasks": ("execute", "tasks"),
    "Agents and models": ("turn", "model", "tokens", "cost", "tool"),
    "Audit log": ("audit",),
    "Process": ("process",),
    "Others": (),
}
"""The rows, and the beginnings of the names of their metrics."""
_LEFT_OUT: Final = frozenset(
    ("info", "process_max_fds", "process_start_time_seconds", "process_virtual_memory_bytes")
)
_UNITS: Final = {"seconds": "s", "bytes": "bytes", "usd": "currencyUSD"}
_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_FILTER: Final = '{instance=~"$instance"}'
_WIDTH, _HEIGHT, _STATE_HEIGHT, _COLUMNS = 8, 7, 4, 24


def dashboard(families: Iterable[Metric]) -> dict[str, Any]:
    """Return the dashboard for these metrics, as the JSON that Grafana imports."""
    shown = [one for one in families if _name(one) not in _LEFT_OUT and one.type != "unknown"]
    order = list(_ROWS)
    shown.sort(key=lambda one: order.index(_row(one)))
    return {
        "title": "XMPP agent",
        "uid": "xmpp-agent",
        "tags": ["xmpp"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": list(_variables())},
        "panels": list(_panels(shown)),
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
    }
    yield {
        "name": "instance",
        "label": "Instance",
        "type": "query",
        "datasource": _DATASOURCE,
        "query": f"label_values({_PREFIX}connected, instance)",
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panels(families: Iterable[Metric]) -> Iterator[dict[str, Any]]:
    number = y = 0
    for row, members in groupby(families, _row):
        number += 1
        position = {"h": 1, "w": _COLUMNS, "x": 0, "y": y}
        yield {"id": number, "type": "row", "title": row, "gridPos": position, "panels": []}
        y += 1
        height = _STATE_HEIGHT if row == "State" else _HEIGHT
        x = 0
        for family in members:
            if x == _COLUMNS:
                x, y = 0, y + height
            number += 1
            position = {"h": height, "w": _WIDTH, "x": x, "y": y}
            yield {"id": number, "gridPos": position, **_panel(family)}
            x += _WIDTH
        y += height


def _name(family: Metric) -> str:
    return str(family.name).removeprefix(_PREFIX)


def _is_state(family: Metric) -> bool:
    return family.documentation.startswith("Whether ")


def _row(family: Metric) -> str:
    if _is_state(family):
        return "State"
    named = (row for row, begins in _ROWS.items() if begins and _name(family).startswith(begins))
    return next(named, "Others")


def _panel(family: Metric) -> dict[str, Any]:
    unit = _UNITS.get(_name(family).rpartition("_")[2], "short")
    panel: dict[str, Any] = {
        "title": _name(family).replace("_", " ").capitalize(),
        "description": family.documentation,
        "datasource": _DATASOURCE,
        "type": "stat" if _is_state(family) else "timeseries",
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(65 + index),
                "datasource": _DATASOURCE,
                "expr": expr,
                "legendFormat": legend,
            }
            for index, (expr, legend) in enumerate(_queries(family))
        ],
    }
    if _is_state(family):
        words = {"0": {"text": "no"}, "1": {"text": "yes"}}
        mappings = [{"type": "value", "options": words}]
        panel["fieldConfig"]["defaults"] = {"mappings": mappings}
    elif family.type == "counter":
        panel["description"] += " Per second."
    return panel


def _queries(family: Metric) -> Iterator[tuple[str, str]]:
    """Yield the expressions for a metric and their legends."""
    name = family.name
    if family.type == "counter":
        yield f"rate({name}_total{_FILTER}[$__rate_interval])", "__auto"
    elif family.type == "histogram":
        buckets = f"sum by (le) (rate({name}_bucket{_FILTER}[$__rate_interval]))"
        for quantile in (0.5, 0.95):
            yield f"histogram_quantile({quantile}, {buckets})", f"{quantile:.0%}"
    else:
        yield f"{name}{_FILTER}", "__auto"


def text_of(page: str) -> str:
    """Return the dashboard for the metrics on a page in the Prometheus text format."""
    made = dashboard(text_string_to_metric_families(page))
    return json.dumps(made, indent=2) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text_of(sys.stdin.read()))

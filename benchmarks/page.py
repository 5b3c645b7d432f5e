"""docs/reference/benchmarks.md, made from the rows of the last measurement of each benchmark.

    python -m benchmarks.page

`results.json` beside this file has the rows. A benchmark that is run replaces its own rows.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import counts
from benchmarks.report import Line

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[1] / "docs" / "reference" / "benchmarks.md"

Row = dict[str, Any]

_HEAD = """\
# What is measured

`make bench` measures the service beside comparable projects, and writes this page and
`benchmarks/results.json`; `make bench ONLY=turn` runs one benchmark. Absolute figures belong to one
machine at one time, and a busy machine blurs the ratios, too: compare ratios, and look at the date.
No test asserts a time. [measurements.md](../explanation/measurements.md) says what was learned.
"""
_COUNTS = """\
## Counts

What one request costs, independent of machine and time; `make test` compares all but the last two
columns exactly. A hop is a call from a function in one file of `component/` or `xep/` to a function
in another one; `benchmarks/counted.py` defines all columns. Empty: the tool was not installed.
"""
_GROUPS: dict[str, tuple[str, ...]] = {
    "Requests": (
        *("loopback", "prosody", "fairness", "many_skills", "announcing", "scale", "forms"),
    ),
    "Start and memory": ("startup",),
    "Beside the worst of one principal": ("abuse", "abuse_prosody"),
    "Durable work": ("durable", "waiting", "stored", "instances"),
    "A turn of an agent": ("turn", "conversations"),
    "Prompts and local models": ("prefix", "tools", "first_token"),
    "Recalling": ("recall",),
    "Watches and webhooks": ("watching", "webhooks"),
    "Rooms": ("rooms",),
    "Objects": ("objects",),
    "Plans": ("plans",),
    "Confined code and workers": ("confined", "sandbox", "workers"),
    "Agents on other servers": ("federation",),
    "Prompt injections": ("agentdojo",),
}
_ABOUT = {
    "Requests": """\
The peer is slixmpp as an external component on uvloop: it returns the same result without policy,
validation, limits and registry.
""",
    "Start and memory": "The peer imports trio, pydantic-settings and msgspec.\n",
    "Beside the worst of one principal": """\
One account pings, one request at a time, while another keeps 64 large requests in flight. The peer
is the same ping alone.
""",
    "Durable work": """\
The peer is DBOS in a process of its own on the same kind of database. Where tasks wait or are
stored, it is the service itself with fewer tasks.
""",
    "A turn of an agent": """\
Two calls of a model that answers at once, and one of a tool. The peers do the same without durable
messages, history, memories, budgets, policy and audit log.
""",
    "Recalling": "[recall.md](../explanation/recall.md) describes the questions and the ranking.\n",
    "Plans": """\
Each row has a peer: DBOS, whose steps are child workflows, or LangGraph, whose steps are nodes of a
graph that is stored after each round, all on SQLite.
""",
    "Objects": """\
The peer is SQLite, which filters the same rows by `json_extract`.
""",
    "Agents on other servers": """\
Calls go from an agent on Prosody to one on ejabberd; the peers are the same call of a skill of the
own agent, and a ping of the other agent by a component. Where a service knows a thousand agents,
the peer is the same service without any.
""",
    "Prompt injections": "See [attacks.md](../explanation/attacks.md).\n",
}


def stored() -> list[Row]:
    """Return all rows."""
    rows: list[Row] = json.loads(RESULTS.read_text())
    return rows


def replace(bench: str, lines: Iterable[Line]) -> None:
    """Store what a benchmark has measured now, instead of what it measured the last time."""
    rows = [row for row in stored() if row["bench"] != bench]
    rows += [row_of(bench, line) for line in lines]
    RESULTS.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


def row_of(bench: str, line: Line) -> Row:
    """Return a line as a row: medians, and the extremes of the ratios."""
    ratios, target = line.ratios, line.target
    return {
        "bench": bench,
        "name": line.name,
        "unit": line.unit,
        "ours": statistics.median(line.ours),
        "peer": statistics.median(line.peer) if line.peer else None,
        "ratio": line.ratio,
        "ratios": [min(ratios), max(ratios)] if len(ratios) > 1 else None,
        "target": None if target is None else f"{target.sense} {target.bound:g}",
        "met": line.met,
        "machine": f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.0f},"
        f" Python {platform.python_version()}",
        "date": datetime.now(UTC).date().isoformat(),
    }


def write() -> None:
    """Write the page."""
    PAGE.write_text(page(stored(), counts.stored()))


def page(rows: Sequence[Row], counted: counts.Counts) -> str:
    """Return the page."""
    parts = [_HEAD, _COUNTS, _counts_table(counted)]
    for heading, benches in _GROUPS.items():
        found = [row for bench in benches for row in rows if row["bench"] == bench]
        if found:
            about = [_ABOUT[heading]] if heading in _ABOUT else []
            parts += [f"## {heading}\n", *about, _table(found)]
    return "\n".join(parts)


def _counts_table(counted: counts.Counts) -> str:
    titles = list(dict.fromkeys(title for found in counted.values() for title in found))
    rows = [
        [path, *(f"{found[title]:,}" if title in found else "" for title in titles)]
        for path, found in counted.items()
    ]
    return _markdown(["path", *titles], rows)


def _table(rows: Sequence[Row]) -> str:
    head = ["what", "ours", "peer", "ratio", "target", "machine", "date"]
    return _markdown(head, [_cells(row) for row in rows])


def _cells(row: Row) -> list[str]:
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
    if row["ratios"] is not None:
        low, high = row["ratios"]
        ratio += f" ({low:.2f} to {high:.2f})"
    missed = ", **not met**" if row["met"] is False else ""
    return [
        row["name"].replace("|", "/"),
        _figure(row["ours"], row["unit"]),
        _figure(row["peer"], row["unit"]),
        ratio,
        f"{row['target'] or ''}{missed}",
        row["machine"],
        row["date"],
    ]


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = 0 if abs(value) >= 100 or value == int(value) else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f} {unit}".rstrip()


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


if __name__ == "__main__":
    write()

"""Measurements as lines of a table.

Absolute values belong to one machine at one time; ratios of one run are comparable. So a line
stores the values of each run for us and for the peer, and its ratio is the median of the ratios of
the runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a line: its ratio, or our own value if there is no peer."""

    bound: float
    sense: Literal["at least", "at most"]
    of: Literal["ratio", "ours"] = "ratio"

    def met(self, value: float) -> bool:
        """Return whether the value is within the limit."""
        return value >= self.bound if self.sense == "at least" else value <= self.bound


@dataclass(frozen=True, slots=True)
class Line:
    """One measurement: `ours` and `peer` have one value per run, in `unit`."""

    name: str
    unit: str
    ours: Sequence[float]
    peer: Sequence[float] = ()
    target: Target | None = None
    note: str = ""

    @property
    def ratios(self) -> list[float]:
        """Ours over the peer's, run by run."""
        return [one / other for one, other in zip(self.ours, self.peer, strict=False)]

    @property
    def ratio(self) -> float | None:
        """The median of the runs' ratios; None without a peer."""
        return statistics.median(self.ratios) if self.peer else None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.target is None:
            return None
        value = statistics.median(self.ours) if self.target.of == "ours" else self.ratio
        return value is not None and self.target.met(value)

    def as_json(self) -> dict[str, Any]:
        """Return all data, every run included."""
        return {**asdict(self), "ratio": self.ratio, "met": self.met}


HEAD = ("measurement", "unit", "ours", "peer", "ratio", "runs' ratios", "target", "met")


def percentile(values: Sequence[float], name: str) -> float:
    """Return "p50" or "p99" of the values, in their unit."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100)[{"p50": 49, "p99": 98}[name]]


def cells(line: Line) -> tuple[str, ...]:
    """Return one row of the table."""
    target = line.target
    ratios = line.ratios
    return (
        line.name,
        line.unit,
        _number(statistics.median(line.ours)),
        _number(statistics.median(line.peer)) if line.peer else "",
        "" if line.ratio is None else f"{line.ratio:.2f}",
        f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else "",
        "" if target is None else f"{target.sense} {target.bound:g}",
        {None: "", True: "yes", False: "NO"}[line.met],
    )


def table(rows: Iterable[tuple[str, ...]]) -> str:
    """Return rows as plain text, a column under each other; text left, numbers right."""
    everything = [HEAD, *rows]
    widths = [max(map(len, column)) for column in zip(*everything, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place < 2 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in everything
    )


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"

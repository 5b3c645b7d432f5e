"""What the injection scanner finds, and how often it cries wolf: rates with 95 % intervals.

The texts stand beside this file, see README.md; `measure` is for `python -m benchmarks`, and
`python -m benchmarks.scanner` shows every category, or measures a set of your own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from benchmarks.report import Line, Target
from component.agent.scanner import PatternScanner

HERE = Path(__file__).parent
PARTS = ("development", "held_out")
_PAGE = 10_000
_SURE = 1.96


@dataclass(frozen=True, slots=True)
class Sample:
    """One labelled text."""

    id: str
    attack: bool
    category: str
    lang: str
    text: str


@dataclass(frozen=True, slots=True)
class Rate:
    """How many of how many the scanner warned of."""

    warned: int
    of: int

    @property
    def percent(self) -> float:
        """The share, in percent."""
        return 100 * self.warned / self.of

    @property
    def interval(self) -> tuple[float, float]:
        """Where the true share is, with 95 % confidence (Wilson), in percent."""
        share, z2 = self.warned / self.of, _SURE**2
        middle = share + z2 / (2 * self.of)
        half = _SURE * math.sqrt(share * (1 - share) / self.of + z2 / (4 * self.of**2))
        whole = 1 + z2 / self.of
        return 100 * max(0.0, (middle - half) / whole), 100 * min(1.0, (middle + half) / whole)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.warned} of {self.of}, {self.percent:.1f} % ({low:.1f} to {high:.1f})"


def read(path: Path) -> list[Sample]:
    """The labelled texts of a file."""
    return [Sample(**json.loads(line)) for line in path.read_text().splitlines()]


def part(name: str) -> list[Sample]:
    """The texts of one part of our own set."""
    return read(HERE / f"{name}.jsonl")


def rates(samples: Iterable[Sample]) -> dict[str, Rate]:
    """The rate of each label and category; `attacks` and `benign` are those of all."""
    scanner = PatternScanner()
    found: dict[str, list[bool]] = {"attacks": [], "benign": []}
    for sample in samples:
        label = "attacks" if sample.attack else "benign"
        warned = scanner.scan(sample.text) is not None
        for key in (label, f"{label}: {sample.category}", f"{label} in {sample.lang}"):
            found.setdefault(key, []).append(warned)
    return {key: Rate(sum(each), len(each)) for key, each in sorted(found.items()) if each}


def measure(runs: int) -> Iterator[Line]:
    """Yield the rates of both parts, and what it takes to scan."""
    for name in PARTS:
        found = rates(part(name))
        for label, what in (("attacks", "hits"), ("benign", "false alarms")):
            rate = found[label]
            note = f"injection scanner, {what}, {name.replace('_', '-')} part: {rate}"
            yield Line(f"scanner, {what}, {name.replace('_', '-')}", "%", [rate.percent], note=note)
    scanner = PatternScanner()
    page = "\n\n".join(each.text for each in part("development") if not each.attack)
    page = (page * (_PAGE // len(page) + 1))[:_PAGE]
    scanner.scan(page)
    times = []
    for _ in range(runs):
        before = perf_counter()
        scanner.scan(page)
        times.append(1e3 * (perf_counter() - before))
    yield Line(
        "scanner, a page of 10,000 signs", "ms", times, target=Target(50, "at most", of="ours")
    )

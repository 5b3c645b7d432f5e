"""`python -m benchmarks`: every measurement, or the ones that are named."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from benchmarks.report import Line, cells, table

# In the order in which they are run and shown.
NAMES = (
    "loopback",
    "prosody",
    "startup",
    "scale",
    "fairness",
    "abuse",
    "durable",
    "waiting",
    "forms",
    "turn",
    "conversations",
    "recall",
    "scanner",
)

Measure = Callable[[int], Iterator[Line]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=NAMES, help="may be given repeatedly")
    parser.add_argument("--runs", type=int, default=5, help="of each measurement (default: 5)")
    parser.add_argument("--json", type=Path, help="write every figure of every run to this file")
    asked = parser.parse_args()
    lines: list[Line] = []
    for name in asked.only or NAMES:
        print(f"measuring: {name}", file=sys.stderr, flush=True)
        measure: Measure = import_module(f"benchmarks.{name}").measure
        lines += measure(asked.runs)
    print(table(map(cells, lines)))
    for note in filter(None, (line.note for line in lines)):
        print(f"\n{note}")
    if asked.json is not None:
        asked.json.write_text(json.dumps([line.as_json() for line in lines], indent=1))


if __name__ == "__main__":
    main()

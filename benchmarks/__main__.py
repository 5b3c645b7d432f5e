"""`python -m benchmarks`: runs all benchmarks, or the named ones."""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from benchmarks.report import Line, cells, table

# In the order in which they are run and shown.
NAMES = (
    "loopback",
    "prosody",
    "startup",
    "many_skills",
    "announcing",
    "scale",
    "fairness",
    "abuse",
    "abuse_prosody",
    "durable",
    "waiting",
    "stored",
    "instances",
    "forms",
    "turn",
    "conversations",
    "recall",
    "prefix",
    "tools",
    "first_token",
    "watching",
    "webhooks",
    "confined",
    "agentdojo",
    "sandbox",
    "workers",
)

Measure = Callable[[int], Iterator[Line]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=NAMES, help="may be given repeatedly")
    parser.add_argument("--runs", type=int, default=5, help="of each measurement (default: 5)")
    parser.add_argument("--json", type=Path, help="write every figure of every run to this file")
    asked = parser.parse_args()
    lines: list[Line] = []
    failed: list[str] = []
    for name in asked.only or NAMES:
        print(f"measuring: {name}", file=sys.stderr, flush=True)
        measure: Measure = import_module(f"benchmarks.{name}").measure
        try:
            lines += measure(asked.runs)
        except Exception:  # noqa: BLE001 - one that fails must not cost the figures of the others
            traceback.print_exc()
            failed.append(name)
        if asked.json is not None:
            asked.json.write_text(json.dumps([line.as_json() for line in lines], indent=1))
    print(table(map(cells, lines)))
    for note in filter(None, (line.note for line in lines)):
        print(f"\n{note}")
    if failed:
        sys.exit(f"These measurements failed: {', '.join(failed)}.")


if __name__ == "__main__":
    main()

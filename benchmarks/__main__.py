"""`python -m benchmarks`: runs all benchmarks, or the named ones.

The table of each is printed when it is measured, and its rows replace those of the last time in
`results.json`, from which docs/reference/benchmarks.md is made. Logs go to a file, which is named
if one fails.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TextIO

import structlog

from benchmarks import page
from benchmarks.report import Line, cells, table

# In the order in which they are run and shown.
NAMES = (
    "counts",
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
    "rooms",
    "objects",
    "confined",
    "agentdojo",
    "sandbox",
    "workers",
    "plans",
    "federation",
)

Measure = Callable[[int], Iterator[Line]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=NAMES, help="may be given repeatedly")
    parser.add_argument("--runs", type=int, default=5, help="of each measurement (default: 5)")
    parser.add_argument("--json", type=Path, help="write every figure of every run to this file")
    asked = parser.parse_args()
    log, progress = _log_to_file()
    lines: list[Line] = []
    failed: list[str] = []
    for name in asked.only or NAMES:
        print(f"measuring: {name}", file=progress, flush=True)
        measure: Measure = import_module(f"benchmarks.{name}").measure
        try:
            measured = list(measure(asked.runs))
        except Exception:  # noqa: BLE001 - one that fails must not cost the figures of the others
            traceback.print_exc(file=progress)
            failed.append(name)
            continue
        print(table(map(cells, measured)))
        for note in filter(None, (line.note for line in measured)):
            print(f"\n{note}")
        print(flush=True)
        if name != "counts":  # it has a table of its own
            page.replace(name, measured)
        page.write()
        lines += measured
        if asked.json is not None:
            asked.json.write_text(json.dumps([line.as_json() for line in lines], indent=1))
    if failed:
        print(f"Failed: {', '.join(failed)}. The logs are in {log}.", file=progress, flush=True)
        sys.exit(1)
    log.unlink()


def _log_to_file() -> tuple[Path, TextIO]:
    """Send what this process and those it starts log to a file. Return the file, and the standard
    error as it was.
    """
    progress = os.fdopen(os.dup(2), "w")
    with NamedTemporaryFile(prefix="benchmarks-", suffix=".log", delete=False) as file:
        os.dup2(file.fileno(), 2)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    return Path(file.name), progress


if __name__ == "__main__":
    main()

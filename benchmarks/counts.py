"""Counts of hops, thread hops, commits, modules, instructions and system calls; see `counted`.

Nothing here depends on the machine, except the last two, which depend on the versions of Python and
of the libraries. They are counted where valgrind and strace are installed, with the server's end in
the same process: its reads and writes are left out of the system calls, and what it computes is
part of the instructions. Work for worker threads runs in place, so its hand-over is in neither.

The table is `counts.json` beside this file: this benchmark writes it, and
`tests/benchmarks/test_counts.py` compares it.

    python -m benchmarks.counts

writes the table and docs/reference/benchmarks.md without counting the last two again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.counted import MARK, PATHS, REPEATED, ROOT
from benchmarks.report import Line

TABLE = Path(__file__).with_name("counts.json")
OUTSIDE = ("instructions", "system calls")
"""The counts that depend on Python and the libraries."""
_TIMEOUT_S = 1800

Counts = dict[str, dict[str, int]]


def measure(_runs: int) -> Iterator[Line]:
    """Count once, write the table, and yield its rows."""
    found = write({"instructions": instructions(), "system calls": system_calls()})
    for path, figures in found.items():
        for title, figure in figures.items():
            yield Line(f"counts: {path}, {title}", "", [float(figure)])


def write(outside: dict[str, dict[str, int] | None]) -> Counts:
    """Write the table: count what is exact, and keep what is not in `outside` as it is."""
    found, before = counted(), stored()
    for title in OUTSIDE:
        figures = outside.get(title) or {}
        for path in PATHS:
            kept = figures.get(path, before.get(path, {}).get(title))
            if kept is not None:
                found[path][title] = kept
    TABLE.write_text(json.dumps(found, indent=1) + "\n")
    return found


def stored() -> Counts:
    """Return the committed table; empty if there is none."""
    table: Counts = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    return table


def counted() -> Counts:
    """Count what is the same on every machine."""
    shown = subprocess.run(_command(), cwd=ROOT, check=True, stdout=subprocess.PIPE)
    found: Counts = json.loads(shown.stdout)
    return found


def _command(*options: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.counted", *options]


def instructions() -> dict[str, int] | None:
    """Count the instructions of one request of each path; None without valgrind."""
    if shutil.which("valgrind") is None:
        return None
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "out"
        subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", *_command("--repeat")],
            cwd=ROOT,
            check=True,
            env={**os.environ, "CALLGRIND": "1", "PYTHONHASHSEED": "0"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
        )
        found = {}
        # Each path has two dumps: before its requests, and after them.
        for number, path in enumerate(PATHS):
            text = out.with_name(f"out.{2 * number + 2}").read_text()
            summary = re.search(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)
            assert summary is not None, f"callgrind has counted nothing for {path}"
            found[path] = int(summary[1]) // REPEATED
    return found


def system_calls() -> dict[str, int] | None:
    """Count the system calls of one request of each path; None without strace."""
    if shutil.which("strace") is None:
        return None
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "out"
        subprocess.run(
            ["strace", "-f", "-o", str(out), *_command("--repeat")],
            cwd=ROOT,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": "0"},
            stdout=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
        )
        return between_marks(out.read_text(errors="replace").splitlines())


def between_marks(lines: list[str]) -> dict[str, int]:
    """Return the system calls of one request of each path, from lines of strace."""
    found: dict[str, int] = {}
    path, others = "", ""
    for line in lines:
        mark = re.search(rf'"{MARK}/(\w+)/(\d+)"', line)
        if mark is not None:
            path = "" if path else mark[1]
            others = rf"\w+\({mark[2]}[,)]"
        elif path and "resumed>" not in line:
            call = line.split(maxsplit=1)[-1]
            if call[:1].isalpha() and not re.match(others, call):
                found[path] = found.get(path, 0) + 1
    return {path: count // REPEATED for path, count in found.items()}


if __name__ == "__main__":
    from benchmarks import page

    write({})
    page.write()

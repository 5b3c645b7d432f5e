"""Ten instances on one PostgreSQL: commits for each admitted task, commits at rest, connections.

    python -m benchmarks.instances [--tree DIRECTORY ...]

Each instance is a process that admits tasks of one step with effects and waits for their ends. What
they commit at rest (heartbeats, looks at what others have changed) is measured before, and taken
off. With `--tree` the same is measured of other checkouts, as of an earlier release.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import processes
from benchmarks.durable import Worker
from benchmarks.report import Line
from tests.servers.postgres import Postgres

INSTANCES: Final = 10
_TASKS: Final = 100
"""The number of tasks of each instance."""
_IN_FLIGHT: Final = 4
_REST_S: Final = 20.0
_FLUSH_S: Final = 3.0
"""Backends report their statistics at most once a second, with a commit; heartbeats are sent every
2 s.
"""


class Figures(msgspec.Struct, frozen=True):
    """The database load of ten instances."""

    per_task: float
    at_rest: float
    """Commits in a second."""
    connections: int


def measure(runs: int) -> Iterator[Line]:
    """Yield the commits of a task, those at rest, and the connections."""
    found = [of(processes.ROOT) for _ in range(runs)]
    many = f"{INSTANCES} instances on PostgreSQL"
    yield Line(f"{many}: commits per task of one step", "commits", [one.per_task for one in found])
    yield Line(f"{many}: commits at rest", "1/s", [one.at_rest for one in found])
    yield Line(f"{many}: connections", "connections", [float(one.connections) for one in found])


def of(tree: Path) -> Figures:
    """Measure the instances of a checkout."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Postgres())
        server.psql("ALTER SYSTEM SET max_connections = 200")
        server.restart("fast")
        url = server.new_database()
        name = url.rpartition("/")[2]
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sides = []
        for number in range(INSTANCES):
            arguments = (home / str(number), "--postgres", url)
            sides.append(Worker(stack, "durable_ours", *arguments, tree=tree))
            _do(sides[-1:], count=1)  # one after the other: the first one creates the tables
        time.sleep(_FLUSH_S)
        before = _commits(server, name)
        time.sleep(_REST_S)
        at_rest = (_commits(server, name) - before) / _REST_S
        before, began = _commits(server, name), time.monotonic()
        _do(sides, count=_TASKS)
        connections = int(
            server.psql(f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}'")
        )
        time.sleep(_FLUSH_S)
        resting = at_rest * (time.monotonic() - began)
        made = _commits(server, name) - before - resting
        return Figures(made / (INSTANCES * _TASKS), at_rest, connections)


def _commits(server: Postgres, database: str) -> int:
    found = server.psql(f"SELECT xact_commit FROM pg_stat_database WHERE datname = '{database}'")
    return int(found)


def _do(sides: list[Worker], count: int) -> None:
    for side in sides:
        side.send("closed", count=count, in_flight=_IN_FLIGHT)
    for side in sides:
        side.answer()


def main() -> None:
    """Print the figures of this checkout and of others."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instances", description=__doc__)
    parser.add_argument("--tree", type=Path, action="append", default=[])
    for tree in [processes.ROOT, *parser.parse_args().tree]:
        print(tree, of(tree.resolve()))


if __name__ == "__main__":
    main()

"""DBOS as the peer: a workflow of one step, started durably and run in its own process.

    python -m benchmarks.durable_peer URL

It has no request records, events, owners of tasks or limits besides its built-in ones, and a step
is recorded when it ends, not when it begins.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from dbos import DBOS, DBOSConfig

from benchmarks.durable_side import serve

_SQLITE = "sqlite:///"
_first: dict[int, float] = {}


@DBOS.step()
async def one(number: int) -> int:
    return number


@DBOS.workflow()
async def work(number: int) -> int:
    _first[number] = time.perf_counter()
    return await one(number)


@DBOS.workflow()
async def steps(number: int) -> int:
    for _ in range(3):
        await one(number)
    return number


@DBOS.workflow()
async def emit(parts: int) -> int:
    for part in range(parts):
        await DBOS.write_stream_async("out", f"part {part}")
    return parts


@DBOS.workflow()
async def chain(steps: int) -> int:
    for number in range(steps):
        handle = await DBOS.start_workflow_async(work, number)
        await handle.get_result()
    return steps


@DBOS.workflow()
async def beside(steps: int) -> int:
    handles = [await DBOS.start_workflow_async(work, number) for number in range(steps)]
    for handle in handles:
        await handle.get_result()
    return steps


async def _plans(made: Any, plans: int, steps: int) -> float:
    """Return the milliseconds of a step in plans that run one after another."""
    began = time.perf_counter()
    for _ in range(plans):
        handle = await DBOS.start_workflow_async(made, steps)
        await handle.get_result()
    return (time.perf_counter() - began) * 1e3 / plans / steps


class Dbos:
    def __init__(self) -> None:
        self.first = _first

    async def accept(self, number: int) -> Any:
        return await DBOS.start_workflow_async(work, number)

    async def steps(self, number: int) -> Any:
        return await DBOS.start_workflow_async(steps, number)

    async def finished(self, handle: Any) -> None:
        await handle.get_result()

    async def emit(self, parts: int) -> Any:
        return await DBOS.start_workflow_async(emit, parts)


async def main(url: str) -> None:
    if url.startswith(_SQLITE):
        # A write-ahead log, like ours; the default journal would halve its throughput.
        database = sqlite3.connect(Path(url.removeprefix(_SQLITE)))
        database.execute("PRAGMA journal_mode = WAL")
        database.close()
    config: DBOSConfig = {
        "name": "peer",
        "system_database_url": url,
        "log_level": "WARNING",
    }
    DBOS(config=config)
    DBOS.launch()
    await serve(Dbos(), {"chain": partial(_plans, chain), "beside": partial(_plans, beside)})
    DBOS.destroy()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

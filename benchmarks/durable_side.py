"""The common part of both sides of the durable work benchmark: one command per line, answers in
JSON.

A side runs in its own process, so that the two do not share an event loop, threads or a garbage
collector; and it measures itself, because a client between the two would cost more than the
measured work.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

import anyio
from anyio import to_thread


class Side(Protocol):
    """One engine of durable work.

    `first` are the times (`perf_counter`) at which the work of a number began.
    """

    first: dict[int, float]

    async def accept(self, number: int) -> Any:
        """Start work of one step; return once it is stored."""

    async def steps(self, number: int) -> Any:
        """Start work of three steps."""

    async def finished(self, handle: Any) -> None:
        """Wait for the end of started work."""

    async def emit(self, parts: int) -> Any:
        """Start work that publishes so many parts, each stored before the next."""


async def serve(side: Side, more: dict[str, Callable[..., Awaitable[Any]]] | None = None) -> None:
    """Run the commands on stdin until it ends; each answer is a line on stdout."""
    numbers = itertools.count()
    orders: dict[str, Callable[..., Awaitable[Any]]] = {
        "admit": lambda **how: _admit(side, numbers, **how),
        "closed": lambda **how: _closed(side, numbers, **how),
        "steps": lambda **how: _steps(side, **how),
        "events": lambda **how: _events(side, **how),
        **(more or {}),
    }
    while line := await to_thread.run_sync(sys.stdin.readline):
        order = json.loads(line)
        answer = await orders[order.pop("do")](**order)
        print(json.dumps(answer), flush=True)


async def _admit(
    side: Side, numbers: itertools.count[int], *, count: int, in_flight: int
) -> dict[str, float]:
    """Return the work accepted and finished per second, and CPU milliseconds for each."""
    handles: list[Any] = []

    async def one(_: int) -> None:
        handles.append(await side.accept(next(numbers)))

    async with _timed() as times:
        await crowd(one, count, in_flight)
        accepted = times.elapsed()
        for handle in handles:
            await side.finished(handle)
    return {
        "accepted/s": count / accepted,
        "finished/s": count / times.seconds,
        "cpu ms": times.cpu / count * 1e3,
    }


async def _closed(
    side: Side, numbers: itertools.count[int], *, count: int, in_flight: int
) -> list[float]:
    """Return the milliseconds from acceptance to the first line of the work, one after another."""
    taken: list[float] = []

    async def one(_: int) -> None:
        number = next(numbers)
        handle = await side.accept(number)
        accepted = time.perf_counter()
        await side.finished(handle)
        # It may have begun before the waiting side ran again.
        taken.append(max(0.0, side.first[number] - accepted) * 1e3)

    await crowd(one, count, in_flight)
    return taken


async def _steps(side: Side, *, count: int, in_flight: int) -> dict[str, float]:
    """Return the tasks of three steps that ended per second, and CPU milliseconds for each."""

    async def one(number: int) -> None:
        await side.finished(await side.steps(number))

    async with _timed() as times:
        await crowd(one, count, in_flight)
    return {"tasks/s": count / times.seconds, "cpu ms": times.cpu / count * 1e3}


async def _events(side: Side, *, count: int, in_flight: int, parts: int) -> dict[str, float]:
    async def one(_: int) -> None:
        await side.finished(await side.emit(parts))

    async with _timed() as times:
        await crowd(one, count, in_flight)
    return {
        "events/s": count * parts / times.seconds,
        "cpu ms": times.cpu / (count * parts) * 1e3,
    }


class _Times:
    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._cpu = time.process_time()
        self.seconds = self.cpu = 0.0

    def elapsed(self) -> float:
        return time.perf_counter() - self._start

    def stop(self) -> None:
        self.seconds = self.elapsed()
        self.cpu = time.process_time() - self._cpu


@asynccontextmanager
async def _timed() -> AsyncIterator[_Times]:
    times = _Times()
    yield times
    times.stop()


async def crowd(one: Callable[[int], Awaitable[None]], count: int, in_flight: int) -> None:
    """Do something `count` times, `in_flight` at a time."""
    left = iter(range(count))

    async def worker() -> None:
        for number in left:
            await one(number)

    async with anyio.create_task_group() as group:
        for _ in range(in_flight):
            group.start_soon(worker)

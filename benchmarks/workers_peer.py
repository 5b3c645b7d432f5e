"""What `benchmarks.workers` is compared with: procrastinate alone.

As a program it is the worker: its task notifies the caller that it has run. `calls` defers the jobs
and waits for the notifications.
"""

from __future__ import annotations

import asyncio
import sys
import time

import procrastinate
import psycopg
from procrastinate import App, PsycopgConnector

TASK = "echo"
QUEUE = "echo"
CONCURRENCY = 32


def app_of(url: str) -> App:
    return App(connector=PsycopgConnector(conninfo=url, min_size=1, max_size=10))


async def work(url: str) -> None:
    app = app_of(url)
    connector = app.connector
    assert isinstance(connector, PsycopgConnector)

    @app.task(name=TASK)
    async def echo(number: int) -> None:
        async with connector.pool.connection() as connection:
            await connection.execute("SELECT pg_notify('done', %s)", (str(number),))

    async with app.open_async():
        print("ready", flush=True)
        await app.run_worker_async(
            queues=[QUEUE], concurrency=CONCURRENCY, delete_jobs="always", listen_notify=True
        )


async def calls(url: str, count: int, in_flight: int) -> tuple[float, list[float]]:
    """Run jobs, so many at a time; return the seconds for all, and those of each."""
    app, waiting, times = app_of(url), dict[str, asyncio.Event](), list[float]()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as listener:
        await listener.execute("LISTEN done")

        async def listen() -> None:
            async for notified in listener.notifies():
                waiting[notified.payload].set()

        async def one(number: int, free: asyncio.Semaphore) -> None:
            async with free:
                began = time.perf_counter()
                event = waiting[str(number)] = asyncio.Event()
                await app.configure_task(TASK, queue=QUEUE).defer_async(number=number)
                await event.wait()
                times.append(time.perf_counter() - began)

        async with app.open_async():
            listening = asyncio.create_task(listen())
            free = asyncio.Semaphore(in_flight)
            began = time.perf_counter()
            await asyncio.gather(*(one(number, free) for number in range(count)))
            seconds = time.perf_counter() - began
            listening.cancel()
    return seconds, times


def prepare(url: str) -> None:
    """Create the tables."""
    with procrastinate.App(
        connector=procrastinate.SyncPsycopgConnector(conninfo=url)
    ).open() as app:
        app.schema_manager.apply_schema()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))

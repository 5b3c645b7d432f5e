"""Clocks, random numbers and threads that a test owns."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

import anyio
import trio
from trio.testing import MockClock

from component.system import System

START: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
"""When a test begins: a Friday, at noon."""


class SimulatedSystem(System):
    """All clocks follow the clock of the event loop, and random numbers the seed.

    There are no worker threads: `in_thread` calls on the event loop, at once unless `thread_s` says
    otherwise. What is called can therefore not use `anyio.from_thread`.

    Args:
        seed: the seed of the random numbers.

    Attributes:
        jump_s: how far the wall clock has jumped, in seconds.
        thread_s: returns for how many seconds a worker thread waits before it runs a function, and
            again before the event loop learns of its end; None if it never waits.
    """

    thread_s: Callable[[], float] | None = None

    def __init__(self, seed: int) -> None:
        self._clock = trio.lowlevel.current_clock()
        if not isinstance(self._clock, MockClock):
            raise TypeError(
                "The kit needs a clock that jumps: import anyio_backend from tests.kit."
            )
        self._began = self._clock.current_time()
        self._random = Random(seed)
        self.jump_s = 0.0

    def _since_start(self) -> float:
        return self._clock.current_time() - self._began

    def time_ns(self) -> int:
        return int(START.timestamp()) * 10**9 + self.since_boot_ns() + round(self.jump_s * 1e9)

    def monotonic(self) -> float:
        return self._since_start()

    def since_boot_ns(self) -> int:
        return round(self._since_start() * 1e9)

    def since_boot(self) -> float:
        return self._since_start()

    def perf_counter(self) -> float:
        return self._since_start()

    def thread_time(self) -> float:
        return self._since_start()

    def random(self) -> float:
        return self._random.random()

    def token_bytes(self, length: int) -> bytes:
        return self._random.randbytes(length)

    async def in_thread(  # type: ignore[override]
        self,
        call: Callable[..., Any],
        *arguments: Any,
        abandon_on_cancel: bool = False,
        limiter: anyio.CapacityLimiter | None = None,
    ) -> Any:
        await anyio.lowlevel.checkpoint()
        async with AsyncExitStack() as stack:
            if limiter is not None:
                await stack.enter_async_context(limiter)
            if self.thread_s is None:
                return call(*arguments)
            with anyio.CancelScope(shield=not abandon_on_cancel):
                await anyio.sleep(self.thread_s())
                try:
                    return call(*arguments)
                finally:
                    await anyio.sleep(self.thread_s())

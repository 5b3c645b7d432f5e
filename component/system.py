"""Clocks, random numbers and worker threads, as the operating system gives them.

All code of the service takes them from here, so a test or a simulation can replace all of them at
once, and for each service in a process: `use` sets the `System` of the current task and of the
tasks that it starts.

`anyio.current_time` and `anyio.sleep` are not repeated here: they use the clock of the event loop,
which a test replaces by its own means.
"""

import random as random_numbers
import secrets
import time as clocks
from base64 import urlsafe_b64encode
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeVar, TypeVarTuple

import anyio
from anyio import to_thread

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

# Linux has this clock; on other systems, a suspended machine looks like a clock jump.
_SINCE_BOOT: Final[int] = getattr(clocks, "CLOCK_BOOTTIME", clocks.CLOCK_MONOTONIC)


class System:
    """The system that the process runs on."""

    def monotonic(self) -> float:
        """Return seconds that never jump; they do not count while the machine is suspended."""
        return clocks.monotonic()

    # Each request calls these, so they are not wrapped.
    time_ns: Callable[[], int] = staticmethod(clocks.time_ns)
    """Returns nanoseconds since 1970, UTC, by the wall clock, which may jump."""
    since_boot: Callable[[], float] = partial(clocks.clock_gettime, _SINCE_BOOT)
    """Returns `since_boot_ns` in seconds."""
    since_boot_ns: Callable[[], int] = partial(clocks.clock_gettime_ns, _SINCE_BOOT)
    """Returns nanoseconds since boot, including the time in which the machine was suspended."""
    perf_counter: Callable[[], float] = staticmethod(clocks.perf_counter)
    """Returns seconds, for measuring short durations."""
    thread_time: Callable[[], float] = staticmethod(clocks.thread_time)
    """Returns the seconds of processor time that this thread has used."""

    def random(self) -> float:
        """Return a number in [0, 1), which is not secret."""
        return random_numbers.random()  # noqa: S311 - no secret

    def token_bytes(self, length: int) -> bytes:
        """Return random bytes that nobody can guess."""
        return secrets.token_bytes(length)

    async def in_thread(
        self,
        call: Callable[[*Arguments], T],
        *arguments: *Arguments,
        abandon_on_cancel: bool = False,
        limiter: anyio.CapacityLimiter | None = None,
    ) -> T:
        """Return `call(*arguments)`, which blocks, from a worker thread.

        The arguments are those of `anyio.to_thread.run_sync`.
        """
        return await to_thread.run_sync(
            call, *arguments, abandon_on_cancel=abandon_on_cancel, limiter=limiter
        )


_current: Final[ContextVar[System]] = ContextVar("system", default=System())  # noqa: B039 - no state


def current() -> System:
    """Return the system of the current task."""
    return _current.get()


def use(system: System) -> None:
    """Give the current task, and all tasks that it starts from now on, this system."""
    _current.set(system)


def now() -> datetime:
    """Return the time, in UTC."""
    return datetime.fromtimestamp(time(), UTC)


def time() -> float:
    """Return seconds since 1970, UTC."""
    return time_ns() / 1e9


def time_ns() -> int:
    """See `System.time_ns`."""
    return _current.get().time_ns()


def monotonic() -> float:
    """See `System.monotonic`."""
    return _current.get().monotonic()


def since_boot_ns() -> int:
    """See `System.since_boot_ns`."""
    return _current.get().since_boot_ns()


def perf_counter() -> float:
    """See `System.perf_counter`."""
    return _current.get().perf_counter()


def thread_time() -> float:
    """See `System.thread_time`."""
    return _current.get().thread_time()


def random() -> float:
    """See `System.random`."""
    return _current.get().random()


def token_bytes(length: int) -> bytes:
    """See `System.token_bytes`."""
    return _current.get().token_bytes(length)


def token_hex(length: int) -> str:
    """Return `token_bytes` as hexadecimal digits, two for each byte."""
    return token_bytes(length).hex()


def token_urlsafe(length: int) -> str:
    """Return `token_bytes` in the alphabet of URLs, without padding."""
    return urlsafe_b64encode(token_bytes(length)).rstrip(b"=").decode()


async def in_thread(
    call: Callable[[*Arguments], T],
    *arguments: *Arguments,
    abandon_on_cancel: bool = False,
    limiter: anyio.CapacityLimiter | None = None,
) -> T:
    """See `System.in_thread`."""
    return await _current.get().in_thread(
        call, *arguments, abandon_on_cancel=abandon_on_cancel, limiter=limiter
    )

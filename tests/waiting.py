"""Waiting for what nobody tells."""

import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

LIMIT_S = 120.0
"""Nothing takes so long, on the busiest machine."""

_PAUSE_S = 0.002


async def eventually(is_so: Callable[[], Awaitable[Any] | Any]) -> None:
    """Look again and again until it is so. Raises TimeoutError.

    It sleeps meanwhile: who only let others run would take the interpreter from the threads that
    bring it about.
    """
    with anyio.fail_after(LIMIT_S):
        while True:
            found = is_so()
            if await found if inspect.isawaitable(found) else found:
                return
            await anyio.sleep(_PAUSE_S)


def until(is_so: Callable[[], bool]) -> None:
    """Look again and again until it is so, in a test without an event loop. Raises TimeoutError."""
    over = time.monotonic() + LIMIT_S
    while not is_so():
        if time.monotonic() > over:
            raise TimeoutError
        time.sleep(_PAUSE_S)

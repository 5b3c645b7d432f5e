"""Notices changes of files below directories (inotify, through watchfiles)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final

import anyio
from watchfiles import awatch

from component import system

_QUIET_MS: Final = 50
"""A change is reported when nothing else has changed for this time."""
_LONGEST_MS: Final = 500
_BEGINNING_S: Final = 0.5
"""Seconds after which a watch has begun."""
_MISSING_S: Final = 2.0
"""Seconds between two looks for directories that do not exist."""


async def watch(
    roots: Sequence[Path], every_s: float, changed: Callable[[], Awaitable[None]]
) -> None:
    """Call `changed` when something below the roots may have changed, and after `every_s` seconds
    without, until cancelled.

    A root need not exist yet, and may be replaced.
    """
    while True:
        there = await system.in_thread(_existing, roots)
        every = every_s if len(there) == len(roots) else _MISSING_S
        try:
            if there:
                await _watch_these(there, roots, every, changed)
        except OSError:  # one of them has gone, or there are too many inotify watches
            pass
        await anyio.sleep(0 if there and len(there) == len(roots) else _MISSING_S)
        await changed()


def _existing(roots: Sequence[Path]) -> dict[Path, int]:
    """Return the roots that are directories, with their inodes. Blocks."""
    found: dict[Path, int] = {}
    for root in roots:
        try:
            if root.is_dir():
                found[root] = root.stat().st_ino
        except OSError:
            continue
    return found


async def _watch_these(
    there: dict[Path, int],
    roots: Sequence[Path],
    every_s: float,
    changed: Callable[[], Awaitable[None]],
) -> None:
    """Watch until one of the roots has appeared or disappeared. Raises OSError."""
    stop = anyio.Event()
    async with anyio.create_task_group() as group:
        # A cancellation cannot interrupt the thread that waits; this does, within 50 ms.
        group.start_soon(_set_when_cancelled, stop)
        group.start_soon(_after_the_beginning, changed)
        seen = awatch(
            *there,
            watch_filter=None,
            debounce=_LONGEST_MS,
            step=_QUIET_MS,
            stop_event=stop,
            rust_timeout=round(every_s * 1000),
            yield_on_timeout=True,
            ignore_permission_denied=True,
        )
        async with aclosing(seen):
            async for _ in seen:
                await changed()
                if await system.in_thread(_existing, roots) != there:
                    break
        group.cancel_scope.cancel()


async def _after_the_beginning(changed: Callable[[], Awaitable[None]]) -> None:
    """Look once when the watch has begun: something may have changed just before that."""
    await anyio.sleep(_BEGINNING_S)
    await changed()


async def _set_when_cancelled(stop: anyio.Event) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        stop.set()

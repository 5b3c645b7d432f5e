"""A reading of the database that a later change overtakes."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from component.store import Storage
from tests.waiting import eventually


async def overtake(
    storage: Storage,
    reload: Callable[[], Awaitable[object]],
    change: Callable[[], Awaitable[object]],
    lock: anyio.Lock,
) -> None:
    """Reload the state before a change, and let it arrive after the change, unless the change waits
    for the lock.
    """
    read, was_read, arrives, changed = storage.read, anyio.Event(), anyio.Event(), anyio.Event()

    async def slowly(op: Callable[[Any], Any]) -> Any:
        _set_read(storage, read)
        found = await read(op)
        was_read.set()
        await arrives.wait()
        return found

    async def change_it() -> None:
        await change()
        changed.set()

    async with anyio.create_task_group() as group:
        _set_read(storage, slowly)
        group.start_soon(reload)
        await was_read.wait()
        group.start_soon(change_it)
        await eventually(lambda: changed.is_set() or lock.statistics().tasks_waiting)
        arrives.set()


def _set_read(storage: Storage, read: Callable[..., Any]) -> None:
    storage.read = read  # type: ignore[method-assign]  # for one test

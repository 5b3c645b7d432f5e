"""Waiting for an event, but not forever."""

import anyio


async def is_set_within(event: anyio.Event, seconds: float | None) -> bool:
    """Wait for an event, at most so many seconds; return whether it is set.

    An event that is set while the time ends, in the same pass of the event loop, is set: so do not
    ask the cancel scope. None waits for as long as it takes.
    """
    with anyio.move_on_after(seconds):
        await event.wait()
    return event.is_set()

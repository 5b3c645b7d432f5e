"""Handles stanzas one after another, in the order in which they arrived."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio

from component.link.router.table import Request

T = TypeVar("T")
R = TypeVar("R", bound=Request[Any])


class InTurn:
    """Wraps handlers so that each waits until all earlier stanzas are handled, by whichever
    handler.

    For example, a contact that ends a subscription and immediately requests it again must be
    subscribed afterwards.
    """

    def __init__(self) -> None:
        self._last = anyio.Event()
        self._last.set()

    def queued(self, handler: Callable[[R], Awaitable[T]]) -> Callable[[R], Awaitable[T]]:
        """Wrap ``handler`` so that it waits for its turn."""

        async def when_done(before: anyio.Event, done: anyio.Event, request: R) -> T:
            try:
                await before.wait()
                return await handler(request)
            finally:
                done.set()

        def take_place(request: R) -> Awaitable[T]:
            before, self._last = self._last, anyio.Event()
            return when_done(before, self._last, request)

        return take_place

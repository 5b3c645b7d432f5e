"""Worker threads for plain skills: a limit for all, and a share for each principal."""

from collections import Counter
from operator import itemgetter
from typing import Protocol

import anyio
import anyio.lowlevel


class ThreadShare(Protocol):
    """Counts the thread of a plain skill until the thread has really ended."""

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        """Wait for a thread and take it."""

    def release_on_behalf_of(self, borrower: object) -> None:
        """Release the thread."""


class Threads:
    """Counts worker threads, so that slow skills of one principal leave threads for the others.

    A principal may use as many as are still free, and its share at most. Of the waiting principals,
    the one with the fewest threads is next. A share of more than half of all threads is applied as
    configured.
    """

    def __init__(self, total: int, per_principal: int) -> None:
        self._free = total
        self._per_principal = per_principal
        self._dynamic = total >= 2 * per_principal
        self._own: Counter[str] = Counter()
        self._waiting: dict[anyio.Event, str] = {}

    def share(self, principal: str) -> ThreadShare:
        """Return the share of one principal."""
        return _Share(self, principal)

    async def acquire(self, principal: str) -> None:
        """Wait for a thread and take it."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        # No waiting principal may have one now, or it would have been given one.
        if self._may(principal):
            self._take(principal)
            return
        given = anyio.Event()
        self._waiting[given] = principal
        try:
            await given.wait()
        except BaseException:
            if self._waiting.pop(given, None) is None:
                self.release(principal)
            raise

    def release(self, principal: str) -> None:
        """Release a thread."""
        self._free += 1
        self._own[principal] -= 1
        if not self._own[principal]:
            del self._own[principal]
        while able := [
            (self._own[who], event) for event, who in self._waiting.items() if self._may(who)
        ]:
            _, event = min(able, key=itemgetter(0))
            self._take(self._waiting.pop(event))
            event.set()

    def _may(self, principal: str) -> bool:
        own = self._own.get(principal, 0)
        return self._free > (own if self._dynamic else 0) and own < self._per_principal

    def _take(self, principal: str) -> None:
        self._free -= 1
        self._own[principal] += 1


class _Share:
    def __init__(self, threads: Threads, principal: str) -> None:
        self._threads = threads
        self._principal = principal

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        await self._threads.acquire(self._principal)

    def release_on_behalf_of(self, borrower: object) -> None:
        self._threads.release(self._principal)

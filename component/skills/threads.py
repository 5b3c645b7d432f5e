"""Worker threads for plain skills: a bound for all, and a share for each principal."""

from typing import Protocol

import anyio


class ThreadShare(Protocol):
    """What a plain skill's thread is taken from, and given back to when it has really ended."""

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        """Wait for a thread and take it."""

    def release_on_behalf_of(self, borrower: object) -> None:
        """Give the thread back."""


class Threads:
    """Counts worker threads, so that slow skills of one principal leave threads for the others.

    A principal waits for its own share first and only then for the common bound: who waits
    because of itself stands in nobody's way.
    """

    def __init__(self, total: int, per_principal: int) -> None:
        self._all = anyio.CapacityLimiter(total)
        self._per_principal = per_principal
        self._own: dict[str, _Own] = {}

    def share(self, principal: str) -> ThreadShare:
        """The share of one principal."""
        return _Share(self, principal)

    async def acquire(self, principal: str, borrower: object) -> None:
        """Take a thread of the principal's share, then one of all."""
        own = self._own.get(principal)
        if own is None:
            own = self._own[principal] = _Own(self._per_principal)
        own.users += 1
        try:
            await own.limiter.acquire_on_behalf_of(borrower)
            try:
                await self._all.acquire_on_behalf_of(borrower)
            except BaseException:
                own.limiter.release_on_behalf_of(borrower)
                raise
        except BaseException:
            self._leave(principal, own)
            raise

    def release(self, principal: str, borrower: object) -> None:
        """Give back what was taken."""
        own = self._own[principal]
        self._all.release_on_behalf_of(borrower)
        own.limiter.release_on_behalf_of(borrower)
        self._leave(principal, own)

    def _leave(self, principal: str, own: "_Own") -> None:
        own.users -= 1
        if not own.users:
            del self._own[principal]


class _Own:
    """One principal's threads, and how many hold or wait for one; forgotten when nobody does."""

    __slots__ = ("limiter", "users")

    def __init__(self, size: int) -> None:
        self.limiter = anyio.CapacityLimiter(size)
        self.users = 0


class _Share:
    def __init__(self, threads: Threads, principal: str) -> None:
        self._threads = threads
        self._principal = principal

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        await self._threads.acquire(self._principal, borrower)

    def release_on_behalf_of(self, borrower: object) -> None:
        self._threads.release(self._principal, borrower)

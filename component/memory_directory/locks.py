"""A lock for each of many things, of which nothing is kept while nobody holds it."""

from collections.abc import Hashable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Generic, TypeVar

import anyio

K = TypeVar("K", bound=Hashable)


class KeyLocks(Generic[K]):
    """Locks by key; who asks first is first."""

    def __init__(self) -> None:
        self._locks: dict[K, tuple[anyio.Lock, int]] = {}

    def __len__(self) -> int:
        """How many are held or waited for."""
        return len(self._locks)

    def __contains__(self, key: K) -> bool:
        """Whether somebody holds this one or waits for it."""
        return key in self._locks

    def hold(self, key: K) -> AbstractAsyncContextManager[None]:
        """Hold the lock of one key for the time of the context."""
        return _Held(self._locks, key)


class _Held(Generic[K]):
    # By hand, since a generator for it takes as long as all else that reading from memory does.
    __slots__ = ("_key", "_lock", "_locks")

    def __init__(self, locks: dict[K, tuple[anyio.Lock, int]], key: K) -> None:
        self._locks = locks
        self._key = key

    async def __aenter__(self) -> None:
        self._lock, users = self._locks.get(self._key) or (anyio.Lock(fast_acquire=True), 0)
        self._locks[self._key] = self._lock, users + 1
        try:
            await self._lock.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._lock.release()
        self._leave()

    def _leave(self) -> None:
        lock, users = self._locks.pop(self._key)
        if users > 1:
            self._locks[self._key] = lock, users - 1

"""The storage, as this room needs it: see `component.storage.Storage`."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

from component.storage.database import Database

T = TypeVar("T")


class Storage(Protocol):
    """Runs operations inside transactions. All raise StorageError if the database refuses."""

    async def read(self, op: Callable[[Database], T]) -> T:
        """Return what an operation reads."""

    async def write(self, op: Callable[[Database], T], *, keep_trying: bool = False) -> T:
        """Return what an operation gives, once all it changed is on disk."""

    def listen(self, channel: str, /) -> AbstractAsyncContextManager[AsyncIterator[None]]:
        """Be woken by who notifies the channel, in any process."""

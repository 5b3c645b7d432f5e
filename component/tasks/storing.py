"""The storage, as this room needs it: see `component.storage.Storage`."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from component.storage.database import Transactions


class Storage(Transactions, Protocol):
    """Runs operations inside transactions, and wakes who waits for others. All raise StorageError
    if the database refuses.
    """

    @property
    def place(self) -> str | None:
        """The same in every life of a process, if it is certain that the one before is over."""

    def listen(self, channel: str, /) -> AbstractAsyncContextManager[AsyncIterator[None]]:
        """Be woken by who notifies the channel, in any process."""

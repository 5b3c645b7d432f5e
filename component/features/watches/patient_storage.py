"""Access to the database for work that has nobody to report an error to: it tries again."""

from collections.abc import Callable
from typing import Final, TypeVar

import anyio
import structlog

from component.storage.database import Database
from component.storage.errors import StorageError
from component.storage.storage import Storage

_log = structlog.get_logger("component.watches")

T = TypeVar("T")

_FIRST_S: Final = 0.2
_LONGEST_S: Final = 5.0


class PatientStorage:
    """Reads and writes that are tried again until they succeed or are cancelled.

    Args:
        storage: the database.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def read(self, op: Callable[[Database], T]) -> T:
        """Return what an operation reads."""
        wait = _FIRST_S
        while True:
            try:
                return await self._storage.read(op)
            except StorageError as error:
                _log.warning("the database cannot be read; trying again", reason=str(error))
            await anyio.sleep(wait)
            wait = min(wait * 2, _LONGEST_S)

    async def write(self, op: Callable[[Database], T]) -> T:
        """Return what an operation gives, once all it changed is on disk."""
        return await self._storage.write(op, keep_trying=True)

"""Work that needs the database, and the error that is sent when it is unavailable."""

from collections.abc import Awaitable, Coroutine, Generator
from typing import Any, Generic, TypeVar

import structlog

from component.storage import StorageError
from xep.fluux_agent.errors import Retry
from xep.stanza_error import StanzaError

T = TypeVar("T")

_log = structlog.get_logger("component.storage")


class stored(Awaitable[T], Generic[T]):  # noqa: N801 - used like a function
    """Awaits work on the database and returns its value.

    When the database refuses nothing has changed, so the request may be repeated: the answer is
    `resource-constraint` with `<retry/>` after so many seconds (RPL-004); the log says why.

    Awaiting it raises StanzaError.
    """

    __slots__ = ("_retry_after_s", "_work")

    def __init__(self, work: Awaitable[T], retry_after_s: int) -> None:
        self._work = work
        self._retry_after_s = retry_after_s

    def __await__(self) -> Generator[Any, Any, T]:
        """Do the work."""
        return self._done().__await__()

    def close(self) -> None:
        """Close the work, if nobody has awaited it."""
        if isinstance(self._work, Coroutine):
            self._work.close()

    async def _done(self) -> T:
        try:
            return await self._work
        except StorageError as error:
            _log.error("the database refused", reason=str(error))
            raise StanzaError(
                "resource-constraint",
                "The database is temporarily unavailable. Try again in"
                f" {self._retry_after_s} seconds.",
                application=(Retry(after=self._retry_after_s),),
            ) from error

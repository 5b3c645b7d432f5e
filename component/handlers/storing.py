"""Work that needs the database, answered in plain words when that refuses."""

from collections.abc import Awaitable
from typing import TypeVar

import structlog

from component.storage import StorageError
from xep.fluux_agent.errors import Retry
from xep.stanza_error import StanzaError

T = TypeVar("T")

_log = structlog.get_logger("component.storage")


async def stored(work: Awaitable[T], retry_after_s: int) -> T:
    """What the work gives.

    Nothing has changed when the database refuses, so the same may be asked again: that is said as
    `resource-constraint` with `<retry/>` after so many seconds (RPL-004), and why, in the log only.

    Raises StanzaError.
    """
    try:
        return await work
    except StorageError as error:
        _log.error("the database refused", reason=str(error))
        raise StanzaError(
            "resource-constraint",
            f"What is kept on disk cannot be reached now. Try again in {retry_after_s} seconds.",
            application=(Retry(after=retry_after_s),),
        ) from error

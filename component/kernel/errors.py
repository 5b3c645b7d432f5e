"""The errors of requests: those that the router makes, and that of an unavailable database.

Those of the router have the conditions of ``urn:fluux:agent:0#errors`` if the request is one of the
protocol. A fault in any other request, such as a disco query, is answered with the plain errors of
RFC 6120.
"""

from collections.abc import Awaitable, Coroutine, Generator
from typing import Any, Generic, TypeVar

import structlog

from component.link.router.faults import RouterErrors
from component.store import StorageError
from xep.fluux_agent import NAMESPACE, errors
from xep.stanza_error import StanzaError

T = TypeVar("T")

_log = structlog.get_logger("component.store")

_PREFIX = f"{{{NAMESPACE}"


class AgentErrors(RouterErrors):
    """The errors of a service that serves the protocol.

    A skipped request may have been one of the protocol, so its error has the condition too.
    """

    known = errors.CONDITIONS

    def malformed(self, payload: str | None, reason: str) -> StanzaError:
        """``bad-request``, with ``<malformed/>``."""
        if _is_agents(payload):
            return errors.malformed(reason)
        return super().malformed(payload, reason)

    def too_big(self, payload: str | None, limit: int | None, text: str) -> StanzaError:
        """``policy-violation``, with ``<too-big/>``."""
        if not _is_agents(payload):
            return super().too_big(payload, limit, text)
        error = errors.too_big(limit)
        error.text = text
        return error

    def internal(self, payload: str | None) -> StanzaError:
        """``internal-server-error``, with ``<internal/>``."""
        return errors.internal() if _is_agents(payload) else super().internal(payload)

    def busy(self, payload: str | None, text: str, retry_after_s: int) -> StanzaError:
        """``resource-constraint``, with ``<retry/>``."""
        if not _is_agents(payload):
            return super().busy(payload, text, retry_after_s)
        retry = errors.Retry(after=retry_after_s)
        return StanzaError("resource-constraint", text, application=(retry,))


def _is_agents(payload: str | None) -> bool:
    return payload is None or payload.startswith((f"{_PREFIX}}}", f"{_PREFIX}#"))


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
                application=(errors.Retry(after=self._retry_after_s),),
            ) from error

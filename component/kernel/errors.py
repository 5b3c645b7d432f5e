"""The errors of requests: those that the router makes, and that of an unavailable database.

Those of the router have the conditions of ``urn:fluux:agent:0#errors`` if the request is one of the
protocol. A fault in any other request, such as a disco query, is answered with the plain errors of
RFC 6120.
"""

import structlog

from component.link.router.faults import RouterErrors
from component.store import StorageError
from component.store.outages import log_failure
from xep import pubsub_errors
from xep.fluux_agent import NAMESPACE, errors
from xep.fluux_agent.grant import SignedReceipt
from xep.http_upload import FileTooLarge, Retry
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.store")

_PREFIX = f"{{{NAMESPACE}"


class AgentErrors(RouterErrors):
    """The errors of a service that serves the protocol.

    A skipped request may have been one of the protocol, so its error has the condition too.
    """

    known = (*errors.CONDITIONS, *pubsub_errors.CONDITIONS, SignedReceipt, FileTooLarge, Retry)

    def __init__(self, retry_after_s: int = 5) -> None:
        self._retry_after_s = retry_after_s

    def temporary(self, error: BaseException) -> StanzaError | None:
        """``resource-constraint``, with ``<retry/>``, for an error of the database, which is
        logged unless that of an outage is; None for another one.
        """
        if not isinstance(error, StorageError):
            return None
        log_failure(_log, "the database refused", error)
        return unavailable(self._retry_after_s)

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


def unavailable(retry_after_s: int) -> StanzaError:
    """Return the error of a request for which the database refuses (RPL-004). Nothing has changed,
    so it may be repeated after so many seconds.
    """
    return StanzaError(
        "resource-constraint",
        f"The database is temporarily unavailable. Try again in {retry_after_s} seconds.",
        application=(errors.Retry(after=retry_after_s),),
    )

"""The conditions of ``urn:fluux:agent:0#errors`` in the errors that the router makes.

Only requests of the protocol get them. A fault in any other request, such as a disco query, is
answered with the plain errors of RFC 6120.
"""

from component.router.faults import ErrorMapper, PlainErrors
from xep.fluux_agent import NAMESPACE, errors
from xep.stanza_error import StanzaError

_PREFIX = f"{{{NAMESPACE}"


class AgentErrors:
    """An `ErrorMapper` for a service that serves the protocol.

    A skipped request may have been one of the protocol, so its error has the condition too.
    """

    known = errors.CONDITIONS

    def __init__(self) -> None:
        self._plain: ErrorMapper = PlainErrors()

    def malformed(self, payload: str | None, reason: str) -> StanzaError:
        """``bad-request``, with ``<malformed/>``."""
        if _is_agents(payload):
            return errors.malformed(reason)
        return self._plain.malformed(payload, reason)

    def too_big(self, payload: str | None, limit: int | None, text: str) -> StanzaError:
        """``policy-violation``, with ``<too-big/>``."""
        if not _is_agents(payload):
            return self._plain.too_big(payload, limit, text)
        error = errors.too_big(limit)
        error.text = text
        return error

    def internal(self, payload: str | None) -> StanzaError:
        """``internal-server-error``, with ``<internal/>``."""
        return errors.internal() if _is_agents(payload) else self._plain.internal(payload)

    def busy(self, payload: str | None, text: str, retry_after_s: int) -> StanzaError:
        """``resource-constraint``, with ``<retry/>``."""
        if not _is_agents(payload):
            return self._plain.busy(payload, text, retry_after_s)
        retry = errors.Retry(after=retry_after_s)
        return StanzaError("resource-constraint", text, application=(retry,))


def _is_agents(payload: str | None) -> bool:
    return payload is None or payload.startswith((f"{_PREFIX}}}", f"{_PREFIX}#"))

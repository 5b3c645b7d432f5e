"""Stanza errors that the router itself makes, for stanzas that no handler has seen or could answer.

A protocol may need its own conditions in them: a subclass of `RouterErrors` adds these.
"""

from xep.binding import Payload
from xep.stanza_error import StanzaError


class PayloadError(Exception):
    """The payload of a request matches its declaration but is not valid.

    A handler raises it synchronously; the router answers as for a payload that does not match its
    declaration.
    """


class RouterErrors:
    """Makes stanza errors: those of RFC 6120 §8.3.3 and nothing else.

    ``payload`` is the name of the request's only child in Clark notation, the empty string for a
    stanza that is not a request, and None if the request was skipped and is not known.

    Attributes:
        known: the application conditions that are decoded from errors of others.
    """

    known: tuple[type[Payload], ...] = ()

    def malformed(self, payload: str | None, reason: str) -> StanzaError:
        """Return ``bad-request``, for a payload that does not match its declaration."""
        return StanzaError("bad-request", reason)

    def too_big(self, payload: str | None, limit: int | None, text: str) -> StanzaError:
        """Return ``policy-violation``, for a request or result that is too big; ``limit`` is in
        bytes, None for a limit of another kind.
        """
        return StanzaError("policy-violation", text)

    def temporary(self, error: BaseException) -> StanzaError | None:
        """Return the error for an exception of a handler that passes by itself; None for a fault of
        the handler.
        """
        return None

    def internal(self, payload: str | None) -> StanzaError:
        """Return ``internal-server-error``, for a handler that failed, without details."""
        return StanzaError("internal-server-error", "The request could not be served.")

    def busy(self, payload: str | None, text: str, retry_after_s: int) -> StanzaError:
        """Return ``resource-constraint``, for a refusal under load; the sender may retry after
        ``retry_after_s`` seconds.
        """
        return StanzaError("resource-constraint", text)

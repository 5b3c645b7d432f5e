"""Rejects new requests while an admin has paused the service; running tasks continue."""

from collections.abc import Callable, Collection

from xep.fluux_agent.errors import Retry
from xep.jid import JID
from xep.stanza_error import StanzaError


class PauseGate:
    """Admits new requests unless an admin has paused the service (`component.store.shared`).

    Args:
        admins: bare JIDs whose requests are admitted even while paused.
        retry_after_s: the retry hint of a rejection, in whole seconds.
        full: returns the reason why no request can be admitted at all; None if they can.
        refused: called with the principal and the reason of a rejection.
    """

    def __init__(
        self,
        admins: Collection[JID] = (),
        retry_after_s: int = 60,
        full: Callable[[], str | None] = lambda: None,
        refused: Callable[[str, str], None] = lambda _principal, _why: None,
    ) -> None:
        self._full = full
        self._refused = refused
        self._admins = admins
        self._retry_after_s = retry_after_s
        self.paused = False
        """Whether new requests are rejected."""

    def check(self, principal: JID | None) -> None:
        """Admit a new request of a principal (a bare JID), or with None of the operator.

        Raises StanzaError, `resource-constraint` with a retry hint, while the service is paused, or
        while the audit log cannot be written; the latter applies to admins too.
        """
        if self.paused and principal is not None and principal not in self._admins:
            raise self._refusal(principal, "New requests are rejected at the moment.", "paused")
        full = self._full
        why = full()
        if why is not None:
            raise self._refusal(principal, why, "the audit log cannot be written")

    def _refusal(self, principal: JID | None, text: str, why: str) -> StanzaError:
        self._refused("operator" if principal is None else str(principal), why)
        retry = Retry(after=self._retry_after_s)
        return StanzaError("resource-constraint", text, application=(retry,))

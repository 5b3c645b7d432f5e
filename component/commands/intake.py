"""Whether new work is taken on: an admin can hold it up while what has begun goes on."""

from collections.abc import Callable, Collection

from xep.fluux_agent.errors import Retry
from xep.jid import JID
from xep.stanza_error import StanzaError


class Intake:
    """Open unless an admin has paused it; open again after every start.

    Args:
        admins: bare JIDs whose work is taken on all the same.
        retry_after_s: the hint that goes with a refusal, in whole seconds.
        full: why nothing can be taken on from anybody, as long as that is so.
        refused: is told the principal of a refusal, and why.
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
        self._admins = frozenset(admins)
        self._retry_after_s = retry_after_s
        self.paused = False
        """Whether new work is refused."""

    def check(self, principal: JID) -> None:
        """Let new work of a principal (a bare JID) in.

        Raises StanzaError, `resource-constraint` with when to try again, while it is paused, or
        while what is done cannot be recorded, which holds for admins too.
        """
        if self.paused and principal not in self._admins:
            raise self._refusal(principal, "New work is not taken on at the moment.", "paused")
        full = self._full
        why = full()
        if why is not None:
            raise self._refusal(principal, why, "the record cannot be written")

    def _refusal(self, principal: JID, text: str, why: str) -> StanzaError:
        self._refused(str(principal), why)
        retry = Retry(after=self._retry_after_s)
        return StanzaError("resource-constraint", text, application=(retry,))

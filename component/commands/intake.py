"""Whether new work is taken on: an admin can hold it up while what has begun goes on."""

from collections.abc import Collection

from xep.fluux_agent.errors import Retry
from xep.jid import JID
from xep.stanza_error import StanzaError


class Intake:
    """Open unless an admin has paused it; open again after every start.

    Args:
        admins: bare JIDs whose work is taken on all the same.
        retry_after_s: the hint that goes with a refusal, in whole seconds.
    """

    def __init__(self, admins: Collection[JID] = (), retry_after_s: int = 60) -> None:
        self._admins = frozenset(admins)
        self._retry_after_s = retry_after_s
        self.paused = False
        """Whether new work is refused."""

    def check(self, principal: JID) -> None:
        """Let new work of a principal (a bare JID) in.

        Raises StanzaError, `resource-constraint` with when to try again, while it is paused.
        """
        if self.paused and principal not in self._admins:
            raise StanzaError(
                "resource-constraint",
                "New work is not taken on at the moment.",
                application=(Retry(after=self._retry_after_s),),
            )

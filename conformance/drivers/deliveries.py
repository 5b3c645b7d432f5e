"""Recognises messages that a server delivers to an account again, or that are left over.

A server that lost the connection to a client delivers unacknowledged stanzas again (XEP-0198 §5),
to the same resource or to another one, and delivers stored messages after a login. The target has
done neither, so neither may count against it.
"""

from datetime import datetime

from xep.delay import Delay
from xep.stanza import Incoming
from xep.stanza_ids import StanzaId


class Deliveries:
    """The messages to one account, on all of its streams.

    Args:
        account: the bare JID of the account.
        since: when the first of its streams was opened; a message that its server has delayed since
            an earlier time is left over from other work.
    """

    def __init__(self, account: str, since: datetime) -> None:
        self._account = account.casefold()
        self._server = self._account.partition("@")[2]
        self._since = since
        self._seen: set[str] = set()

    def is_new(self, stanza: Incoming) -> bool:
        """Return whether the target has just sent a stanza that was not delivered before.

        A server with an archive gives each message its own id (XEP-0359), which stays the same when
        it is delivered again; it removes forged ones. A message that the target sends twice has two
        such ids, and both are new.
        """
        if stanza.kind != "message":
            return True
        if self._is_left_over(stanza):
            return False
        ids = {one.id for one in stanza.payloads(StanzaId) if one.by.casefold() == self._account}
        known = not ids.isdisjoint(self._seen)
        self._seen |= ids
        return not known

    def _is_left_over(self, stanza: Incoming) -> bool:
        return any(
            delay.stamp < self._since
            for delay in stanza.payloads(Delay)
            if (delay.from_ or "").partition("/")[0].casefold() in (self._account, self._server)
        )

"""Asks people for permission to observe their nodes and their presence.

The nodes of an account (XEP-0163) and its presence are watched only if its owner lets the agent see
the account's presence (RFC 6121 §3.1): clients ask people for that, remember it, and let them
withdraw it at any time. The agent asks once.
"""

from collections.abc import Callable
from typing import Final

from component.features.watches.watch import Source
from component.storage.contacts import Subscription, SubscriptionState, SubscriptionStore
from component.storage.errors import StorageError
from xep.jid import JID
from xep.stanza import Presence

_PUBLIC: Final = frozenset(("urn:xmpp:microblog:0",))
"""Nodes that are usually public, so that their owners are asked only if they are not."""


class Consent:
    """Permission of people.

    Args:
        subscriptions: the presence subscriptions on disk.
        send: sends a presence.
        is_own: whether an address belongs to this service.
        may_write: whether an agent may send a contact an unrequested stanza.
    """

    def __init__(
        self,
        subscriptions: SubscriptionStore,
        send: Callable[[Presence], object],
        is_own: Callable[[JID], bool],
        may_write: Callable[[JID, JID], bool],
    ) -> None:
        self._subscriptions = subscriptions
        self._send = send
        self._is_own = is_own
        self._may_write = may_write

    async def __call__(self, source: Source, *, refused: bool = False) -> str | None:
        """The reason why a source must not be watched, as a sentence; None if it may be.

        `refused` says that the service has refused the source, even if it is usually public.
        """
        person, agent = source.service.bare, source.subscriber
        if person.local is None or self._is_own(person):
            return None
        if source.node in _PUBLIC and not refused:
            return None
        try:
            known = await self._subscriptions.get(agent, person)
            if known is not None and known.state in ("to", "both"):
                return None
            if known is None or not known.ask:
                if not self._may_write(agent, person):
                    return f"{person} does not want to be contacted."
                state: SubscriptionState = "none" if known is None else known.state
                await self._subscriptions.put(Subscription(agent, person, state, ask=True))
                self._send(Presence(type="subscribe", from_=agent, to=person))
        except StorageError as error:
            return str(error)
        return f"{person} has not allowed {agent} to see their presence yet."

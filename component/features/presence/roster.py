"""Presence of a client (RFC 6121 §2, §3, §4): its server stores the roster and reports changes.

The server broadcasts our presence to the subscribers, so there is one presence to send, not one for
each contact as for a component (`component.features.presence.handlers`).
"""

from collections.abc import Callable
from typing import Final

import structlog

from component.features.presence.handlers import InTurn
from component.kernel.stream import StreamSubsystem
from component.link.router.table import IQRoute, Request, Route, StanzaRoute
from component.store.contacts import StoppedContacts, Subscription, SubscriptionStore
from xep.caps import NAMESPACE as CAPS
from xep.caps import Caps
from xep.jid import JID
from xep.roster import RosterItem, RosterQuery
from xep.stanza import Presence
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.presence")

_SEES_US: Final = ("from", "both")


class RosterPresence:
    """Shows the account to its contacts, and grants subscriptions to those whom the policy admits.

    The router passes on requests of admitted senders only, so a subscription request that arrives
    here is granted. The stored subscriptions follow the roster of the server.

    Args:
        subscriptions: the stored subscriptions.
        stream: sends stanzas, and requests the roster of the server.
        capabilities: returns the capabilities of the account.
        contacts: whether contacts want unsolicited messages.
    """

    def __init__(
        self,
        subscriptions: SubscriptionStore,
        stream: StreamSubsystem,
        capabilities: Callable[[], Caps],
        contacts: StoppedContacts,
    ) -> None:
        self._account = stream.addresses.default
        self._subscriptions = subscriptions
        self._stream = stream
        self._send = stream.send
        self._capabilities = capabilities
        self._contacts = contacts
        self._in_turn = InTurn()

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of this handler."""
        queued = self._in_turn.queued
        return (
            IQRoute("set", RosterQuery, queued(self.push)),
            StanzaRoute("presence", frozenset(("subscribe",)), queued(self.subscribe), (CAPS,)),
            StanzaRoute("presence", frozenset(("unsubscribe",)), queued(self.unsubscribe), (CAPS,)),
        )

    async def announce(self) -> None:
        """Fetch the roster, then become available (RFC 6121 §2.2, §4.2); when a session begins."""
        try:
            roster = await self._stream.get(self._account, RosterQuery(), RosterQuery)
        except StanzaError as error:
            _log.warning("the server did not return the roster", reason=str(error))
        else:
            await self._replace(roster)
        self._send(Presence(from_=self._account, payloads=(self._capabilities(),)))

    async def take_leave(self) -> None:
        """Become unavailable (RFC 6121 §4.5); before the stream is closed."""
        self._send(Presence(type="unavailable", from_=self._account))

    async def subscribe(self, request: Request[None]) -> None:
        """Grant a subscription (RFC 6121 §3.1.5). A contact that asks for it wants to
        hear from us.
        """
        contact = request.principal
        await self._contacts.start(self._account, contact)
        await self._subscriptions.put(Subscription(self._account, contact, "from"))
        self._send(Presence(type="subscribed", from_=self._account, to=contact))

    async def unsubscribe(self, request: Request[None]) -> None:
        """Record the end of a subscription, and send the contact no more messages (FAC-012)."""
        await self._forget(request.principal)

    async def push(self, request: Request[RosterQuery]) -> None:
        """Handle a roster push (RFC 6121 §2.1.6).

        Raises:
            StanzaError: ``service-unavailable`` if it does not come from the account itself.
        """
        if request.sender != self._account:
            raise StanzaError(
                "service-unavailable", "only the account's server may change its roster"
            )
        for item in request.payload.items:
            await self._take(item)

    async def _replace(self, roster: RosterQuery) -> None:
        """Store a whole roster; missing contacts were removed while the agent was offline."""
        listed = {item.jid.bare for item in roster.items if item.subscription in _SEES_US}
        for item in roster.items:
            await self._take(item)
        page = await self._subscriptions.receivers()
        while page:
            for each in page:
                if each.owner == self._account and each.contact not in listed:
                    await self._forget(each.contact)
            page = await self._subscriptions.receivers(page[-1])

    async def _take(self, item: RosterItem) -> None:
        contact = item.jid.bare
        if item.subscription == "from" or item.subscription == "both":  # noqa: PLR1714 - for mypy
            known = await self._subscriptions.get(self._account, contact)
            if known is None or known.state != item.subscription:
                await self._subscriptions.put(
                    Subscription(self._account, contact, item.subscription)
                )
        else:
            await self._forget(contact)

    async def _forget(self, contact: JID) -> None:
        """Remove a contact that no longer sees us. For one that never did this means nothing."""
        known = await self._subscriptions.get(self._account, contact)
        if known is None:
            return
        await self._contacts.stop(self._account, contact)
        await self._subscriptions.remove(self._account, contact)

"""Presence (RFC 6121 §3, §4): subscriptions to us, and the presence that we send.

After a reconnect servers do not tell a component anything, so it stores its own side of each
subscription and announces itself to every subscriber. The server of a client stores the roster and
broadcasts our presence to the subscribers, so there is one presence to send (`RosterPresence`).
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

import anyio
import structlog

from component.agent_addresses import both_addresses
from component.kernel.contacts import ContactSubsystem
from component.kernel.events import PresenceEvents
from component.kernel.exchange_limit import ExchangeLimit, ExchangeStopped
from component.kernel.stream import StreamSubsystem
from component.link.messages.delivery import Delivery
from component.link.router.addresses import online
from component.link.router.table import Host, IQRoute, Request, Route, StanzaRoute
from component.store.contacts import (
    StoppedContacts,
    Subscription,
    SubscriptionState,
    SubscriptionStore,
)
from xep.binding import Payload
from xep.caps import NAMESPACE as CAPS
from xep.caps import Caps
from xep.jid import JID
from xep.roster import RosterItem, RosterQuery
from xep.stanza import Address, Presence
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.presence")

T = TypeVar("T")
R = TypeVar("R", bound=Request[Any])

SLICE: Final = 50
"""The number of subscribers that are sent presence before anything else can be sent."""
PAUSE_S: Final = 0.02
"""Seconds between two slices: at most 2,500 stanzas a second, which a server handles besides its
other work.
"""
_PAGE: Final = 1_000
"""The number of subscriptions that are read, and held in memory, at a time."""
_MOST_REPEATED: Final = 10
"""The number of requests in quick succession that are granted although they had been before."""
_MOVED: Final = (
    "I am the same agent as {other}. If you have that address among your contacts too, you can"
    " remove it: everything continues here."
)
_SEES_US: Final = ("from", "both")
_FOR_GOOD: Final = frozenset(("gone", "item-not-found", "jid-malformed"))
"""Permanent conditions: the account does not exist."""


class InTurn:
    """Wraps handlers so that each waits until all earlier stanzas are handled, by whichever
    handler. For example, a contact that ends a subscription and immediately requests it again must
    be subscribed afterwards.
    """

    def __init__(self) -> None:
        self._last = anyio.Event()
        self._last.set()

    def queued(self, handler: Callable[[R], Awaitable[T]]) -> Callable[[R], Awaitable[T]]:
        """Wrap ``handler`` so that it waits for its turn."""

        async def when_done(before: anyio.Event, done: anyio.Event, request: R) -> T:
            try:
                await before.wait()
                return await handler(request)
            finally:
                done.set()

        def take_place(request: R) -> Awaitable[T]:
            before, self._last = self._last, anyio.Event()
            return when_done(before, self._last, request)

        return take_place


class PresenceHandler:
    """Grants subscriptions to contacts that the policy admits, and sends presence to subscribers.

    **Many subscribers** are sent presence in slices. The next slice is sent when the server has
    received the previous one, so the outbox contains at most one, and answers to others are sent in
    between. A pause after each leaves the server time for its users.

    **Subscribers that cannot be reached** return presence with an error. They are skipped for
    longer and longer (`component.store.contacts`) until they send something: a server that is back
    probes us for each of its users who logs in (RFC 6121 §4.3). `payloads` returns the payloads of
    a host's available presence, with the localpart if it is an agent: its capabilities (XEP-0115)
    and the digest of its avatar (XEP-0153). `asks` says whether a contact that subscribes to an
    agent is asked for its presence in return.
    """

    def __init__(
        self,
        subscriptions: SubscriptionStore,
        stream: StreamSubsystem,
        payloads: Callable[[Host, str | None], tuple[Payload, ...]],
        contacts: ContactSubsystem,
        events: PresenceEvents,
        *,
        asks: bool = False,
    ) -> None:
        self._subscriptions = subscriptions
        self._stream = stream
        self._send = stream.send
        self._payloads = payloads
        self._contacts = contacts
        self._events = events
        self._asks = asks
        self._in_turn = InTurn()
        self._repeated = ExchangeLimit(_MOST_REPEATED)

    def routes(self) -> tuple[StanzaRoute, ...]:
        """Return the routes of this handler."""

        def on(type_: str, handler: Callable[[Request[None]], Awaitable[None]]) -> StanzaRoute:
            return StanzaRoute(
                "presence", frozenset((type_,)), self._in_turn.queued(handler), (CAPS,)
            )

        return (
            on("subscribe", self.subscribe),
            on("unsubscribe", self.unsubscribe),
            on("subscribed", self.subscribed),
            on("unsubscribed", self.unsubscribed),
            on("probe", self.probe),
            on("error", self.failed),
        )

    async def subscribe(self, request: Request[None]) -> None:
        """Grant a subscription, and send our presence (RFC 6121 §3.1.3).

        An existing subscription is granted again: a contact that asks twice has missed the answer.
        Some clients ask each time that it is granted, to acknowledge that (RFC 3921 §8.2), and
        their server may pass it on: that ends after a few times. A contact that subscribes wants to
        hear from us, even if it opted out before.

        An agent with two addresses is one contact: a subscription to one address ends that to the
        other, and says so. The latest counts, because the contact may have removed the other one
        while the service was away.
        """
        owner, contact = request.to.bare, request.principal
        known = await self._subscriptions.get(owner, contact)
        other = await self._other(owner, contact)
        is_known = known is not None and known.state in _SEES_US
        if (is_known or other is not None) and self._goes_on(contact):
            return
        await self._contacts.start(owner, contact)
        await self._contacts.used(owner, contact)
        sees = known is not None and known.state in ("to", "both")
        state: SubscriptionState = "both" if sees else "from"
        asks = self._asks and not sees
        asked = known is not None and known.ask and not sees
        await self._subscriptions.put(Subscription(owner, contact, state, ask=asks or asked))
        self._send(Presence(type="subscribed", from_=owner, to=contact))
        self._send(self._available(owner, contact))
        if asks:
            self._send(Presence(type="subscribe", from_=owner, to=contact))
        if other is not None:
            await self._end(other)
            self._contacts.tell(owner, contact, _MOVED.format(other=other.owner))

    async def _other(self, owner: JID, contact: JID) -> Subscription | None:
        """Return the subscription of the contact to the other address of the same agent."""
        other = both_addresses(owner)[1]
        found = None if other == owner else await self._subscriptions.get(other, contact)
        return found if found is not None and found.state in _SEES_US else None

    async def _end(self, subscription: Subscription) -> None:
        """End a subscription, because another address of the same agent has taken its place."""
        owner, contact = subscription.owner, subscription.contact
        await self._subscriptions.remove(owner, contact)
        self._revoke(owner, contact)
        if subscription.ask or subscription.state == "both":
            self._send(Presence(type="unsubscribe", from_=owner, to=contact))

    def _goes_on(self, contact: JID) -> bool:
        verdict = self._repeated.next(contact)
        if not isinstance(verdict, ExchangeStopped):
            return False
        if verdict.first:
            _log.warning(
                "stopped granting a subscription that exists already; its client asks for it each"
                " time that it is granted",
                contact=str(contact),
            )
        return True

    async def unsubscribe(self, request: Request[None]) -> None:
        """End a subscription (RFC 6121 §3.3.3), and send the contact no more messages (FAC-012)."""
        owner, contact = request.to.bare, request.principal
        if await self._subscriptions.get(owner, contact) is None:
            return
        await self._contacts.stop(owner, contact)
        if await self._subscriptions.remove(owner, contact):
            self._revoke(owner, contact)

    async def subscribed(self, request: Request[None]) -> None:
        """Note that the contact shows us its presence (§3.1.6), if we have asked for that."""
        owner, contact = request.to.bare, request.principal
        known = await self._subscriptions.get(owner, contact)
        if known is None or not known.ask:
            return
        state: SubscriptionState = "both" if known.state in ("from", "both") else "to"
        await self._subscriptions.put(Subscription(owner, contact, state))
        self._events.granted(owner, contact)

    async def unsubscribed(self, request: Request[None]) -> None:
        """Note that the contact does not show us its presence, or no longer does (§3.2.3)."""
        owner, contact = request.to.bare, request.principal
        known = await self._subscriptions.get(owner, contact)
        if known is None or not (known.ask or known.state in ("to", "both")):
            return
        if known.state in ("from", "both"):
            await self._subscriptions.put(Subscription(owner, contact, "from"))
        else:
            await self._subscriptions.remove(owner, contact)

    async def probe(self, request: Request[None]) -> None:
        """Send our presence to a subscriber; tell others that they are not subscribed (§4.3.2)."""
        owner, contact = request.to.bare, request.principal
        known = await self._subscriptions.get(owner, contact)
        if known is None:
            self._send(Presence(type="unsubscribed", from_=owner, to=contact))
            return
        # A server probes us for each of its users who comes online (RFC 6121 §4.3).
        self._events.online(owner, contact)
        # Sent to the address as the server wrote it, because only that client asked.
        self._send(self._available(owner, request.stanza.sender or request.sender))
        if known.failures:
            await self._subscriptions.reachable(owner, contact)

    async def failed(self, request: Request[None]) -> None:
        """Note that a presence from this service could not be delivered (RFC 6120 §8.3)."""
        owner, contact = request.to.bare, request.principal
        condition = request.stanza.error().condition
        log = _log.bind(agent=str(owner), contact=str(contact), condition=condition)
        if await self._subscriptions.failed(owner, contact, for_good=condition in _FOR_GOOD):
            log.info(
                "a subscriber cannot be reached and is sent no presence until it is heard from"
            )
        else:
            log.debug("presence to a subscriber was returned with an error")

    async def announce(self) -> None:
        """Send presence to every subscriber, and probe the contacts that show us theirs (RFC 6121
        §4.3); after each connect. Ends early when the stream is lost: the next one has its own
        announcement.
        """

        def told(each: Subscription) -> Iterable[Presence]:
            return self._available(each.owner, each.contact), *_probes(each)

        await self._tell_all(told, PAUSE_S)

    async def probe_contacts(self) -> None:
        """Probe the contacts that show us their presence: another instance received it so far."""
        await self._tell_all(_probes, PAUSE_S)

    async def take_leave(self) -> None:
        """Send unavailable presence to every subscriber, before the stream is closed."""

        def unavailable(each: Subscription) -> Iterable[Presence]:
            return (self._unavailable(each.owner, each.contact),)

        await self._tell_all(unavailable, 0)

    async def _tell_all(
        self, told: Callable[[Subscription], Iterable[Presence]], pause_s: float
    ) -> None:
        session = self._stream.connected_since
        page = await self._subscriptions.receivers(limit=_PAGE)
        while page:
            for start in range(0, len(page), SLICE):
                if session is None or self._stream.connected_since is not session:
                    return
                delivery: Delivery | None = None
                for each in page[start : start + SLICE]:
                    if self._contacts.may_write(each.owner, each.contact):
                        for presence in told(each):
                            delivery = self._send(presence)
                if delivery is not None:
                    await delivery.settled()
                await anyio.sleep(pause_s)
            page = await self._subscriptions.receivers(page[-1], _PAGE)

    def _revoke(self, owner: JID, contact: JID) -> None:
        self._send(self._unavailable(owner, contact))
        self._send(Presence(type="unsubscribed", from_=owner, to=contact))

    def _unavailable(self, owner: JID, to: JID) -> Presence:
        return Presence(type="unavailable", from_=online(owner), to=to)

    def _available(self, owner: JID, to: Address) -> Presence:
        host: Host = "component" if owner.local is None else "agent"
        return Presence(from_=online(owner), to=to, payloads=self._payloads(host, owner.local))


def _probes(each: Subscription) -> Iterable[Presence]:
    # A component has no roster on its server, so nobody else probes.
    if each.state == "both":
        yield Presence(type="probe", from_=each.owner, to=each.contact)


class RosterPresence:
    """Shows the account to its contacts, and grants subscriptions to those whom the policy admits.
    The router passes on requests of admitted senders only, so a subscription request that arrives
    here is granted. The stored subscriptions follow the roster of the server.
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
        """Grant a subscription (RFC 6121 §3.1.5). A contact that asks wants to hear from us."""
        contact = request.principal
        await self._contacts.start(self._account, contact)
        await self._subscriptions.put(Subscription(self._account, contact, "from"))
        self._send(Presence(type="subscribed", from_=self._account, to=contact))

    async def unsubscribe(self, request: Request[None]) -> None:
        """Record the end of a subscription, and send the contact no more messages (FAC-012)."""
        await self._forget(request.principal)

    async def push(self, request: Request[RosterQuery]) -> None:
        """Handle a roster push (RFC 6121 §2.1.6). Raises StanzaError: ``service-unavailable`` if it
        does not come from the account itself.
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

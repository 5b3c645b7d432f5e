"""Presence (RFC 6121 §3, §4): who subscribes to us, and what they see.

After a reconnect servers tell a component nothing, so it keeps its own side of each subscription
and announces itself to every subscriber.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

import anyio

from component.router.table import Host, Request, SilentHandler, StanzaRoute
from component.storage.subscriptions import Subscription
from xep.caps import NAMESPACE as CAPS
from xep.caps import Caps
from xep.jid import JID
from xep.stanza import Address, Message, Presence

Send = Callable[[Message | Presence], None]


class Subscriptions(Protocol):
    """The subscriptions on disk. Every method raises StorageError if the disk refuses."""

    async def put(self, subscription: Subscription) -> None:
        """Add a subscription, or replace the one between the same two."""

    async def remove(self, owner: JID, contact: JID) -> bool:
        """Forget a subscription; False if there was none."""

    async def get(self, owner: JID, contact: JID) -> Subscription | None:
        """The subscription between two, or None."""

    async def all(self) -> list[Subscription]:
        """Every subscription."""


class Contacts(Protocol):
    """Who wants to hear nothing more (specification, FAC-012)."""

    def may_write(self, agent: JID, contact: JID) -> bool:
        """Whether the contact may be sent what it has not asked for."""

    async def stop(self, agent: JID, contact: JID) -> None:
        """The contact wants to hear nothing more. Raises StorageError."""

    async def start(self, agent: JID, contact: JID) -> None:
        """The contact wants to hear from the agent again. Raises StorageError."""


class PresenceHandler:
    """Grants subscriptions to whom policy admits, and tells subscribers when we come and go.

    Args:
        subscriptions: where subscriptions are kept.
        send: sends a stanza.
        capabilities: the capabilities of a host, with the localpart if it is an agent.
        contacts: who wants to hear nothing more.
    """

    def __init__(
        self,
        subscriptions: Subscriptions,
        send: Send,
        capabilities: Callable[[Host, str | None], Caps],
        contacts: Contacts,
    ) -> None:
        self._subscriptions = subscriptions
        self._send = send
        self._capabilities = capabilities
        self._contacts = contacts
        self._last = anyio.Event()
        self._last.set()

    def routes(self) -> tuple[StanzaRoute, ...]:
        """The routes of this handler."""

        def on(type_: str, handler: Callable[[Request[None]], Awaitable[None]]) -> StanzaRoute:
            return StanzaRoute("presence", frozenset((type_,)), self._in_turn(handler), (CAPS,))

        return (
            on("subscribe", self.subscribe),
            on("unsubscribe", self.unsubscribe),
            on("probe", self.probe),
        )

    async def subscribe(self, request: Request[None]) -> None:
        """Grant a subscription, and show ourselves (RFC 6121 §3.1.3).

        It is granted again when it is there already: whoever asks twice has missed the answer.
        Who asks to see us wants to hear from us, whatever was said before.
        """
        owner, contact = request.to.bare, request.principal
        await self._contacts.start(owner, contact)
        await self._subscriptions.put(Subscription(owner, contact, "from"))
        self._send(Presence(type="subscribed", from_=owner, to=contact))
        self._send(self._available(owner, contact))

    async def unsubscribe(self, request: Request[None]) -> None:
        """End a subscription (RFC 6121 §3.3.3), and write to the contact no more (FAC-012)."""
        owner, contact = request.to.bare, request.principal
        if await self._subscriptions.get(owner, contact) is None:
            return
        await self._contacts.stop(owner, contact)
        if await self._subscriptions.remove(owner, contact):
            self._send(Presence(type="unavailable", from_=owner, to=contact))
            self._send(Presence(type="unsubscribed", from_=owner, to=contact))

    async def probe(self, request: Request[None]) -> None:
        """Show ourselves to a subscriber; tell anybody else that they are none (§4.3.2)."""
        owner, contact = request.to.bare, request.principal
        if await self._subscriptions.get(owner, contact) is not None:
            # To the address as the server knows it: that one client asked.
            self._send(self._available(owner, request.stanza.sender or request.sender))
        else:
            self._send(Presence(type="unsubscribed", from_=owner, to=contact))

    async def announce(self) -> None:
        """Show ourselves to every subscriber; after each connect."""
        for each in await self._told():
            self._send(self._available(each.owner, each.contact))

    async def take_leave(self) -> None:
        """Tell every subscriber that we go; before the stream is closed."""
        for each in await self._told():
            self._send(Presence(type="unavailable", from_=each.owner, to=each.contact))

    async def _told(self) -> list[Subscription]:
        may_write = self._contacts.may_write
        return [
            each for each in await self._subscriptions.all() if may_write(each.owner, each.contact)
        ]

    def _in_turn(self, handler: Callable[[Request[None]], Awaitable[None]]) -> SilentHandler:
        """``handler``, waiting until whatever came before it is done.

        Who ends a subscription and asks for it again in one breath must find it there after.
        """

        async def when_done(before: anyio.Event, done: anyio.Event, request: Request[None]) -> None:
            try:
                await before.wait()
                await handler(request)
            finally:
                done.set()

        def queued(request: Request[None]) -> Awaitable[None]:
            before, self._last = self._last, anyio.Event()
            return when_done(before, self._last, request)

        return queued

    def _available(self, owner: JID, to: Address) -> Presence:
        host: Host = "component" if owner.local is None else "agent"
        return Presence(from_=owner, to=to, payloads=(self._capabilities(host, owner.local),))

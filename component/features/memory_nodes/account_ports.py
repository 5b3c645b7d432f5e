"""The interfaces by which `account_nodes.py` reaches the nodes in accounts."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from component.memory.store import Whose
from xep.binding import Payload, RawXML
from xep.data_forms import Form
from xep.jid import JID
from xep.pubsub import Item, Subscription
from xep.pubsub_owner import PubsubOwner


class Page(Protocol):
    """Some items: `component.pubsub.client.Page`."""

    @property
    def items(self) -> tuple[Item, ...]:
        """The items."""

    @property
    def complete(self) -> bool:
        """False if others were left out."""


class Client(Protocol):
    """Requests to PubSub services: `component.pubsub.client.PubSubClient`.

    All raise StanzaError.
    """

    async def items(
        self, service: JID, node: str, requester: JID, *, ids: Sequence[str] = ()
    ) -> tuple[Item, ...]:
        """The items with these ids."""

    def pages(self, service: JID, node: str, requester: JID) -> AsyncIterator[Page]:
        """All items."""

    async def publish(
        self,
        service: JID,
        node: str,
        payload: Payload | RawXML | None,
        publisher: JID,
        *,
        item_id: str | None = None,
        options: Form | None = None,
    ) -> str | None:
        """Publish an item."""

    async def retract(self, service: JID, node: str, ids: Sequence[str], requester: JID) -> None:
        """Delete items."""

    async def create(self, service: JID, node: str, owner: JID, config: Form | None = None) -> None:
        """Create a node."""

    async def subscribe(
        self, service: JID, node: str, subscriber: JID, options: Form | None = None
    ) -> Subscription:
        """Subscribe to a node; it can be repeated."""

    async def unsubscribe(
        self, service: JID, node: str, subscriber: JID, subid: str | None = None
    ) -> None:
        """End a subscription."""


SetOwned: TypeAlias = Callable[[JID, PubsubOwner], Awaitable[None]]
"""Sends a request of the owner of a node to a service. Raises StanzaError."""


class OnBehalf(Protocol):
    """Whether and how requests are made on behalf of people:
    `component.features.memory_nodes.consents.Consents`.

    Attributes:
        client: makes requests on behalf of the account that they are sent to.
        set_owned: makes requests of owners.
    """

    client: Client
    set_owned: SetOwned

    async def allows(self, whose: Whose) -> bool:
        """Whether the person has consented and the server permits it now. Raises StorageError."""

    def may_own(self, whose: Whose) -> bool:
        """Whether the server permits to change affiliations."""


class Location(NamedTuple):
    """The place of a node, and the agent's address that sends requests to it.

    `shares` says that the account is the agent's own, which creates the node for the person.
    """

    service: JID
    node: str
    requester: JID
    shares: bool


class AccountPorts(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies of `AccountNodes`.

    Attributes:
        client: makes requests as the agent.
        set_owned: makes requests of owners.
        on_behalf: makes requests on behalf of people; None if that is never possible.
        locate: returns the location of a node.
        agent_at: returns the name of the agent at an address.
        is_connected: whether there is a session.
        software: returns the name of the software of a domain, from its identity in disco#info.
            Raises StanzaError.
    """

    client: Client
    set_owned: SetOwned
    on_behalf: OnBehalf | None
    locate: Callable[[Whose], Location]
    agent_at: Callable[[JID], str]
    is_connected: Callable[[], bool]
    software: Callable[[JID], Awaitable[str]]

"""Requests on behalf of people (XEP-0356): only if they have consented and their server
permits it.
"""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from component.features.memory_nodes.privileges import Privileges
from component.features.memory_nodes.rows import AccountConsentStore
from component.memory.store import Whose
from component.pubsub.client import PubSubClient
from xep.jid import JID
from xep.pubsub_owner import PubsubOwner

SetOwned: TypeAlias = Callable[[JID, PubsubOwner], Awaitable[None]]
"""Sends a request of the owner of a node to a service. Raises StanzaError."""


class Consents:
    """Makes requests on behalf of people who have consented, if their server permits it.

    Args:
        store: has the consents.
        privileges: the privileges that servers have granted.
        client: makes requests on behalf of the account that they are sent to.
        set_owned: makes requests of owners.
        address_of: returns the bare address of an agent.

    Attributes:
        client: as given.
        set_owned: as given.
    """

    def __init__(
        self,
        store: AccountConsentStore,
        privileges: Privileges,
        client: PubSubClient,
        set_owned: SetOwned,
        address_of: Callable[[str], JID],
    ) -> None:
        self.client = client
        self.set_owned = set_owned
        self._store = store
        self._privileges = privileges
        self._address_of = address_of

    async def allows(self, whose: Whose) -> bool:
        """Whether the person has consented and the server permits it now. Raises StorageError."""
        if not self._privileges.may_use_nodes(whose.who):
            return False
        return await self.has(whose)

    def may_own(self, whose: Whose) -> bool:
        """Whether the server permits to change affiliations."""
        return self._privileges.may_own_nodes(whose.who)

    def is_offered(self, whose: Whose) -> bool:
        """Whether the server of the person permits it now."""
        return self._privileges.may_use_nodes(whose.who)

    async def has(self, whose: Whose) -> bool:
        """Whether the person has consented. Raises StorageError."""
        return await self._store.has(self._address_of(whose.agent), whose.who)

    async def give(self, whose: Whose) -> None:
        """The person consents. Raises StorageError."""
        await self._store.put(self._address_of(whose.agent), whose.who)

    async def withdraw(self, whose: Whose) -> bool:
        """The person withdraws the consent; False if there was none. Raises StorageError."""
        return await self._store.remove(self._address_of(whose.agent), whose.who)

"""Requests on behalf of people (XEP-0356): only if they have consented and their server
permits it.
"""

from collections.abc import Callable
from typing import Protocol

from component.features.memory_nodes.account_ports import Client, SetOwned
from component.features.memory_nodes.privileges import Privileges
from component.memory.store import Whose
from xep.jid import JID


class ConsentStore(Protocol):
    """The consents: `component.features.memory_nodes.rows.AccountConsentStore`. All methods raise
    StorageError.
    """

    async def has(self, agent: JID, person: JID) -> bool:
        """Whether the person has consented."""

    async def put(self, agent: JID, person: JID) -> None:
        """Record that the person consents."""

    async def remove(self, agent: JID, person: JID) -> bool:
        """Record that the person withdraws the consent; False if there was none."""


class Consents:
    """Implements `component.features.memory_nodes.account_ports.OnBehalf`.

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
        store: ConsentStore,
        privileges: Privileges,
        client: Client,
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

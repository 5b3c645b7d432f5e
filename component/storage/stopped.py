"""Contacts that only want answers from an agent (specification, FAC-012)."""

from collections.abc import Callable, Collection

import anyio

from component.storage.database import Database
from component.storage.storage import Storage
from xep.jid import JID


def _itself(address: JID) -> JID:
    return address


class StoppedContacts:
    """The contacts that have stopped messages, in the database and cached in memory.

    Until `load` has returned, all contacts count as stopped. `reload` is called when another
    instance has changed them.

    Args:
        storage: the storage; open while this is used.
        agent: maps an address of the component to its agent, if several addresses belong to one.
    """

    def __init__(self, storage: Storage, agent: Callable[[JID], JID] = _itself) -> None:
        self._storage = storage
        self._agent = agent
        self._stopped: set[tuple[str, str]] | None = None
        self._one_at_a_time = anyio.Lock()

    async def load(self) -> None:
        """Load the stopped contacts. Raises StorageError."""

        def work(database: Database) -> list[tuple[str, str]]:
            found = database.execute("SELECT owner, contact FROM stopped").fetchall()
            return [(owner, contact) for owner, contact in found]

        async with self._one_at_a_time:  # concurrent changes must not be lost
            self._stopped = set(await self._storage.read(work))

    async def reload(self, subjects: Collection[str] | None = None) -> None:
        """Reload these subjects, or all with None. Raises StorageError.

        A subject is the address of the agent and that of the contact, separated by a space.
        """
        if subjects is None or self._stopped is None:
            await self.load()
            return
        keys = [(owner, contact) for owner, _, contact in (s.partition(" ") for s in subjects)]

        def work(database: Database) -> list[bool]:
            return [
                database.execute(
                    "SELECT 1 FROM stopped WHERE owner = ? AND contact = ?", key
                ).fetchone()
                is not None
                for key in keys
            ]

        async with self._one_at_a_time:
            for key, is_stopped in zip(keys, await self._storage.read(work), strict=True):
                if is_stopped:
                    self._stopped.add(key)
                else:
                    self._stopped.discard(key)

    def may_write(self, agent: JID, contact: JID) -> bool:
        """Whether this address may send unsolicited messages to the contact."""
        return self._stopped is not None and self._key(agent, contact) not in self._stopped

    async def stop(self, agent: JID, contact: JID) -> None:
        """Stop messages from the agent to the contact. Raises StorageError.

        This takes effect immediately, even if it cannot be stored.
        """
        key = self._key(agent, contact)
        if self._stopped is not None:
            self._stopped.add(key)

        def work(database: Database) -> None:
            database.execute(
                "INSERT INTO stopped (owner, contact) VALUES (?, ?) ON CONFLICT DO NOTHING", key
            )

        async with self._one_at_a_time:
            if self._stopped is not None:
                self._stopped.add(key)  # again, in case of a concurrent load
            await self._storage.write(work)

    async def start(self, agent: JID, contact: JID) -> None:
        """Allow messages from the agent to the contact again. Raises StorageError."""
        key = self._key(agent, contact)

        def work(database: Database) -> None:
            database.execute("DELETE FROM stopped WHERE owner = ? AND contact = ?", key)

        async with self._one_at_a_time:
            await self._storage.write(work)
            if self._stopped is not None:
                self._stopped.discard(key)

    def _key(self, agent: JID, contact: JID) -> tuple[str, str]:
        return str(self._agent(agent.bare).bare), str(contact.bare)

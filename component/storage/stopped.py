"""Who wants to hear nothing more from an agent but answers (specification, FAC-012)."""

from collections.abc import Callable

import anyio

from component.storage.database import Database
from component.storage.storage import Storage
from xep.jid import JID


def _itself(address: JID) -> JID:
    return address


class StoppedContacts:
    """Who said so, on disk, and in memory for whoever is about to write to them.

    Nothing may be sent to a contact before `load` has returned: until then everybody counts as
    somebody who said so. `load` is called again after each connect, in case another process on the
    same database has changed it meanwhile.

    Args:
        storage: where it is kept; open while this is used.
        agent: which agent speaks at an address of ours, if several are the same one's.
    """

    def __init__(self, storage: Storage, agent: Callable[[JID], JID] = _itself) -> None:
        self._storage = storage
        self._agent = agent
        self._stopped: set[tuple[str, str]] | None = None
        self._one_at_a_time = anyio.Lock()

    async def load(self) -> None:
        """Read who said so. Raises StorageError."""

        def work(database: Database) -> list[tuple[str, str]]:
            found = database.execute("SELECT owner, contact FROM stopped").fetchall()
            return [(owner, contact) for owner, contact in found]

        async with self._one_at_a_time:  # what is said meanwhile must not be lost
            self._stopped = set(await self._storage.read(work))

    def may_write(self, agent: JID, contact: JID) -> bool:
        """Whether the address of ours may send to a contact what that one has not asked for."""
        return self._stopped is not None and self._key(agent, contact) not in self._stopped

    async def stop(self, agent: JID, contact: JID) -> None:
        """The contact wants to hear nothing more from the agent. Raises StorageError.

        It holds from this moment on, even if the disk refuses to remember it.
        """
        key = self._key(agent, contact)
        if self._stopped is not None:
            self._stopped.add(key)

        def work(database: Database) -> None:
            database.execute(
                "INSERT INTO stopped (owner, contact) VALUES (?, ?) ON CONFLICT DO NOTHING", key
            )

        async with self._one_at_a_time:
            await self._storage.write(work)
            if self._stopped is not None:
                self._stopped.add(key)

    async def start(self, agent: JID, contact: JID) -> None:
        """The contact wants to hear from the agent again. Raises StorageError."""
        key = self._key(agent, contact)

        def work(database: Database) -> None:
            database.execute("DELETE FROM stopped WHERE owner = ? AND contact = ?", key)

        async with self._one_at_a_time:
            await self._storage.write(work)
            if self._stopped is not None:
                self._stopped.discard(key)

    def _key(self, agent: JID, contact: JID) -> tuple[str, str]:
        return str(self._agent(agent.bare).bare), str(contact.bare)

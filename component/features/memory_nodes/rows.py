"""Stores which people let an agent keep its memories in their account on their behalf."""

from typing import Final

from component.store.database import Database
from component.store.schema import Table
from component.store.storage import Storage
from xep.jid import JID

TABLES: Final = (
    Table(
        name="account_consents",
        columns="""
            agent TEXT {C} NOT NULL,
            person TEXT {C} NOT NULL,
            at BIGINT NOT NULL,
            PRIMARY KEY (agent, person)
        """,
        kept="where the person allows memories; `/memory-home stop` deletes it",
    ),
)


class AccountConsentStore:
    """The consents in the database, by agent and person. Methods raise StorageError.

    Args:
        storage: has the table.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def has(self, agent: JID, person: JID) -> bool:
        """Whether the person has consented, and has not withdrawn it."""

        def op(database: Database) -> bool:
            found = database.execute(
                "SELECT 1 FROM account_consents WHERE agent = ? AND person = ?",
                (str(agent.bare), str(person.bare)),
            )
            return found.fetchone() is not None

        return await self._storage.read(op)

    async def put(self, agent: JID, person: JID) -> None:
        """Record that the person consents."""

        def op(database: Database) -> None:
            database.execute(
                "INSERT INTO account_consents (agent, person, at) VALUES (?, ?, ?)"
                " ON CONFLICT (agent, person) DO NOTHING",
                (str(agent.bare), str(person.bare), database.now),
            )

        await self._storage.write(op)

    async def remove(self, agent: JID, person: JID) -> bool:
        """Record that the person withdraws the consent; False if there was none."""

        def op(database: Database) -> bool:
            done = database.execute(
                "DELETE FROM account_consents WHERE agent = ? AND person = ?",
                (str(agent.bare), str(person.bare)),
            )
            return done.rowcount > 0

        return await self._storage.write(op)

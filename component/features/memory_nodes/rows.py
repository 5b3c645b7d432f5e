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
    """The consents in the database, by agent and person. Methods raise StorageError."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def has(self, agent: JID, person: JID) -> bool:
        """Whether the person has consented, and has not withdrawn it."""

        found = await self._storage.select(
            "SELECT 1 FROM account_consents WHERE agent = ? AND person = ?",
            (str(agent.bare), str(person.bare)),
        )
        return bool(found)

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

        count = await self._storage.change(
            "DELETE FROM account_consents WHERE agent = ? AND person = ?",
            (str(agent.bare), str(person.bare)),
        )
        return count > 0

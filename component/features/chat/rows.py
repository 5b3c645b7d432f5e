"""Stores which people have got the notice that an agent is a machine."""

from typing import Final

from component.store.database import Database
from component.store.schema import Table
from component.store.storage import Storage
from xep.jid import JID

_CLAIM_MS: Final = 60_000
"""How long a claim is valid. If the notice is not sent by then, the process that claimed it has
ended."""


TABLES: Final = (
    Table(
        name="notices",
        columns="""
            agent TEXT {C} NOT NULL,
            person TEXT {C} NOT NULL,
            claimed BIGINT NOT NULL,
            sent INTEGER NOT NULL,
            PRIMARY KEY (agent, person)
        """,
        kept="whether the person has got the notice that the agent is a machine",
    ),
)


class NoticeStore:
    """The notices in the database, by agent and person. Methods raise StorageError.

    A notice is claimed before it is sent and marked as sent afterwards, so that of several
    instances one sends it, and that it is sent again if that one is killed in between.
    """

    def __init__(self, storage: Storage) -> None:
        """Use this storage."""
        self._storage = storage

    async def is_sent(self, agent: JID, person: JID) -> bool:
        """Whether the notice has been sent to the person."""

        def op(database: Database) -> bool:
            found = database.execute(
                "SELECT sent FROM notices WHERE agent = ? AND person = ?", _key(agent, person)
            )
            row = found.fetchone()
            return row is not None and bool(row[0])

        return await self._storage.read(op)

    async def claim(self, agent: JID, person: JID) -> bool:
        """Claim the notice for a minute; return whether the caller is to send it."""

        def op(database: Database) -> bool:
            done = database.execute(
                "INSERT INTO notices (agent, person, claimed, sent) VALUES (?, ?, ?, 0)"
                " ON CONFLICT (agent, person) DO UPDATE SET claimed = excluded.claimed"
                " WHERE notices.sent = 0 AND notices.claimed <= ?",
                (*_key(agent, person), database.now, database.now - _CLAIM_MS),
            )
            return done.rowcount > 0

        return await self._storage.write(op)

    async def sent(self, agent: JID, person: JID) -> None:
        """Mark the notice as sent."""

        statement = "UPDATE notices SET sent = 1 WHERE agent = ? AND person = ?"
        await self._storage.write(lambda db: db.execute(statement, _key(agent, person)))


def _key(agent: JID, person: JID) -> tuple[str, str]:
    return str(agent.bare), str(person.bare)

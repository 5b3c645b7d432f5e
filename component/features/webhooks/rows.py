"""The deliveries of webhooks that were taken in lately, so that none starts work twice."""

from typing import Final

from component.store.database import Database
from component.store.schema import Table
from component.store.storage import Storage

TABLES: Final = (
    Table(
        name="deliveries",
        columns="""
            webhook TEXT {C} NOT NULL,
            delivery TEXT {C} NOT NULL,
            task TEXT {C} NOT NULL,
            at BIGINT NOT NULL,
            PRIMARY KEY (webhook, delivery)
        """,
        indexes={"deliveries_at": "(at)"},
        kept="ids of deliveries, so that none starts work twice",
    ),
)


_MOST_DELETED: Final = 1_000
"""Old rows that one delivery deletes at most."""


class DeliveryStore:
    """The deliveries in the database, each for `remember_s` seconds. Methods raise StorageError."""

    def __init__(self, storage: Storage, remember_s: float) -> None:
        self._storage = storage
        self._remember_ms = int(remember_s * 1000)

    async def find(self, webhook: str, key: str) -> str | None:
        """Return the id of the task that a delivery has started; None if it is not remembered."""

        def op(database: Database) -> str | None:
            row = database.execute(
                "SELECT task FROM deliveries WHERE webhook = ? AND delivery = ? AND at > ?",
                (webhook, key, database.steady - self._remember_ms),
            ).fetchone()
            return None if row is None else str(row[0])

        return await self._storage.read(op)

    async def remember(self, webhook: str, key: str, task: str) -> None:
        """Remember a delivery and the task that it has started, and forget old ones."""

        def op(database: Database) -> None:
            too_old = database.steady - self._remember_ms
            database.execute(
                "DELETE FROM deliveries WHERE (webhook, delivery) IN"
                " (SELECT webhook, delivery FROM deliveries WHERE at <= ? LIMIT ?)",
                (too_old, _MOST_DELETED),
            )
            database.execute(
                "INSERT INTO deliveries (webhook, delivery, task, at) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (webhook, delivery) DO NOTHING",
                (webhook, key, task, database.steady),
            )

        await self._storage.write(op)

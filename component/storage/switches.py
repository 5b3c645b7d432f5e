"""Switches that an operator sets for all instances; they survive restarts."""

from typing import Final

from component.storage.database import Database
from component.storage.storage import Storage

PAUSED: Final = "paused"
"""While this switch is on, new work is refused."""


class Switches:
    """The switches, in the database. Methods raise StorageError."""

    def __init__(self, storage: Storage) -> None:
        """Use this storage."""
        self._storage = storage

    async def is_on(self, name: str) -> bool:
        """Whether a switch is on; off by default."""

        def op(database: Database) -> bool:
            found = database.execute("SELECT value FROM switches WHERE name = ?", (name,))
            row = found.fetchone()
            return row is not None and bool(row[0])

        return await self._storage.read(op)

    async def turn(self, name: str, *, on: bool) -> bool:
        """Turn a switch on or off, for all instances. Returns whether that changed it."""

        def op(database: Database) -> bool:
            database.execute(
                "INSERT INTO switches (name, value, changed) VALUES (?, 0, ?)"
                " ON CONFLICT (name) DO NOTHING",
                (name, database.now),
            )
            done = database.execute(
                "UPDATE switches SET value = ?, changed = ? WHERE name = ? AND value <> ?",
                (int(on), database.now, name, int(on)),
            )
            return done.rowcount > 0

        return await self._storage.write(op)

"""The migrations of the database, from the schema of the first release on.

A change of a table in a later release is made twice: in `TABLES`, for new databases, and here, for
those that exist. Each upgrade is rehearsed on a copy, whose tables must then be those of a new
database.
"""

from typing import Final

from component.store.schema import Migration

MIGRATIONS: Final[tuple[Migration, ...]] = ()
"""In order; none is changed or removed once it was released."""

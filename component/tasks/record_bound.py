"""Limits the number of replay records of one principal (specification, "What Is Recorded").

A record must be valid for its window, so none is deleted early: instead, new work of the principal
is refused until its oldest record expires.
"""

import math
from typing import Final

from cachebox import LRUCache

from component.storage.database import Database
from xep.fluux_agent import errors

_PRINCIPALS: Final = 10_000
"""Number of principals whose counts are cached; the records of others are counted more often."""
_LOOK: Final = 10
"""A principal may use a tenth of its remaining records before they are counted again. Several
instances on one database may each let so many pass unseen by the others.
"""


class RecordBound:
    """Refuses new work of a principal that has too many replay records.

    Args:
        most: the maximum number of records of one principal.
        retry_after_s: the minimum number of seconds after which a refused request may be retried.
    """

    def __init__(self, most: int, retry_after_s: int) -> None:
        self._most = most
        self._retry_after_s = retry_after_s
        self._left: LRUCache[str, int] = LRUCache(_PRINCIPALS)

    def check(self, database: Database, principal: str) -> None:
        """Check whether a new record is allowed, in the transaction that inserted it.

        Raises StanzaError: `busy`, with the seconds until the oldest record expires.
        """
        left = self._left.get(principal, 0)
        self._left[principal] = left - 1 if left > 0 else self._count(database, principal)

    def _count(self, database: Database, principal: str) -> int:
        """Return how many more records may be made until the records are counted again."""
        # Delete expired records first: there may be many, and `retention.forget` runs only every
        # ten minutes.
        database.execute(
            "DELETE FROM replay WHERE principal = ? AND named = 0 AND expires <= ?",
            (principal, database.steady),
        )
        count: int
        count, oldest = database.execute(
            "SELECT count(*), min(expires) FROM (SELECT expires FROM replay WHERE principal = ?"
            " AND expires > ? ORDER BY expires LIMIT ?) AS kept",
            (principal, database.steady, self._most + 1),
        ).fetchone() or (0, None)
        if count > self._most:
            seconds = math.ceil((oldest - database.steady) / 1000)
            raise errors.busy(max(seconds, self._retry_after_s))
        return (self._most - count) // _LOOK

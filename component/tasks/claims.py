"""Who runs next: between principals the one with the fewest running, within one by priority."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from component.storage.database import Database
from component.tasks.rows import COLUMNS, Row

_QUEUED: Final = "owner IS NULL AND state IN ('accepted', 'running')"
_MOST_PRINCIPALS: Final = 128
"""How many principals one claim looks at; the next one goes on behind them."""


class Room:
    """How many tasks run here, and how many more may.

    A principal may have as many as could still run, and its share at most: so a few of them with
    long tasks do not keep the others from beginning. Where the share is more than half of all, it
    holds as it was set.

    Args:
        total: of all principals together.
        per_principal: of each.
    """

    def __init__(self, total: int, per_principal: int) -> None:
        self.total = total
        self.per_principal = per_principal
        self._running: Counter[str] = Counter()
        self._sum = 0

    @property
    def running(self) -> Mapping[str, int]:
        """How many run for each principal that has any."""
        return self._running

    @property
    def left(self) -> int:
        """How many more may run."""
        return max(0, self.total - self._sum)

    def has(self, principal: str) -> bool:
        """Whether one more of the principal may run."""
        return self._running[principal] < min(self.per_principal, self.threshold(self.left))

    def threshold(self, left: int) -> int:
        """How many one principal may have while so many more may run."""
        return left if self.total >= 2 * self.per_principal else left and self.per_principal

    def take(self, principal: str) -> None:
        """One more runs, whether or not there was room: what has begun is not stopped for it."""
        self._running[principal] += 1
        self._sum += 1

    def give_back(self, principal: str) -> None:
        """One of them has ended."""
        self._sum -= 1
        self._running[principal] -= 1
        if not self._running[principal]:
            del self._running[principal]


class Claimed(msgspec.Struct, frozen=True):
    """What a claim took; `after` is where the next one goes on, `more` whether some may be left."""

    rows: Sequence[Row]
    after: str
    more: bool


def claim(
    database: Database,
    owner: str,
    *,
    left: int,
    share: int,
    threshold: Callable[[int], int] = lambda left: left,
    running: Mapping[str, int],
    after: str,
) -> Claimed:
    """Take over as many queued tasks as there is room for. Nothing of them changes but the lease.

    `left` may run in all and `share` of each principal, of whom so many are `running`. Looked at
    are the principals behind `after`, and the first ones again. `threshold` is that of `Room`.
    """
    principals = _principals(database, after)
    rounds: list[tuple[int, int, str]] = []
    more = len(principals) == _MOST_PRINCIPALS
    waiting: dict[str, list[Row]] = {}
    for place, principal in enumerate(principals):
        free = min(share - running.get(principal, 0), left)
        if free <= 0:
            more = True
            continue
        waiting[principal] = _next_of(database, principal, free)
        more |= len(waiting[principal]) == free
        here = running.get(principal, 0)
        rounds += [(here + turn, place, principal) for turn in range(len(waiting[principal]))]
    taken: list[Row] = []
    for here, _, principal in sorted(rounds)[:left]:
        if here >= threshold(left - len(taken)):
            more = True
            break
        row = waiting[principal].pop(0)
        row.owner = owner
        row.token += 1
        database.execute(
            "UPDATE tasks SET owner = ?, token = ? WHERE id = ?", (owner, row.token, row.id)
        )
        taken.append(row)
    return Claimed(taken, principals[-1] if principals else "", more)


def _principals(database: Database, after: str) -> list[str]:
    """Principals with queued work, each looked up behind the one before it: a skip scan."""
    found: list[str] = []
    wrapped = not after
    while len(found) < _MOST_PRINCIPALS:
        row = database.execute(
            f"SELECT principal FROM tasks WHERE principal > ? AND {_QUEUED}"  # noqa: S608
            " ORDER BY principal LIMIT 1",
            (after,),
        ).fetchone()
        if row is not None and row[0] not in found[:1]:
            after = row[0]
            found.append(after)
        elif row is None and not wrapped:
            after, wrapped = "", True
        else:
            break
    return found


def _next_of(database: Database, principal: str, count: int) -> list[Row]:
    lock = " FOR UPDATE SKIP LOCKED" if database.dialect == "postgresql" else ""
    found = database.execute(
        f"SELECT {COLUMNS} FROM tasks WHERE principal = ? AND {_QUEUED}"  # noqa: S608
        f" ORDER BY priority DESC, created, id LIMIT ?{lock}",
        (principal, count),
    ).fetchall()
    return [Row(*row) for row in found]

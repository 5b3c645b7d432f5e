"""The rows of watches and of their sources: definitions, and the items that were seen.

Functions take the `Database` of one operation.
"""

from collections.abc import Callable, Collection, Sequence
from hashlib import sha256
from typing import Final, TypeVar

import anyio
import msgspec
import structlog

from component.features.watches.watch import Observed, Watch, WatchState
from component.store.database import Database
from component.store.errors import StorageError
from component.store.forgetting import Forgotten
from component.store.outages import log_failure
from component.store.schema import Table
from component.store.storage import Storage

TABLES: Final = (
    Table(
        name="watches",
        columns="""
            id TEXT {C} PRIMARY KEY,
            owner TEXT {C} NOT NULL,
            definition TEXT NOT NULL,
            state TEXT NOT NULL,
            reason TEXT NOT NULL DEFAULT '',
            created BIGINT NOT NULL,
            last_number BIGINT NOT NULL DEFAULT 0,
            waiting BIGINT NOT NULL DEFAULT 0,
            window_at BIGINT NOT NULL DEFAULT 0,
            window_starts INTEGER NOT NULL DEFAULT 0,
            hour_at BIGINT NOT NULL DEFAULT 0,
            hour_starts INTEGER NOT NULL DEFAULT 0,
            received BIGINT NOT NULL DEFAULT 0,
            started BIGINT NOT NULL DEFAULT 0,
            thinned BIGINT NOT NULL DEFAULT 0,
            refused BIGINT NOT NULL DEFAULT 0,
            cut BIGINT NOT NULL DEFAULT 0
        """,
        indexes={"watches_of_owner": "(owner)"},
    ),
    Table(
        name="watch_sources",
        columns="""
            source TEXT {C} PRIMARY KEY,
            since BIGINT NOT NULL
        """,
        kept="digests; deleted with the last watch of the source",
        is_work=False,
    ),
    Table(
        name="watch_items",
        columns="""
            source TEXT {C} NOT NULL,
            item TEXT {C} NOT NULL,
            version TEXT {C} NOT NULL,
            seen BIGINT NOT NULL,
            PRIMARY KEY (source, item)
        """,
        kept="digests; deleted with the last watch of the source",
        is_work=False,
    ),
    Table(
        name="watch_events",
        columns="""
            watch TEXT {C} NOT NULL,
            number BIGINT NOT NULL,
            key TEXT NOT NULL,
            due BIGINT NOT NULL,
            events INTEGER NOT NULL,
            data TEXT NOT NULL,
            chain TEXT NOT NULL,
            PRIMARY KEY (watch, number)
        """,
    ),
    Table(
        name="watch_chains",
        columns="""
            trace TEXT {C} PRIMARY KEY,
            chain TEXT NOT NULL,
            at BIGINT NOT NULL
        """,
        kept="addresses of agents",
    ),
)


_log = structlog.get_logger("component.watches")

T = TypeVar("T")

CHANNEL: Final = "watches"
"""Notified when a watch was added, changed or removed."""
_LONGEST_ITEM: Final = 200
"""Characters of an item's id that are stored as they are; an index entry has a bound."""
_STALE_MS: Final = 3_600_000
"""Milliseconds for which an item counts as seen that a listing of its node lacks."""
_UNLISTED_MS: Final = 86_400_000
"""Milliseconds for which an item counts as seen if its node cannot be listed."""
_KEPT_MS: Final = 7 * 86_400_000
"""Milliseconds for which the chain of work is stored; no work takes longer."""
_FIRST_WAIT_S: Final = 0.2
_LONGEST_WAIT_S: Final = 5.0


class WatchRow(msgspec.Struct, frozen=True):
    """A watch as the database has it. `pending` is the number of events that wait."""

    watch: Watch
    state: WatchState
    reason: str
    received: int
    started: int
    thinned: int
    refused: int
    cut: int
    pending: int = 0


COUNTS: Final = ("received", "started", "thinned", "refused", "cut", "pending")


def put(database: Database, watch: Watch) -> None:
    """Add a watch, or change the definition of the one with its id."""
    database.execute(
        "INSERT INTO watches (id, owner, definition, state, created) VALUES (?, ?, ?, 'active', ?)"
        " ON CONFLICT (id) DO UPDATE SET definition = excluded.definition"
        " WHERE watches.definition <> excluded.definition",
        (watch.id, watch.owner, msgspec.json.encode(watch).decode(), database.now),
    )


def add(database: Database, watch: Watch, most: int) -> bool:
    """Add or change a watch of a person; return False if they have `most` others already."""
    owned = rows(database, watch.owner)
    if len(owned) >= most and watch.id not in {row.watch.id for row in owned}:
        return False
    put(database, watch)
    database.notify(CHANNEL)
    return True


def remove(database: Database, watch: str) -> bool:
    """Remove a watch with the events that were not started; return whether there was one."""
    database.notify(CHANNEL)
    database.execute("DELETE FROM watch_events WHERE watch = ?", (watch,))
    return database.execute("DELETE FROM watches WHERE id = ?", (watch,)).rowcount > 0


def set_state(database: Database, watch: str, state: WatchState, reason: str = "") -> bool:
    """Pause or resume a watch; whether there is one. Resuming resets the breaker."""
    done = database.execute(
        "UPDATE watches SET state = ?, reason = ?, hour_at = 0, hour_starts = 0 WHERE id = ?",
        (state, reason, watch),
    )
    return done.rowcount > 0


def rows(database: Database, owner: str | None = None) -> list[WatchRow]:
    """Return all watches, or those of one owner, by id."""
    where, parameters = ("", ()) if owner is None else (" WHERE owner = ?", (owner,))
    found = database.execute(
        "SELECT definition, state, reason, received, started, thinned, refused, cut,"  # noqa: S608 - where is one of two constants
        " (SELECT count(*) FROM watch_events WHERE watch = watches.id)"
        f" FROM watches{where} ORDER BY id",
        parameters,
    ).fetchall()
    return [
        WatchRow(msgspec.json.decode(definition, type=Watch), *values)
        for definition, *values in found
    ]


class SourceRows:
    """The rows of one source, in one transaction; `key` is that of the source."""

    def __init__(self, database: Database, key: str) -> None:
        self.database = database
        self._key = key

    def is_known(self) -> bool:
        """Return whether the items were ever listed, so that other items are new."""
        query = "SELECT 1 FROM watch_sources WHERE source = ?"
        return self.database.execute(query, (self._key,)).fetchone() is not None

    def mark_known(self, items: Sequence[Observed]) -> None:
        """Mark the items that there are when the source is watched for the first time as seen."""
        for item in items:
            self.mark_seen(item)
        self.database.execute(
            "INSERT INTO watch_sources (source, since) VALUES (?, ?)"
            " ON CONFLICT (source) DO NOTHING",
            (self._key, self.database.now),
        )

    def mark_seen(self, item: Observed) -> bool:
        """Mark an item as seen; whether it is new."""
        done = self.database.execute(
            "INSERT INTO watch_items (source, item, version, seen) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (source, item)"
            " DO UPDATE SET version = excluded.version, seen = excluded.seen"
            " WHERE watch_items.version <> excluded.version",
            (self._key, item_key(item.item), item.version, self.database.steady),
        )
        return done.rowcount > 0

    def versions(self) -> dict[str, str]:
        """The items that were seen, by `item_key`, with their versions."""
        query = "SELECT item, version FROM watch_items WHERE source = ?"
        found = self.database.execute(query, (self._key,)).fetchall()
        return {str(item): str(version) for item, version in found}

    def forget_items(self, items: Collection[str] | None = None) -> None:
        """Forget items that were deleted, or all: they are new when they are published again."""
        if items is None:
            self.database.execute("DELETE FROM watch_items WHERE source = ?", (self._key,))
        for item in items or ():
            self._delete(item_key(item))

    def forget(self) -> None:
        """Forget the source, because no watch observes it any more."""
        self.database.execute("DELETE FROM watch_sources WHERE source = ?", (self._key,))
        self.forget_items()

    def prune(self, listed: Collection[str] | None) -> None:
        """Delete the marks of items that the source does not have any more. `listed` are the ids of
        all items that it has; None if it cannot be listed.
        """
        kept = _STALE_MS if listed is not None else _UNLISTED_MS
        old = self.database.execute(
            "SELECT item FROM watch_items WHERE source = ? AND seen < ?",
            (self._key, self.database.steady - kept),
        ).fetchall()
        there = frozenset(map(item_key, listed or ()))
        for (item,) in old:
            if item not in there:
                self._delete(item)

    def _delete(self, item: str) -> None:
        query = "DELETE FROM watch_items WHERE source = ? AND item = ?"
        self.database.execute(query, (self._key, item))


def keep_sources(database: Database, sources: Collection[str]) -> None:
    """Forget all other sources: a process was killed before it could."""
    for (source,) in database.execute("SELECT source FROM watch_sources").fetchall():
        if source not in sources:
            SourceRows(database, source).forget()


def item_key(item: str) -> str:
    """Return an item's id as it is stored: a digest of one that is too long for an index."""
    return item if len(item) <= _LONGEST_ITEM else sha256(item.encode()).hexdigest()


def note_chain(database: Database, trace: str, chain: Sequence[str]) -> None:
    """Note the chain of the work whose skills have this trace (`Context.trace`)."""
    database.execute("DELETE FROM watch_chains WHERE trace = ?", (trace,))
    if chain:
        database.execute("DELETE FROM watch_chains WHERE at < ?", (database.steady - _KEPT_MS,))
        database.execute(
            "INSERT INTO watch_chains (trace, chain, at) VALUES (?, ?, ?)",
            (trace, " ".join(chain), database.steady),
        )


def noted_chain(database: Database, trace: str) -> tuple[str, ...]:
    """Return the bare JIDs of the agents whose work has led to the work with this trace."""
    found = database.execute("SELECT chain FROM watch_chains WHERE trace = ?", (trace,)).fetchone()
    return () if found is None else tuple(str(found[0]).split())


def forget(database: Database, who: Forgotten) -> None:
    """Remove the watches that a person has with an agent. Those of the settings are kept."""
    for row in rows(database, str(who.person)):
        if row.watch.agent == who.agent:
            remove(database, row.watch.id)


class RetryingStorage:
    """Tries reads and writes again, for work that has nobody to report an error to."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def poll_s(self, seconds: float) -> float:
        """See `Storage.poll_s`."""
        return self._storage.poll_s(seconds)

    async def read(self, op: Callable[[Database], T]) -> T:
        """Return what an operation reads."""
        wait = _FIRST_WAIT_S
        while True:
            try:
                return await self._storage.read(op)
            except StorageError as error:
                log_failure(_log, "the database cannot be read; trying again", error)
            await anyio.sleep(wait)
            wait = min(wait * 2, _LONGEST_WAIT_S)

    async def write(self, op: Callable[[Database], T]) -> T:
        """Return what an operation gives, once all it changed is on disk."""
        return await self._storage.write(op, keep_trying=True)

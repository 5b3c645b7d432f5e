"""State that instances on one PostgreSQL share: switches, and changes of what they keep in memory.

Triggers record each change of such a table as a topic and a subject, and notify
(`component.store.tables.tells`). An instance reads the recorded changes when it is notified, and
also every few seconds: a notification may be late, lost, or sent to a connection that has broken
unnoticed. On SQLite there is no other instance.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeAlias

import anyio
import structlog
from anyio.abc import TaskStatus

from component import system
from component.store.database import Database
from component.store.errors import StorageError
from component.store.outages import log_failure
from component.store.storage import Storage

_log = structlog.get_logger("component.store")

CHANNEL: Final = "shared"
LOOK_S: Final = 2.0
"""Seconds between two reads without a notification, as between two heartbeats."""
_KEPT_MS: Final = 3_600_000
"""How long a recorded change is kept."""
_LONG_S: Final = 1_800.0
"""An instance that has not read for so long may have missed changes, and reads everything again."""
_TIDY_S: Final = 600.0
PAUSED: Final = "paused"
"""While this switch is on, new work is refused."""

Reload: TypeAlias = Callable[[Collection[str] | None], Awaitable[None]]
"""Reloads changed subjects from the database, or with None all of them. May also be called for
unchanged subjects. If it raises StorageError, it is called again."""


class SharedChanges:
    """Reloads state that this instance keeps in memory when another instance has changed it."""

    def __init__(self, storage: Storage, clock: Callable[[], float] = system.monotonic) -> None:
        self._storage = storage
        self._clock = clock
        self._reload: dict[str, Reload] = {}
        self._everything: set[str] = set()
        """Topics to reload completely."""
        self._changed: dict[str, set[str]] = {}
        self._horizon: str | None = None
        """All transactions before this one have ended, and their changes are known."""
        self._seen: frozenset[int] = frozenset()
        """The known changes since the horizon."""
        self._looked = clock()

    def register(self, topic: str, reload: Reload) -> None:
        """Call `reload` with the changed subjects of a topic."""
        self._reload[topic] = reload

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Watch for changes until cancelled; when it has started, everything was loaded once.

        Raises StorageError before it has started.
        """
        async with self._storage.listen(CHANNEL) as notified:
            shared = await self._look()
            await self._reload_changed()
            task_status.started()
            if not shared:
                return
            tidied = self._clock()
            while True:
                with anyio.move_on_after(LOOK_S):
                    await anext(notified)
                try:
                    await self._look()
                    await self._reload_changed()
                    if self._clock() - tidied > _TIDY_S:
                        tidied = self._clock()
                        await self._storage.write(_delete_old)
                except StorageError as error:
                    log_failure(_log, "cannot read changes by other instances", error)
                    await anyio.sleep(LOOK_S)

    async def _look(self) -> bool:
        """Find changes; return whether there can be other instances."""
        horizon = self._horizon
        found = await self._storage.read(lambda database: _changes(database, horizon))
        if found is None:
            self._everything |= self._reload.keys()
            return False
        now, changes = found
        long_ago = self._clock() - self._looked > _LONG_S
        # A smaller number means another database: a backup was restored.
        if horizon is None or long_ago or int(now) < int(horizon):
            self._everything |= self._reload.keys()
        for number, topic, subject in changes:
            if number not in self._seen and topic in self._reload:
                self._changed.setdefault(topic, set()).add(subject)
        self._seen = frozenset([number for number, _, _ in changes])
        self._horizon, self._looked = now, self._clock()
        return True

    async def _reload_changed(self) -> None:
        while self._everything:
            topic = min(self._everything)
            await self._reload[topic](None)
            self._everything.discard(topic)
            self._changed.pop(topic, None)
        while self._changed:
            topic, subjects = next(iter(self._changed.items()))
            await self._reload[topic](subjects)
            del self._changed[topic]


def _changes(
    database: Database, horizon: str | None
) -> tuple[str, list[tuple[int, str, str]]] | None:
    """Return a new horizon and the changes since the old one; None without other instances.

    The changes of a transaction are visible when it ends, and transactions end in any order. So the
    horizon is the first one that is still in progress.
    """
    if database.dialect == "sqlite":
        return None
    (now,) = database.execute(
        "SELECT pg_snapshot_xmin(pg_current_snapshot())::text"
    ).fetchone() or ("0",)
    if horizon is None:
        return str(now), []
    found = database.execute(
        "SELECT number, topic, subject FROM shared_changes"
        " WHERE transaction >= CAST(? AS xid8) ORDER BY number",
        (horizon,),
    )
    return str(now), [(int(row[0]), str(row[1]), str(row[2])) for row in found.fetchall()]


def _delete_old(database: Database) -> None:
    database.execute("DELETE FROM shared_changes WHERE at < ?", (database.now - _KEPT_MS,))


class Switches:
    """The switches, in the database. Methods raise StorageError."""

    def __init__(self, storage: Storage) -> None:
        """Use this storage."""
        self._storage = storage
        self.one_at_a_time = anyio.Lock()
        """Hold it while a switch is read or changed together with a copy of it in memory, so that
        an older state does not replace a newer one."""

    async def is_on(self, name: str) -> bool:
        """Whether a switch is on; off by default."""
        found = await self._storage.select("SELECT value FROM switches WHERE name = ?", (name,))
        return bool(found) and bool(found[0][0])

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

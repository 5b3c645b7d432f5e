"""This instance's membership in those that share a PostgreSQL database: name, heartbeat,
evictions.
"""

from collections.abc import Callable
from functools import partial

import anyio
import structlog

from component.store.errors import StorageError
from component.tasks import leases, replay, rows
from component.tasks.changes import TaskStore, Transaction, release_all

_log = structlog.get_logger("component.tasks")


class Membership:
    """The membership of this instance in those that share the database.

    On SQLite only one process uses a data directory; then only `join` is used.

    Args:
        store: reads and writes rows, and has the name of this instance.
        queued: called when there are tasks to claim.
        overdue: called when a timer has passed that another instance may not handle.
        evicted: called after the work of a dead instance was released.
        watch: finds dead instances.

    Attributes:
        channel: notifications on it wake only this instance.
    """

    def __init__(
        self,
        store: TaskStore,
        queued: Callable[[], None],
        overdue: Callable[[], None],
        evicted: Callable[[], None],
        watch: leases.Watch | None = None,
    ) -> None:
        self.channel = f"tasks_{leases.new_instance()}"
        self._store = store
        self._queued = queued
        self._overdue = overdue
        self._evicted = evicted
        self._watch = watch or leases.Watch()

    def join(self, tx: Transaction) -> bool:
        """Join the others, and release the tasks of dead instances; return whether there can be
        others.
        """
        shared = tx.dialect == "postgresql"
        if shared:
            leases.join(tx, tx.instance, self._store.storage.place, self.channel)
        for owner in rows.lost_owners(tx):  # they left, or ran on SQLite
            tx.publish(*release_all(tx, owner))
        return shared

    def leave(self, tx: Transaction) -> None:
        """Leave the others, and release the tasks of this instance."""
        leases.leave(tx, tx.instance)
        tx.publish(*release_all(tx, tx.instance))
        leases.wake_one(tx)

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        while True:
            await anyio.sleep(leases.HEARTBEAT_S)
            try:
                await self.send_heartbeat()
            except StorageError as error:
                # After a longer time the others evict this instance, and it joins again.
                _log.warning("cannot write the heartbeat of this instance", reason=str(error))

    async def send_heartbeat(self) -> None:
        """Send one heartbeat, and evict dead instances. Raises StorageError."""
        me = self._store.instance
        heartbeat = await self._store.commit(lambda tx: leases.send_heartbeat(tx, me))
        if heartbeat is None:
            await self._rejoin()
            return
        if heartbeat.queued:
            self._queued()
        if heartbeat.overdue:
            self._overdue()
        for other, count in self._watch.dead(heartbeat.others).items():
            if await self._store.commit(partial(self._evict, other, count)):
                _log.warning("took over the tasks of a dead instance", instance=other)
                self._evicted()

    @staticmethod
    def _evict(other: str, count: int, tx: Transaction) -> bool:
        """Release the work of a dead instance; return False if it has sent a heartbeat, or is
        already evicted.
        """
        if not leases.delete_dead(tx, other, count):
            return False
        tx.publish(*release_all(tx, other))
        leases.wake_one(tx, but=tx.instance)
        return True

    async def _rejoin(self) -> None:
        before, new = self._store.instance, leases.new_instance()
        _log.warning(
            "other instances have taken over the tasks of this one; it joins again under a new name"
        )
        # Before the write: later work has the new name, earlier work is included in the write.
        self._store.instance = new
        place = self._store.storage.place

        def op(tx: Transaction) -> None:
            # Tasks that others have taken over have another owner or none; their runs notice it by
            # the fence.
            leases.join(tx, new, place, self.channel)
            rows.rename_owner(tx, before, new)
            replay.rename_owner(tx, before, new)

        await self._store.commit(op, keep_trying=True)
        self._queued()

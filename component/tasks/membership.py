"""This instance's membership in those that share a PostgreSQL database: name, heartbeat,
evictions.
"""

from collections.abc import Callable
from functools import partial

import anyio
import structlog

from component.storage.errors import StorageError
from component.tasks import instances, questions
from component.tasks.store import TaskStore, Transaction

_log = structlog.get_logger("component.tasks")


class Membership:
    """The membership of this instance in those that share the database.

    On SQLite only one process uses a data directory; then only `join` is used.

    Args:
        store: reads and writes rows.
        place: identifies the data directory, if the process that used it before is certainly dead.
        retention_ms: milliseconds for which a task is retained after its end.
        queued: called when there are tasks to claim.
        overdue: called when a timer has passed that another instance may not handle.
        evicted: called after the work of a dead instance was released.
        watch: finds dead instances.

    Attributes:
        instance: the name of this instance; it takes a new one after it was evicted.
        channel: notifications on it wake only this instance.
    """

    def __init__(
        self,
        store: TaskStore,
        place: Callable[[], str | None],
        retention_ms: int,
        queued: Callable[[], None],
        overdue: Callable[[], None],
        evicted: Callable[[], None],
        watch: instances.Watch | None = None,
    ) -> None:
        self.instance = instances.new_instance()
        self.channel = f"tasks_{instances.new_instance()}"
        self._store = store
        self._place = place
        self._retention_ms = retention_ms
        self._queued = queued
        self._overdue = overdue
        self._evicted = evicted
        self._watch = watch or instances.Watch()

    def join(self, tx: Transaction) -> bool:
        """Join the others, and release the tasks of dead instances; return whether there can be
        others.
        """
        shared = tx.dialect == "postgresql"
        if shared:
            instances.join(tx, self.instance, self._place(), self.channel)
        questions.adopt(tx)
        tx.publish(*instances.orphans(tx, retention_ms=self._retention_ms))
        return shared

    def leave(self, tx: Transaction) -> None:
        """Leave the others, and release the tasks of this instance."""
        instances.leave(tx, self.instance)
        changes = instances.take_from(tx, self.instance, retention_ms=self._retention_ms)
        tx.publish(*changes)
        instances.wake_one(tx)

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        while True:
            await anyio.sleep(instances.HEARTBEAT_S)
            try:
                await self.beat()
            except StorageError as error:
                # After a longer time the others evict this instance, and it joins again.
                _log.warning("cannot write the heartbeat of this instance", reason=str(error))

    async def beat(self) -> None:
        """Send one heartbeat, and evict dead instances. Raises StorageError."""
        me = self.instance
        heartbeat = await self._store.commit(lambda tx: instances.beat(tx, me))
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

    def _evict(self, other: str, count: int, tx: Transaction) -> bool:
        changes = instances.evict(tx, other, count, retention_ms=self._retention_ms)
        if changes is None:
            return False
        tx.publish(*changes)
        instances.wake_one(tx, but=self.instance)
        return True

    async def _rejoin(self) -> None:
        before, new = self.instance, instances.new_instance()
        _log.warning(
            "other instances have taken over the tasks of this one; it joins again under a new name"
        )
        # Before the write: later work has the new name, earlier work is included in the write.
        self.instance = new
        place = self._place()
        await self._store.commit(
            lambda tx: instances.rejoin(tx, before, new, place, self.channel), keep_trying=True
        )
        self._queued()

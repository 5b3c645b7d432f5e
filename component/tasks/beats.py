"""Instances on one PostgreSQL: each shows that it lives, and takes over from those that do not."""

from collections.abc import Callable, Sequence

import anyio
import structlog

from component.storage.errors import StorageError
from component.tasks import leases
from component.tasks.rows import Change
from component.tasks.storing import Storage

_log = structlog.get_logger("component.tasks")


class Beats:
    """The beat of this instance, and its eye on the others.

    Args:
        storage: where the rows are.
        instance: the name of this instance so far.
        renamed: called with its new name when others have declared it dead.
        taken: called with what the take-over from a dead one has changed.
        retention_ms: how long a task is kept after its end.
        watch: finds the dead among the others.
    """

    def __init__(
        self,
        storage: Storage,
        instance: str,
        renamed: Callable[[str], None],
        taken: Callable[[Sequence[Change]], None],
        retention_ms: int,
        watch: leases.Watch | None = None,
    ) -> None:
        self._storage = storage
        self._instance = instance
        self._renamed = renamed
        self._taken = taken
        self._retention_ms = retention_ms
        self._watch = watch or leases.Watch()

    async def run(self) -> None:
        """Do so for ever."""
        while True:
            await anyio.sleep(leases.BEAT_S)
            try:
                await self.once()
            except StorageError as error:
                # After a longer while the others take us for dead, and we count anew.
                _log.warning("cannot show that we live", reason=str(error))

    async def once(self) -> None:
        """Beat, and bury who is dead. Raises StorageError."""
        me = self._instance
        beats = await self._storage.write(lambda db: leases.beat(db, me))
        if beats is None:
            self._instance = new = leases.new_instance()
            _log.warning("other instances have taken over our work; going on as a new one")
            # Before the write: whatever is begun from now on has the new name or is written before.
            self._renamed(new)
            place = self._storage.place
            await self._storage.write(
                lambda db: leases.rejoin(db, me, new, place), keep_trying=True
            )
            return
        for other, count in self._watch.dead(beats).items():
            changes = await self._storage.write(
                lambda db, other=other, count=count: leases.bury(  # type: ignore[misc]
                    db, other, count, retention_ms=self._retention_ms
                )
            )
            _log.warning("took over from an instance that is gone", instance=other)
            self._taken(changes)

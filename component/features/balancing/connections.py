"""The connections of this instance, as many as its share is.

ejabberd divides the stanzas among a fixed number of connections, and drops those for a connection
that does not exist. So all instances together keep this number open. For each connection there is
a lock in the database, which its instance holds. The database releases the locks of an instance
that was killed; another instance takes them, and opens its connections.

Which stanzas a new connection gets is decided by ejabberd: those of the missing one, or of one of
the missing ones.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus

from component.features.balancing.instances import FIRST, Instances, tag_of
from component.link.connection.connection import Connection
from component.metrics.counters import Gauge
from component.store import Storage, StorageError
from component.store.process_locks import ProcessLocks

_log = structlog.get_logger("component.features.balancing")

CHANNEL: Final = "balancing"
"""The channel on which an instance announces that it has started, or has released a lock."""
_LOOK_S: Final = 1.0
"""Seconds between two looks for instances that were killed."""
_CLOSE_S: Final = 15.0
"""Seconds to handle what the server has sent on a connection before it is closed."""
_LEAVE_S: Final = 2.0


class Connections:
    """Opens and closes the connections of this instance.

    The first connection is opened by the service after `wait`, and stays open. The others only
    receive.

    Args:
        total: the number of connections of all instances.
        new: returns one more connection.
    """

    def __init__(
        self, storage: Storage, instances: Instances, total: int, new: Callable[[], Connection]
    ) -> None:
        self._storage = storage
        self._instances = instances
        self._total = total
        self._new = new
        self._first: int | None = None
        self._has_first = anyio.Event()
        self._more: dict[int, Connection] = {}
        self._changing = anyio.Lock()
        self._locks: ProcessLocks | None = None
        self._is_leaving = False
        self._reported = ""

    async def wait(self) -> None:
        """Wait until this instance may open its first connection."""
        await self._has_first.wait()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Keep the share of this instance open until cancelled.

        Raises StorageError before it has started.
        """
        async with self._storage.listen(CHANNEL) as notified, anyio.create_task_group() as group:
            task_status.started()
            locks = self._locks = self._storage.locks(CHANNEL)
            if locks is None:  # there is no other instance
                for number in range(self._total):
                    self._open(group, number)
                await anyio.sleep_forever()
                return
            try:
                while True:
                    try:
                        async with self._changing:
                            await self._take_share(group, locks)
                    except StorageError as error:
                        self._report("cannot look for other instances", reason=str(error))
                    with anyio.move_on_after(_LOOK_S):
                        await anext(notified)
            finally:
                with anyio.move_on_after(_LEAVE_S, shield=True), suppress(StorageError):
                    await self._release(locks, [*locks.held])
                locks.close()

    def gauges(self) -> Iterable[Gauge]:
        """Return the number of connections that this instance keeps open."""
        about = "Connections to the XMPP server that this instance keeps open."
        yield Gauge("connections", about, {(): float(self._count_open())})

    async def leave(self) -> None:
        """Close all connections but the first, and let other instances open them. Raises
        StorageError.
        """
        async with self._changing:
            self._is_leaving = True
            more = [*self._more]
            for number in more:
                await self._close(number)
            if self._locks is not None:
                await self._release(self._locks, [*more, self._instances.number])

    async def _take_share(self, group: TaskGroup, locks: ProcessLocks) -> None:
        if self._is_leaving:
            return
        if self._instances.number not in locks.held:
            if not await locks.take(self._instances.number):
                self._report("waits until the database ends the previous session of this instance")
                return
            await locks.notify(CHANNEL)
        # They were lost if the connection to the database was.
        if self._first is not None and not await locks.take(self._first):
            self._first = None
        for number in [*self._more]:
            if not await locks.take(number):
                await self._close(number)
        owners = await locks.owners()
        running = {owner: tag_of(number) for number, owner in owners.items() if number >= FIRST}
        taken = {number: owner for number, owner in owners.items() if number < FIRST}
        self._instances.others = frozenset(running.values()) - {self._instances.tag}
        # Those of an instance that stops will be free soon.
        total = self._total - sum(owner not in running for owner in taken.values())
        held = _count(running, taken)
        share = share_of(self._instances.tag, held, total)
        surplus = [*self._more][: max(0, held[self._instances.tag] - share)]
        for number in surplus:
            await self._close(number)
        await self._release(locks, surplus)
        missing = share - held[self._instances.tag]
        for number in range(self._total):
            if missing > 0 and number not in taken and await locks.take(number):
                self._open(group, number)
                missing -= 1
        if share == 0:
            self._report("stands by: other instances have all connections", total=self._total)
        else:
            self._reported = ""

    async def _release(self, locks: ProcessLocks, numbers: list[int]) -> None:
        for number in numbers:
            await locks.release(number)
        if numbers:
            await locks.notify(CHANNEL)

    def _open(self, group: TaskGroup, number: int) -> None:
        if self._first is None:
            self._first = number
            self._has_first.set()
            return
        connection = self._more[number] = self._new()
        group.start_soon(connection.run)
        _log.info("opens one more connection, which only receives", connections=self._count_open())

    async def _close(self, number: int) -> None:
        # What the server has sent before it closes the stream is still received.
        await self._more.pop(number).close(_CLOSE_S)
        _log.info("closed a connection for another instance", connections=self._count_open())

    def _count_open(self) -> int:
        return self._has_first.is_set() + len(self._more)

    def _report(self, what: str, **values: object) -> None:
        """Log a state once."""
        if what != self._reported:
            self._reported = what
            _log.warning(what, **values)


def _count(running: Mapping[int, str], taken: Mapping[int, int]) -> dict[str, int]:
    """Return how many connections each instance has."""
    owners = [*taken.values()]
    return {tag: owners.count(owner) for owner, tag in running.items()}


def share_of(me: str, held: Mapping[str, int], connections: int) -> int:
    """Return the number of connections that an instance should have.

    All connections are divided evenly, and the remainder among those that have most already, so
    that as few as possible change hands. All instances compute the same division from the same
    state.

    Args:
        me: the instance.
        held: the number of connections that each instance has, also those that have none.
        connections: the number of connections of all together.
    """
    ranking = sorted(held, key=lambda each: (-held[each], each))
    whole, rest = divmod(connections, len(ranking))
    return whole + (ranking.index(me) < rest)

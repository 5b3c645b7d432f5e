"""Which connections instances open and close as others come and go."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self, cast

import anyio
import pytest

from component.features.balancing.connections import Connections
from component.features.balancing.instances import new_instance
from component.store import StorageError
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

TIMEOUT_S = 20.0


class Locks:
    """The locks of one process in a database; those that it holds are in `table`."""

    def __init__(self, database: "Database") -> None:
        self.held: set[int] = set()
        self._database = database

    async def owners(self) -> Mapping[int, int]:
        self._database.check()
        return {number: id(owner) for number, owner in self._database.table.items()}

    async def take(self, number: int) -> bool:
        self._database.check()
        if self._database.table.setdefault(number, self) is self:
            self.held.add(number)
        return number in self.held

    async def release(self, number: int) -> None:
        if number in self.held:
            self.held.discard(number)
            del self._database.table[number]

    async def notify(self, _channel: str) -> None:
        self._database.notify()

    def close(self) -> None:
        for number in self.held:
            del self._database.table[number]
        self.held.clear()


class Notified:
    """Yields when something was notified."""

    def __init__(self) -> None:
        self.event = anyio.Event()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> None:
        await self.event.wait()
        self.event = anyio.Event()


class Database:
    """What the instances have in common."""

    def __init__(self) -> None:
        self.table: dict[int, Locks] = {}
        self.is_away = False
        self._listening: list[Notified] = []

    def locks(self, _name: str) -> Locks:
        return Locks(self)

    @asynccontextmanager
    async def listen(self, _channel: str) -> AsyncIterator[Notified]:
        notified = Notified()
        self._listening.append(notified)
        yield notified

    def notify(self) -> None:
        for each in self._listening:
            each.event.set()

    def check(self) -> None:
        if self.is_away:
            raise StorageError("It is away.")


class Link:
    """A connection that only receives."""

    def __init__(self) -> None:
        self.state = "new"

    async def run(self) -> None:
        self.state = "open"

    async def close(self, _timeout_s: float) -> None:
        self.state = "closed"


class Instance:
    """One process."""

    def __init__(self, database: "Database | Alone", total: int) -> None:
        self.links: list[Link] = []
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()
        self.has_first = False
        self.instances = new_instance()
        self.connections = Connections(
            cast("Any", database), self.instances, total, cast("Callable[[], Any]", self._new)
        )

    def _new(self) -> Link:
        self.links.append(Link())
        return self.links[-1]

    @property
    def open(self) -> int:
        return self.has_first + sum(link.state == "open" for link in self.links)

    async def run(self) -> None:
        with self.scope:
            async with anyio.create_task_group() as group:
                await group.start(self.connections.run)
                await self.connections.wait()
                self.has_first = True
        self.ended.set()

    async def end(self) -> None:
        """End, which releases its locks."""
        self.scope.cancel()
        await self.ended.wait()


class Alone:
    """A database that no other process uses."""

    def locks(self, _name: str) -> None:
        return None

    @asynccontextmanager
    async def listen(self, _channel: str) -> AsyncIterator[Notified]:
        yield Notified()


class World:
    """Instances on one database."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.database = Database()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._stack.enter_context(anyio.fail_after(TIMEOUT_S))
        self._group = await self._stack.enter_async_context(anyio.create_task_group())
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._group.cancel_scope.cancel()
        await self._stack.aclose()

    def start(self) -> Instance:
        instance = Instance(self.database, self.total)
        self._group.start_soon(instance.run)
        return instance


async def counts(*instances: Instance, become: tuple[int, ...]) -> None:
    await eventually(lambda: tuple(each.open for each in instances) == become)


@pytest.mark.parametrize("total", [2, 3, 5])
async def test_an_instance_alone_has_all_connections(total: int) -> None:
    async with World(total) as world:
        await counts(world.start(), become=(total,))


async def test_without_a_common_database_one_instance_has_all_connections() -> None:
    async with anyio.create_task_group() as group:
        instance = Instance(Alone(), 3)
        group.start_soon(instance.run)
        await counts(instance, become=(3,))
        assert not instance.instances.others
        group.cancel_scope.cancel()


async def test_a_new_instance_gets_its_share_of_the_connections() -> None:
    async with World(4) as world:
        first = world.start()
        await counts(first, become=(4,))
        second = world.start()
        await counts(first, second, become=(2, 2))
        third = world.start()
        await eventually(lambda: third.open == 1 and first.open + second.open == 3)


async def test_those_of_killed_instances_are_divided_among_the_others() -> None:
    async with World(3) as world:
        first, second, third = (world.start() for _ in range(3))
        await counts(first, second, third, become=(1, 1, 1))
        await third.end()
        await eventually(lambda: first.open + second.open == 3)
        await second.end()
        await counts(first, become=(3,))
        fourth = world.start()
        await counts(first, fourth, become=(2, 1))


async def test_an_instance_that_leaves_gives_its_connections_to_the_others_at_once() -> None:
    async with World(4) as world:
        first, second = world.start(), world.start()
        await counts(first, second, become=(2, 2))
        await second.connections.leave()
        await counts(first, second, become=(3, 1))  # its first one sends the last answers
        await second.end()
        await counts(first, become=(4,))


async def test_an_instance_without_a_connection_takes_one_when_it_is_free() -> None:
    async with World(1) as world:
        first = world.start()
        await counts(first, become=(1,))
        second = world.start()
        await eventually(lambda: bool(first.instances.others))
        assert (first.open, second.open) == (1, 0)
        await first.end()
        await counts(second, become=(1,))


async def test_connections_stay_while_the_database_is_away() -> None:
    async with World(2) as world:
        first = world.start()
        await counts(first, become=(2,))
        world.database.is_away = True
        second = world.start()
        world.database.notify()
        await anyio.wait_all_tasks_blocked()
        assert first.open == 2
        world.database.is_away = False
        await counts(first, second, become=(1, 1))


async def test_a_connection_whose_lock_another_instance_took_meanwhile_is_closed() -> None:
    async with World(2) as world:
        first = world.start()
        await counts(first, become=(2,))
        first.connections._locks.close()  # type: ignore[union-attr] # the database was restarted
        second = world.start()
        await counts(first, second, become=(1, 1))

"""A machine whose clock is set by hand, and storages on it."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from component.store import Storage
from component.store import postgres as postgres_module
from component.store import storage as storage_module
from component.store.clock import SteadyClock

NOON = 1_800_000_000_000
MINUTE = 60_000
HOUR = 3_600_000
DAY = 24 * HOUR


class Machine:
    """A machine whose clock is set by hand, and on which time passes by hand."""

    def __init__(self) -> None:
        self.wall = NOON
        self.elapsed = HOUR
        self.boot = "one"
        self.real = 0

    def passes(self, ms: int) -> None:
        self.wall += ms
        self.elapsed += ms
        self.real += ms

    def jumps(self, ms: int) -> None:
        self.wall += ms

    def reboots(self, down: int) -> None:
        self.wall += down
        self.elapsed = MINUTE
        self.boot += "+"


class Life:
    """Opens storages on a machine."""

    def __init__(self, machine: Machine, open_storage: Any) -> None:
        self.machine = machine
        self._open = open_storage

    @asynccontextmanager
    async def __call__(self, name: str = "data") -> AsyncIterator[Storage]:
        options = {"now": lambda: self.machine.wall, "elapsed": lambda: self.machine.elapsed}
        async with self._open(name, **options) as storage:
            yield storage


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Its clock is that of SQLite, and of the server."""
    machine = Machine()

    class Wall(str):
        """Stands for the time in statements of PostgreSQL."""

        __slots__ = ()

        def __format__(self, _spec: str) -> str:
            return f"{machine.wall}::bigint"

    monkeypatch.setattr(postgres_module, "_NOW", Wall())

    def steady(*elapsed: Any, **more: Any) -> SteadyClock:
        return SteadyClock(*elapsed, boot=machine.boot, **more)

    monkeypatch.setattr(storage_module, "SteadyClock", steady)
    return machine


@pytest.fixture
def life(machine: Machine, open_storage: Any) -> Life:
    return Life(machine, open_storage)

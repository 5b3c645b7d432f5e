"""A task can have other clocks, random numbers and threads than the process."""

import re
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from component import system
from component.system import System

pytestmark = pytest.mark.anyio

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


class Frozen(System):
    """Its time stands still, its random numbers are zeros, and it has no threads."""

    def time_ns(self) -> int:
        return int(NOON.timestamp()) * 10**9

    def token_bytes(self, length: int) -> bytes:
        return bytes(length)

    async def in_thread(  # type: ignore[override]
        self, call: Any, *arguments: Any, **_options: Any
    ) -> Any:
        await anyio.lowlevel.checkpoint()
        return call(*arguments)


async def test_a_system_is_that_of_one_task_and_of_those_that_it_starts() -> None:
    found: list[datetime] = []

    async def note() -> None:
        found.append(system.now())

    async def frozen() -> None:
        system.use(Frozen())
        async with anyio.create_task_group() as group:
            group.start_soon(note)

    async with anyio.create_task_group() as group:
        group.start_soon(frozen)
    await note()
    assert found[0] == NOON
    assert found[1] != NOON


async def test_what_runs_in_a_thread_has_the_system_of_its_caller() -> None:
    class FrozenWithThreads(Frozen):
        in_thread = System.in_thread

    async def frozen() -> None:
        system.use(FrozenWithThreads())
        assert await system.in_thread(system.now) == NOON

    async with anyio.create_task_group() as group:
        group.start_soon(frozen)


def test_tokens_have_the_length_and_the_alphabet_that_are_asked_for() -> None:
    assert re.fullmatch("[0-9a-f]{24}", system.token_hex(12))
    assert re.fullmatch("[0-9A-Za-z_-]{16}", system.token_urlsafe(12))
    assert len(system.token_bytes(7)) == 7
    assert system.token_hex(8) != system.token_hex(8)

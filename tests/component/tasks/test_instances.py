"""Instances on one PostgreSQL: who leaves, who comes to itself, and who tells for whom."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from component.skills import AnySkill, Context, skill
from component.storage import Storage
from component.tasks import leases
from component.tasks.beats import Beats
from tests.component.tasks.test_durable import text_of, three_steps
from tests.component.tasks.world import Ear, World, eventually, living

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def two(
    directory: Path, url: str, *skills: AnySkill, deaf: bool = False, **limits: Any
) -> AsyncIterator[list[World]]:
    """Two instances on one database; with `deaf` the first has no stream."""
    async with AsyncExitStack() as stack:
        worlds = []
        for name in ("one", "other"):
            ear = Ear()
            ear.deaf = deaf and name == "one"
            storage = functools.partial(Storage.open, directory / name, postgres=url)
            world = await stack.enter_async_context(living(storage, *skills, ear=ear, **limits))
            await world.room._load()
            worlds.append(world)
        yield worlds


async def test_who_leaves_hands_its_work_over(tmp_path: Path, postgres_url: str) -> None:
    lives: list[str] = []
    there = anyio.Event()

    @skill(name="stuck", durable=True)
    async def stuck(context: Context) -> str:
        lives.append(context.key)
        if len(lives) == 1:
            there.set()
            await anyio.sleep_forever()
        return "done"

    async with two(tmp_path, postgres_url, stuck, drain_s=0.01) as (one, other):
        task = await one.task("stuck")
        await there.wait()
        await one.room.drain()
        # At once: its beat need not stand still before.
        assert text_of(await other.ear.ended(task)) == "done"
        assert len(lives) == 2
        assert lives[0] == lives[1]


async def test_what_one_without_a_stream_has_done_is_told_by_another(
    tmp_path: Path, postgres_url: str
) -> None:
    log: list[str] = []
    async with two(tmp_path, postgres_url, three_steps(log), deaf=True) as (one, other):
        task = await one.task("three")
        assert text_of(await other.ear.ended(task)) == "ABC"
        assert one.ear.notices == []

        await eventually(functools.partial(_none_untold, one))
        assert [notice.final for notice in other.ear.notices] == [True]


async def test_what_a_dead_one_has_not_told_is_told_by_who_takes_over(
    tmp_path: Path, postgres_url: str
) -> None:
    log: list[str] = []
    async with two(tmp_path, postgres_url, three_steps(log)) as (one, other):
        task = await one.task("three")
        await one.ear.ended(task)
        await eventually(functools.partial(_none_untold, one))
        assert other.ear.notices == []
        await other.storage.write(
            lambda db: db.execute("UPDATE tasks SET untold = revision WHERE id = ?", (task,))
        )
        engine = other.room._engine
        assert engine is not None
        engine._taken([])
        assert (await other.ear.ended(task)).state == "completed"


async def test_who_was_buried_keeps_what_it_has_begun_since(
    tmp_path: Path, postgres_url: str
) -> None:
    gates = [anyio.Event(), anyio.Event()]
    begun: list[str] = []

    @skill(name="gated", durable=True)
    async def gated(context: Context, number: int) -> str:
        begun.append(str(number))
        await gates[number].wait()
        return str(number)

    async with two(tmp_path, postgres_url, gated) as (one, other):
        lost = await one.task("gated", params={"number": "0"})
        before = one.room.instance
        beats = await other.storage.write(lambda db: leases.beat(db, other.room.instance))
        assert beats is not None
        await other.storage.write(
            lambda db: leases.bury(db, before, beats[before], retention_ms=1000)
        )
        # It does not know yet, and takes another one in under its old name.
        kept = await one.task("gated", params={"number": "1"})
        owner = "SELECT owner FROM tasks WHERE id = ?"
        assert await one.scalar(owner, kept) == before
        token = "SELECT token FROM tasks WHERE id = ?"
        held = await one.scalar(token, kept)
        engine = one.room._engine
        assert engine is not None
        renamed: list[str] = []

        def rename(new: str) -> None:
            renamed.append(new)
            engine._renamed(new)

        beats_of_one = Beats(one.storage, before, rename, engine._taken, 1000)
        await beats_of_one.once()
        (now,) = renamed
        # Were it to die now, the others would see to all of it.
        assert await one.scalar(owner, kept) == now != before
        assert await one.scalar("SELECT count(*) FROM instances WHERE id = ?", now) == 1
        assert await one.scalar(token, kept) == held
        gates[1].set()
        assert text_of(await one.ear.ended(kept)) == "1"
        gates[0].set()
        await one.reaches(lost, "completed")
        assert begun.count("1") == 1


async def _none_untold(world: World) -> bool:
    return not await world.scalar("SELECT count(*) FROM tasks WHERE untold IS NOT NULL")

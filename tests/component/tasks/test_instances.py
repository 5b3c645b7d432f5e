"""Instances on one PostgreSQL: who leaves, who comes to itself, and who tells for whom."""

from __future__ import annotations

import functools
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from component.app.schema import SCHEMA
from component.skills import Context, Skill, skill
from component.store import Storage
from component.store import directory as lock_module
from component.tasks import expiry, leases
from component.tasks.changes import Transaction, new_row, stored_request
from component.tasks.rows import put
from component.tasks.service import Membership
from tests.component.tasks.test_durable import text_of, three_steps
from tests.component.tasks.world import Ear, Open, World, living
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


async def all_idle(world: World) -> None:
    """Wait until all instances have found that there is nothing to do."""

    async def idle() -> bool:
        return not await world.scalar("SELECT count(*) FROM instances WHERE idle = 0")

    await eventually(idle)


@asynccontextmanager
async def two(
    directory: Path, url: str, *skills: Skill, deaf: bool = False, **limits: Any
) -> AsyncIterator[list[World]]:
    """Two instances on one database; with `deaf` the first has no stream."""
    async with AsyncExitStack() as stack:
        worlds = []
        for name in ("one", "other"):
            ear = Ear()
            ear.deaf = deaf and name == "one"
            storage = functools.partial(Storage.open, SCHEMA, directory / name, postgres=url)
            world = await stack.enter_async_context(living(storage, *skills, ear=ear, **limits))
            worlds.append(world)
        yield worlds


@pytest.mark.ports
async def test_who_leaves_hands_its_work_over(tmp_path: Path, migrated_url: str) -> None:
    lives: list[str] = []
    there = anyio.Event()

    @skill(name="stuck", durable=True)
    async def stuck(context: Context) -> str:
        lives.append(context.key)
        if len(lives) == 1:
            there.set()
            await anyio.sleep_forever()
        return "done"

    async with two(tmp_path, migrated_url, stuck, drain_s=0.01) as (one, other):
        task = await one.task("stuck")
        await there.wait()
        await one.service.drain()
        # At once: its beat need not stand still before.
        assert text_of(await other.ear.ended(task)) == "done"
        assert len(lives) == 2
        assert lives[0] == lives[1]


@skill(name="waits", durable=True)
async def waits(context: Context) -> str:
    await anyio.sleep_forever()
    return "never"


async def test_who_ends_does_not_keep_what_another_could_go_on_with(
    tmp_path: Path, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "HEARTBEAT_S", 3600.0)  # so only a notification announces it
    lives: list[str] = []
    there = anyio.Event()
    gate = anyio.Event()

    @skill(name="between", durable=True)
    async def between(context: Context) -> str:
        lives.append(context.key)
        if len(lives) == 1:
            there.set()
            await anyio.sleep_forever()
        return "done"

    @skill(name="busy", durable=True)
    async def busy(context: Context) -> str:
        async def work(key: str) -> str:
            await gate.wait()
            return "worked"

        return await context.step("only", work, str)

    async with two(tmp_path, migrated_url, between, busy, drain_s=3600) as (one, other):
        await all_idle(other)
        kept = await one.task("busy")
        task = await one.task("between")
        await there.wait()
        async with anyio.create_task_group() as group:
            group.start_soon(one.service.drain)
            # Before the one that ends has come to its end.
            assert text_of(await other.ear.ended(task)) == "done"
            assert (await one.get(kept)).state == "running"
            gate.set()


@pytest.mark.parametrize("limit", ["running_total", "running_per_principal"])
async def test_an_instance_wakes_an_idle_one_for_the_tasks_that_it_leaves(
    tmp_path: Path, migrated_url: str, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(leases, "HEARTBEAT_S", 3600.0)  # so only a notification announces them
    limits: dict[str, Any] = {limit: 1}
    async with two(tmp_path, migrated_url, waits, **limits) as (one, other):
        await all_idle(other)
        request, tasks = one.call("waits", json={}), ("first", "second")

        def queue(tx: Transaction) -> None:
            # As tasks that are queued while this instance has slots for them: nobody is woken.
            for task in tasks:
                row = new_row(tx, task, request, waits, stored_request(request, {}, tx.limits))
                row.promoted = 1
                put(tx, row)

        await one.service._runtime.commit(queue)
        one.service.requeued()
        for task in tasks:
            await other.reaches(task, "running")


async def test_who_comes_back_takes_its_own_up_at_once(tmp_path: Path, migrated_url: str) -> None:
    lives: list[str] = []
    there = anyio.Event()

    @skill(name="killed", durable=True)
    async def killed(context: Context) -> str:
        lives.append(context.key)
        if len(lives) == 1:
            there.set()
            await anyio.sleep_forever()
        return "done"

    skills = (killed, waits)
    bystander = functools.partial(Storage.open, SCHEMA, tmp_path / "other", postgres=migrated_url)
    storage = functools.partial(Storage.open, SCHEMA, tmp_path / "one", postgres=migrated_url)
    async with living(bystander, *skills) as other:
        kept = await other.task("waits")
        async with living(storage, *skills) as one:
            task = await one.task("killed")
            await there.wait()
            before = one.service.instance
        async with living(storage, *skills) as one:
            # Nobody has waited for a beat to stand still: that needs another look at it.
            found = await one.scalar("SELECT count(*) FROM instances WHERE id = ?", before)
            assert found == 0
            assert text_of(await one.ear.ended(task)) == "done"
            assert lives == [lives[0]] * 2
            # Others have nothing to do with it.
            assert await one.scalar("SELECT owner FROM tasks WHERE id = ?", kept) == (
                other.service.instance
            )


async def test_nobody_takes_over_at_once_from_another_place(
    tmp_path: Path, migrated_url: str
) -> None:
    storage = functools.partial(Storage.open, SCHEMA, tmp_path / "one", postgres=migrated_url)
    async with living(storage, waits) as one:
        task = await one.task("waits")
        # The same data, its name included, and perhaps a process of its own that lives.
        shutil.copytree(tmp_path / "one", tmp_path / "copy")
        copied = functools.partial(Storage.open, SCHEMA, tmp_path / "copy", postgres=migrated_url)
        async with living(copied, waits) as copy:
            owner = "SELECT owner FROM tasks WHERE id = ?"
            assert await copy.scalar(owner, task) == one.service.instance
            assert await copy.scalar("SELECT count(*) FROM instances") == 2


async def test_what_is_not_certain_to_be_over_is_waited_for(
    tmp_path: Path, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = functools.partial(Storage.open, SCHEMA, tmp_path / "one", postgres=migrated_url)
    async with living(storage, waits) as one:
        task = await one.task("waits")
        before = one.service.instance
    monkeypatch.setattr(lock_module, "_BOOT_ID", tmp_path / "no such file")
    async with living(storage, waits) as one:
        assert await one.scalar("SELECT owner FROM tasks WHERE id = ?", task) == before


async def test_what_one_without_a_stream_has_done_is_told_by_another(
    tmp_path: Path, migrated_url: str
) -> None:
    log: list[str] = []
    async with two(tmp_path, migrated_url, three_steps(log), deaf=True) as (one, other):
        task = await one.task("three")
        assert text_of(await other.ear.ended(task)) == "ABC"
        assert one.ear.notices == []

        await eventually(functools.partial(_none_untold, one))
        assert [notice.final for notice in other.ear.notices] == [True]


async def test_what_a_dead_one_has_not_told_is_told_by_who_takes_over(
    tmp_path: Path, migrated_url: str
) -> None:
    log: list[str] = []
    async with two(tmp_path, migrated_url, three_steps(log)) as (one, other):
        task = await one.task("three")
        await one.ear.ended(task)
        await eventually(functools.partial(_none_untold, one))
        assert other.ear.notices == []
        await other.storage.write(
            lambda db: db.execute(
                "UPDATE tasks SET unsent_revision = revision WHERE id = ?", (task,)
            )
        )
        service = other.service
        service._worker.wake()
        service._start_telling()
        assert (await other.ear.ended(task)).state == "completed"


@pytest.mark.ports
async def test_who_was_buried_keeps_what_it_has_begun_since(
    tmp_path: Path, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "HEARTBEAT_S", 3600.0)  # none but that of the test
    gates = [anyio.Event(), anyio.Event()]
    begun: list[str] = []

    @skill(name="gated", durable=True)
    async def gated(context: Context, number: int) -> str:
        begun.append(str(number))
        await gates[number].wait()
        return str(number)

    async with two(tmp_path, migrated_url, gated) as (one, other):
        lost = await one.task("gated", params={"number": "0"})
        before = one.service.instance
        count = await other.scalar("SELECT heartbeat FROM instances WHERE id = ?", before)
        await other.service._runtime.commit(partial(Membership._evict, before, count))
        # It does not know yet, and takes another one in under its old name.
        kept = await one.task("gated", params={"number": "1"})
        owner = "SELECT owner FROM tasks WHERE id = ?"
        assert await one.scalar(owner, kept) == before
        fence = "SELECT fence FROM tasks WHERE id = ?"
        held = await one.scalar(fence, kept)
        await one.service._membership.send_heartbeat()
        now = one.service.instance
        # Were it to die now, the others would see to all of it.
        assert await one.scalar(owner, kept) == now != before
        assert await one.scalar("SELECT count(*) FROM instances WHERE id = ?", now) == 1
        assert await one.scalar(fence, kept) == held
        gates[1].set()
        assert text_of(await one.ear.ended(kept)) == "1"
        gates[0].set()
        await one.reaches(lost, "completed")
        assert begun.count("1") == 1


async def _none_untold(world: World) -> bool:
    return not await world.scalar("SELECT count(*) FROM tasks WHERE unsent_revision IS NOT NULL")


@skill(name="sleeps", durable=True)
async def sleeps(context: Context, seconds: float) -> str:
    await context.sleep(seconds)
    return "awake"


async def test_a_sleep_ends_in_time_though_nothing_else_happens(
    open_storage: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "_LOOK_S", 3600.0)
    async with living(open_storage, sleeps) as world:
        task = await world.task("sleeps", params={"seconds": "1"})
        assert text_of(await world.ear.ended(task)) == "awake"


@pytest.mark.ports
async def test_what_another_instance_had_to_see_to_is_noticed_when_it_is_due(
    tmp_path: Path, migrated_url: str
) -> None:
    """The instance whose timer knew of it may have been killed since."""
    async with two(tmp_path, migrated_url, sleeps) as (one, other):
        task = await one.task("sleeps", params={"seconds": "86400"})

        async def asleep() -> bool:
            return bool(await one.scalar("SELECT not_before FROM tasks WHERE id = ?", task))

        await eventually(asleep)
        await anyio.wait_all_tasks_blocked()
        # As if the time had come: no timer has been told of that.
        await other.storage.write(
            lambda db: db.execute(
                "UPDATE tasks SET wake_at = 1, not_before = 1 WHERE id = ?", (task,)
            )
        )
        await other.service._membership.send_heartbeat()
        assert text_of(await other.reaches(task, "completed")) == "awake"

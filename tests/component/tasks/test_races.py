"""What is committed first decides: a cancel at every moment (CAN-004), a request elsewhere."""

from __future__ import annotations

import anyio
import pytest

from component.skills import Context, skill
from component.store.database import Database
from component.tasks import replay
from component.tasks.leases import Slot
from component.tasks.request import key_of
from component.tasks.rows import TERMINAL, Row
from component.tasks.run import Run
from tests.component.tasks.test_durable import cancel, conditions
from tests.component.tasks.world import Open, living
from tests.profiles import THOROUGH
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Result

pytestmark = [pytest.mark.anyio, pytest.mark.ports]


async def test_a_task_ends_once_whenever_it_is_cancelled(open_storage: Open) -> None:
    effects: list[str] = []

    @skill(name="two", durable=True)
    async def two(context: Context) -> str:
        async def work(key: str) -> str:
            effects.append(key)
            await anyio.lowlevel.checkpoint()
            return key

        await context.step("a", work, str)
        await context.progress(0.5)
        await context.step("b", work, str)
        return "done"

    states = set()
    async with living(open_storage, two) as world:
        for wait in range(0, 180, 3 if THOROUGH else 6):
            task = await world.task("two")
            for _ in range(wait):
                await anyio.lowlevel.checkpoint()
            answered = await cancel(world, task)
            assert answered.state in ("cancelled", "cancelling", *TERMINAL)
            ended = await world.ear.ended(task)
            assert ended.state in ("cancelled", "completed", "failed")
            if ended.state == "failed":
                assert conditions(ended) == (errors.OutcomeUnknown(),)
            assert await cancel(world, task) == await world.get(task)
            events = await world.events(task)
            assert [event.revision for event in events] == list(range(1, len(events) + 1))
            assert [event.state in TERMINAL for event in events].count(True) == 1
            assert world.ear.of(task) == events
            states.add(ended.state)
    assert len(effects) == len(set(effects))
    assert "cancelled" in states


async def test_a_record_that_another_instance_made_meanwhile_counts(open_storage: Open) -> None:
    """It is found by the commit that would have made ours, and nothing of that stays."""

    @skill(name="quick")
    async def quick() -> str:
        raise AssertionError("it runs elsewhere")

    answer = Result(skill="quick")
    async with living(open_storage, quick) as world:
        request = world.call("quick", mode="async")

        def record(database: Database) -> None:
            made = replay.record(
                *(database, key_of(request)),
                replay.NewRecord(
                    principal="ann@a.example",
                    expires=database.steady + 60_000,
                    owner="another",
                    answer=answer,
                ),
            )
            assert made is None

        await world.storage.write(record)
        world.service._admission.any_records = False  # so it is not looked for before
        assert await world.execute(request) == answer
        assert await world.scalar("SELECT count(*) FROM tasks") == 0
        assert await world.scalar("SELECT count(*) FROM events") == 0
        assert await world.scalar("SELECT owner FROM replay") == "another"


async def test_a_task_that_is_cancelled_after_its_claim_and_before_it_goes_on_ends(
    open_storage: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    @skill(name="sleeps", durable=True)
    async def sleeps(context: Context) -> str:
        begun.append(context.key)
        await context.sleep(1)
        return "awake"

    async with living(open_storage, sleeps) as world:
        worker = world.service._worker
        resume = worker._resume

        async def cancelled_before(row: Row, slot: Slot) -> Run | None:
            if begun:
                assert (await cancel(world, row.id)).state == "cancelling"
            return await resume(row, slot)

        monkeypatch.setattr(worker, "_resume", cancelled_before)
        task = await world.task("sleeps")
        assert (await world.ear.ended(task)).state == "cancelled"
        assert len(begun) == 1
        assert worker.slots.free == worker.slots.total

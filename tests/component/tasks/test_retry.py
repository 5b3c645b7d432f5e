"""Retries go on from the journal; tasks that end their process are set aside; claims fit skills."""

from __future__ import annotations

import functools
from pathlib import Path

import anyio
import pytest

from component.app.schema import SCHEMA
from component.skills import Context, Skill, skill
from component.store import Storage
from component.tasks.admin import RefusedError, TaskAdmin
from component.tasks.protocol import TaskLimits
from component.tasks.service import TaskService
from tests.component.tasks.test_durable import Choice, answer, conditions, text_of
from tests.component.tasks.world import ANN, BOB, Open, World, living
from tests.waiting import eventually
from xep.fluux_agent import errors

pytestmark = pytest.mark.anyio


def admin(world: World) -> TaskAdmin:
    return TaskAdmin(world.storage, TaskLimits(), requeued=lambda _: world.service.requeued())


async def retried(world: World, task: str, *, force: bool = False) -> str:
    held = await admin(world).retry(task, force=force)
    assert held is not None
    assert held.task.id is not None
    return held.task.id


@pytest.mark.ports
async def test_a_retry_does_not_repeat_what_was_done(open_storage: Open) -> None:
    keys: dict[str, list[str]] = {"pay": [], "mail": []}
    broken = True

    @skill(name="orders", durable=True)
    async def orders(context: Context) -> str:
        async def pay(key: str) -> str:
            keys["pay"].append(key)
            return "paid"

        async def mail(key: str) -> str:
            keys["mail"].append(key)
            if broken:
                raise OSError("no route")
            return "sent"

        colour = (await context.ask("Which?", Choice)).colour
        paid = await context.step("pay", pay, str)
        return f"{colour} {paid} {await context.step('mail', mail, str, repeatable=True)}"

    async with living(open_storage, orders) as world:
        first = await world.task("orders")
        await answer(world, await world.ear.in_state(first, "input-required"), {"colour": "red"})
        assert (await world.ear.ended(first)).state == "failed"
        second = await retried(world, first)
        assert (await world.ear.ended(second)).state == "failed"
        broken = False
        third = await retried(world, second)
        assert text_of(await world.ear.ended(third)) == "red paid sent"
    assert len(keys["pay"]) == 1
    assert len(keys["mail"]) == 3
    assert len(set(keys["mail"])) == 1, "the same idempotency key each time"


@pytest.mark.ports
@pytest.mark.parametrize("durable", [True, False])
async def test_what_may_have_had_its_effect_is_repeated_by_force_only(
    open_storage: Open, durable: bool
) -> None:
    keys: list[str] = []

    async def pay(key: str) -> str:
        keys.append(key)
        if len(keys) == 1:
            raise OSError("the answer was lost")
        return "paid"

    @skill(name="pays", durable=durable)
    async def pays(context: Context) -> str:
        return await context.step("pay", pay, str) if durable else await pay(context.key)

    async with living(open_storage, pays) as world:
        first = await world.task("pays")
        assert (await world.ear.ended(first)).state == "failed"
        with pytest.raises(RefusedError, match="not known whether"):
            await retried(world, first)
        assert len(keys) == 1
        again = await retried(world, first, force=True)
        assert text_of(await world.ear.ended(again)) == "paid"
    assert len(keys) == 2
    assert len(set(keys)) == 1


# Attempts.


@pytest.mark.ports
async def test_a_task_that_ends_its_process_is_set_aside(open_storage: Open) -> None:
    begun: list[str] = []
    gone = anyio.Event()

    @skill(name="poison", idempotent=True)
    async def poison(context: Context) -> str:
        begun.append("poison")
        gone.set()
        await anyio.sleep_forever()
        return ""

    @skill(name="bystander", idempotent=True)
    async def bystander(context: Context) -> str:
        begun.append("bystander")
        if gone.is_set():
            await anyio.sleep_forever()  # the process ends while it runs
        return "done"

    skills = (poison, bystander)
    async with living(open_storage, *skills) as world:
        bad = await world.task("poison", by=BOB)
        await gone.wait()
        good = await world.task("bystander", by=ANN)
        await world.reaches(good, "running")
    for _ in range(2):
        gone = anyio.Event()
        async with living(open_storage, *skills) as world:
            with anyio.move_on_after(5):
                await gone.wait()
    gone = anyio.Event()
    async with living(open_storage, *skills) as world:

        async def set_aside() -> bool:
            return bool(await world.scalar("SELECT set_aside FROM tasks WHERE id = ?", bad))

        await eventually(set_aside)
        await world.reaches(good, "completed")  # it was not blamed for the other one
        task = await world.get(bad, BOB)
        assert task.state == "running"
        assert task.progress is not None
        assert "an operator has to decide" in task.progress.text
        said = await world.scalar("SELECT text FROM notifications WHERE person = ?", str(BOB.bare))
        assert said.startswith("I could not finish this: Poison. The service crashed 3 times")
        assert f"task {bad}" in said
        assert not await world.scalar(
            "SELECT count(*) FROM notifications WHERE person = ?", str(ANN.bare)
        )
        runs = begun.count("poison")
        await anyio.wait_all_tasks_blocked()
        assert begun.count("poison") == runs == 3
        held = await admin(world).release(bad)
        assert held is not None
        await gone.wait()  # it runs again


# Several instances.


def instance(directory: Path, url: str, name: str) -> Open:
    return functools.partial(Storage.open, SCHEMA, directory / name, postgres=url)


def doing(name: str, log: list[str]) -> Skill:
    @skill(name=name, durable=True)
    async def work(context: Context) -> str:
        log.append(name)
        return name

    return work


async def test_a_task_is_left_to_an_instance_that_has_its_skill(
    tmp_path: Path, migrated_url: str
) -> None:
    log: list[str] = []
    old, new = doing("old", log), doing("new", log)
    async with living(instance(tmp_path, migrated_url, "new"), old, new) as newer:
        newer.service._worker.slots.total = 0  # it has no slots, so what it admits waits
        async with living(instance(tmp_path, migrated_url, "old"), old) as older:
            waits = await newer.task("new")
            runs = await newer.task("old")
            assert text_of(await older.ear.ended(runs)) == "old"
            assert (await newer.get(waits)).state == "accepted"
            # It was never claimed, and given up again.
            assert await newer.scalar("SELECT fence FROM tasks WHERE id = ?", waits) == 0
            newer.service._worker.slots.total = 4
            newer.service.requeued()
            assert text_of(await newer.ear.ended(waits)) == "new"
    assert sorted(log) == ["new", "old"]


async def test_an_answer_at_an_older_release_destroys_nothing_while_the_newer_one_restarts(
    tmp_path: Path, migrated_url: str
) -> None:
    @skill(name="new", durable=True)
    async def asks(context: Context) -> str:
        return (await context.ask("Which?", Choice)).colour

    async with living(instance(tmp_path, migrated_url, "old"), doing("old", [])) as older:
        async with living(instance(tmp_path, migrated_url, "new"), asks) as newer:
            task = await newer.task("new")
            asked = await newer.ear.in_state(task, "input-required")
            await newer.service.drain()
        await answer(older, asked, {"colour": "red"})

        async def given_up() -> bool:
            return await older.scalar("SELECT owner FROM tasks WHERE id = ?", task) is None

        await eventually(given_up)
        assert (await older.get(task)).state == "running"
        async with living(instance(tmp_path, migrated_url, "new"), asks) as newer:
            assert text_of(await newer.ear.ended(task)) == "red"


async def test_a_task_whose_parameters_an_older_release_cannot_read_is_left_alone(
    tmp_path: Path, migrated_url: str
) -> None:
    @skill(name="work", durable=True)
    async def work(number: int, context: Context) -> str:
        return str(number)

    @skill(name="work", durable=True)
    async def renamed(amount: int, context: Context) -> str:
        raise AssertionError("the older release cannot run it")

    async with living(instance(tmp_path, migrated_url, "new"), work) as newer:
        newer.service._worker.slots.total = 0
        async with living(instance(tmp_path, migrated_url, "old"), renamed) as older:
            task = await newer.task("work", params={"number": "3"})
            older.service.requeued()

            async def refused() -> bool:
                return task in older.service._worker._unfit

            await eventually(refused)
            assert (await newer.get(task)).state == "accepted"
            newer.service._worker.slots.total = 4
            newer.service.requeued()
            assert text_of(await newer.ear.ended(task)) == "3"


@pytest.mark.ports
async def test_one_idle_instance_is_woken_for_what_a_full_one_has_queued(
    tmp_path: Path, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[str] = []
    wake = TaskService._wake

    async def noted(service: TaskService) -> None:
        woken.append(service.instance)
        await wake(service)

    monkeypatch.setattr(TaskService, "_wake", noted)
    log: list[str] = []
    work = doing("work", log)
    async with (
        living(instance(tmp_path, migrated_url, "full"), work) as full,
        living(instance(tmp_path, migrated_url, "one"), work) as one,
        living(instance(tmp_path, migrated_url, "two"), work) as two,
    ):

        async def idle() -> bool:
            return await full.scalar("SELECT count(*) FROM instances WHERE idle = 1") == 2

        full.service._worker.slots.total = 0
        await full.storage.write(
            lambda db: db.execute(
                "UPDATE instances SET idle = 0 WHERE id = ?", (full.service.instance,)
            )
        )
        for number in range(3):
            await eventually(idle)
            task = await full.task("work")
            await full.reaches(task, "completed")
            assert len(woken) == number + 1
        # One that has become full meanwhile passes it on.
        await eventually(idle)
        two.service._worker.slots.total = 0
        await full.reaches(await full.task("work"), "completed")
        assert woken[3:] in ([one.service.instance], [two.service.instance, one.service.instance])
    assert log == ["work"] * 4


async def test_another_attempt_does_not_repeat_a_step_that_was_interrupted(
    open_storage: Open,
) -> None:
    """Here by a branch that fails beside it. Nobody knows whether it had its effect."""
    paid: list[str] = []

    @skill(name="both", durable=True, attempts=3, backoff_s=0.001)
    async def both(context: Context) -> str:
        paying = anyio.Event()

        async def pay(key: str) -> str:
            paid.append(key)
            paying.set()
            await anyio.sleep_forever()
            return "paid"

        async def broken() -> None:
            await paying.wait()
            raise OSError("no route")

        async with anyio.create_task_group() as group:
            group.start_soon(functools.partial(context.step, "pay", pay, str, key=1))
            group.start_soon(broken)
        return "done"

    async with living(open_storage, both) as world:
        ended = await world.ear.ended(await world.task("both"))
        assert conditions(ended) == (errors.OutcomeUnknown(),)
        assert len(paid) == 1


@pytest.mark.ports
async def test_an_attempt_that_fails_while_the_service_stops_is_not_the_last_one(
    open_storage: Open,
) -> None:
    broken = True
    there, gate = anyio.Event(), anyio.Event()

    @skill(name="flaky", durable=True, attempts=3, backoff_s=0.001)
    async def flaky(context: Context) -> str:
        async def mail(key: str) -> str:
            there.set()
            await gate.wait()
            if broken:
                raise OSError("no route")
            return "sent"

        return await context.step("mail", mail, str, repeatable=True)

    async with living(open_storage, flaky) as world:
        task = await world.task("flaky")
        await there.wait()
        async with anyio.create_task_group() as group:
            group.start_soon(world.service.drain)
            await anyio.wait_all_tasks_blocked()
            gate.set()
        assert (await world.get(task)).state == "running"
    broken = False
    async with living(open_storage, flaky) as world:
        assert text_of(await world.ear.ended(task)) == "sent"

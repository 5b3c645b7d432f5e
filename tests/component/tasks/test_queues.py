"""Named queues, and skills that are tried again after a failure."""

from __future__ import annotations

import functools
from pathlib import Path

import anyio
import pytest

from component.app.schema import SCHEMA
from component.skills import Context, DeclarationError, Skill, skill
from component.store import Storage
from component.tasks.admin import TaskAdmin
from component.tasks.protocol import QueueLimits, TaskLimits
from tests.component.tasks.ledger import NOON
from tests.component.tasks.test_durable import Choice, answer, conditions, text_of
from tests.component.tasks.world import ANN, BOB, Open, World, living
from tests.waiting import eventually
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Accepted

pytestmark = pytest.mark.anyio


class Mail:
    """A skill that goes through the queue `mail`, and ends when it is let."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.begun = 0
        self.gate = anyio.Event()

        @skill(name="mail", queue="mail", durable=True)
        async def mail(context: Context) -> str:
            self.begun += 1
            self.running += 1
            self.most = max(self.most, self.running)
            await self.gate.wait()
            self.running -= 1
            return "sent"

        @skill(name="other", durable=True)
        async def other(context: Context) -> str:
            return "done"

        self.skills: tuple[Skill, ...] = (mail, other)


@pytest.mark.ports
async def test_a_queue_bounds_what_runs_on_all_instances(tmp_path: Path, migrated_url: str) -> None:
    mail = Mail()
    limits = {"queues": {"mail": QueueLimits(2)}}

    def instance(name: str) -> Open:
        return functools.partial(Storage.open, SCHEMA, tmp_path / name, postgres=migrated_url)

    async with (
        living(instance("one"), *mail.skills, **limits) as one,
        living(instance("two"), *mail.skills, **limits) as two,
    ):
        tasks = [
            await world.task("mail", by=who)
            for world in (one, two)
            for who in (ANN, BOB)
            for _ in range(2)
        ]

        async def full() -> bool:
            return mail.running == 2

        await eventually(full)
        # What is not in the queue is not held up by it.
        assert text_of(await one.ear.ended(await one.task("other"))) == "done"
        lines = await TaskAdmin(one.storage, TaskLimits(queues=limits["queues"])).queues()
        assert [(line.name, line.running, line.waiting) for line in lines] == [("mail", 2, 6)]
        mail.gate.set()

        async def over() -> bool:
            done = "SELECT count(*) FROM tasks WHERE state = 'completed'"
            return bool(await one.scalar(done) == len(tasks) + 1)

        await eventually(over)
    assert mail.most == 2


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> int:
        return self.now


async def test_a_queue_bounds_how_many_begin_in_a_minute(tmp_path: Path) -> None:
    clock, mail = Clock(), Mail()
    mail.gate.set()
    open_storage = functools.partial(Storage.open, SCHEMA, tmp_path, now=clock)
    limits = {"mail": QueueLimits(10, per_minute=6)}
    async with living(open_storage, *mail.skills, queues=limits) as world:
        for _ in range(3):
            await world.task("mail")
        for count in (1, 2, 3):

            async def completed(count: int = count) -> bool:
                done = "SELECT count(*) FROM tasks WHERE state = 'completed'"
                return bool(await world.scalar(done) == count)

            await eventually(completed)
            await anyio.wait_all_tasks_blocked()
            assert mail.begun == count
            clock.now += 10_000
            world.service.requeued()


@pytest.mark.ports
async def test_a_task_that_sleeps_leaves_its_place_in_the_queue_and_sets_the_timer(
    open_storage: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    @skill(name="naps", queue="mail", durable=True)
    async def naps(name: str, context: Context) -> str:
        begun.append(name)
        await context.sleep(86_400)
        return "awake"

    async with living(open_storage, naps, queues={"mail": QueueLimits(1)}) as world:
        woken = anyio.Event()
        monkeypatch.setattr(world.service._timer, "wake", woken.set)
        for name in ("first", "second"):
            await world.task("naps", params={"name": name})
        await eventually(lambda: sorted(begun) == ["first", "second"])
        with anyio.fail_after(120):
            await woken.wait()


@pytest.mark.ports
async def test_an_answer_lets_no_task_past_its_queue(open_storage: Open) -> None:
    mail = Mail()

    @skill(name="asks", queue="mail", durable=True)
    async def asks(context: Context) -> str:
        await context.ask("Which colour?", Choice)
        mail.running += 1
        mail.most = max(mail.most, mail.running)
        mail.running -= 1
        return "answered"

    async with living(open_storage, asks, *mail.skills, queues={"mail": QueueLimits(1)}) as world:
        task = await world.task("asks")
        asked = await world.ear.in_state(task, "input-required")
        await world.task("mail")
        await eventually(lambda: mail.running == 1)
        assert (await answer(world, asked, {"colour": "red"})).state == "accepted"
        mail.gate.set()
        assert text_of(await world.ear.ended(task)) == "answered"
    assert mail.most == 1


# Attempts.


def flaky(log: list[str], failures: int, **how: object) -> Skill:
    @skill(name="flaky", durable=True, attempts=3, backoff_s=60, **how)  # type: ignore[arg-type]
    async def work(context: Context) -> str:
        async def pay(key: str) -> str:
            log.append(f"pay {key}")
            return "paid"

        async def mail(key: str) -> str:
            log.append(f"mail {key}")
            if sum(line.startswith("mail") for line in log) <= failures:
                raise OSError("no route")
            return "sent"

        paid = await context.step("pay", pay, str)
        return f"{paid} {await context.step('mail', mail, str)}"

    return work


async def waits(world: World, task: str) -> None:
    async def later() -> bool:
        return bool(await world.scalar("SELECT not_before FROM tasks WHERE id = ?", task))

    await eventually(later)


@pytest.mark.parametrize("mode", ["auto", "async"])
async def test_a_skill_that_fails_is_tried_again_later(tmp_path: Path, mode: str) -> None:
    clock = Clock()
    log: list[str] = []
    open_storage = functools.partial(Storage.open, SCHEMA, tmp_path, now=clock)
    async with living(open_storage, flaky(log, 2)) as world:
        accepted = await world.run("flaky", mode=mode)
        assert isinstance(accepted, Accepted)
        task = accepted.task
        await waits(world, task)
        progress = (await world.get(task)).progress
        assert progress is not None
        assert progress.text.startswith("Attempt 2 of 3 begins in 60 s")
        clock.now += 61_000
        world.service._timer.wake()

        async def tried() -> bool:
            return await world.scalar("SELECT tries FROM tasks WHERE id = ?", task) == 2

        await eventually(tried)
    async with living(open_storage, flaky(log, 2)) as world:
        clock.now += 121_000
        world.service._timer.wake()
        assert text_of(await world.ear.ended(task)) == "paid sent"
    assert [line.split()[0] for line in log] == ["pay", "mail", "mail", "mail"]
    assert len(set(log)) == 2, "the same idempotency keys"


async def test_after_the_last_attempt_it_has_failed(tmp_path: Path) -> None:
    clock = Clock()
    log: list[str] = []
    open_storage = functools.partial(Storage.open, SCHEMA, tmp_path, now=clock)
    async with living(open_storage, flaky(log, 9)) as world:
        task = await world.task("flaky")
        for tries in (1, 2):

            async def tried(tries: int = tries) -> bool:
                return await world.scalar("SELECT tries FROM tasks WHERE id = ?", task) == tries

            await eventually(tried)
            clock.now += 600_000
            world.service._timer.wake()
        assert conditions(await world.ear.ended(task)) == (errors.Internal(),)


def test_what_must_not_run_twice_cannot_be_tried_again() -> None:
    with pytest.raises(DeclarationError, match="must not run twice"):

        @skill(attempts=2)
        def once() -> None:
            """Do it once."""

"""Requests without a name: recognised for a minute, by the id of their IQ and their content.

Each test kills the service: what is not on disk is gone.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio
import pytest

from component.app.schema import SCHEMA
from component.skills import Skill, skill
from component.store import Storage
from tests.component.tasks.ledger import NOON
from tests.component.tasks.test_instances import two
from tests.component.tasks.world import World, living
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Accepted, Result
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio


class Deed:
    """A skill with an effect, which is counted; it can be made to wait."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.begun = anyio.Event()
        self.gate = anyio.Event()
        self.gate.set()

        @skill(name="deed", destructive=False)
        async def deed(text: str) -> str:
            self.did.append(text)
            self.begun.set()
            await self.gate.wait()
            return f"{text} {len(self.did)}"

        self.skill: Skill = deed

    async def ask(self, world: World, text: str = "a", mode: str = "auto") -> Result | Accepted:
        return await world.run("deed", id="1", mode=mode, params={"text": text})


class Clock:
    """The wall clock, which may be set, and the time that passes."""

    def __init__(self) -> None:
        self.wall = self.elapsed = NOON

    def passes(self, seconds: float) -> None:
        self.wall += round(seconds * 1000)
        self.elapsed += round(seconds * 1000)

    def living(
        self, directory: Path, deed: Deed, **limits: float
    ) -> AbstractAsyncContextManager[World]:
        def opened() -> AbstractAsyncContextManager[Storage]:
            return Storage.open(
                SCHEMA, directory, now=lambda: self.wall, elapsed=lambda: self.elapsed
            )

        return living(opened, deed.skill, clock=lambda: self.elapsed / 1000, **limits)


@pytest.mark.parametrize("mode", ["auto", "async"])
@pytest.mark.parametrize("jump_s", [0, 86_400, -86_400])
async def test_a_kill_within_the_minute_loses_no_record_and_after_it_all_is_new(
    tmp_path: Path, mode: str, jump_s: int
) -> None:
    """Also when the wall clock was set meanwhile."""
    deed, clock = Deed(), Clock()
    async with clock.living(tmp_path, deed) as world:
        first = await deed.ask(world, mode=mode)
        clock.passes(20)
    clock.wall += jump_s * 1000
    async with clock.living(tmp_path, deed) as world:
        assert await deed.ask(world, mode=mode) == first
        other = await deed.ask(world, "b", mode)
        assert other != first
        clock.passes(30)
    async with clock.living(tmp_path, deed) as world:
        assert await deed.ask(world, mode=mode) == first
        clock.passes(11)
        again = await deed.ask(world, mode=mode)
        assert again != first
        assert await deed.ask(world, mode=mode) == again
        assert await deed.ask(world, "b", mode) == other
        if isinstance(again, Accepted):
            await world.ear.ended(again.task)
    assert sorted(deed.did) == ["a", "a", "b"]


async def test_after_the_minute_the_same_iq_is_another_task_though_the_first_is_open(
    tmp_path: Path,
) -> None:
    deed, clock = Deed(), Clock()
    deed.gate = anyio.Event()
    async with clock.living(tmp_path, deed) as world:
        first = await deed.ask(world, mode="async")
        clock.passes(59)
        assert await deed.ask(world, mode="async") == first
        clock.passes(2)
        second = await deed.ask(world, mode="async")
        assert isinstance(first, Accepted)
        assert isinstance(second, Accepted)
        assert first.task != second.task
        deed.gate.set()
        for task in (first.task, second.task):
            assert (await world.ear.ended(task)).state == "completed"
    assert deed.did == ["a", "a"]


async def test_work_that_is_under_way_for_more_than_a_minute_keeps_its_own_answer(
    tmp_path: Path,
) -> None:
    deed, clock = Deed(), Clock()
    deed.gate = anyio.Event()
    answers: dict[str, Result | Accepted] = {}
    async with (
        clock.living(tmp_path, deed, inline_s=3600) as world,
        anyio.create_task_group() as group,
    ):

        async def ask(name: str) -> None:
            answers[name] = await deed.ask(world)

        group.start_soon(ask, "first")
        await deed.begun.wait()
        clock.passes(30)
        group.start_soon(ask, "repetition")
        await anyio.wait_all_tasks_blocked()
        clock.passes(31)
        deed.begun = anyio.Event()
        group.start_soon(ask, "second")
        await deed.begun.wait()
        deed.gate.set()
    assert deed.did == ["a", "a"]
    assert len(answers) == 3


async def test_a_kill_while_it_is_under_way_is_outcome_unknown_for_a_minute(
    tmp_path: Path,
) -> None:
    deed, clock = Deed(), Clock()
    deed.gate = anyio.Event()
    async with clock.living(tmp_path, deed) as world, anyio.create_task_group() as group:
        group.start_soon(deed.ask, world)
        await deed.begun.wait()
        group.cancel_scope.cancel()
    deed.gate.set()
    async with clock.living(tmp_path, deed) as world:
        with pytest.raises(StanzaError) as caught:
            await deed.ask(world)
        assert caught.value.application == (errors.OutcomeUnknown(),)
        assert isinstance(await deed.ask(world, "b"), Result)
        clock.passes(61)
        assert isinstance(await deed.ask(world), Result)
    assert deed.did == ["a", "b", "a"]


async def test_instances_that_share_a_database_recognise_each_others_requests(
    tmp_path: Path, migrated_url: str
) -> None:
    deed = Deed()
    async with two(tmp_path, migrated_url, deed.skill) as (one, other):
        first = await deed.ask(one)
        assert await deed.ask(other) == first
        answers = {}

        async def ask(name: str, world: World, text: str) -> None:
            try:
                answers[name] = await deed.ask(world, text)
            except StanzaError as error:
                assert isinstance(error.application[0], errors.Retry)  # noqa: PT017

        async with anyio.create_task_group() as group:
            for name, world in (("one", one), ("other", other)):
                for text in "xy":
                    group.start_soon(ask, name + text, world, text)
        assert sorted(deed.did) == ["a", "x", "y"]
        task = await deed.ask(one, "t", "async")
        assert await deed.ask(other, "t", "async") == task
        assert isinstance(task, Accepted)
        await one.reaches(task.task, "completed")
    assert sorted(deed.did) == ["a", "t", "x", "y"]

"""Tasks whose skill comes from a source that is late after a restart: they wait, and say so."""

from __future__ import annotations

import anyio
import pytest
from structlog.testing import capture_logs

from component.skills import Context, Skill, skill
from component.tasks.worker import waiting_text
from tests.component.tasks.test_durable import text_of
from tests.component.tasks.world import Open, World, living
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.ports]

LATE = ["mcp.files"]


def listing(reached: anyio.Event) -> Skill:
    """A skill that never ends in its first life."""
    lives: list[str] = []

    @skill(name="files.list", durable=True)
    async def files(context: Context) -> str:
        lives.append(context.key)
        if len(lives) == 1:
            reached.set()
            await anyio.sleep_forever()
        return "a b"

    return files


async def interrupted(open_storage: Open, files: Skill, reached: anyio.Event) -> str:
    async with living(open_storage, files) as world:
        task = await world.task("files.list")
        await reached.wait()
    return task


async def offered(world: World, late: list[str], *skills: Skill) -> None:
    late.clear()
    world.skills.update({one.name: one for one in skills})
    world.service.skills_changed()


async def test_a_running_task_waits_for_its_source_and_says_so(open_storage: Open) -> None:
    reached = anyio.Event()
    files, late = listing(reached), list(LATE)
    task = await interrupted(open_storage, files, reached)
    with capture_logs() as logs:
        async with living(open_storage, late=lambda: tuple(late)) as world:
            await world.service.connected()
            said = await world.ear.until(
                lambda one: one.task.id == task and waiting_text(one.task.progress) is not None
            )
            assert said.task.state == "running"
            text = waiting_text((await world.get(task)).progress)
            assert text == (
                "It waits for the skill files.list, which is not available yet (not ready:"
                " mcp.files). It goes on by itself."
            )
            await offered(world, late, files)
            assert text_of(await world.ear.ended(task)) == "a b"
    (logged,) = [each for each in logs if "whose source" in each["event"]]
    assert (logged["skill"], logged["sources"]) == ("files.list", tuple(LATE))
    told = [one for one in world.ear.of(task) if waiting_text(one.progress)]
    assert len(told) == 1, "it is said once"


async def test_a_task_that_had_not_begun_waits_for_its_source(open_storage: Open) -> None:
    late = list(LATE)

    @skill(name="files.list", durable=True)
    async def files(context: Context) -> str:
        return "a b"

    async with living(open_storage, files, running_total=0) as world:
        task = await world.task("files.list")
    async with living(open_storage, late=lambda: tuple(late)) as world:
        await world.service.connected()

        async def says_so() -> bool:
            return waiting_text((await world.get(task)).progress) is not None

        await eventually(says_so)
        await offered(world, late, files)
        done = await world.ear.ended(task)
        assert text_of(done) == "a b"
        assert waiting_text((await world.get(task)).progress) is None


async def test_a_task_ends_when_its_source_is_ready_without_its_skill(
    open_storage: Open, database_kind: str
) -> None:
    reached = anyio.Event()
    files, late = listing(reached), list(LATE)
    task = await interrupted(open_storage, files, reached)
    async with living(open_storage, late=lambda: tuple(late)) as world:
        await world.service.connected()
        await world.ear.until(lambda one: waiting_text(one.task.progress) is not None)
        await offered(world, late)
        if database_kind == "sqlite":
            failed = await world.ear.ended(task)
            assert failed.state == "failed"
        else:  # another instance may have the skill
            assert (await world.get(task)).state == "running"

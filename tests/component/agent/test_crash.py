"""Kills at any point: each message is answered once, and no tool runs twice."""

from collections import Counter
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from component.agent.conversations import Conversations
from component.conversations.lines import Called, Resulted, Said
from component.models.protocol import Completion, ModelRequest
from tests.component.agent.world import JULIET, Killed, World, call, message, says, shopping, words
from tests.profiles import THOROUGH
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


async def live(world: World, at: int | None, answers: int) -> bool:
    """One life, which ends at a point, or when so many answers were heard; True if it was killed.

    In the first life two people write; in each one tasks that were begun come to their end.
    """
    world.death.points, world.death.at, world.death.dead = 0, None, False
    try:
        async with world.built() as conversations, anyio.create_task_group() as group:
            await group.start(conversations.run)
            if not world.ear.said and not await world.rows():
                await conversations.received(message("m1", "first"))
                await conversations.received(message("m2", "second", who=JULIET))
            world.death.at = at and world.death.points + at
            group.start_soon(end_tasks, world, conversations)
            await eventually(lambda: len({reply.id for reply in world.ear.said}) >= answers)
            await world.settled()
            group.cancel_scope.cancel()
    except BaseException as error:
        if not world.death.dead:
            raise
        if not all_killed(error):
            raise
        return True
    return False


async def end_tasks(world: World, conversations: Conversations) -> None:
    from component.agent.protocol import ToolResult

    while True:
        for task, result in list(world.shop.tasks.items()):
            if result is None:
                world.shop.tasks[task] = ToolResult("it has come")
                await world.ended(task)
        await anyio.sleep(0.001)  # as time passes between the ends of tasks


def all_killed(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(all_killed(one) for one in error.exceptions)
    return isinstance(error, Killed | anyio.get_cancelled_exc_class())


def think(request: ModelRequest) -> Completion:
    return shopping("look", "order", "buy")(request)


@pytest.mark.parametrize("first", [1, 3])
async def test_a_kill_at_any_point_loses_and_repeats_nothing(
    tmp_path: Path, first: int, anyio_backend_name: str
) -> None:
    at = first + (anyio_backend_name == "asyncio")  # each takes every other point
    while True:
        world = World(tmp_path / str(at))
        world.path.mkdir()
        world.brain.think = think
        killed = await live(world, at, answers=2)
        if killed:
            await live(world, None, answers=2)
        # A task that is not ended before its turn waits for it is mentioned.
        answers = [reply for reply in world.ear.said if ".waits-" not in reply.id]
        said = Counter(reply.id for reply in answers)
        assert set(said) == {"m1.answer", "m2.answer"}, at
        assert max(said.values()) <= (2 if killed else 1), at
        assert len({(reply.id, reply.text) for reply in answers}) == 2, at
        made = Counter((turn, name) for turn, _, name, _ in world.shop.made)
        assert set(made.values()) == {1}, (at, made)
        assert len(made) == 6
        assert len(world.purse.open) <= killed, at
        if not killed:
            assert at > 30, "there are many points to be killed at"
            return
        at += 4 if THOROUGH else 8


async def test_a_second_kill_during_recovery(tmp_path: Path) -> None:
    for at in (12, 25):
        for then in (3, 8, 15):
            world = World(tmp_path / f"{at}-{then}")
            world.path.mkdir()
            world.brain.think = think
            await live(world, at, answers=2)
            await live(world, then, answers=2)
            await live(world, None, answers=2)
            answers = [reply for reply in world.ear.said if ".waits-" not in reply.id]
            assert {reply.id for reply in answers} == {"m1.answer", "m2.answer"}
            assert len({(reply.id, reply.text) for reply in answers}) == 2
            made = Counter((turn, name) for turn, _, name, _ in world.shop.made)
            assert set(made.values()) == {1}


async def test_a_message_that_joined_is_still_joined_after_a_crash(tmp_path: Path) -> None:
    world = World(tmp_path)
    asked = anyio.Event()

    async def never(request: ModelRequest) -> Completion:
        if len([one for one in request.messages if one.role == "user"]) == 2:
            asked.set()
        await anyio.sleep_forever()
        raise AssertionError

    world.brain.think = never
    with suppress(BaseExceptionGroup):
        async with world.life() as conversations:
            await conversations.received(message("m1", "one"))
            await conversations.received(message("m2", "two"))
            with anyio.fail_after(120):
                await asked.wait()
    world.brain.think = lambda request: says(" and ".join(words(request)))
    async with world.life():
        await world.ear.hears(1)
        await world.settled()
        assert world.ear.bodies == ["one and two"]
        assert [type(line) for line in await world.lines()] == [Said, Said, Said]


async def test_a_message_does_not_join_a_turn_whose_answer_is_written_already(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.ear.stream = False

    async def is_written() -> bool:
        return any(isinstance(line, Said) and line.final for line in await world.lines())

    async with world.life() as conversations:
        await conversations.received(message("m1", "one"))
        await eventually(is_written)
    world.ear.stream = True
    async with world.built() as conversations, anyio.create_task_group() as group:
        await conversations.received(message("m2", "two"))
        await group.start(conversations.run)
        await world.ear.hears(2)
        assert world.ear.bodies == ["re: one", "re: two"]
        group.cancel_scope.cancel()


async def test_stored_calls_are_continued_after_a_crash(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    under_way = anyio.Event()

    async def long(name: str) -> None:
        under_way.set()
        await anyio.sleep_forever()

    world.shop.during = long
    numbers = iter(range(100))
    world.brain.think = lambda request: (
        says("done")
        if any(one.role == "tool" for one in request.messages)
        else says("", call("buy", "{}", f"call-{next(numbers)}"))
    )
    async with world.life() as conversations:
        await conversations.received(message("m1"))
        with anyio.fail_after(120):
            await under_way.wait()
    world.shop.during = None
    async with world.life():
        await world.ear.hears(1)
        await world.settled()
        kinds = [type(line) for line in await world.lines()]
        assert kinds == [Said, Called, Resulted, Said]
    assert {made[1] for made in world.shop.made} == {"call-0"}

"""One message in, one answer out."""

from pathlib import Path

import anyio
import msgspec
import pytest

from component.memory.lines import Called, Resulted, Said
from component.models.protocol import Completion, ModelRequest
from tests.component.agent.world import JULIET, World, message, says, shopping

pytestmark = pytest.mark.anyio


async def test_a_message_is_answered_and_nothing_is_left(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.life() as conversations:
        await conversations.received(message("m1", "hello"))
        await world.ear.hears(1)
        assert world.ear.bodies == ["re: hello"]
        assert world.ear.said[0].to.id == "m1"
        await world.settled()
        lines = await world.lines()
        assert [type(line) for line in lines] == [Said, Said]
        assert lines[1].final
        assert not world.purse.open
        assert [event.kind for event in world.book.events] == ["model"]
        assert not conversations.doing("assistant", message("x").principal).running


async def test_tools_are_called_and_their_results_are_shown(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = shopping("look", "buy")
    async with world.life() as conversations:
        await conversations.received(message("m1", "shop"))
        await world.ear.hears(1)
        assert world.ear.bodies == ["re: shop: look is done; buy is done"]
        assert [made[2] for made in world.shop.made] == ["look", "buy"]
        lines = await world.lines()
        kinds = [Said, Called, Resulted, Called, Resulted, Said]
        assert [type(line) for line in lines] == kinds


async def test_messages_of_one_session_are_answered_in_order(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.built() as conversations:
        for number in range(5):
            # Each in a thread of its own, so that none joins another.
            await conversations.received(message(f"m{number}", thread=str(number)))
        async with anyio.create_task_group() as group:
            await group.start(conversations.run)
            await world.ear.hears(5)
            group.cancel_scope.cancel()
    assert world.ear.bodies == [f"re: message m{number}" for number in range(5)]


async def test_sessions_run_side_by_side(tmp_path: Path) -> None:
    world = World(tmp_path)
    both = anyio.Event()
    asked = 0

    async def together(request: ModelRequest) -> Completion:
        nonlocal asked
        asked += 1
        if asked == 2:
            both.set()
        await both.wait()
        return says("done")

    world.brain.think = together
    async with world.life() as conversations:
        await conversations.received(message("m1"))
        await conversations.received(message("m2", who=JULIET))
        await world.ear.hears(2)


async def test_a_row_stays_until_its_answer_has_left_this_process(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.life() as conversations:
        world.ear.gone = anyio.Event()  # the server takes nothing
        for number in range(3):
            await conversations.received(message(f"m{number}", "hello"))
            await world.ear.hears(number + 1)
        assert await world.rows() == ["m0", "m1", "m2"]
        world.ear.gone.set()
        await world.settled()


async def test_an_answer_that_never_left_is_said_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("component.agent.outlet._LAST_WORDS_S", 0.0)
    world = World(tmp_path)
    async with world.life() as conversations:
        world.ear.gone = anyio.Event()
        await conversations.received(message("m1", "hello"))
        await world.ear.hears(1)
    world.ear.gone.set()
    async with world.life():
        await world.ear.hears(2)
        await world.settled()
    assert [reply.id for reply in world.ear.said] == ["m1.answer", "m1.answer"]
    assert len(world.brain.asked) == 1


async def test_a_message_takes_the_rows_of_answered_ones_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("component.agent.outlet._GATHER_S", 3600.0)
    world = World(tmp_path)
    async with world.life() as conversations:
        for number in (1, 2):
            await conversations.received(message(f"m{number}", "hello"))
            assert await world.rows() == [f"m{number}"]
            await world.ear.hears(number)
    async with world.built():
        assert await world.rows() == [], "the last one went when the service ended"


async def test_notes_on_the_person_that_are_shown_are_recorded(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.profile = msgspec.structs.replace(world.profile, user="She has a dog.", memory=" ")
    async with world.life() as conversations:
        await conversations.received(message("m1", "hello"))
        await world.ear.hears(1)
    (event,) = [one for one in world.book.events if one.kind == "memory"]
    assert (event.subject, event.trace, event.agent) == ("user.md", "m1", "assistant")
    assert event.principal == str(message("m1").principal)

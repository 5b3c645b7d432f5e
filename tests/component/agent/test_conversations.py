"""Messages and their answers."""

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from component.conversations.lines import Called, Resulted, Said
from component.memory_directory.layout import SessionKey
from component.models.protocol import Completion, ModelRequest, OnText, Usage, Void
from tests.component.agent.world import JULIET, World, answered, message, says, shopping

pytestmark = pytest.mark.anyio


async def test_a_message_is_answered_and_no_row_remains(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.life() as conversations:
        await conversations.received(message("m1", "hello"))
        await world.ear.hears(1)
        assert world.ear.bodies == ["re: hello"]
        assert answered(world.ear.said[0]) == "m1"
        await world.settled()
        lines = await world.lines()
        assert [type(line) for line in lines] == [Said, Said]
        assert lines[1].final
        assert not world.purse.open
        assert [event.kind for event in world.book.events] == ["model"]
        assert not conversations.activity(SessionKey("assistant", message("x").principal)).running


async def test_cached_and_reasoning_tokens_are_stored_and_recorded(tmp_path: Path) -> None:
    world = World(tmp_path)
    usage = Usage(1200, 300, 0.0125, cache_read=1000, cache_write=100, reasoning=250)
    world.brain.think = lambda _request: Completion.of("Noon.", usage=usage)
    async with world.life() as conversations:
        await conversations.received(message("m1", "hello"))
        await world.ear.hears(1)
        await world.settled()
        said = (await world.lines())[1]
        assert isinstance(said, Said)
        assert (said.cache_read, said.cache_write, said.reasoning) == (1000, 100, 250)
        (event,) = world.book.events
        assert event.detail == (
            "1,200 tokens in (1,000 cache read, 100 cache write), 300 out (250 reasoning),"
            " 0.012500 USD"
        )
        (spent,) = world.purse.spent
        assert (spent.cached, spent.reasoning) == (1000, 250)


async def test_a_text_that_broke_off_is_charged_and_one_that_is_withdrawn_is_not(
    tmp_path: Path,
) -> None:
    """The usage of the answer has the tokens of what became reasoning."""
    said, spent = "This is what was said", []
    for void in (None, Void.WITHDRAWN, Void.BROKEN_OFF):
        (tmp_path / str(void)).mkdir()
        world = World(tmp_path / str(void))
        complete = world.brain.complete

        async def voided(
            request: ModelRequest,
            on_text: OnText | None = None,
            *,
            complete: Any = complete,
            void: Void | None = void,
        ) -> Completion:
            assert on_text is not None
            if void is not None:
                on_text(said)
                on_text(void)
            answer: Completion = await complete(request, on_text)
            return answer

        world.brain.complete = voided  # type: ignore[method-assign]
        async with world.life() as conversations:
            await conversations.received(message("m1", "hello"))
            await world.ear.hears(1)
            assert world.ear.bodies == ["re: hello"]
            spent.append(world.purse.spent[0].tokens)
    plain, withdrawn, broken_off = spent
    assert withdrawn == plain
    assert broken_off > plain + world.brain.tokens(said)


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


async def test_sessions_run_in_parallel(tmp_path: Path) -> None:
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


async def test_an_answer_that_was_never_written_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("component.agent.delivery._LAST_DELETE_S", 0.0)
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


async def test_rows_of_answered_messages_are_deleted_with_the_next_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("component.agent.delivery._GATHER_S", 3600.0)
    world = World(tmp_path)
    async with world.life() as conversations:
        for number in (1, 2):
            await conversations.received(message(f"m{number}", "hello"))
            assert await world.rows() == [f"m{number}"]
            await world.ear.hears(number)
    async with world.built():
        assert await world.rows() == [], "the last one went when the service ended"


async def test_notes_on_the_person_in_the_prompt_are_recorded(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.profile = msgspec.structs.replace(world.profile, user="She has a dog.", memory=" ")
    async with world.life() as conversations:
        await conversations.received(message("m1", "hello"))
        await world.ear.hears(1)
    (event,) = [one for one in world.book.events if one.kind == "memory"]
    assert (event.subject, event.trace, event.agent) == ("user.md", "m1", "assistant")
    assert event.principal == str(message("m1").principal)

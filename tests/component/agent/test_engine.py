"""A turn without a conversation, like that of a sub-agent within a tool call of its parent."""

from pathlib import Path

import anyio
import pytest

from component.agent.engine import Answered
from component.agent.protocol import Profile, ToolResult
from component.agent.run import TurnInput
from component.agent.tool_calls import Parked
from component.conversations.lines import Said
from component.memory_directory.layout import SessionKey
from component.models.protocol import Completion, ModelRequest
from tests.component.agent.world import ROMEO, World, contexts, message, shopping, words

pytestmark = pytest.mark.anyio
KEY = SessionKey("assistant/child-1", ROMEO)


def ask(resumed: bool = False) -> TurnInput:
    said = message("m1/child-1", "look it up", agent=KEY.agent)
    return TurnInput(
        id="m1/child-1",
        key=KEY,
        profile=Profile(
            agent=KEY.agent, above=("assistant",), capabilities=("memory:*",), skills=("look",)
        ),
        messages=[said],
        starter=said.starter,
        resumed=resumed,
    )


async def test_a_child_has_its_own_session_and_the_budget_of_its_parent(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = shopping("look")
    async with world.built():
        outcome = await world.engine.turn(ask())
        assert outcome == Answered("re: look it up: look is done", taints=("person",))
        assert await world.lines() == []
        assert world.purse.who[0].agents == ("assistant/child-1", "assistant")
        caller = world.shop.callers[0]
        assert (caller.agent, caller.profile.capabilities) == ("assistant/child-1", ("memory:*",))
        # Again, as after a crash of the one above it: nothing happens twice.
        again = await world.engine.turn(ask(resumed=True))
        assert again == outcome
        assert len(world.shop.made) == 1
        assert len(world.brain.asked) == 2
        assert world.ear.said == []


async def test_a_child_can_wait_for_a_task(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = shopping("order")
    async with world.built():
        task = "task-m1/child-1-c0-order"
        outcome = await world.engine.turn(ask())
        assert outcome == Parked((task,), question=False, round=1, new=True)
        outcome = await world.engine.turn(ask(resumed=True))
        assert outcome == Parked((task,), question=False, round=1, new=False)
        world.shop.tasks[task] = ToolResult("here")
        outcome = await world.engine.turn(ask(resumed=True))
        assert outcome == Answered("re: look it up: here", taints=("person",))


async def test_a_child_ends_with_the_scope_around_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    asked = anyio.Event()

    async def never(request: ModelRequest) -> Completion:
        asked.set()
        await anyio.sleep_forever()
        raise AssertionError

    world.brain.think = never
    async with world.built(), anyio.create_task_group() as group:
        group.start_soon(world.engine.turn, ask())
        with anyio.fail_after(120):
            await asked.wait()
        group.cancel_scope.cancel()
    assert not world.purse.open


async def test_a_conversation_of_an_earlier_release_continues(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.built():
        old = [
            Said(role="user", content="before", ts="2026-01-01T00:00:00Z"),
            Said(role="assistant", content="yes", ts="2026-01-01T00:00:01Z"),
        ]
        world.now = 1_767_225_700.0
        await world.sessions.append(KEY, old, sync=False)
        await world.engine.turn(ask())
        request = world.brain.asked[0]
        assert words(request) == ["before", "look it up"]
        assert [one.text for one in request.messages if one.role == "assistant"] == ["yes"]
        assert contexts(request)[0] == ""
        assert contexts(request)[1].startswith("[It is ")

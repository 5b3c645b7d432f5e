"""A turn by itself: as a sub-agent has one, inside a tool call of the one above it."""

from pathlib import Path

import anyio
import pytest

from component.agent.calling import Parked
from component.agent.engine import Answered
from component.agent.profile import Profile
from component.agent.protocol import ToolResult
from component.agent.run import Ask
from component.memory.lines import Said, SessionKey
from component.models.protocol import Completion, ModelRequest
from tests.component.agent.world import ROMEO, World, message, shopping

pytestmark = pytest.mark.anyio
KEY = SessionKey("assistant/child-1", ROMEO)


def ask(resumed: bool = False) -> Ask:
    return Ask(
        id="m1/child-1",
        key=KEY,
        profile=Profile(
            agent=KEY.agent, above=("assistant",), capabilities=("memory:*",), skills=("look",)
        ),
        messages=[message("m1/child-1", "look it up", agent=KEY.agent)],
        resumed=resumed,
    )


async def test_a_child_has_a_session_of_its_own_and_its_parents_account(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = shopping("look")
    async with world.built():
        outcome = await world.engine.turn(ask())
        assert outcome == Answered("re: look it up: look is done", taints=("person",))
        assert await world.lines() == []
        assert world.purse.who[0].agents == ("assistant/child-1", "assistant")
        caller = world.shop.callers[0]
        assert (caller.agent, caller.capabilities) == ("assistant/child-1", ("memory:*",))
        # Again, as after a crash of the one above it: nothing happens twice.
        again = await world.engine.turn(ask(resumed=True))
        assert again == outcome
        assert len(world.shop.made) == 1
        assert len(world.brain.asked) == 2
        assert world.ear.said == []


async def test_a_child_may_wait_too(tmp_path: Path) -> None:
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
        with anyio.fail_after(20):
            await asked.wait()
        group.cancel_scope.cancel()
    assert not world.purse.open


async def test_a_tool_of_the_loop_comes_before_a_skill_of_its_name(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = shopping("look")
    async with world.built():
        builtin = type(world.shop)(world)
        builtin.result = lambda name, arguments: "from within"
        world.engine.add(builtin)
        outcome = await world.engine.turn(ask())
        assert outcome == Answered("re: look it up: from within", taints=("person",))
        assert world.shop.made == []
        tools = [tool.name for tool in world.brain.asked[0].tools]
        assert len(tools) == len(set(tools))


async def test_a_conversation_of_an_earlier_release_is_gone_on_with(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.built():
        old = [
            Said(role="user", content="before", ts="2026-01-01T00:00:00Z"),
            Said(role="assistant", content="yes", ts="2026-01-01T00:00:01Z"),
        ]
        world.now = 1_767_225_700.0
        await world.sessions.append(KEY, old, sync=False)
        await world.engine.turn(ask())
        shown = [one.content for one in world.brain.asked[0].messages[1:]]
        assert shown == ["before", "yes", "look it up"]

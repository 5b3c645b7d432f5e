"""What a call carries of the person's own words, for the policy to compare its values with."""

from pathlib import Path
from typing import Any

import pytest

from component.agent.protocol import Caller
from component.agent.sub_agents import SPAWN
from component.models.messages import ToolCall
from component.models.protocol import Completion, ModelRequest
from component.policy.taint import Taint
from tests.component.agent.world import ROMEO, World, message
from tests.component.kernel.family import Family, calling

pytestmark = pytest.mark.anyio


def calls(*names: str) -> Any:
    """A model that calls tools one after the other, and then answers."""
    left = list(names)

    def think(_request: ModelRequest) -> Completion:
        if not left:
            return Completion.of("done")
        return Completion.of(tool_calls=[ToolCall("c", left.pop(0), "{}")])

    return think


async def callers(path: Path, *texts: str, taint: Taint | None = "person") -> list[Caller]:
    """The callers of look, find and buy; `look` gives what the service wrote, `find` a stranger."""
    world = World(path)
    result = world.shop.result

    def labelled(name: str, arguments: str) -> str:
        world.shop.taint = "web" if name == "find" else None
        return result(name, arguments)

    world.shop.result = labelled
    async with world.life() as conversations:
        for number, text in enumerate(texts, 1):
            last = number == len(texts)
            world.brain.think = calls("look", "find", "buy") if last else calls()
            await conversations.received(message(f"m{number}", text, ROMEO, taint=taint))
            await world.ear.hears(number)
    return world.shop.callers


async def test_only_a_model_that_has_read_strangers_needs_the_words(tmp_path: Path) -> None:
    first, second, third = await callers(tmp_path, "Buy it.")
    assert (first.said, first.results) == (second.said, second.results) == ((), ())
    assert third.said == ("Buy it.",)
    assert third.results == (("look", "look is done"),), "what a stranger wrote is not among them"


async def test_earlier_messages_count_as_long_as_the_model_is_shown_them(tmp_path: Path) -> None:
    *_, third = await callers(tmp_path, "Mine is a.example.", "Buy it.")
    assert third.said == ("Mine is a.example.", "Buy it.")
    assert third.written[-2:] == ("Mine is a.example.", "Buy it.")


async def test_words_of_a_peer_are_not_the_persons(tmp_path: Path) -> None:
    first, *_ = await callers(tmp_path, "Buy it.", taint="peer")
    assert first.taints == {"peer"}
    assert first.said == ()


async def test_a_sub_agent_of_a_misled_agent_has_the_words_of_the_person_alone(
    tmp_path: Path,
) -> None:
    family = Family(tmp_path)
    family.shop.taint = "web"
    family.child = lambda r: "seen" if r.messages[-1].role == "tool" else calling(("look", {}))
    spawn = family.think
    first = [calling(("look", {})), calling((SPAWN, {"task": "go to evil.example"}))]

    async def think(request: ModelRequest) -> Completion:
        if "a sub-agent of" not in request.messages[0].text and first:
            return first.pop(0)
        return await spawn(request)

    family.brain.think = think
    async with family.life() as conversations:
        await conversations.received(message("m1", "Do it."))
        await family.ear.hears(1)
    *_, below = family.shop.callers
    assert "/" in below.agent
    assert below.said == ("Do it.",)
    assert below.written[-1] == "Do it."
    assert not any("evil.example" in text for text in below.written)

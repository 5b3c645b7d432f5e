"""What bounds a turn is what was declared and set, also when a model takes less than it says."""

from pathlib import Path

import anyio
import msgspec
import pytest

from component.agent import sentences
from component.agent.profile import Profile
from component.memory.lines import Line, Resulted, Said
from component.models.protocol import (
    Completion,
    ContextOverflowError,
    ModelRefusedError,
    ModelRequest,
)
from tests.component.agent.world import JULIET, ROMEO, World, call, echo, message, says, shopping
from tests.waiting import eventually
from xep.jid import JID

pytestmark = pytest.mark.anyio


async def answered(world: World, *bodies: str, more: int = 0) -> None:
    """Say these, one after the other; `more` is what is said beside the answers."""
    async with world.life() as conversations:
        for number, body in enumerate(bodies):
            await conversations.received(message(f"m{number}", body))
            last = number == len(bodies) - 1
            await world.ear.hears(number + 1 + (more if last else 0))
        await world.settled()


def tokens(request: ModelRequest) -> int:
    texts = [one.content for one in request.messages]
    texts += [one.arguments for each in request.messages for one in each.tool_calls]
    return sum(map(len, texts)) // 4


def forgetful(request: ModelRequest) -> None:
    """Refuse to sum up."""
    if request.messages[0].content.startswith("Below, as data"):
        raise ModelRefusedError("no")


# -- a context that is smaller than it was said to be ------------------------------------------


async def test_earlier_messages_are_left_out_oldest_first(tmp_path: Path) -> None:
    world = World(tmp_path)

    def think(request: ModelRequest) -> Completion:
        forgetful(request)
        if tokens(request) > 4000:
            raise ContextOverflowError("too long")
        return echo(request)

    world.brain.think = think
    await answered(world, *(f"{number} " + "x" * 2800 for number in range(4)), more=1)
    assert world.ear.bodies.count(sentences.SHORTENED) == 1
    assert world.ear.bodies[-1].startswith("re: 3")
    shown = [one.content[:1] for one in world.brain.asked[-1].messages if one.role == "user"]
    assert shown in (["2", "3"], ["3"])


async def test_results_of_tools_are_cut_further(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.shop.result = lambda _name, _arguments: "begin " + "x" * 14_000 + " end"

    def think(request: ModelRequest) -> Completion:
        if tokens(request) > 1500:
            raise ContextOverflowError("too long")
        return shopping("look")(request)

    world.brain.think = think
    await answered(world, "go", more=1)
    assert world.ear.bodies[0] == sentences.SHORTENED
    assert world.ear.bodies[1].startswith("re: go: begin ")
    assert world.ear.bodies[1].endswith(" end")


async def test_rounds_of_calls_are_left_out_oldest_first(tmp_path: Path) -> None:
    world = World(tmp_path, same_tool=99)
    world.brain.context_tokens = 6000
    made = 0

    def think(request: ModelRequest) -> Completion:
        nonlocal made
        if tokens(request) > 2800:
            raise ContextOverflowError("too long")
        if made == 12:
            return says(f"done with {request.messages[-1].content}")
        made += 1
        return says("", call("look", '{"n": "%s"}' % (str(made) * 800), f"c{made}"))

    world.brain.think = think
    await answered(world, "go", more=1)
    assert world.ear.bodies == [sentences.SHORTENED, "done with look is done"]
    last = world.brain.asked[-1].messages
    assert [one.content for one in last if one.role == "user"] == ["go"], "that is never left out"
    assert len([one for one in last if one.role == "tool"]) < 12


# -- what is declared ---------------------------------------------------------------------------


async def test_an_agent_may_have_fewer_calls_of_the_model_than_others(tmp_path: Path) -> None:
    world = World(tmp_path, max_iterations=9)
    world.profile = Profile(agent="assistant", max_iterations=3)
    world.brain.think = lambda request: (
        says("", call("look", f'{{"n": {len(request.messages)}}}'))
        if request.tools
        else says("That is what I have.")
    )
    await answered(world, "go")
    assert world.ear.bodies == ["That is what I have."]
    assert len(world.brain.asked) == 3


async def test_and_shorter_answers(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.profile = Profile(agent="assistant", max_tokens=77)
    await answered(world, "hi")
    assert [request.max_tokens for request in world.brain.asked] == [77]


@pytest.mark.parametrize(
    ("loop", "names", "told"),
    [
        ({"same_tool": 3}, ("look", "look", "look"), "look 3 times in a row"),
        ({"ping_pong": 2}, ("look", "find", "look", "find"), "in turn, 2 times each"),
    ],
)
async def test_what_counts_as_a_circle_is_what_is_set(
    tmp_path: Path, loop: dict[str, float], names: tuple[str, ...], told: str
) -> None:
    world = World(tmp_path, **loop)
    world.brain.think = shopping(*names)
    await answered(world, "go")
    notes = [one.content for one in world.brain.asked[-1].messages if one.role == "system"]
    assert told in notes[-1]


# -- many at once, and the order ----------------------------------------------------------------


async def test_no_more_turns_run_at_once_than_are_set(tmp_path: Path) -> None:
    world = World(tmp_path, turns_total=2)
    go_on = anyio.Event()

    async def think(request: ModelRequest) -> Completion:
        await go_on.wait()
        return echo(request)

    world.brain.think = think
    people = [JID.parse(f"p{number}@example.org") for number in range(5)]
    async with world.life() as conversations:
        for number, who in enumerate(people):
            await conversations.received(message(f"m{number}", who=who))
        running = [conversations.doing("assistant", who).running for who in people]
        assert running == [True, True, False, False, False]
        go_on.set()
        await world.ear.hears(5)


async def test_what_waited_is_answered_in_its_order_by_the_next_life(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.built() as conversations:
        for number in range(4):
            await conversations.received(message(f"m{number}", thread=str(number)))
        await conversations.received(message("other", who=JULIET))
    async with world.life():
        await world.ear.hears(5)
    ids = [reply.to.id for reply in world.ear.said if reply.to.principal == ROMEO]
    assert ids == ["m0", "m1", "m2", "m3"]


async def test_an_answer_that_is_held_back_keeps_its_time_over_a_restart(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = lambda _: says("[[delay:30m]] There you are.")

    async def waiting() -> list[str]:
        found = await world.storage.read(
            lambda db: db.execute("SELECT waiting FROM turns").fetchall()
        )
        return [str(row[0]) for row in found]

    async with world.life() as conversations:
        await conversations.received(message("m1"))
        await eventually(lambda: conversations.doing("assistant", ROMEO).parked)
        before = await waiting()
        assert msgspec.json.decode(before[0])["until"] > 0
    async with world.life() as conversations:
        assert conversations.doing("assistant", ROMEO).parked == 1
        assert not conversations.doing("assistant", ROMEO).running
        assert await waiting() == before
    assert len(world.brain.asked) == 1


# -- what is on the disk, and not only on its way there -----------------------------------------


async def test_the_answer_is_synced_before_it_is_said_and_a_question_before_it_waits(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.brain.think = shopping("look", "ask")
    synced: list[Line] = []
    async with world.life() as conversations:
        append = world.sessions.append

        async def noted(key: object, lines: list[Line], *, sync: bool) -> None:
            await append(key, lines, sync=sync)  # type: ignore[arg-type]
            if sync:
                assert not world.ear.said
                synced.extend(lines)

        world.sessions.append = noted  # type: ignore[method-assign, assignment]
        await conversations.received(message("m1"))
        await eventually(lambda: conversations.doing("assistant", ROMEO).parked)
        (waits,) = synced
        assert isinstance(waits, Resulted)
        assert waits.task is not None
        synced.clear()
        (task,) = world.shop.tasks
        world.shop.tasks[task] = await world.shop.call(  # any result does
            world.shop.callers[0], "x", "look", "{}"
        )  # type: ignore[assignment]
        await conversations.ended(task)
        await world.ear.hears(1)
        (said,) = synced
        assert isinstance(said, Said)
        assert said.final

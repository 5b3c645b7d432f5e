"""The limits of a turn are those of the settings, also if a model accepts less than it reports."""

import os
from pathlib import Path

import anyio
import msgspec
import pytest

from component.agent import sentences
from component.agent.protocol import Caller, Profile
from component.conversations.lines import Called, Line, Resulted, Said
from component.memory_directory.layout import SessionKey
from component.models.protocol import (
    Completion,
    ContextOverflowError,
    ModelRefusedError,
    ModelRequest,
)
from tests.component.agent.test_revisions import Steps
from tests.component.agent.world import (
    JULIET,
    ROMEO,
    World,
    call,
    echo,
    message,
    says,
    shopping,
    words,
)
from tests.waiting import eventually
from xep.jid import JID

pytestmark = pytest.mark.anyio


async def answered(world: World, *bodies: str, more: int = 0) -> None:
    """Send these messages one after another; `more` is text in addition to the answers."""
    async with world.life() as conversations:
        for number, body in enumerate(bodies):
            await conversations.received(message(f"m{number}", body))
            last = number == len(bodies) - 1
            await world.ear.hears(number + 1 + (more if last else 0))
        await world.settled()


def tokens(request: ModelRequest) -> int:
    texts = [one.text for one in request.messages]
    texts += [one.arguments for each in request.messages for one in each.tool_calls]
    return sum(map(len, texts)) // 4


def forgetful(request: ModelRequest) -> None:
    """A model that makes no summaries."""
    if request.messages[0].text.startswith("Below, as data"):
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
    shown = [one[:1] for one in words(world.brain.asked[-1])]
    assert shown in (["2", "3"], ["3"])


async def test_results_of_tools_are_truncated_further(tmp_path: Path) -> None:
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
    world = World(tmp_path)
    world.brain.context_tokens = 6000
    made = 0

    def think(request: ModelRequest) -> Completion:
        nonlocal made
        if tokens(request) > 2800:
            raise ContextOverflowError("too long")
        if made == 12:
            return says(f"done with {request.messages[-1].text}")
        made += 1
        return says("", call("look", '{"n": "%s"}' % (str(made) * 800), f"c{made}"))

    world.brain.think = think
    await answered(world, "go", more=1)
    assert world.ear.bodies == [sentences.SHORTENED, "done with look is done"]
    last = world.brain.asked[-1].messages
    assert words(world.brain.asked[-1]) == ["go"], "that is never left out"
    assert len([one for one in last if one.role == "tool"]) < 12


# -- what is declared ---------------------------------------------------------------------------


async def test_an_agent_can_have_its_own_maximum_of_model_calls(tmp_path: Path) -> None:
    world = World(tmp_path, max_iterations=9)
    world.profile = Profile(agent="assistant", max_iterations=3)
    world.brain.think = lambda request: (
        says("", call("look", f'{{"n": {len(request.messages)}}}'))
        if request.tool_choice == "auto"
        else says("That is what I have.")
    )
    await answered(world, "go")
    assert world.ear.bodies == ["That is what I have."]
    assert len(world.brain.asked) == 3


async def test_an_agent_can_have_its_own_maximum_length_of_answers(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.profile = Profile(agent="assistant", max_tokens=77)
    await answered(world, "hi")
    assert [request.max_tokens for request in world.brain.asked] == [77]


async def test_the_setting_defines_a_loop(tmp_path: Path) -> None:
    world = World(tmp_path, same_call=2)
    world.brain.think = lambda request: (
        says("", call("look")) if len(world.brain.asked) <= 2 else says("I stop.")
    )
    await answered(world, "go")
    notes = [one.text for one in world.brain.asked[-1].messages if one.role == "system"]
    assert "look 2 times with the same arguments and the same result" in notes[-1]


# -- many at once, and the order ----------------------------------------------------------------


async def test_the_setting_limits_the_number_of_running_turns(tmp_path: Path) -> None:
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
        running = [conversations.activity(SessionKey("assistant", who)).running for who in people]
        assert running == [True, True, False, False, False]
        go_on.set()
        await world.ear.hears(5)


async def test_waiting_messages_are_answered_in_order_by_the_next_run(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.built() as conversations:
        for number in range(4):
            await conversations.received(message(f"m{number}", thread=str(number)))
        await conversations.received(message("other", who=JULIET))
    async with world.life():
        await world.ear.hears(5)
    ids = [
        reply.id.removesuffix(".answer")
        for reply in world.ear.said
        if reply.to.to.startswith(str(ROMEO))
    ]
    assert ids == ["m0", "m1", "m2", "m3"]


async def test_a_delayed_answer_keeps_its_time_across_a_restart(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = lambda _: says("[[delay:30m]] There you are.")

    async def waiting() -> list[str]:
        found = await world.storage.read(
            lambda db: db.execute("SELECT waiting FROM turns").fetchall()
        )
        return [str(row[0]) for row in found]

    async with world.life() as conversations:
        await conversations.received(message("m1"))
        await eventually(lambda: conversations.activity(SessionKey("assistant", ROMEO)).parked)
        before = await waiting()
        assert msgspec.json.decode(before[0])["until"] > 0
    async with world.life() as conversations:
        assert conversations.activity(SessionKey("assistant", ROMEO)).parked == 1
        assert not conversations.activity(SessionKey("assistant", ROMEO)).running
        assert await waiting() == before
    assert len(world.brain.asked) == 1


# -- what is on the disk, and not only on its way there -----------------------------------------


async def test_calls_with_effects_are_synced_before_they_are_made(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = shopping("look", "buy")
    synced: list[str] = []
    async with world.life() as conversations:
        append, call_tool = world.sessions.append, world.shop.call

        async def noted(key: object, lines: list[Line], *, sync: bool) -> None:
            await append(key, lines, sync=sync)  # type: ignore[arg-type]
            if sync:
                synced.extend(line.name for line in lines if isinstance(line, Called))

        async def called(caller: Caller, call_id: str, name: str, arguments: str) -> object:
            assert (name in synced) == (name == "buy")
            return await call_tool(caller, call_id, name, arguments)

        world.sessions.append = noted  # type: ignore[method-assign, assignment]
        world.shop.call = called  # type: ignore[method-assign, assignment]
        await conversations.received(message("m1"))
        await world.ear.hears(1)
    assert synced.count("buy") == 1


async def test_the_answer_is_synced_before_it_is_sent_and_a_question_before_the_turn_waits(
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
                synced.extend(line for line in lines if not isinstance(line, Called))

        world.sessions.append = noted  # type: ignore[method-assign, assignment]
        await conversations.received(message("m1"))
        await eventually(lambda: conversations.activity(SessionKey("assistant", ROMEO)).parked)
        (waits,) = synced
        assert isinstance(waits, Resulted)
        assert waits.task is not None
        synced.clear()
        (task,) = world.shop.tasks
        world.shop.tasks[task] = await world.shop.call(  # any result does
            world.shop.callers[0], "x", "look", "{}"
        )  # type: ignore[assignment]
        await world.ended(task)
        await world.ear.hears(1)
        (said,) = synced
        assert isinstance(said, Said)
        assert said.final


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """How many bytes of each file are on the disk, by its inode."""
    found: dict[int, int] = {}
    sync = os.fdatasync

    def noted(descriptor: int) -> None:
        sync(descriptor)
        state = os.fstat(descriptor)
        found[state.st_ino] = state.st_size

    monkeypatch.setattr(os, "fdatasync", noted)
    return found


def history(root: Path) -> Path:
    (found,) = root.rglob("history.jsonl")
    return found


def unsynced(root: Path, synced: dict[int, int]) -> int:
    """Return how many bytes of the only conversation are not on the disk."""
    state = history(root).stat()
    return state.st_size - synced[state.st_ino]


async def test_a_retraction_is_on_the_disk_before_its_turn_is_forgotten(
    tmp_path: Path, synced: dict[int, int]
) -> None:
    world = World(tmp_path)
    steps = Steps(world, echo)
    async with world.life() as conversations:
        await conversations.received(message("m1", "Verona?", msg_id="m1"))
        await steps.asked(1)
        assert await conversations.revised(SessionKey("assistant", ROMEO), "m1", None)
        await world.settled()
    assert "correction" in history(tmp_path).read_text()
    assert not unsynced(tmp_path, synced)


async def test_what_a_killed_process_has_not_synced_is_synced_before_its_turn_continues(
    tmp_path: Path, synced: dict[int, int]
) -> None:
    world = World(tmp_path)
    line = Said(role="user", content="Verona?", turn="m1")
    async with world.life():
        key = SessionKey("assistant", ROMEO)
        await world.sessions.append(key, [line], sync=True)
        await world.sessions.append(key, [line], sync=False)
        assert unsynced(tmp_path, synced)
        await world.sessions.turn(key, "m1")
        assert not unsynced(tmp_path, synced)

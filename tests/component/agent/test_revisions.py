"""Corrections and retractions of a message whose turn runs (XEP-0308, XEP-0424)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from component.agent import sentences
from component.agent.conversations import Conversations
from component.agent.history import RETRACTED
from component.agent.protocol import ToolResult
from component.agent.rows import of_home, revise, wait
from component.conversations.lines import Called, Note, Resulted, Said
from component.memory_directory.layout import SessionKey
from component.models.messages import text_of
from component.models.protocol import Completion, ModelRequest, ModelUnavailableError
from component.store.errors import StorageError
from tests.component.agent.test_crash import all_killed
from tests.component.agent.world import (
    ROMEO,
    World,
    call,
    echo,
    message,
    remembered,
    says,
    shopping,
    words,
)
from tests.profiles import THOROUGH
from tests.waiting import eventually

HIS = SessionKey("assistant", ROMEO)

pytestmark = pytest.mark.anyio


class Steps:
    """A model that waits before each answer until a test lets it go on."""

    def __init__(self, world: World, think: Callable[[ModelRequest], Completion]) -> None:
        self._world = world
        self._think = think
        self._go_on = anyio.Event()
        self._waits = False
        world.brain.think = self

    async def __call__(self, request: ModelRequest) -> Completion:
        self._waits = True
        try:
            await self._go_on.wait()
        finally:
            self._waits = False
        self._go_on = anyio.Event()
        return self._think(request)

    def go_on(self) -> None:
        self._go_on.set()

    async def asked(self, times: int) -> None:
        """Wait until the model waits in such a call."""
        await eventually(lambda: self._waits and len(self._world.brain.asked) >= times)

    async def each(self, times: int) -> None:
        """Let it give so many answers, one after another."""
        for _ in range(times):
            await self.asked(1)
            before = len(self._world.brain.asked)
            self.go_on()
            await self.asked(before + 1)


@contextmanager
def during(world: World) -> Iterator[tuple[anyio.Event, anyio.Event]]:
    """Let the next call of a tool wait: an event when it has begun, and one that ends it."""
    started, go_on = anyio.Event(), anyio.Event()

    async def wait(_name: str) -> None:
        started.set()
        await go_on.wait()

    world.shop.during = wait
    yield started, go_on
    world.shop.during = None


@contextmanager
def joining_slowly(conversations: Conversations) -> Iterator[tuple[anyio.Event, anyio.Event]]:
    """Let the next messages that join a turn wait before their commit, which cannot be cancelled:
    an event when they have begun to join, and one that lets them go on.
    """
    write, joins, go_on = conversations.storage.write, anyio.Event(), anyio.Event()

    async def slowly(op: Any, **more: Any) -> Any:
        if getattr(op, "func", None) is not wait:
            return await write(op, **more)
        with anyio.CancelScope(shield=True):
            joins.set()
            await go_on.wait()
            return await write(op, **more)

    conversations.storage.write = slowly  # type: ignore[method-assign]
    yield joins, go_on
    conversations.storage.write = write  # type: ignore[method-assign]


def texts(request: ModelRequest) -> list[str]:
    return [f"{one.role}: {text_of(one.parts[-1:])}" for one in request.messages[1:]]


async def test_a_correction_restarts_the_call_of_the_model(tmp_path: Path) -> None:
    world = World(tmp_path)
    steps = Steps(world, echo)
    async with world.life() as conversations:
        await conversations.received(message("m1", "Verona?", msg_id="m1"))
        await steps.asked(1)
        assert await conversations.revised(HIS, "m1", "Venice?")
        await steps.asked(2)
        assert await conversations.revised(HIS, "m1", "Vicenza?"), "as often as the person likes"
        await steps.asked(3)
        steps.go_on()
        await world.ear.hears(1)
        await world.settled()
        assert world.ear.bodies == ["re: Vicenza?"]
        asked, answer = await world.lines()
        assert isinstance(asked, Said)
        assert asked.content == "Vicenza?"
        assert asked.msg_id == "m1"
        assert isinstance(answer, Said)
        assert not await conversations.revised(HIS, "m1", "Vienna?"), "it is answered"
    assert [words(one) for one in world.brain.asked] == [["Verona?"], ["Venice?"], ["Vicenza?"]]
    assert not world.purse.open


async def test_the_next_turn_sees_the_corrected_text(tmp_path: Path) -> None:
    world = World(tmp_path)
    steps = Steps(world, echo)
    async with world.life() as conversations:
        await conversations.received(message("m1", "Verona?", msg_id="m1"))
        await steps.asked(1)
        await conversations.revised(HIS, "m1", "Venice?")
        await steps.asked(2)
        steps.go_on()
        await world.ear.hears(1)
        await world.settled()
    world.brain.think = echo
    async with world.life() as conversations:  # it is read from the file
        await conversations.received(message("m2", "And Padua?"))
        await world.ear.hears(2)
        await world.settled()
    assert texts(world.brain.asked[-1]) == [
        "user: Venice?",
        "assistant: re: Venice?",
        "user: And Padua?",
    ]


async def test_a_correction_has_the_memories_that_match_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    steps = Steps(world, echo)
    world.memories.found = [remembered("k1", "Verona", "It has an arena.")]
    async with world.life() as conversations:
        await conversations.received(message("m1", "Verona?", msg_id="m1"))
        await steps.asked(1)
        world.memories.found = [remembered("k2", "Venice", "It has canals.")]
        await conversations.revised(HIS, "m1", "Venice?")
        await steps.asked(2)
    first, second = [str(one.messages) for one in world.brain.asked]
    assert "arena" in first
    assert "canals" in second
    assert "arena" not in second


async def test_the_last_of_the_corrections_that_arrive_before_the_turn_is_read_counts(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.brain.think = echo
    profiles, begun, go_on = world.profiles, anyio.Event(), anyio.Event()

    async def slowly(*of: Any) -> Any:
        begun.set()
        await go_on.wait()
        return await profiles(*of)

    world.profiles = slowly  # type: ignore[method-assign]
    async with world.life() as conversations:
        await conversations.received(message("m1", "Verona?", msg_id="m1"))
        await begun.wait()
        assert await conversations.revised(HIS, "m1", "Venice?")
        assert await conversations.revised(HIS, "m1", "Vicenza?")
        go_on.set()
        await world.ear.hears(1)
    assert world.ear.bodies == ["re: Vicenza?"]
    assert "Venice?" not in str(world.brain.asked)


async def test_a_correction_is_taken_after_calls_that_only_read(tmp_path: Path) -> None:
    world = World(tmp_path)
    steps = Steps(world, shopping("look", "find"))
    async with world.life() as conversations:
        await conversations.received(message("m1", "Verona?", msg_id="m1"))
        await steps.each(1)
        assert await conversations.revised(HIS, "m1", "Venice?")
        await steps.asked(3)
        assert words(world.brain.asked[-1]) == ["Venice?"]
        assert f"system: {sentences.CORRECTED}" in texts(world.brain.asked[-1])
        await steps.each(1)
        steps.go_on()
        await world.ear.hears(1)
        assert world.ear.bodies[0].startswith("re: Venice?")
        kinds = [type(line) for line in await world.lines()]
        assert kinds == [Said, Called, Resulted, Note, Called, Resulted, Said]


async def test_a_correction_during_a_call_that_only_reads_is_taken_after_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = shopping("look")
    with during(world) as (started, go_on):
        async with world.life() as conversations:
            await conversations.received(message("m1", "Verona?", msg_id="m1"))
            await started.wait()
            assert await conversations.revised(HIS, "m1", "Venice?")
            go_on.set()
            await world.ear.hears(1)
            assert world.ear.bodies[0].startswith("re: Venice?")


async def test_a_correction_is_too_late_once_something_is_done(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = shopping("buy")
    with during(world) as (started, go_on):
        async with world.life() as conversations:
            await conversations.received(message("m1", "Buy tea", msg_id="m1"))
            await started.wait()
            assert not await conversations.revised(HIS, "m1", "Buy milk")
            assert not await conversations.revised(HIS, "m1", None)
            go_on.set()
            await world.ear.hears(1)
            assert not await conversations.revised(HIS, "m1", "Buy milk")
            assert world.ear.bodies[0].startswith("re: Buy tea")


async def test_a_call_with_effects_is_not_made_for_a_text_that_is_being_corrected(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    asked, go_on = anyio.Event(), anyio.Event()

    async def think(request: ModelRequest) -> Completion:
        """Answer even if the answer is not wanted any more."""
        asked.set()
        with anyio.CancelScope(shield=True):
            await go_on.wait()
        return shopping("buy")(request)

    world.brain.think = think
    async with world.life() as conversations:
        await conversations.received(message("m1", "Buy tea", msg_id="m1"))
        await asked.wait()
        write, writing, stored = conversations.storage.write, anyio.Event(), anyio.Event()

        async def slowly(op: object, **how: object) -> object:
            writing.set()
            await stored.wait()
            return await write(op, **how)  # type: ignore[arg-type]

        conversations.storage.write = slowly  # type: ignore[method-assign]
        async with anyio.create_task_group() as group:
            group.start_soon(conversations.revised, HIS, "m1", "Buy milk")
            await writing.wait()
            go_on.set()
            await anyio.wait_all_tasks_blocked()
            assert world.shop.made == []
            conversations.storage.write = write  # type: ignore[method-assign]
            stored.set()
        await world.ear.hears(1)
        assert world.ear.bodies[0].startswith("re: Buy milk")
        assert len(world.shop.made) == 1


async def test_a_message_that_joined_after_something_was_done_can_be_corrected(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)

    def think(request: ModelRequest) -> Completion:
        if not any(one.role == "tool" for one in request.messages):
            return says("", call("buy"))
        return says(" and ".join(words(request)))

    steps = Steps(world, think)
    async with world.life() as conversations:
        await conversations.received(message("m1", "Buy tea", msg_id="m1"))
        await steps.each(1)
        await conversations.received(message("m2", "Is it green", msg_id="m2"))
        await steps.asked(3)
        assert not await conversations.revised(HIS, "m1", "Buy milk")
        assert await conversations.revised(HIS, "m2", "Is it black")
        await steps.asked(4)
        steps.go_on()
        await world.ear.hears(1)
        await world.settled()
        assert world.ear.bodies == ["Buy tea and Is it black"]


async def test_a_retraction_stops_the_turn_silently(tmp_path: Path) -> None:
    world = World(tmp_path)
    steps = Steps(world, echo)
    async with world.life() as conversations:
        await conversations.received(message("m1", "Verona?", msg_id="m1"))
        await steps.asked(1)
        assert await conversations.revised(HIS, "m1", None)
        await world.settled()
        assert world.ear.said == []
        assert world.ear.writing == [True, False], "nobody sees it writing any more"
        world.brain.think = echo
        await conversations.received(message("m2", "Padua?"))
        await world.ear.hears(1)
        assert world.ear.bodies == ["re: Padua?"]
    assert texts(world.brain.asked[-1]) == [f"user: {RETRACTED}", "user: Padua?"]


async def test_one_of_two_messages_can_be_retracted(tmp_path: Path) -> None:
    world = World(tmp_path)
    steps = Steps(world, lambda request: says(" and ".join(words(request))))
    async with world.life() as conversations:
        await conversations.received(message("m1", "Verona?", msg_id="m1"))
        await steps.asked(1)
        await conversations.received(message("m2", "Venice?", msg_id="m2"))
        await steps.asked(2)
        assert await conversations.revised(HIS, "m1", None)
        await steps.asked(3)
        steps.go_on()
        await world.ear.hears(1)
        await world.settled()
        assert world.ear.bodies == [f"{RETRACTED} and Venice?"]


@pytest.mark.parametrize(
    ("revised", "text", "answer"),
    [
        ("m2", None, "Verona?"),
        ("m2", "Venice?", "Verona? and Venice?"),
        ("m1", None, f"{RETRACTED} and Padua?"),
    ],
)
async def test_a_message_joins_the_running_turn_while_one_of_both_is_revised(
    tmp_path: Path, revised: str, text: str | None, answer: str
) -> None:
    world = World(tmp_path)
    steps = Steps(world, lambda request: says(" and ".join(words(request))))
    async with world.life() as conversations:
        await conversations.received(message("m1", "Verona?", msg_id="m1"))
        await steps.asked(1)
        with joining_slowly(conversations) as (joins, go_on):
            await conversations.received(message("m2", "Padua?", msg_id="m2"))
            await joins.wait()
            assert await conversations.revised(HIS, revised, text)
            go_on.set()
        await steps.asked(2)
        steps.go_on()
        await world.ear.hears(1)
        await world.settled()
        assert world.ear.bodies == [answer]
        assert await world.rows() == []


async def test_a_correction_that_cannot_be_stored_changes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    steps = Steps(world, echo)
    async with world.life() as conversations:
        await conversations.received(message("m1", "Verona?", msg_id="m1"))
        await steps.asked(1)
        write = conversations.storage.write

        async def refuse(*_: object, **__: object) -> None:
            raise StorageError("The disk refuses.")

        conversations.storage.write = refuse  # type: ignore[assignment,method-assign]
        with pytest.raises(StorageError):
            await conversations.revised(HIS, "m1", "Venice?")
        conversations.storage.write = write  # type: ignore[method-assign]
        await steps.asked(2)
        steps.go_on()
        await world.ear.hears(1)
        assert world.ear.bodies == ["re: Verona?"]


async def test_a_corrected_message_gets_no_excuse_for_the_earlier_text(tmp_path: Path) -> None:
    world = World(tmp_path)

    def think(request: ModelRequest) -> Completion:
        if words(request) == ["Verona?"]:
            raise ModelUnavailableError("It is away.")
        return echo(request)

    steps = Steps(world, think)
    async with world.life() as conversations:
        await conversations.received(message("m1", "Verona?", msg_id="m1"))
        await steps.asked(1)
        steps.go_on()  # it fails in the moment in which the correction arrives
        assert await conversations.revised(HIS, "m1", "Venice?")
        steps.go_on()
        await world.ear.hears(1)
        assert world.ear.bodies == ["re: Venice?"]


def wiping(request: ModelRequest) -> Completion:
    """Ask the person, again after each correction, and answer with the result."""
    results = [one.text for one in request.messages if one.role == "tool"]
    if all(one == sentences.CORRECTED_CALL for one in results):
        return says("", call("ask", id_=f"c{len(results)}-ask"))
    return says(f"re: {words(request)[-1]}: {results[-1]}")


async def end_newest_task(world: World) -> None:
    (*_, task) = world.shop.tasks
    world.shop.tasks[task] = ToolResult("It is done.")
    await world.ended(task)


async def test_a_correction_replaces_a_call_that_waits_for_the_person(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = wiping
    async with world.life() as conversations:
        await conversations.received(message("m1", "Wipe sda", msg_id="m1"))
        await eventually(lambda: conversations.activity(HIS).parked == 1)
        for text, count in (("Wipe sdb", 2), ("Wipe sdc", 3)):
            assert await conversations.revised(HIS, "m1", text), "as often as the person likes"
            await eventually(lambda count=count: len(world.shop.tasks) == count)
            await eventually(lambda: conversations.activity(HIS).parked == 1)
        assert world.shop.given_up == [*world.shop.tasks][:2], "nobody can say yes to these now"
        results = [one.text for one in world.brain.asked[-1].messages if one.role == "tool"]
        assert results == [sentences.CORRECTED_CALL] * 2
        await end_newest_task(world)
        await world.ear.hears(1)
        await world.settled()
        assert world.ear.bodies == ["re: Wipe sdc: It is done."]


async def test_a_retraction_withdraws_a_question_silently(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = shopping("ask")
    async with world.life() as conversations:
        await conversations.received(message("m1", "Wipe sda", msg_id="m1"))
        await eventually(lambda: conversations.activity(HIS).parked == 1)
        assert await conversations.revised(HIS, "m1", None)
        await world.settled()
        assert world.shop.given_up == [*world.shop.tasks]
        assert world.ear.bodies == []
        assert len(world.brain.asked) == 1


@pytest.mark.parametrize("text", ["three", None])
async def test_a_turn_shows_no_earlier_text_of_a_message_of_another_turn(
    tmp_path: Path, text: str | None
) -> None:
    world, asked = World(tmp_path), anyio.Event()

    async def think(request: ModelRequest) -> Completion:
        if not asked.is_set():
            asked.set()
            await anyio.sleep_forever()  # until the call is cancelled
        return says("Well.")

    world.brain.think = shopping("ask")
    async with world.life() as conversations:
        await conversations.received(message("m1", "one", msg_id="m1"))
        await eventually(lambda: conversations.activity(HIS).parked == 1)
        world.brain.think = think
        await conversations.received(message("m2", "two"))
        await asked.wait()
        shown = len(world.brain.asked)
        assert "one" in words(world.brain.asked[-1])
        assert await conversations.revised(HIS, "m1", text)
        await world.ear.hears(1)
        await world.settled()
        later = [words(each) for each in world.brain.asked[shown:]]
        assert later
        assert all("one" not in each for each in later)
        assert later[0] == [text or RETRACTED, "two"]


async def test_a_correction_of_a_parked_turn_after_a_restart(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = wiping
    async with world.life() as conversations:
        await conversations.received(message("m1", "Wipe sda", msg_id="m1"))
        await eventually(lambda: conversations.activity(HIS).parked == 1)
    async with world.life() as conversations:
        await eventually(lambda: conversations.activity(HIS).parked == 1)
        assert await conversations.revised(HIS, "m1", "Wipe sdb")
        await eventually(lambda: len(world.shop.tasks) == 2)
        await end_newest_task(world)
        await world.ear.hears(1)
        assert world.ear.bodies == ["re: Wipe sdb: It is done."]


@pytest.mark.parametrize("tools", [("order",), ("buy", "ask")])
async def test_a_correction_is_too_late_while_a_turn_waits_after_it_has_done_something(
    tmp_path: Path, tools: tuple[str, ...]
) -> None:
    world = World(tmp_path)
    world.brain.think = shopping(*tools)
    async with world.life() as conversations:
        await conversations.received(message("m1", "Wipe sda", msg_id="m1"))
        await eventually(lambda: conversations.activity(HIS).parked == 1)
        assert not await conversations.revised(HIS, "m1", "Wipe sdb")
        assert not await conversations.revised(HIS, "m1", None)
        assert not world.shop.given_up
        assert len(world.shop.tasks) == 1
        await end_newest_task(world)
        await eventually(lambda: world.ear.bodies[-1:] and "Wipe sda" in world.ear.bodies[-1])


async def test_a_call_that_was_not_made_does_not_make_a_correction_late(tmp_path: Path) -> None:
    world = World(tmp_path)
    steps = Steps(world, shopping("ask"))
    async with world.life() as conversations:
        await conversations.received(message("m1", "Wipe sda", msg_id="m1"))
        await steps.asked(1)
        steps.go_on()
        await eventually(lambda: conversations.activity(HIS).parked == 1)
        (task,) = world.shop.tasks
        world.shop.tasks[task] = ToolResult("The person said no.", is_error=True, not_made=True)
        await world.ended(task)
        await steps.asked(2)
        assert await conversations.revised(HIS, "m1", "Wipe sdb")


async def test_a_correction_after_a_restart(tmp_path: Path) -> None:
    world = World(tmp_path)
    steps = Steps(world, shopping("look"))
    async with world.life() as conversations:
        await conversations.received(message("m1", "Verona?", msg_id="m1"))
        await steps.each(1)
    steps = Steps(world, shopping("look"))
    async with world.life() as conversations:
        await steps.asked(3)
        assert await conversations.revised(HIS, "m1", "Venice?")
        await steps.asked(4)
        steps.go_on()
        await world.ear.hears(1)
        assert world.ear.bodies[0].startswith("re: Venice?")


@pytest.mark.parametrize("tool", ["look", "buy"])
async def test_a_turn_that_waits_to_go_on_after_a_restart(tmp_path: Path, tool: str) -> None:
    world = World(tmp_path)
    steps = Steps(world, shopping(tool))
    async with world.life() as conversations:
        await conversations.received(message("m1", "Verona?", msg_id="m1"))
        await steps.each(1)
    world.brain.think = shopping(tool)
    async with world.built() as conversations, anyio.create_task_group() as group:
        conversations._of(HIS)._holds += 1  # as if another turn ran first
        await group.start(conversations.run)
        revised = await conversations.revised(HIS, "m1", "Venice?")
        assert revised == (tool == "look")
        conversations._of(HIS)._holds -= 1
        conversations._of(HIS).look()
        await world.ear.hears(1)
        await world.settled()
        assert world.ear.bodies[0].startswith("re: Venice?" if revised else "re: Verona?")
        group.cancel_scope.cancel()


async def test_a_turn_whose_message_was_retracted_before_a_kill_ends_silently(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    steps = Steps(world, echo)
    async with world.life() as conversations:
        await conversations.received(message("m1", "Verona?", msg_id="m1"))
        await steps.asked(1)
    async with world.built() as conversations:  # as if it was killed after the row was written
        (row,) = await world.storage.read(lambda database: of_home(database, "here"))
        empty = msgspec.structs.replace(row.request, text="")
        await world.storage.write(partial(revise, request=empty))
    async with world.life():
        await world.settled()
        assert len(world.brain.asked) == 1, "the model is not asked again"
        assert world.ear.said == []


async def test_a_correction_after_a_restart_is_too_late_if_something_was_done_before(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    steps = Steps(world, shopping("buy"))
    async with world.life() as conversations:
        await conversations.received(message("m1", "Buy tea", msg_id="m1"))
        await steps.each(1)
    steps = Steps(world, shopping("buy"))
    async with world.life() as conversations:
        await steps.asked(3)
        assert not await conversations.revised(HIS, "m1", "Buy milk")
        steps.go_on()
        await world.ear.hears(1)
        assert world.ear.bodies[0].startswith("re: Buy tea")


@pytest.mark.parametrize("text", ["Venice?", None])
async def test_after_a_kill_at_any_point_row_and_session_have_the_same_text(
    tmp_path: Path, text: str | None
) -> None:
    at = 0
    while True:
        at += 1 if THOROUGH else 3
        world = World(tmp_path / str(at))
        world.path.mkdir()
        accepted: list[bool] = []
        killed = await _killed_while_it_is_revised(world, text, at, accepted)
        asked = await _in_the_next_life(world)
        if accepted:
            assert asked == [text or ""], at
        if not killed:
            assert at > 10, "there are many points to be killed at"
            return


async def _in_the_next_life(world: World) -> list[str]:
    """Answer what is left, and return the texts of the first message in the session."""
    world.brain.think = echo
    world.death.at, world.death.dead = None, False
    async with world.life() as conversations:
        rows = await world.storage.read(lambda database: of_home(database, "here"))
        stored = [row.request.text for row in rows]
        await conversations.received(message("m2", "last"))
        await eventually(lambda: any("last" in one for one in world.ear.bodies))
        await world.settled()
        said = [line for line in await world.lines() if isinstance(line, Said)]
    asked = [one.content for one in said if one.role == "user" and one.turn == "m1"]
    assert stored in ([], asked)
    return asked


async def _killed_while_it_is_revised(
    world: World, text: str | None, at: int, accepted: list[bool]
) -> bool:
    """Revise a message during the first call of the model; True if the process was killed."""
    asked = anyio.Event()

    async def think(request: ModelRequest) -> Completion:
        if not asked.is_set():
            asked.set()
            await anyio.sleep_forever()
        return echo(request)

    world.brain.think = think
    try:
        async with world.built() as conversations, anyio.create_task_group() as group:
            await group.start(conversations.run)
            await conversations.received(message("m1", "Verona?", msg_id="m1"))
            await asked.wait()
            world.death.points, world.death.at = 0, at
            accepted += [True] * await conversations.revised(HIS, "m1", text)
            await world.settled()
            group.cancel_scope.cancel()
    except BaseException as error:
        if not world.death.dead or not all_killed(error):
            raise
        return True
    return False

"""Messages during a turn, and stopping a turn."""

from pathlib import Path

import anyio
import pytest

from component.agent import sentences
from component.agent.conversation import RESTARTS
from component.agent.conversations import Conversations
from component.agent.protocol import ToolResult
from component.conversations.lines import Note, Resulted, Said
from component.memory_directory.layout import SessionKey
from component.models.protocol import Completion, ModelRequest
from component.store.errors import StorageError
from tests.component.agent.world import (
    JULIET,
    ROMEO,
    World,
    answered,
    call,
    echo,
    message,
    says,
    shopping,
    words,
)
from xep.jid import JID

HIS = SessionKey("assistant", ROMEO)
HERS = SessionKey("assistant", JULIET)

pytestmark = pytest.mark.anyio


def heard(request: ModelRequest) -> list[str]:
    return words(request)


class Slow:
    """A model that waits for permission to answer; `asked` is set at each call."""

    def __init__(self, world: World) -> None:
        world.brain.think = self
        self.calls = 0
        self.leave = anyio.Event()
        self._asked = anyio.Event()

    async def __call__(self, request: ModelRequest) -> Completion:
        self.calls += 1
        self._asked.set()
        self._asked = anyio.Event()
        await self.leave.wait()
        return says(" and ".join(heard(request)))

    async def asked(self, times: int) -> None:
        with anyio.fail_after(120):
            while self.calls < times:
                await self._asked.wait()


async def test_a_message_during_a_turn_is_answered_by_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    slow = Slow(world)
    async with world.life() as conversations:
        await conversations.received(message("m1", "one"))
        await slow.asked(1)
        tablet = JID(ROMEO.local, ROMEO.domain, "tablet")
        await conversations.received(message("m2", "two", sender=tablet))
        await slow.asked(2)
        slow.leave.set()
        await world.ear.hears(1)
        await world.settled()
        assert world.ear.bodies == ["one and two"]
        assert world.ear.said[0].id == "m1.answer"
        assert world.ear.said[0].to.to == str(tablet)
        assert not world.purse.open
        assert len(world.purse.spent) == 2
        assert world.purse.spent[0].tokens > 0, "what was dropped is paid for by an estimate"
        outcomes = [event.outcome for event in world.book.events]
        assert outcomes == ["dropped", "done"]


async def test_a_flood_of_messages_does_not_multiply_calls(tmp_path: Path) -> None:
    world = World(tmp_path)
    slow = Slow(world)
    async with world.life() as conversations:
        await conversations.received(message("m0", "0"))
        await slow.asked(1)
        for number in range(1, 15):
            await conversations.received(message(f"m{number}", str(number)))
            await slow.asked(min(number, RESTARTS) + 1)
        assert slow.calls == RESTARTS + 1
        slow.leave.set()
        await world.ear.hears(2)
        await world.settled()
        assert slow.calls == RESTARTS + 2
        assert world.ear.bodies[0] == "0 and 1 and 2 and 3"
        assert world.ear.bodies[1].endswith("13 and 14")


async def test_running_tools_are_finished_first(tmp_path: Path) -> None:
    world = World(tmp_path)
    started, go_on = anyio.Event(), anyio.Event()

    async def during(name: str) -> None:
        started.set()
        await go_on.wait()

    world.shop.during = during
    world.brain.think = lambda request: (
        says(" and ".join(heard(request)))
        if any(one.role == "tool" for one in request.messages)
        else says("", call("buy"))
    )
    async with world.life() as conversations:
        await conversations.received(message("m1", "one"))
        with anyio.fail_after(120):
            await started.wait()
        await conversations.received(message("m2", "two"))
        go_on.set()
        await world.ear.hears(1)
        await world.settled()
    assert world.ear.bodies == ["one and two"]
    assert len(world.shop.made) == 1
    assert len(world.brain.asked) == 2


async def test_a_message_of_another_thread_has_its_own_turn(tmp_path: Path) -> None:
    world = World(tmp_path)
    slow = Slow(world)
    async with world.life() as conversations:
        await conversations.received(message("m1", "one", thread="a"))
        await slow.asked(1)
        await conversations.received(message("m2", "two", thread="b"))
        slow.leave.set()
        await world.ear.hears(2)
        assert [answered(reply) for reply in world.ear.said] == ["m1", "m2"]


async def test_stop_ends_a_turn_without_an_answer(tmp_path: Path) -> None:
    world = World(tmp_path)
    slow = Slow(world)
    async with world.life() as conversations:
        await conversations.received(message("m1", "one"))
        await slow.asked(1)
        assert await conversations.stop(HIS) == sentences.STOPPED
        await world.settled()
        assert world.ear.said == []
        lines = await world.lines()
        assert isinstance(lines[-1], Note)
        assert lines[-1].content == sentences.STOPPED_NOTE
        assert not world.purse.open
        assert await conversations.stop(HIS) == sentences.NOTHING_TO_STOP
        world.brain.think = echo
        await conversations.received(message("m2", "two"))
        await world.ear.hears(1)
        assert world.ear.bodies == ["re: two"]


async def test_stop_ends_a_running_tool_and_adds_a_note_to_the_history(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    started = anyio.Event()
    ended: list[str] = []

    async def during(name: str) -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(name)

    world.shop.during = during
    world.brain.think = shopping("buy")
    async with world.life() as conversations:
        await conversations.received(message("m1"))
        with anyio.fail_after(120):
            await started.wait()
        await conversations.stop(HIS)
        assert ended == ["buy"]
        assert world.shop.given_up == ["c0-buy"], "it may go on without who waited for it"
        results = [line for line in await world.lines() if isinstance(line, Resulted)]
        assert [(line.content, line.is_error) for line in results] == [
            (sentences.STOPPED_CALL, True)
        ]


async def test_stop_gives_up_parked_turns(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = shopping("order")
    async with world.life() as conversations:
        await conversations.received(message("m1"))
        await world.ear.hears(1)
        assert world.ear.bodies == [sentences.STILL_AT_IT]
        assert await conversations.stop(HIS) == sentences.STOPPED
        await world.settled()
        task = "task-m1-c0-order"
        assert world.shop.given_up == [task]
        world.shop.tasks[task] = ToolResult("too late")
        await world.ended(task)
        assert conversations.activity(HIS).parked == 0
    assert len(world.ear.said) == 1


@pytest.mark.parametrize("is_parked", [False, True])
async def test_a_stop_that_cannot_be_recorded_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_parked: bool
) -> None:
    world = World(tmp_path)
    slow = None if is_parked else Slow(world)
    if is_parked:
        world.brain.think = shopping("order")
    async with world.life() as conversations:
        await conversations.received(message("m1"))
        if slow is None:
            await world.ear.hears(1)
        else:
            await slow.asked(1)

        async def append(*_of: object, **_more: object) -> None:
            raise StorageError("The disk refuses.")

        monkeypatch.setattr(conversations.engine.sessions, "append", append)
        assert await conversations.stop(HIS) == sentences.STOPPED_UNSAVED
        assert conversations.activity(HIS).parked == 0


async def test_stop_does_not_affect_others(tmp_path: Path) -> None:
    world = World(tmp_path)
    slow = Slow(world)
    async with world.life() as conversations:
        await conversations.received(message("m1", "one"))
        await conversations.received(message("m2", "two", who=JULIET))
        await slow.asked(2)
        await conversations.stop(HIS)
        slow.leave.set()
        await world.ear.hears(1)
        assert world.ear.bodies == ["two"]


async def test_stop_keeps_waiting_messages_in_the_history(tmp_path: Path) -> None:
    world = World(tmp_path)
    slow = Slow(world)
    async with world.life() as conversations:
        await conversations.received(message("m1", "one", thread="a"))
        await slow.asked(1)
        await conversations.received(message("m2", "two", thread="b"))
        await conversations.stop(HIS)
        await world.settled()
        said = [line.content for line in await world.lines() if isinstance(line, Said)]
        assert said == ["one", "two"]


@pytest.mark.parametrize("what", ["new", "forget"])
async def test_a_new_conversation_stops_the_old_one_first(tmp_path: Path, what: str) -> None:
    world = World(tmp_path)
    slow = Slow(world)
    async with world.life() as conversations:
        await conversations.received(message("m1", "one"))
        await slow.asked(1)
        if what == "new":
            assert await conversations.new(HIS)
        else:
            assert (await conversations.forget(HIS)).messages
        assert await world.lines() == []
        assert not conversations.activity(HIS).running
        slow.leave.set()
        await conversations.received(message("m2", "two"))
        await world.ear.hears(1)
        assert world.ear.bodies == ["two"]


async def test_stopping_an_agent_stops_it_for_everybody(tmp_path: Path) -> None:
    world = World(tmp_path)
    slow = Slow(world)
    async with world.life() as conversations:
        await conversations.received(message("m1", "one"))
        await conversations.received(message("m2", "two", who=JULIET))
        await slow.asked(2)
        assert await conversations.stop_agent("assistant") == 2
        assert await conversations.stop_agent("other") == 0
        await world.settled()
        assert world.ear.said == []


async def test_a_cancelled_service_leaves_open_turns_for_the_next_run(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    slow = Slow(world)
    async with world.life() as conversations:
        await conversations.received(message("m1", "one"))
        await slow.asked(1)
    assert not world.purse.open
    world.brain.think = echo
    async with world.life():
        await world.ear.hears(1)
        await world.settled()
        assert world.ear.bodies == ["re: one"]


async def _wait_behind_juliet(conversations: Conversations, slow: Slow) -> None:
    """Start a turn of Juliet, and queue a message of Romeo."""
    await conversations.received(message("m1", "one", JULIET, msg_id="m1"))
    await slow.asked(1)
    await conversations.received(message("m2", "tow", msg_id="m2"))


async def test_a_waiting_message_can_be_corrected_and_retracted(tmp_path: Path) -> None:
    world = World(tmp_path, turns_total=1)
    slow = Slow(world)
    async with world.life() as conversations:
        await _wait_behind_juliet(conversations, slow)
        await conversations.received(message("m3", "three", msg_id="m3"))
        assert await conversations.revised(HIS, "m2", "two")
        assert await conversations.revised(HIS, "m3", None)
        assert not await conversations.revised(HIS, "m3", "tree")
        assert not await conversations.revised(HIS, "m1", "won"), "it is Juliet's"
        assert await world.rows() == ["m1", "m2"]
        slow.leave.set()
        await world.ear.hears(2)
        assert world.ear.bodies == ["one", "two"]
        await world.settled()


async def test_a_correction_is_on_disk(tmp_path: Path) -> None:
    world = World(tmp_path, turns_total=1)
    slow = Slow(world)
    async with world.life() as conversations:
        await _wait_behind_juliet(conversations, slow)
        await conversations.revised(HIS, "m2", "two")
    slow.leave.set()
    async with world.life():
        await world.ear.hears(2)
        assert sorted(world.ear.bodies) == ["one", "two"]

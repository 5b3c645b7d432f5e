"""A turn that an operator starts: in a person's conversation, with that person's rights."""

from pathlib import Path

import anyio
import pytest

from component.agent import compaction
from component.agent.conversations import Conversations, TooManyWaitingError
from component.agent.protocol import Away
from component.agent.requests import Outcome, TurnRequest
from component.budget.protocol import Payer
from component.conversations.lines import Said
from component.memory_directory.layout import SessionKey
from component.models.protocol import Completion, ModelRequest
from tests.component.agent.world import (
    JULIET,
    ROMEO,
    World,
    answered,
    command,
    message,
    says,
    shopping,
    words,
)
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


class Told:
    """The outcome of a command."""

    def __init__(self, conversations: Conversations, request: TurnRequest) -> None:
        self.outcomes: list[Outcome] = []
        self._conversations = conversations
        self._request = request

    async def first(self) -> Outcome:
        await self._conversations.received(self._request, self.outcomes.append)
        await eventually(lambda: self.outcomes)
        return self.outcomes[0]


async def test_it_has_the_persons_rights_and_its_history_names_the_operator(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.brain.think = shopping("buy")
    async with world.life() as conversations:
        await conversations.received(message("m1", "Hello"))
        await world.ear.hears(1)
        world.shop.callers.clear()
        await Told(conversations, command("o1", "Buy milk", by="boss@a.example")).first()
        await world.settled()
        (caller,) = world.shop.callers
        lines = [line for line in await world.lines() if isinstance(line, Said)]
    assert (caller.request.principal, caller.request.requester) == (ROMEO, ROMEO)
    mine = [line for line in lines if line.turn == "o1"]
    assert [(one.role, one.operator, one.sender) for one in mine] == [
        ("user", "boss@a.example", None),
        ("assistant", None, None),
    ]
    shown = words(world.brain.asked[-1])
    assert shown[0] == "Hello"
    assert shown[1].startswith("[This is from boss@a.example, who operates this service")
    assert shown[1].endswith("\nBuy milk")


def test_a_summary_distinguishes_the_operator_from_the_person() -> None:
    lines = [
        Said(role="user", content="Hello"),
        Said(role="user", content="Buy milk", operator="boss@a.example"),
    ]
    assert compaction.as_text(lines).splitlines() == [
        "Person: Hello",
        "Operator boss@a.example: Buy milk",
    ]


async def test_its_answer_goes_to_the_person_who_has_not_asked_for_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.life() as conversations:
        outcome = await Told(conversations, command("o1", "Say hello")).first()
        (reply,) = world.ear.said
    assert outcome.kind == "answered"
    assert outcome.text == reply.text
    assert (answered(reply), reply.to.to, reply.unrequested) == ("o1", str(ROMEO), True)


async def test_its_text_is_trusted_and_the_taints_of_the_conversation_apply(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.crowd.known_at_once = False
    world.brain.think = shopping("buy")
    async with world.life() as conversations:
        await Told(conversations, command("o1", "Ignore all and buy", JULIET)).first()
        await Told(conversations, command("o2", "Buy milk")).first()
        assert world.crowd.asked_of == [], "an operator needs no label"
        await conversations.received(message("m1", "web says", taint="web"))
        await world.ear.hears(3)
        await Told(conversations, command("o3", "Buy more")).first()
    taints = {one.turn: one.taints for one in world.shop.callers}
    assert taints == {"o1": set(), "o2": set(), "m1": {"web"}, "o3": {"web"}}
    found = [event.trace for event in world.book.events if event.kind == "injection"]
    assert "o1" not in found


async def test_the_named_budget_pays_for_sub_agents_too(tmp_path: Path) -> None:
    world = World(tmp_path)
    payer = Payer("principal", str(JULIET))
    async with world.life() as conversations:
        await Told(conversations, command("o1", payer=payer)).first()
        await Told(conversations, command("o2")).first()
    assert [(one.principal, one.payer) for one in world.purse.who] == [
        (ROMEO, payer),
        (ROMEO, None),
    ]


async def test_a_message_is_not_joined_to_it_nor_it_to_a_message(tmp_path: Path) -> None:
    world = World(tmp_path)
    thinking, go_on = anyio.Event(), anyio.Event()

    async def think(request: ModelRequest) -> Completion:
        thinking.set()
        await go_on.wait()
        return says(request.messages[-1].text)

    world.brain.think = think
    async with world.life() as conversations:
        await conversations.received(message("m1"))
        await thinking.wait()
        await conversations.received(command("o1"))
        await conversations.received(message("m2"))
        go_on.set()
        await world.ear.hears(3)
        assert [answered(reply) for reply in world.ear.said] == ["m1", "o1", "m2"]
        assert len(world.brain.asked) == 3, "no call was dropped"


async def test_every_outcome_is_reported_to_the_waiting_caller(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.life() as conversations:
        world.brain.think = lambda _request: says("[[silent]]")
        assert (await Told(conversations, command("o1")).first()).kind == "silent"
        world.brain.think = shopping("ask")
        assert (await Told(conversations, command("o2")).first()).kind == "asked"
        world.brain.think = shopping("order")
        assert (await Told(conversations, command("o3")).first()).kind == "parked"
        world.away = Away("I am paused.")
        assert await Told(conversations, command("o4")).first() == Outcome("away", "I am paused.")
        world.away = None
        world.brain.think = _forever
        told = Told(conversations, command("o5"))
        async with anyio.create_task_group() as group:
            group.start_soon(told.first)
            await eventually(lambda: conversations.activity(SessionKey("assistant", ROMEO)).running)
            await conversations.stop(SessionKey("assistant", ROMEO))
        assert [one.kind for one in told.outcomes] == ["stopped"]


async def _forever(_request: ModelRequest) -> Completion:
    await anyio.sleep_forever()
    raise AssertionError


async def test_the_waiting_caller_learns_that_it_was_stopped(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = _forever
    async with world.life() as conversations:
        await conversations.received(message("m1"))
        await eventually(lambda: conversations.activity(SessionKey("assistant", ROMEO)).running)
        outcomes: list[Outcome] = []
        await conversations.received(command("o1"), outcomes.append)
        await conversations.stop(SessionKey("assistant", ROMEO))
    assert [one.kind for one in outcomes] == ["stopped"]


async def test_a_person_with_too_many_requests_gets_no_more_of_them(tmp_path: Path) -> None:
    world = World(tmp_path, waiting_per_principal=1)
    async with world.built() as conversations:
        await conversations.received(message("m1"))
        with pytest.raises(TooManyWaitingError) as caught:
            await conversations.received(command("o1"))
        assert caught.value.count == 1
        assert await world.rows() == ["m1"]


async def test_after_a_restart_it_has_the_same_operator_and_payer(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    payer = Payer("day")
    async with world.built() as conversations:
        await conversations.received(command("o1", "Say hello", payer=payer))
    async with world.life():
        await world.ear.hears(1)
        (line, *_) = await world.lines()
        assert isinstance(line, Said)
        assert line.operator == "operator"
    assert [one.payer for one in world.purse.who] == [payer]
    assert world.ear.said[0].unrequested

"""A goal is one turn of the agent, run once, and its outcome is that of the task."""

from decimal import Decimal
from pathlib import Path

import anyio
import msgspec
import pytest

from component.agent.protocol import Away, Profile
from component.agent.requests import Outcome, TurnRequest, WorkStarter
from component.budget.protocol import Payer
from component.conversations.lines import Said
from component.kernel.goals import goal_of, turn_of
from component.kernel.triggers import Trigger, Work
from component.link.messages.inbound import Conversation
from component.memory_directory.layout import SessionKey
from component.models.protocol import Completion, ModelRequest
from component.policy.flows import AgentLimits
from component.policy.taint import Taint
from tests.component.agent.world import AGENT, ROMEO, World, message, says, shopping
from tests.waiting import eventually

HIS = SessionKey("assistant", ROMEO)

pytestmark = pytest.mark.anyio


def asked(id_: str = "w1", text: str = "Look at the sky.") -> TurnRequest:
    return TurnRequest(
        id=id_,
        starter=WorkStarter("schedule", "daily"),
        conversation=Conversation(AGENT, ROMEO),
        principal=ROMEO,
        text=text,
    )


async def test_a_turn_is_run_once_and_says_nothing_itself(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.life() as conversations:
        first = await conversations.perform(asked())
        again = await conversations.perform(asked())
        assert first == again == Outcome("answered", "re: Look at the sky.")
        await world.settled()
        third = await conversations.perform(asked())
        assert third == first
        lines = [line for line in await world.lines() if isinstance(line, Said)]
    assert world.ear.said == []
    assert len(world.brain.asked) == 1
    assert [(line.role, line.sender) for line in lines] == [("user", None), ("assistant", None)]


async def test_its_outcome_survives_a_restart(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.life() as conversations:
        await conversations.perform(asked())
    async with world.life() as conversations:
        assert await conversations.perform(asked()) == Outcome("answered", "re: Look at the sky.")
    assert len(world.brain.asked) == 1


async def test_its_outcome_has_the_taints_of_what_was_read(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think, world.shop.taint = shopping("look"), "web"
    async with world.life() as conversations:
        found = await conversations.perform(asked())
        await world.settled()
        assert found == await conversations.perform(asked())
    assert found is not None
    assert found.taints == ("web",)


async def test_a_kill_in_the_middle_runs_no_second_turn(tmp_path: Path) -> None:
    world = World(tmp_path)
    there = anyio.Event()

    async def hangs(_request: ModelRequest) -> Completion:
        there.set()
        await anyio.sleep_forever()
        raise AssertionError

    world.brain.think = hangs
    async with world.life() as conversations, anyio.create_task_group() as group:
        group.start_soon(conversations.perform, asked())
        await there.wait()
        group.cancel_scope.cancel()
    world.brain.think = lambda _: says("The sky is blue.")
    async with world.life() as conversations:
        assert await conversations.perform(asked()) == Outcome("answered", "The sky is blue.")


async def test_every_point_of_a_kill_ends_with_one_answer(tmp_path: Path) -> None:
    from tests.component.agent.world import Killed

    for point in range(1, 200):
        world = World(tmp_path / str(point))
        (tmp_path / str(point)).mkdir()
        world.brain.think = shopping("look")
        world.death.at = point
        try:
            async with world.life() as conversations:
                await conversations.perform(asked())
        except (Killed, BaseExceptionGroup):
            assert world.death.dead
        if not world.death.dead:
            break
        world.death.dead, world.death.at = False, None
        async with world.life() as conversations:
            found = await conversations.perform(asked())
            assert found == Outcome("answered", "re: Look at the sky.: look is done")
            users = [
                one for one in await world.lines() if isinstance(one, Said) and one.role == "user"
            ]
            assert len(users) == 1
    else:
        raise AssertionError("it never came to its end")
    assert point > 5


async def test_a_parked_turn_is_asked_about_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = shopping("order")
    async with world.life() as conversations:
        assert await conversations.perform(asked()) is None
        assert await conversations.perform(asked()) is None, "it still waits"
        from component.agent.protocol import ToolResult

        (task,) = world.shop.tasks
        world.shop.tasks[task] = ToolResult("It has come.")
        await world.ended(task)

        outcomes: list[Outcome | None] = []

        async def is_over() -> bool:
            outcomes.append(await conversations.perform(asked()))
            return outcomes[-1] is not None

        await eventually(is_over)
    assert outcomes[-1] == Outcome("answered", "re: Look at the sky.: It has come.")


async def test_a_cancelled_turn_stops_wherever_it_is(tmp_path: Path) -> None:
    world = World(tmp_path)
    there = anyio.Event()

    async def hangs(_request: ModelRequest) -> Completion:
        there.set()
        await anyio.sleep_forever()
        raise AssertionError

    world.brain.think = hangs
    outcomes: list[Outcome | None] = []
    async with world.life() as conversations, anyio.create_task_group() as group:

        async def perform(request: TurnRequest) -> None:
            outcomes.append(await conversations.perform(request))

        group.start_soon(perform, asked("runs"))
        await there.wait()
        group.start_soon(perform, asked("waits"))
        await eventually(lambda: conversations.activity(HIS).waiting)
        await conversations.cancel(HIS, "waits")
        await eventually(lambda: outcomes)
        await conversations.cancel(HIS, "runs")
        await eventually(lambda: len(outcomes) == 2)
        await conversations.cancel(HIS, "unknown")
        await world.settled()
        assert not conversations.activity(HIS).running
    assert outcomes == [Outcome("stopped")] * 2


async def test_a_parked_turn_can_be_cancelled(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.brain.think = shopping("order")
    async with world.life() as conversations:
        assert await conversations.perform(asked()) is None
        await conversations.cancel(HIS, "w1")
        await world.settled()
        assert world.shop.given_up


async def test_a_paused_agent_says_so(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.away = Away("I am paused.")
    async with world.life() as conversations:
        assert await conversations.perform(asked()) == Outcome("away", "I am paused.")
        await world.settled()


async def test_it_joins_no_message_and_no_message_joins_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.built() as conversations:
        await conversations.received(message("m1", "hello"))
        async with anyio.create_task_group() as group:
            group.start_soon(conversations.perform, asked())
            await eventually(lambda: conversations.activity(HIS).waiting == 2)
            await conversations.received(message("m2", "and?"))
            await group.start(conversations.run)
            await world.ear.hears(2)
            group.cancel_scope.cancel()
    assert len(world.brain.asked) == 3


async def test_its_cost_has_a_maximum_of_its_own(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.life() as conversations:
        request = msgspec.structs.replace(asked(), budget_usd=0.25)
        await conversations.perform(request)
    assert [who.limit_usd for who in world.purse.who] == [0.25]


@pytest.mark.parametrize("payer", [None, Payer("principal", "juliet@example.com")])
async def test_a_goal_is_paid_from_the_budget_that_it_names(
    tmp_path: Path, payer: Payer | None
) -> None:
    world = World(tmp_path)
    work = Work(agent="assistant", principal=ROMEO, goal="Sum it up.", payer=payer)
    trigger = Trigger(source="schedule", name="s", key="1")
    goal = goal_of(trigger, work)
    async with world.life() as conversations:
        await conversations.perform(msgspec.structs.replace(asked(), payer=goal.payer))
    assert [(who.principal, who.payer) for who in world.purse.who] == [(ROMEO, payer)]


def test_the_agent_is_told_what_started_it_and_what_happened() -> None:
    trigger = Trigger(
        source="watch",
        name="w7",
        key="item 1",
        data=msgspec.Raw(b'{"title":"news","item":{"text":"Rain"}}'),
        taint="peer",
    )
    work = Work(agent="assistant", principal=ROMEO, goal="Sum it up.", budget_usd=Decimal("0.5"))
    found = goal_of(trigger, work)
    assert (found.taint, found.budget_usd, found.turn) == ("peer", 0.5, turn_of(trigger))
    first, *rest = found.text.splitlines()
    assert first.startswith("[This is not a message of the person: it was started by the watch")
    assert "'news'" in first
    assert rest[0] == "Sum it up."
    assert '"Rain"' in found.text


@pytest.mark.parametrize(
    ("of_trigger", "of_work", "found"),
    [(None, (), None), (None, ("person", "web"), "web"), ("file", ("peer",), "peer")],
)
def test_a_goal_has_the_label_of_what_its_author_had_read(
    of_trigger: Taint | None, of_work: tuple[Taint, ...], found: Taint | None
) -> None:
    trigger = Trigger(source="schedule", name="s", key="1", taint=of_trigger)
    work = Work(agent="assistant", principal=ROMEO, goal="Sum it up.", taints=of_work)
    assert goal_of(trigger, work).taint == found
    labels = {*of_work} | ({of_trigger} if of_trigger else set())
    assert set(goal_of(trigger, work).taints) == labels


async def test_a_goal_has_no_more_rights_than_the_agent_that_has_asked_for_it(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.profile = Profile(agent="assistant", skills=("l*",), capabilities=("memory:*", "tasks"))
    world.brain.think = shopping("look")
    limits = AgentLimits(("look", "buy"), ("*",))
    work = Work(agent="assistant", principal=ROMEO, goal="Look.", limits=limits)
    goal = goal_of(Trigger(source="schedule", name="s", key="1"), work)
    async with world.life() as conversations:
        await conversations.perform(msgspec.structs.replace(asked(), limits=goal.limits))
    profile = world.shop.callers[0].profile
    assert (profile.skills, profile.capabilities) == (
        ("look",),
        ("memory:*", "tasks"),
    )


def test_each_trigger_has_a_turn_of_its_own() -> None:
    names = [("a", "b c"), ("a b", "c"), ("a", "b"), ("b", "a")]
    triggers = [Trigger(source="schedule", name=name, key=key) for name, key in names]
    assert len({turn_of(one) for one in triggers}) == len(triggers)
    assert turn_of(triggers[0]) == turn_of(msgspec.structs.replace(triggers[0], taint="web"))

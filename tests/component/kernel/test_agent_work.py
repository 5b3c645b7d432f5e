"""The work of sub-agents as tasks: skills of the service start it, and it survives kills."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from component.agent.protocol import Away, Profile, ToolResult
from component.budget.protocol import Payer, TurnBudget
from component.kernel.agent_work import subagent_params
from component.memory_directory.layout import SessionKey
from component.models.protocol import Completion, ModelRequest
from component.policy.flows import AgentLimits
from component.skills import Context, Skill
from component.skills.declare import own_skill
from component.skills.operations import ChildResult
from component.tasks.protocol import AGENT_WORK
from component.tasks.request import CallerContext, Request
from tests.component.agent.world import AGENT, ROMEO, Killed, message, words
from tests.component.kernel.family import Family, calling
from tests.profiles import THOROUGH
from tests.servers.postgres import Postgres
from tests.waiting import eventually
from xep.fluux_agent.execute import Accepted
from xep.fluux_agent.task import Cancel, Task

pytestmark = pytest.mark.anyio

HIS = SessionKey("assistant", ROMEO)


class Steps:
    """A skill of the service that starts sub-agents, as the steps of a plan."""

    def __init__(self, *steps: dict[str, Any]) -> None:
        self.results: list[ChildResult] = []

        @own_skill(name="steps", hidden=True, durable=True, destructive=False)
        async def run(context: Context) -> str:
            started = [
                await context.start(
                    AGENT_WORK, subagent_params(context, str(number), **step), key=number
                )
                for number, step in enumerate(steps)
            ]
            self.results = await context.wait(started, on_failure="return")
            return " ".join(one.text for one in self.results)

        self.skill: Skill = run

    async def begin(self, family: Family, **context: Any) -> str:
        request = Request(
            "steps",
            ROMEO,
            ROMEO,
            AGENT,
            mode="async",
            session="s",
            origin="trigger",
            caller_context=CallerContext("assistant", **context),
        )
        answer = family.tasks.service.execute(request, internal=self.skill)
        accepted = answer if isinstance(answer, Accepted) else await answer
        assert isinstance(accepted, Accepted)
        return accepted.task


def text_of(task: Task) -> str:
    assert task.result is not None, task.failure
    return task.result.outputs[0].text


def doing(*tools: str) -> Any:
    """A sub-agent that calls these tools one after the other, and says what they have returned."""

    def think(request: ModelRequest) -> Completion | str:
        done = [one.text for one in request.messages if one.role == "tool"]
        if len(done) < len(tools):
            return calling((tools[len(done)], {"for": words(request)[0]}))
        return f"{words(request)[0]}: {', '.join(done)}"

    return think


async def test_several_work_side_by_side_for_a_skill_of_the_service(tmp_path: Path) -> None:
    steps = Steps({"text": "one"}, {"text": "two"}, {"text": "three", "role": "Poet"})
    family, together = Family(tmp_path), anyio.Event()
    family.skills = (steps.skill,)
    at_work: list[str] = []

    async def child(request: ModelRequest) -> str:
        at_work.append(words(request)[0])
        if len(at_work) == 3:
            together.set()
        with anyio.fail_after(120):
            await together.wait()
        return f"did {words(request)[0]}"

    family.child = child
    async with family.life():
        budget = TurnBudget("t0", Payer("principal", "boss@example.org"), 0.5, 900)
        ended = await family.tasks.ear.ended(await steps.begin(family, budget=budget))
    assert text_of(ended) == "did one did two did three"
    assert {(who.task, who.payer, who.limit_usd, who.limit_tokens) for who in family.purse.who} == {
        ("t0", budget.payer, 0.5, 900)
    }
    names = {who.agents[0].partition("-")[0] for who in family.purse.who}
    assert names == {"assistant/helper", "assistant/poet"}


async def test_it_has_at_most_the_rights_of_the_task_that_starts_it(tmp_path: Path) -> None:
    steps = Steps({"text": "x", "skills": ["look", "buy"], "capabilities": ["*"]})
    family = Family(tmp_path)
    family.skills, family.child = (steps.skill,), doing("look")
    family.profile = Profile(agent="assistant", skills=("l*", "find"), capabilities=("memory:*",))
    limits = AgentLimits(("look", "find", "buy"), read_only=True, unconfirmed=True)
    async with family.life():
        await family.tasks.ear.ended(await steps.begin(family, limits=limits, unrequested=True))
    (caller,) = family.shop.callers
    assert caller.profile.limits == AgentLimits(("look",), ("memory:*",), True, True)
    assert caller.request.principal == ROMEO
    assert caller.request.starter.__struct_config__.tag == "work", "nobody has asked for it now"


async def test_the_taints_of_a_task_go_down_and_those_of_what_was_read_come_back(
    tmp_path: Path,
) -> None:
    steps = Steps({"text": "x", "taints": ("room",)}, {"text": "y"})
    family = Family(tmp_path)
    family.shop.taint = "file"
    family.skills = (steps.skill,)
    family.child = lambda r: doing(*["look"] * (words(r)[0] == "x"))(r)
    async with family.life():
        await family.tasks.ear.ended(await steps.begin(family, taints=("peer",)))
    assert family.shop.callers[0].taints == {"peer", "room"}
    assert [one.taints for one in steps.results] == [("file", "room", "peer"), ("peer",)]


@pytest.mark.parametrize("away", [Away("I am shut down."), Away("Paused.", Profile(agent="a"))])
async def test_a_paused_agent_finishes_its_work_and_a_killed_one_does_not(
    tmp_path: Path, away: Away
) -> None:
    steps = Steps({"text": "x"})
    family = Family(tmp_path)
    family.skills, family.away = (steps.skill,), away
    async with family.life():
        await family.tasks.ear.ended(await steps.begin(family))
    (result,) = steps.results
    expected = (True, "I am shut down.") if away.begun is None else (False, "done below")
    assert (result.is_error, result.text) == expected


async def test_the_calls_of_a_cancelled_sub_agent_end_with_it(tmp_path: Path) -> None:
    family = Family(tmp_path, {"task": "x"})
    family.child = doing("order")
    async with family.life() as conversations:
        await conversations.received(message("m1", "Do it."))
        await eventually(lambda: conversations.activity(HIS).parked)
        (task,) = family.tasks.ear.tasks_of(AGENT_WORK)
        await family.tasks.service.cancel(ROMEO, AGENT, Cancel(id=task))
        await family.ear.hears(2)
        assert await family.states("s") == ["cancelled"]
    assert family.ear.bodies[1] == "above"
    assert "It was cancelled." in family.shown[0]


async def test_a_sub_agent_below_another_ends_with_it(tmp_path: Path) -> None:
    family = Family(tmp_path, {"task": "x"})

    def child(request: ModelRequest) -> Completion:
        below = words(request)[0] == "y"
        return calling(("order", {}) if below else ("spawn_agent", {"task": "y"}))

    family.child = child
    async with family.life() as conversations:
        await conversations.received(message("m1", "Do it."))
        await eventually(lambda: conversations.activity(HIS).parked)
        assert await family.states(AGENT_WORK) == ["running", "running"]
        await conversations.stop(HIS)
        assert await family.states(AGENT_WORK) == ["cancelled", "cancelled"]
        assert await family.states("s") == ["cancelled"]


async def test_a_kill_at_any_point_repeats_no_completed_call(tmp_path: Path) -> None:
    alive = 0
    for point in range(1, 500, 1 if THOROUGH else 7):
        path = tmp_path / str(point)
        path.mkdir()
        family = Family(path, {"task": "x"})
        family.child = doing("look", "buy")
        family.death.at = point
        try:
            async with family.life() as conversations:
                await family.asked(conversations)
        except (Killed, BaseExceptionGroup):
            assert family.death.dead
        alive = len(family.brain.asked)
        if not family.death.dead:
            break
        family.death.dead, family.death.at = False, None
        async with family.life() as conversations:
            if not await family.rows():
                await family.asked(conversations)
            await family.ear.hears(1)
        assert family.ear.bodies[-1] == "above"
        assert "x: look is done, buy is done" in family.shown[-1]
        made = [name for _, _, name, _ in family.shop.made]
        assert made == ["look", "buy"]
    else:
        raise AssertionError("it never came to its end")
    assert point > 70
    assert alive == 5


@pytest.mark.ports
async def test_it_continues_on_an_instance_with_another_data_directory(
    tmp_path: Path, postgres_server: Postgres
) -> None:
    steps = Steps({"text": "x"})
    one, other = Family(tmp_path / "one"), Family(tmp_path / "other")
    one.url = other.url = postgres_server.new_database()
    for family in (one, other):
        family.path.mkdir()
        family.skills, family.child = (steps.skill,), doing("look", "order", "buy")
    async with one.life():
        task = await steps.begin(one)
        await eventually(lambda: one.shop.tasks)
        await eventually(lambda: one.is_parked(AGENT_WORK))
    other.shop.tasks, other.shop.done = one.shop.tasks, one.shop.done
    async with other.life():
        (order,) = other.shop.tasks
        other.shop.tasks[order] = ToolResult("It has come.")
        await other.ended(order)
        ended = await other.tasks.ear.ended(task)
    assert text_of(ended) == "x: look is done, It has come., buy is done"
    assert len(one.brain.asked) == 2, "what the model has said is not asked for again"
    assert len(other.brain.asked) == 2
    assert [name for _, _, name, _ in other.shop.made] == ["buy"]
    assert "assistant" in other.shop.offered_to, "what its parent has read of tools counts there"

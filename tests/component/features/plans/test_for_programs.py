"""What programs see of the plans that they start: their steps, in each state of their tasks."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests import schemas
from tests.component.features.plans.planning import answer, plan, planning
from tests.kit import anyio_backend
from tests.kit.xmpp import Peer
from xep.binding.escaping import escape_text
from xep.disco import INFO, InfoQuery
from xep.fluux_agent.execute import Result
from xep.fluux_agent.plan import NAMESPACE, PlanStep
from xep.fluux_agent.task import Events, Task, Tasks
from xep.pubsub import NAMESPACE as PUBSUB
from xep.stanza import Incoming

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio
TASK = "urn:fluux:agent:0#task"
SLOW = {"kind": "call", "skill": "slow", "params": {"text": "x"}}


async def execute(program: Peer, skill: str, **params: Any) -> Result:
    text = escape_text(json.dumps(params))
    answered = await program.iq(
        "set",
        f"<execute xmlns='urn:fluux:agent:0#execute' skill='{skill}' mode='inline'>"
        f"<params type='application/json'>{text}</params></execute>",
    )
    return answered.require(Result)


async def start(program: Peer, document: dict[str, Any]) -> str:
    result = await execute(program, "plan_start", plan=document)
    assert not result.is_error, result
    id_: str = json.loads(result.outputs[1].text)["plan"]
    return id_


async def event(program: Peer, id_: str) -> Task:
    """Return the next event of a task."""
    message = await program.receive(
        lambda one: (
            one.kind == "message" and (found := one.payload(Task)) is not None and found.id == id_
        )
    )
    schemas.check(message.forward())
    return message.require(Task)


async def until(program: Peer, id_: str, **states: str) -> Task:
    """Return the next event of a plan in which these steps are in these states."""
    while True:
        found = await event(program, id_)
        if states.items() <= {one.id: one.state for one in steps(found)}.items():
            return found


async def ask(program: Peer, payload: str) -> Incoming:
    """Return the answer to a request."""
    answered = await program.iq("get", payload)
    schemas.check(answered.forward())
    return answered


async def get(program: Peer, id_: str | None) -> Task:
    return (await ask(program, f"<task xmlns='{TASK}' id='{id_}'/>")).require(Task)


def steps(task: Task) -> tuple[PlanStep, ...]:
    return () if task.plan is None else task.plan.steps


async def test_a_program_sees_the_steps_of_its_plan_in_each_state_of_the_task(
    tmp_path: Path,
) -> None:
    second = {"id": "b", "params": {"text": "{a.text}"}, "after": ["a"], "title": "Do it again"}
    document = plan({"id": "a"}, {"kind": "call", "skill": "do"} | second)
    async with planning(tmp_path) as (_, program, _):
        info = (await program.iq("get", f"<query xmlns='{INFO}'/>")).require(InfoQuery)
        assert NAMESPACE in [one.var for one in info.features]
        id_ = await start(program, document)
        told = [await event(program, id_)]
        while told[-1].state != "completed":
            told.append(await event(program, id_))
        assert [[one.state for one in steps(task)] for task in told] == [
            [],
            ["waiting", "waiting"],
            ["running", "waiting"],
            ["done", "running"],
            ["done", "done"],
            ["done", "done"],
        ]
        whole = await get(program, id_)
        assert whole.plan == told[-1].plan
        assert whole.plan is not None
        one, two = whole.plan.steps
        assert (one.title, one.kind, one.after) == ("run do", "call", None)
        assert (two.title, two.after, whole.plan.revision) == ("Do it again", "a", 1)
        assert (await get(program, two.task)).state == "completed"

        query = f"<events xmlns='{TASK}' id='{id_}' since='0'/>"
        kept = (await ask(program, query)).require(Events)
        assert [one.plan for one in kept.tasks] == [one.plan for one in told]
        listed = (await ask(program, f"<tasks xmlns='{TASK}'/>")).require(Tasks)
        assert [one.plan for one in listed.tasks if one.id == id_] == [whole.plan]
        node = f"<pubsub xmlns='{PUBSUB}'><items node='urn:fluux:agent:0#tasks'/></pubsub>"
        assert (await ask(program, node)).forward().count("<step ") == 2


async def test_of_two_revisions_that_were_made_from_one_plan_one_counts(tmp_path: Path) -> None:
    async with planning(tmp_path) as (_, program, _):
        id_ = await start(program, plan({"id": "a"}, {"id": "b", "after": ["a"]} | SLOW))
        before = await until(program, id_, a="done", b="running")
        document = plan({"id": "a"}, {"id": "c", "after": ["a"]} | SLOW)
        revised = await execute(program, "plan_revise", plan=id_, revision=1, document=document)
        assert not revised.is_error
        after = await until(program, id_, a="done", c="running")
        assert after.plan is not None
        assert before.plan is not None
        assert (after.plan.revision, after.plan.steps[0]) == (2, before.plan.steps[0])
        assert after.plan.digest != before.plan.digest
        assert (await get(program, before.plan.steps[1].task)).state == "cancelled"
        late = await execute(program, "plan_revise", plan=id_, revision=1, document=document)
        assert late.is_error
        assert "has the revision 2" in late.outputs[0].text
        assert (await get(program, id_)).plan == after.plan


async def test_what_a_program_adds_to_its_plan_is_confirmed_like_a_new_plan(
    tmp_path: Path,
) -> None:
    async with planning(tmp_path) as (kit, program, deeds):
        id_ = await start(program, plan({"id": "a"} | SLOW))
        await until(program, id_, a="running")
        added = {"id": "b", "skill": "send", "params": {"to": "romeo", "text": "x"}}
        document = plan({"id": "a"} | SLOW, added)
        await execute(program, "plan_revise", plan=id_, revision=1, document=document)
        assert "to: romeo" in await program.hear("May I carry out this plan")
        assert deeds.done == []
        await answer(kit, program, "yes")
        await until(program, id_, a="running", b="done")
        assert deeds.done == ["to romeo: x"]


async def test_no_step_runs_in_a_cancelled_plan(tmp_path: Path) -> None:
    async with planning(tmp_path) as (_, program, _):
        id_ = await start(program, plan({"id": "a"} | SLOW, {"id": "b", "after": ["a"]}))
        running = await until(program, id_, a="running")
        await program.iq("set", f"<cancel xmlns='{TASK}' id='{id_}'/>")
        assert [one.state for one in steps(await get(program, id_))] == ["cancelled", "waiting"]
        assert (await get(program, steps(running)[0].task)).state == "cancelled"

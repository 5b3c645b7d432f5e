"""A task stays its principal's when the skill is not for that principal any more (TSK-012)."""

import msgspec
import pytest

from component.policy import Policy, Rule
from component.skills import Registry
from component.skills.conformance_fixtures import conformance_skills
from tests.component.link.router.wire import AGENT, error_of, until
from tests.component.world import ALICE, BOB, World, result
from xep.fluux_agent.errors import UnknownSkill, UnknownTask
from xep.fluux_agent.execute import Accepted, Execute, Param
from xep.fluux_agent.task import AnswerParams, Cancel, Events, InputAnswer, Task, Tasks
from xep.jid import JID

pytestmark = pytest.mark.anyio


def asks(skill: str, **params: str) -> Execute:
    given = tuple([Param(name=name, text=text) for name, text in params.items()])
    return Execute(skill=f"conformance.{skill}", mode="async", params=given)


async def begun(world: World, asked: Execute) -> str:
    return result(Accepted, await world.asked(asked)).task


async def waiting(world: World, task: str) -> Task:
    """The task, once it asks."""
    who, at = JID.parse(ALICE).bare, JID.parse(AGENT)

    def asked() -> bool:
        sent = world.told.sent
        return any(f" id='{task}'" in one and "state='input-required'" in one for one in sent)

    await until(asked)
    return await world.service.get(who, at, task)


async def test_a_task_stays_open_to_its_principal_when_the_skill_leaves_the_view() -> None:
    skills = conformance_skills()
    world = World(skills)
    async with world.running():
        done = await begun(world, asks("echo", text="kept"))
        await world.ended(done)
        answered = await begun(world, asks("ask", question="Which?"))
        asked = await waiting(world, answered)
        cancelled = await begun(world, asks("say", question="What?"))
        await waiting(world, cancelled)

        gone = Rule(("conformance.*",), allowed_jids=("bob@b.example",))
        world.registry = Registry(skills)  # which remembers views; nobody's policy changes under it
        world.policy = Policy(allowed_domains=["a.example", "b.example"], rules=[gone])
        assert world.view(JID.parse(ALICE).bare).get("conformance.echo") is None
        refused = error_of(await world.asked(asks("echo", text="more")))
        assert refused.application == (UnknownSkill(),)

        shown = result(Task, await world.asked(Task(id=done), type_="get"))
        assert shown.result is not None
        assert [output.text for output in shown.result.outputs] == ["kept"]
        listed = result(Tasks, await world.asked(Tasks(), type_="get"))
        assert {one.id for one in listed.tasks} == {done, answered, cancelled}
        told = result(Events, await world.asked(Events(id=done, since=0), type_="get"))
        assert told.tasks[-1].state == "completed"

        assert asked.input is not None
        answer = InputAnswer(
            task=answered,
            input=asked.input.id,
            revision=asked.input.revision,
            params=AnswerParams(json=msgspec.Raw(b'{"colour":"red"}')),
        )
        assert result(Task, await world.asked(answer)).id == answered
        ended = result(Task, await world.asked(Cancel(id=cancelled)))
        assert ended.state == "cancelled"
        for one in (done, answered, cancelled):
            other = error_of(await world.asked(Task(id=one), type_="get", from_=BOB))
            assert other.application == (UnknownTask(),)

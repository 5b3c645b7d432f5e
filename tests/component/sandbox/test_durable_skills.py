"""Confined skills have steps, questions and timers as all others."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest

from component.sandbox.process_skills import ChildPool, ProcessSkills
from component.sandbox.profile import Profile
from component.skill_directories.host_functions import Functions
from component.skills import Context, Skill, SkillFailed, SkillUnavailable
from component.skills.fake_context import FakeContext, called
from component.skills.host import HostFunctions, HttpRequest, HttpResponse
from component.store import Storage
from tests.component.sandbox import durable_module
from tests.component.sandbox.plain_functions import plain_functions
from tests.component.tasks.world import AGENT, ANN, World, living
from xep.fluux_agent.execute import Result
from xep.fluux_agent.task import AnswerParams, InputAnswer

pytestmark = pytest.mark.anyio

Open = Callable[..., AbstractAsyncContextManager[Storage]]


@asynccontextmanager
async def confined(functions: Functions = plain_functions) -> AsyncIterator[dict[str, Skill]]:
    children = ChildPool()
    async with anyio.create_task_group() as group:
        await group.start(children.run)
        module = ProcessSkills(children, Profile(), str(durable_module.__file__), functions)
        yield {one.name: one for one in await module.describe()}
        group.cancel_scope.cancel()


@pytest.fixture(scope="module")
async def skills() -> AsyncIterator[dict[str, Skill]]:
    """Skills whose child serves several tests."""
    async with confined() as found:
        yield found


async def says(skill: Skill, context: FakeContext | None = None) -> str:
    result = await called(skill, {}, context or FakeContext())
    return "".join(part.text for part in result.outputs)


async def answer(world: World, task: str, values: dict[str, Any]) -> str:
    """Answer the question of a task, and return its text."""
    asked = await world.reaches(task, "input-required")
    assert asked.input is not None
    await world.service.answer(
        ANN.bare,
        AGENT,
        InputAnswer(
            task=task,
            input=asked.input.id,
            revision=asked.input.revision,
            params=AnswerParams(json=msgspec.Raw(msgspec.json.encode(values))),
        ),
    )
    return asked.input.questions[0].text


async def test_steps_and_questions_survive_a_restart(open_storage: Open) -> None:
    async with confined() as skills:
        async with living(open_storage, *skills.values()) as world:
            task = await world.task("lunch")
            await world.reaches(task, "input-required")
        async with living(open_storage, *skills.values()) as world:
            question = await answer(world, task, {"dish": "soup"})
            ended = await world.ear.ended(task)
    assert question.startswith("lunch: What is number ")
    assert isinstance(ended.result, Result)
    dish, number, key = ended.result.outputs[0].text.split(", ")
    assert dish == "soup"
    assert number in question, "the first step ran once"
    assert len(key) == 32


async def test_questions_of_one_task_are_bounded(
    open_storage: Open, monkeypatch: pytest.MonkeyPatch, skills: dict[str, Skill]
) -> None:
    monkeypatch.setattr("component.tasks.journal.MOST_QUESTIONS", 3)
    async with living(open_storage, *skills.values()) as world:
        task = await world.task("spam")
        for _ in range(3):
            await answer(world, task, {"dish": "soup"})
        ended = await world.ear.ended(task)
    assert ended.state == "failed"


async def test_branches_and_nested_steps(skills: dict[str, Skill]) -> None:
    context = FakeContext()
    assert msgspec.json.decode(await says(skills["branches"], context)) == ["A", "B", "C", "21"]
    assert sorted(context.steps) == ["branch", "branch", "branch", "inner", "outer"]
    assert len(context.progress_reports) == 3


async def test_errors_of_steps_are_those_of_any_skill(skills: dict[str, Skill]) -> None:
    said = msgspec.json.decode(await says(skills["fails"]))
    assert said[0] == "SkillError not today"
    assert said[1].startswith("StepFailed ")
    assert "ZeroDivisionError: inside" in said[1]
    assert said[2].startswith("UsageError A skill asks a question before")
    assert said[3] == "A confined skill cannot use context.start: it"[:45]


async def test_plain_functions_have_steps_too(skills: dict[str, Skill]) -> None:
    assert await says(skills["plain"]) == "7"
    with pytest.raises(SkillFailed):
        await says(skills["not_durable"])


class Slow:
    """A server that never answers."""

    def __init__(self) -> None:
        self.asked = self.stopped = 0

    async def http(self, request: HttpRequest) -> HttpResponse:
        self.asked += 1
        try:
            await anyio.sleep_forever()
        finally:
            self.stopped += 1
        raise AssertionError

    def functions(self, context: Context) -> HostFunctions:
        plain = plain_functions(context)
        handlers = {**plain.handlers, HttpRequest: self.http}
        return msgspec.structs.replace(plain, handlers=handlers)


@pytest.fixture(scope="module")
def server() -> Slow:
    return Slow()


@pytest.fixture(scope="module")
async def waiting(server: Slow) -> AsyncIterator[dict[str, Skill]]:
    """Skills that ask the slow server."""
    async with confined(server.functions) as found:
        yield found


@pytest.fixture
def slow(server: Slow) -> Slow:
    server.asked = server.stopped = 0
    return server


async def test_what_a_skill_gives_up_stops_in_the_service(
    slow: Slow, waiting: dict[str, Skill]
) -> None:
    assert await says(waiting["impatient"]) == "given up"
    assert (slow.asked, slow.stopped) == (1, 1)


async def test_functions_at_the_same_time_are_bounded(
    slow: Slow, waiting: dict[str, Skill]
) -> None:
    with pytest.raises(SkillUnavailable, match="more than 64 things at once"):
        await says(waiting["greedy"])
    assert slow.asked == slow.stopped <= 64

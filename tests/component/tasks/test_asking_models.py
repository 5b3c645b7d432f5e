"""A skill asks a model: typed answers, recorded like steps, within what it declares."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec
import pytest

from component.skills import Context, ModelFailed, Skill, skill
from component.skills.errors import CapabilityMissing, UsageError
from component.skills.operations import ModelQuestion, question
from component.tasks.request import Request
from tests.component.tasks.test_durable import Choice, answer, text_of
from tests.component.tasks.world import Open, World, living
from xep.fluux_agent.execute import Result

pytestmark = pytest.mark.anyio


class Mood(msgspec.Struct):
    """What a model is asked for."""

    mood: Literal["good", "bad"]
    stars: int = 3


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Oracle:
    """A model: it answers what it is told to."""

    def __init__(self, *answers: str | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str]] = []

    async def ask(self, request: Request, task: str, asked: ModelQuestion) -> str:
        self.asked.append((str(request.principal), asked.prompt))
        answer = self.answers[len(self.asked) - 1]
        if isinstance(answer, Exception):
            raise answer
        asked.check(answer)
        return answer


def moody(work: Callable[[Context], Awaitable[str]], **how: Any) -> Skill:
    """A skill that asks a model."""

    @skill(name="moody", **{"capabilities": ("llm",), "read_only": True, **how})
    async def moody(context: Context) -> str:
        return await work(context)

    return moody


async def result_of(world: World) -> Result:
    result = await world.run("moody")
    assert isinstance(result, Result)
    return result


async def test_the_answer_has_the_type_that_was_asked_for(open_storage: Open) -> None:
    async def work(context: Context) -> str:
        mood = await context.llm("How do they feel? <Great!>", Mood)
        number = await context.llm("How many?", SCHEMA)
        return f"{mood.mood} {mood.stars} {number['n'] + 1}"

    oracle = Oracle('{"mood":"good"}', '{"n":41}')
    async with living(open_storage, moody(work)) as world:
        world.ask_model = oracle.ask
        assert (await result_of(world)).outputs[0].text == "good 3 42"
    assert [prompt for _, prompt in oracle.asked] == ["How do they feel? <Great!>", "How many?"]


@pytest.mark.parametrize("how", [{"read_only": True}, {"read_only": False}])
async def test_what_goes_wrong_is_typed_and_told(open_storage: Open, how: dict[str, Any]) -> None:
    async def work(context: Context) -> str:
        try:
            await context.llm("How many?", SCHEMA)
        except ModelFailed as failed:
            first = failed.problem
        await context.llm("And now?", SCHEMA)
        return first

    oracle = Oracle(ModelFailed("unavailable", "Later."), ModelFailed("budget", "It is used up."))
    async with living(open_storage, moody(work, **how)) as world:
        world.ask_model = oracle.ask
        result = await result_of(world)
    assert result.is_error
    assert result.outputs[0].text == "It is used up."


async def test_without_a_model_it_is_refused(open_storage: Open) -> None:
    async def work(context: Context) -> str:
        return (await context.llm("How many?", Mood)).mood

    async with living(open_storage, moody(work)) as world:
        result = await result_of(world)
    assert result.is_error
    assert result.outputs[0].text == "No language model is set up."


async def test_a_skill_that_does_not_declare_it_cannot_ask(open_storage: Open) -> None:
    async def work(context: Context) -> str:
        try:
            await context.llm("How many?", Mood)
        except CapabilityMissing as error:
            return error.capability
        raise AssertionError

    oracle = Oracle()
    async with living(open_storage, moody(work, capabilities=())) as world:
        world.ask_model = oracle.ask
        assert (await result_of(world)).outputs[0].text == "llm"
    assert oracle.asked == []


@pytest.mark.ports
async def test_a_recorded_answer_is_not_asked_for_again(open_storage: Open) -> None:
    """Nor is what went wrong: the skill takes the same path when it runs again."""

    async def work(context: Context) -> str:
        mood = await context.llm("How do they feel?", Mood)
        try:
            await context.llm("And she?", Mood)
        except ModelFailed as failed:
            problem = failed.problem
        choice = await context.ask("Which colour?", Choice)
        return f"{mood.mood} {problem} {choice.colour}"

    oracle = Oracle('{"mood":"bad"}', ModelFailed("invalid", "No."))
    asking = moody(work, durable=True, read_only=False)
    async with living(open_storage, asking) as world:
        world.ask_model = oracle.ask
        task = await world.task("moody")
        await world.ear.in_state(task, "input-required")
    # Killed, and begun again.
    async with living(open_storage, asking) as world:
        world.ask_model = oracle.ask
        await answer(world, await world.get(task), {"colour": "red"})
        assert text_of(await world.reaches(task, "completed", "failed")) == "bad invalid red"
    assert len(oracle.asked) == 2


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (int, "is int"),
        ({"type": "string"}, "for an object"),
        ({"type": "object", "properties": 3}, "is not of type"),
    ],
)
def test_what_is_asked_for_is_an_object(schema: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        question("?", schema, 10)


def test_an_answer_is_held_to_its_schema() -> None:
    check = question("?", SCHEMA, 10).check
    assert check('{"n":1}') == {"n": 1}
    for wrong in ('{"n":"1"}', "{}", "n", "[]"):
        with pytest.raises(ValueError, match=r"."):
            check(wrong)

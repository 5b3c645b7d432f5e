"""Questions of skills to models are charged, recorded, and answered with valid JSON."""

from collections.abc import Callable

import msgspec
import pytest

from component.agent.model_calls import ModelCalls, SkillModel
from component.budget.protocol import Spender
from component.kernel.monitoring import Monitoring
from component.models.building import Fallback, only
from component.models.protocol import (
    Completion,
    ContextOverflowError,
    ModelRefusedError,
    ModelRequest,
    ModelUnavailableError,
)
from component.skills.operations import ModelFailed, question
from tests.component.agent.world import ROMEO, Brain, Death, Purse, says
from tests.component.audit.book import Book
from xep.jid import JID

pytestmark = pytest.mark.anyio


class Mood(msgspec.Struct):
    """The type of the answer."""

    mood: str


class World:
    """A model, a budget and an audit log."""

    def __init__(self, think: Callable[[ModelRequest], Completion]) -> None:
        self.death = Death()
        self.brain = Brain(self)  # type: ignore[arg-type]  # it needs no more of a world
        self.brain.think = think
        self.purse, self.book = Purse(), Book()
        self.of: list[tuple[str, JID]] = []

    async def model(self, agent: str, who: JID) -> Brain:
        self.of.append((agent, who))
        return self.brain

    async def ask(self, max_tokens: int = 50, only: str = "") -> str:
        calls = ModelCalls(self.purse, self.book, Monitoring())
        spender = Spender(("assistant/helper-1", "assistant"), ROMEO, "turn-1")
        asked = question("How do they feel?", Mood, max_tokens, only)
        return await SkillModel(self.model, calls).ask(spender, asked)


async def test_a_question_is_asked_with_its_schema_and_charged() -> None:
    world = World(lambda _: says('{"mood":"good"}'))
    assert await world.ask() == '{"mood":"good"}'
    (request,) = world.brain.asked
    assert request.schema is not None
    assert b'"mood"' in bytes(request.schema)
    assert [one.role for one in request.messages] == ["system", "user"]
    assert request.messages[1].text == "How do they feel?"
    assert (request.tools, request.max_tokens) == ((), 50)
    assert world.of == [("assistant", ROMEO)]
    assert [(who.agents[0], who.task) for who in world.purse.who] == [
        ("assistant/helper-1", "turn-1")
    ]
    assert [amount.tokens for amount in world.purse.spent] == [15]
    assert [(event.kind, event.outcome) for event in world.book.events] == [("model", "done")]


async def test_an_answer_in_a_block_of_markdown_is_accepted() -> None:
    world = World(lambda _: says('```json\n{"mood":"good"}\n```'))
    assert await world.ask() == '{"mood":"good"}'


async def test_after_an_invalid_answer_the_model_is_asked_once_more() -> None:
    answers = iter(('{"mood":3}', '{"mood":"bad"}'))
    world = World(lambda _: says(next(answers)))
    assert await world.ask() == '{"mood":"bad"}'
    last = world.brain.asked[1].messages
    assert last[:2] == world.brain.asked[0].messages
    assert "Expected `str`, got `int`" in last[-1].text


async def test_a_second_invalid_answer_is_an_error() -> None:
    world = World(lambda _: says("They feel good."))
    with pytest.raises(ModelFailed, match="does not fit") as failed:
        await world.ask()
    assert failed.value.problem == "invalid"
    assert len(world.brain.asked) == 2


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (ModelUnavailableError("http://10.0.0.1"), "unavailable"),
        (ModelRefusedError("the key sk-1 is wrong"), "refused"),
        (ContextOverflowError("8193 > 8192"), "refused"),
    ],
)
async def test_failures_are_reported_without_internals(error: Exception, problem: str) -> None:
    def think(_request: ModelRequest) -> Completion:
        raise error

    with pytest.raises(ModelFailed) as failed:
        await World(think).ask()
    assert failed.value.problem == problem
    assert str(error) not in str(failed.value)


async def test_an_insufficient_budget_is_reported() -> None:
    world = World(lambda _: says("{}"))
    world.purse.left = 10
    with pytest.raises(ModelFailed, match="used up") as failed:
        await world.ask()
    assert failed.value.problem == "budget"
    assert world.brain.asked == []


async def test_only_the_model_that_a_skill_may_ask_is_asked() -> None:
    world = World(lambda _: says('{"mood":"good"}'))
    name = world.brain.name
    assert await world.ask(only=name) == '{"mood":"good"}'
    with pytest.raises(
        ModelFailed, match=f"the model another only, and the agent uses {name}"
    ) as no:
        await world.ask(only="another")
    assert no.value.problem == "refused"
    assert len(world.brain.asked) == 1


async def test_a_model_of_a_chain_is_asked_by_its_name() -> None:
    first, second = World(lambda _: says("{}")).brain, World(lambda _: says("{}")).brain
    second.name = "second"
    chain = Fallback([first, second])
    assert only(chain, "second") is second
    assert only(chain, first.name) is first
    assert only(chain, "third") is None

"""Answers in words, judged by the engine on either database, across restarts."""

import functools

import pytest

from component.audit.protocol import AuditEvent
from component.skills import Context, Denied, skill
from component.task_messages.spoken_answers import declining
from component.tasks import question_rows
from component.tasks.events import TaskRecords
from component.tasks.protocol import Naming, UncertainError
from component.tasks.questions import Judgement
from component.tasks.request import Confirmation
from tests.component.tasks.test_durable import text_of
from tests.component.tasks.world import AGENT, ANN, BOB, Open, World, living
from tests.waiting import eventually
from xep.fluux_agent.confirm import Decision
from xep.fluux_agent.task import Cancel, Task

pytestmark = pytest.mark.anyio


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question_rows, "STANDS_MS", 0)


@pytest.fixture
def _whatever_was_closed(_at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question_rows, "CLOSED_MS", 0)


@skill(name="erase", destructive=True)
def erase() -> str:
    """Erase everything."""
    return "erased"


async def asked(world: World) -> Task:
    """Bob has Ann asked."""
    task = await world.task("erase", by=BOB, confirm=Confirmation((ANN.bare,), "high"))
    return await world.ear.in_state(task, "input-required")


async def say_yes(world: World, question: Task, naming: Naming | None) -> None:
    assert question.confirm is not None
    decision = Decision(id=question.confirm.id, value="approve")
    await world.service.decide(ANN.bare, AGENT, decision, naming=naming)


async def told(world: World) -> bool:
    """Whether the disk says that all messages were sent."""
    return not await world.scalar("SELECT count(*) FROM tasks WHERE unsent_revision IS NOT NULL")


async def state(world: World, task: Task) -> str:
    return (await world.get(task.id, who=BOB)).state


@pytest.mark.ports
async def test_a_question_that_has_just_been_asked_wants_a_name(open_storage: Open) -> None:
    async with living(open_storage, erase) as world:
        question = await asked(world)
        assert question.confirm is not None
        with pytest.raises(UncertainError):
            await say_yes(world, question, Naming())
        with pytest.raises(UncertainError):
            await say_yes(world, question, Naming(thread="another"))
        assert await state(world, question) == "input-required"
        await say_yes(world, question, Naming(beginning=question.confirm.id[:4]))
        assert (await world.ear.ended(question.id)).state == "completed"


@pytest.mark.ports
@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize("restarted", [False, True])
async def test_what_was_withdrawn_is_in_the_way_after_a_restart_too(
    open_storage: Open, restarted: bool
) -> None:
    async with living(open_storage, erase) as world:
        bait = await asked(world)
        await world.service.cancel(BOB.bare, AGENT, Cancel(id=bait.id))
        if not restarted:
            await _is_not_switched(world)
    if restarted:
        async with living(open_storage, erase) as world:
            await _is_not_switched(world)


async def _is_not_switched(world: World) -> None:
    question = await asked(world)
    with pytest.raises(UncertainError):
        await say_yes(world, question, Naming())
    assert await state(world, question) == "input-required"
    await say_yes(world, question, Naming(thread=question.id))
    assert (await world.ear.ended(question.id)).state == "completed"


@pytest.mark.usefixtures("_whatever_was_closed")
async def test_several_open_questions_are_no_one(open_storage: Open) -> None:
    async with living(open_storage, erase) as world:
        first, second = await asked(world), await asked(world)
        with pytest.raises(UncertainError):
            await say_yes(world, first, Naming())
        await say_yes(world, first, None)
        await say_yes(world, second, Naming())  # the only one that is left
        for one in (first, second):
            assert (await world.ear.ended(one.id)).state == "completed"


@pytest.mark.usefixtures("_whatever_was_closed")
async def test_nothing_is_left_of_what_was_answered(open_storage: Open) -> None:
    async with living(open_storage, erase) as world:
        await say_yes(world, await asked(world), Naming())
        assert await world.scalar("SELECT count(*) FROM recent_questions") == 0


def test_that_a_yes_was_not_taken_is_recorded() -> None:
    recorded: list[AuditEvent] = []

    class Record:
        def record(self, event: AuditEvent) -> None:
            recorded.append(event)

    decision = Decision(id="c-1", value="approve")
    TaskRecords(Record()).decided(ANN, decision, Judgement(doubt="other questions"))
    (event,) = recorded
    assert (event.kind, event.outcome) == ("confirmation", "refused")
    assert event.detail == "may be meant for another question"


@pytest.mark.ports
@pytest.mark.usefixtures("_whatever_was_closed")
async def test_words_count_only_for_a_question_that_was_written_to_the_person(
    open_storage: Open,
) -> None:
    async with living(open_storage, erase) as world:
        world.ear.holds = True
        question = await asked(world)
        (delivery,) = world.ear.deliveries[-1:]
        with pytest.raises(UncertainError):
            await say_yes(world, question, Naming(thread=question.id))
        delivery.conclude()
        await say_yes(world, question, Naming(thread=question.id))


@pytest.mark.ports
@pytest.mark.parametrize("how", ["withheld", "returned"])
@pytest.mark.usefixtures("_whatever_was_closed")
async def test_a_restart_does_not_show_a_question_that_was_not_shown(
    open_storage: Open, how: str
) -> None:
    async with living(open_storage, erase) as world:
        world.ear.holds = how == "withheld"
        question = await asked(world)
        assert question.confirm is not None
        if how == "withheld":
            (delivery,) = world.ear.deliveries[-1:]
            delivery.withheld = frozenset((ANN.bare,))
            delivery.conclude()
        await eventually(functools.partial(told, world))
        if how == "returned":
            await world.service.returned(ANN, AGENT, question.confirm.id)
    async with living(open_storage, erase) as world:
        (found,) = await world.service.open_questions(ANN, AGENT)
        assert found.shown == how
        with pytest.raises(UncertainError):
            await say_yes(world, question, Naming())
        await say_yes(world, question, None)  # whoever knows the identifier has seen it
        assert (await world.ear.ended(question.id)).state == "completed"


@skill(name="survey", durable=True)
async def survey(context: Context) -> str:
    """Ask for a number."""
    try:
        answer = await context.ask("How many?", {"type": "object", "properties": {"n": NUMBER}})
    except Denied as denied:
        return f"declined: {denied.reason}"
    return str(answer)


NUMBER = {"type": "integer"}


@pytest.mark.ports
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_question_is_declined_with_a_reason(open_storage: Open, restarted: bool) -> None:
    async with living(open_storage, survey) as world:
        task = await world.task("survey")
        asked = await world.ear.in_state(task, "input-required")
        if not restarted:
            await _declines(world, asked)
    if restarted:
        async with living(open_storage, survey) as world:
            await _declines(world, asked)


async def _declines(world: World, asked: Task) -> None:
    assert asked.input is not None
    given = declining(asked.input, asked.id)
    # At once, and though it names nothing: a refusal needs no certainty.
    await world.service.answer(ANN.bare, AGENT, given, Naming(), "it rains")
    assert text_of(await world.ear.ended(asked.id)) == "declined: it rains"
    await world.service.answer(ANN.bare, AGENT, given)  # the same again changes nothing

"""Steps, questions and restarts: what is done stays done, and nothing is lost."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import anyio.from_thread
import msgspec
import pytest

from component.skills import Context, Denied, Skill, SkillError, StepFailed, skill
from component.skills.conformance_fixtures import conformance_skills
from component.tasks import questions
from component.tasks.protocol import Notice
from component.tasks.request import Confirmation
from tests.component.tasks.world import AGENT, ANN, BOB, Ear, Open, World, living
from tests.waiting import eventually
from xep.data_forms import Form
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Decision
from xep.fluux_agent.execute import Accepted, Result
from xep.fluux_agent.task import AnswerParams, Cancel, InputAnswer, Task
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio


class Choice(msgspec.Struct):
    """What is asked for."""

    colour: str


def text_of(task: Task) -> str:
    assert task.result is not None, task
    return task.result.outputs[-1].text


def conditions(task: Task) -> tuple[object, ...]:
    assert task.failure is not None, task
    return task.failure.conditions


def three_steps(
    log: list[str], gates: dict[str, Callable[[], Any]] | None = None, **how: Any
) -> Skill:
    """A skill of three steps, which writes down what it does."""

    @skill(name="three", **{"durable": True, **how})
    async def three(context: Context) -> str:
        given = []
        for name in ("a", "b", "c"):

            async def work(key: str, name: str = name) -> str:
                log.append(f"{name} {key}")
                if gates and name in gates:
                    await gates[name]()
                return name.upper()

            given.append(await context.step(name, work, str))
        return "".join(given)

    return three


@pytest.mark.ports
async def test_steps_with_effects_are_recorded_before_and_after(open_storage: Open) -> None:
    log: list[str] = []
    async with living(open_storage, three_steps(log)) as world:
        result = await world.run("three")
        assert isinstance(result, Result)
        assert result.outputs[0].text == "ABC"
        assert len({entry.split()[1] for entry in log}) == 3
        # It had rows, but was never seen as a task.
        assert await world.scalar("SELECT count(*) FROM journal WHERE done = 1") == 3
        assert await world.scalar("SELECT promoted FROM tasks") == 0
        assert world.ear.notices == []
        with pytest.raises(StanzaError):
            await world.get(await world.scalar("SELECT id FROM tasks"))


async def test_steps_that_may_run_again_cost_no_commit(open_storage: Open) -> None:
    log: list[str] = []
    async with living(open_storage, three_steps(log, read_only=True)) as world:
        assert isinstance(await world.run("three"), Result)
        assert await world.scalar("SELECT count(*) FROM tasks") == 0


async def test_the_same_name_twice_is_two_steps(open_storage: Open) -> None:
    @skill(name="twice", durable=True)
    async def twice(context: Context) -> list[str]:
        async def work(key: str) -> str:
            return key

        return [await context.step("x", work, str), await context.step("x", work, str)]

    async with living(open_storage, twice) as world:
        first, second = msgspec.json.decode(
            text_of(await world.ear.ended(await world.task("twice")))
        )
        assert first != second


@pytest.mark.ports
@pytest.mark.parametrize("mode", ["async", "auto"])
async def test_a_kill_between_steps_loses_nothing_and_repeats_nothing(
    open_storage: Open, mode: str
) -> None:
    log: list[str] = []
    there = anyio.Event()

    async def stay() -> None:
        there.set()
        await anyio.sleep_forever()

    @skill(name="three", durable=True)
    async def blocked(context: Context) -> str:
        async def work(key: str) -> str:
            log.append(f"a {key}")
            return "A"

        await context.step("a", work, str)
        await stay()
        return ""

    ear = Ear()
    async with living(open_storage, blocked, ear=ear) as world, anyio.create_task_group() as group:
        group.start_soon(functools.partial(world.run, "three", mode=mode, request="r"))
        await there.wait()
        group.cancel_scope.cancel()
    gate = anyio.Event()  # or the task could have ended before it is asked for again
    async with living(open_storage, three_steps(log, {"b": gate.wait}), ear=ear) as world:
        if mode == "auto":
            # What was not answered yet is answered now, as the task that it has become.
            accepted = await world.run("three", request="r")
            assert isinstance(accepted, Accepted)
            task = accepted.task
        else:
            accepted = await world.run("three", mode="async", request="r")
            assert isinstance(accepted, Accepted)
            task = accepted.task
        gate.set()
        ended = await world.ear.ended(task)
        assert text_of(ended) == "ABC"
        assert [entry.split()[0] for entry in log] == ["a", "b", "c"]
        revisions = [one.revision for one in await world.events(task)]
        assert revisions == list(range(1, len(revisions) + 1))


@pytest.mark.ports
async def test_a_kill_inside_a_step_with_effects_is_outcome_unknown(open_storage: Open) -> None:
    log: list[str] = []
    there = anyio.Event()

    async def stay() -> None:
        there.set()
        await anyio.sleep_forever()

    async with living(open_storage, three_steps(log, {"b": stay})) as world:
        task = await world.task("three")
        await there.wait()
    async with living(open_storage, three_steps(log)) as world:
        ended = await world.ear.ended(task)
        assert (ended.state, conditions(ended)) == ("failed", (errors.OutcomeUnknown(),))
        assert [entry.split()[0] for entry in log] == ["a", "b"]


async def test_a_kill_inside_a_repeatable_skill_runs_it_again(open_storage: Open) -> None:
    log: list[str] = []
    there = anyio.Event()

    async def stay() -> None:
        there.set()
        await anyio.sleep_forever()

    async with living(open_storage, three_steps(log, {"b": stay}, idempotent=True)) as world:
        task = await world.task("three")
        await there.wait()
    async with living(open_storage, three_steps(log, idempotent=True)) as world:
        assert text_of(await world.ear.ended(task)) == "ABC"
        names = [entry.split()[0] for entry in log]
        assert names == ["a", "b", "b", "c"]
        assert log[1] == log[2]  # RPL-021: under the same idempotency key


@pytest.mark.parametrize("mode", ["async", "auto", "inline"])
async def test_a_skill_without_steps_that_was_interrupted_is_outcome_unknown(
    open_storage: Open, mode: str
) -> None:
    there = anyio.Event()

    @skill(name="atom")
    async def atom() -> None:
        there.set()
        await anyio.sleep_forever()

    async with living(open_storage, atom) as world, anyio.create_task_group() as group:
        group.start_soon(functools.partial(world.run, "atom", mode=mode, request="r"))
        await there.wait()
        group.cancel_scope.cancel()
    async with living(open_storage, atom) as world:
        if mode == "async":
            accepted = await world.run("atom", mode=mode, request="r")
            assert isinstance(accepted, Accepted)
            assert conditions(await world.ear.ended(accepted.task)) == (errors.OutcomeUnknown(),)
            return
        with pytest.raises(StanzaError) as caught:
            await world.run("atom", mode=mode, request="r")
        assert caught.value.application == (errors.OutcomeUnknown(),)


@pytest.mark.parametrize(("how", "resumes"), [("drain", True), ("kill", True), ("cancel", False)])
async def test_a_skill_that_is_stopped_knows_whether_its_call_goes_on(
    open_storage: Open, how: str, resumes: bool
) -> None:
    begun, found = anyio.Event(), []

    @skill(durable=True)
    async def elsewhere(context: Context) -> str:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            found.append(context.resumes)
        return ""

    async with living(open_storage, elsewhere, drain_s=0.01) as world:
        task = await world.task("elsewhere")
        await begun.wait()
        if how == "drain":
            await world.service.drain()
        elif how == "cancel":
            await world.service.cancel(ANN.bare, AGENT, Cancel(id=task))
            await world.reaches(task, "cancelled")
    assert found == [resumes]


async def test_what_a_step_raised_is_recorded_and_raised_again(open_storage: Open) -> None:
    tries: list[str] = []
    met: list[str] = []

    @skill(name="fails", durable=True)
    async def fails(context: Context) -> str:
        async def refuse(_: str) -> str:
            tries.append("refuse")
            raise SkillError("no")

        async def break_(_: str) -> str:
            tries.append("break")
            raise ValueError("odd")

        for work in (refuse, break_):
            try:
                await context.step(work.__name__, work, str)
            except (SkillError, StepFailed) as error:
                met.append(f"{type(error).__name__} {error}")
        return (await context.ask("Which?", Choice)).colour

    async with living(open_storage, fails) as world:
        task = await world.task("fails")
        asked = await world.ear.in_state(task, "input-required")
        await answer(world, asked, {"colour": "red"})
        assert text_of(await world.ear.ended(task)) == "red"
        assert tries == ["refuse", "break"]
        assert met[0] == met[2] == "SkillError no"
        assert met[1].startswith("StepFailed")
        assert met[3].startswith("StepFailed")
        assert "ValueError: odd" in met[3]


async def test_only_what_can_begin_anew_may_use_steps_and_questions(open_storage: Open) -> None:
    said: list[str] = []

    @skill(name="atom")
    async def atom(context: Context) -> str:
        async def work(_: str) -> str:
            raise AssertionError

        for use in (context.step("x", work, str), context.ask("?", Choice)):
            try:
                await use
            except Exception as error:  # noqa: BLE001
                said.append(str(error))
        return ""

    async with living(open_storage, atom) as world:
        await world.run("atom")
        assert len(said) == 2
        assert all("durable=True" in sentence for sentence in said)


async def answer(world: World, asked: Task, values: dict[str, Any]) -> Task:
    assert asked.input is not None
    return await world.service.answer(
        ANN.bare,
        AGENT,
        InputAnswer(
            task=asked.id,
            input=asked.input.id,
            revision=asked.input.revision,
            params=AnswerParams(json=msgspec.Raw(msgspec.json.encode(values))),
        ),
    )


def asking(log: list[str], **how: Any) -> Skill:
    @skill(name="asks", **{"durable": True, **how})
    async def asks(context: Context) -> str:
        async def work(_: str) -> int:
            log.append("step")
            return 1

        await context.step("before", work, int)
        try:
            choice = await context.ask("Which colour?", Choice)
        except Exception as error:
            log.append(type(error).__name__)
            raise
        log.append(choice.colour)
        return choice.colour

    return asks


@pytest.mark.parametrize("mode", ["auto", "async"])
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("how", [{}, {"read_only": True, "durable": False}])
async def test_a_question_parks_the_task_and_the_answer_goes_on(
    open_storage: Open, mode: str, killed: bool, how: dict[str, Any]
) -> None:
    log: list[str] = []
    ear = Ear()
    async with living(open_storage, asking(log, **how), ear=ear) as world:
        accepted = await world.run("asks", mode=mode, request="r")
        assert isinstance(accepted, Accepted)
        assert (accepted.state, accepted.revision) == ("accepted", 0)
        asked = await ear.in_state(accepted.task, "input-required")
        notice = next(one for one in ear.notices if one.question is not None)
        assert notice.question is not None
        assert notice.question.asked == (ANN.bare,)
        service = world.service
        await eventually(lambda: not service._worker._runs)  # nothing but rows remains
        if not killed:
            await answer(world, asked, {"colour": "red"})
            await ear.ended(accepted.task)
    async with living(open_storage, asking(log, **how), ear=ear) as world:
        if killed:
            (open_one,) = await world.service.open_questions(ANN.bare, AGENT)
            assert open_one.task == accepted.task
            await answer(world, asked, {"colour": "red"})
        assert text_of(await ear.ended(accepted.task)) == "red"
        assert log == ["step", "red"]
        revisions = [one.revision for one in await world.events(accepted.task)]
        assert revisions == list(range(1, len(revisions) + 1))
        assert await world.run("asks", mode=mode, request="r") == accepted


async def test_who_declines_is_heard_by_the_skill_and_the_task_is_denied(
    open_storage: Open,
) -> None:
    log: list[str] = []
    async with living(open_storage, asking(log)) as world:
        task = await world.task("asks")
        asked = await world.ear.in_state(task, "input-required")
        assert asked.input is not None
        await world.service.answer(
            ANN.bare,
            AGENT,
            InputAnswer(
                task=task,
                input=asked.input.id,
                revision=asked.input.revision,
                form=Form(type="cancel"),
            ),
        )
        ended = await world.ear.ended(task)
        assert conditions(ended) == (errors.Denied(),)
        assert log == ["step", Denied.__name__]


@pytest.mark.ports
async def test_questions_are_asked_from_threads_and_task_groups_and_past_clumsy_skills(
    open_storage: Open,
) -> None:
    @skill(name="plain", durable=True)
    def plain(context: Context) -> str:
        return anyio.from_thread.run(context.ask, "Which?", Choice).colour

    @skill(name="grouped", durable=True)
    async def grouped(context: Context) -> str:
        found: list[Choice] = []

        async def ask() -> None:
            found.append(await context.ask("Which?", Choice, key="only"))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            group.start_soon(anyio.sleep, 0.01)
        return found[0].colour

    @skill(name="clumsy", durable=True)
    async def clumsy(context: Context) -> str:
        try:
            return (await context.ask("Which?", Choice)).colour
        except BaseException:  # noqa: BLE001
            return "swallowed"

    async with living(open_storage, plain, grouped, clumsy) as world:
        for name in ("plain", "grouped", "clumsy"):
            task = await world.task(name)
            asked = await world.ear.in_state(task, "input-required")
            await answer(world, asked, {"colour": name})
            assert text_of(await world.ear.ended(task)) == name


@pytest.mark.ports
async def test_inline_work_that_asks_is_refused(open_storage: Open) -> None:
    log: list[str] = []
    async with living(open_storage, asking(log)) as world:
        for _ in range(2):
            with pytest.raises(StanzaError) as caught:
                await world.run("asks", mode="inline", request="r")
            assert caught.value.application == (errors.ConfirmationUnavailable(),)
        assert log == ["step"]


@pytest.mark.ports
async def test_parts_are_not_shown_again_when_the_skill_begins_anew(open_storage: Open) -> None:
    @skill(name="shows", durable=True)
    async def shows(context: Context) -> str:
        await context.output("story", "once ")
        choice = await context.ask("Which?", Choice)
        await context.output("story", choice.colour, last=True)
        return ""

    async with living(open_storage, shows) as world:
        task = await world.task("shows")
        asked = await world.ear.in_state(task, "input-required")
        await answer(world, asked, {"colour": "red"})
        ended = await world.ear.ended(task)
        assert ended.result is not None
        assert ended.result.outputs[0].text == "once red"
        parts = [o.part for one in await world.events(task) for o in one.outputs]
        assert parts == [0, 1]


async def test_the_fixtures_of_the_kit_ask_and_do_steps(open_storage: Open) -> None:
    async with living(open_storage, *conformance_skills()) as world:
        steps = await world.task("conformance.steps", params={"steps": "3"})
        ended = await world.ear.ended(steps)
        assert len(set(msgspec.json.decode(text_of(ended)))) == 3
        assert ended.result is not None
        assert ended.result.outputs[0].text == "step 1\nstep 2\nstep 3\n"
        asks = await world.task("conformance.ask", params={"question": "Which one?"})
        asked = await world.ear.in_state(asks, "input-required")
        await answer(world, asked, {"colour": "red", "note": "n"})
        assert text_of(await world.ear.ended(asks)) == '{"colour":"red","note":"n"}'


# Time.


@pytest.mark.ports
async def test_a_question_that_nobody_answers_lapses(open_storage: Open) -> None:
    log: list[str] = []
    async with living(open_storage, asking(log), ask_expires_s=0.0) as world:
        task = await world.task("asks")
        ended = await world.ear.ended(task)
        assert conditions(ended) == (errors.InputExpired(),)


@pytest.mark.parametrize("mode", ["auto", "async", "inline"])
@pytest.mark.parametrize("how", [{}, {"read_only": True}, {"durable": True}])
async def test_work_past_its_deadline_is_ended(
    open_storage: Open, mode: str, how: dict[str, Any]
) -> None:
    stopped: list[bool] = []

    @skill(name="slow", **how)
    async def slow(context: Context) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append(True)

    async with living(open_storage, slow) as world:
        deadline = datetime.now(UTC) + timedelta(milliseconds=700)
        if mode == "async":
            task = await world.task("slow", deadline=deadline)
            ended = await world.ear.ended(task)
            assert conditions(ended) == (errors.DeadlineExpired(),)
            await anyio.wait_all_tasks_blocked()
        else:
            with pytest.raises(StanzaError) as caught:
                await world.run("slow", mode=mode, deadline=deadline)
            assert caught.value.application == (errors.DeadlineExpired(),)
        assert stopped == [True]


async def test_a_deadline_that_has_passed_leaves_nothing(open_storage: Open) -> None:
    log: list[str] = []
    async with living(open_storage, three_steps(log)) as world:
        with pytest.raises(StanzaError) as caught:
            await world.task("three", deadline=datetime(2000, 1, 1, tzinfo=UTC))
        assert caught.value.application == (errors.DeadlineExpired(),)
        assert await world.scalar("SELECT count(*) FROM tasks") == 0
        assert await world.scalar("SELECT count(*) FROM replay") == 0


# Cancelling.


async def cancel(world: World, task: str, who: Any = ANN) -> Task:
    return await world.service.cancel(who.bare, AGENT, Cancel(id=task))


@pytest.mark.parametrize(
    ("how", "state"),
    [({"read_only": True}, "cancelled"), ({"durable": True}, "cancelled"), ({}, "failed")],
)
async def test_a_running_task_is_cancelled(
    open_storage: Open, how: dict[str, Any], state: str
) -> None:
    there = anyio.Event()

    @skill(name="slow", **how)
    async def slow(context: Context) -> None:
        there.set()
        await anyio.sleep_forever()

    async with living(open_storage, slow) as world:
        task = await world.task("slow")
        await there.wait()
        with pytest.raises(StanzaError) as caught:
            await cancel(world, task, BOB)
        assert caught.value.application == (errors.UnknownTask(),)
        assert (await cancel(world, task)).state == "cancelling"
        ended = await world.ear.ended(task)
        assert ended.state == state
        if state == "failed":
            assert conditions(ended) == (errors.OutcomeUnknown(),)
        again = await cancel(world, task)
        assert again == await world.get(task)
        assert [one.state for one in await world.events(task)] == ["running", "cancelling", state]


async def test_what_ends_with_a_result_all_the_same_has_completed(open_storage: Open) -> None:
    there = anyio.Event()

    @skill(name="stubborn", durable=True)
    async def stubborn(context: Context) -> str:
        with anyio.CancelScope(shield=True):
            there.set()
            await asked.wait()
        return "done"

    asked = anyio.Event()
    async with living(open_storage, stubborn) as world:
        task = await world.task("stubborn")
        await there.wait()
        assert (await cancel(world, task)).state == "cancelling"
        asked.set()
        assert (await world.ear.ended(task)).state == "completed"


@pytest.mark.ports
async def test_a_waiting_task_is_cancelled_at_once(open_storage: Open) -> None:
    log: list[str] = []
    async with living(open_storage, asking(log)) as world:
        task = await world.task("asks")
        asked = await world.ear.in_state(task, "input-required")
        assert (await cancel(world, task)).state == "cancelled"
        assert await world.service.open_questions(ANN.bare, AGENT) == []
        with pytest.raises(StanzaError) as caught:
            await answer(world, asked, {"colour": "red"})
        assert caught.value.application == (errors.Conflict(),)
        assert log == ["step"]


@pytest.mark.ports
@pytest.mark.parametrize("inside", [False, True])
async def test_a_kill_while_cancelling_ends_it(open_storage: Open, inside: bool) -> None:
    log: list[str] = []
    there = anyio.Event()

    async def stay(*_: object) -> None:
        with anyio.CancelScope(shield=True):
            there.set()
            await never.wait()

    @skill(name="stubborn", durable=True)
    async def stubborn(context: Context) -> None:
        if inside:
            await context.step("x", stay, type(None))
        await stay()

    never = anyio.Event()
    async with living(open_storage, stubborn) as world:
        task = await world.task("stubborn")
        await there.wait()
        assert (await cancel(world, task)).state == "cancelling"
        # As if killed here: what it still writes is refused, for the next life has taken over.
        await world.storage.write(
            lambda db: db.execute("UPDATE tasks SET fence = fence + 1, owner = 'gone'")
        )
        never.set()
    async with living(open_storage, three_steps(log)) as world:
        await world.reaches(task, "failed" if inside else "cancelled")


# Confirmations.


def confirmed() -> Confirmation:
    return Confirmation((ANN.bare,), "high")


async def decide(world: World, asked: Task, value: Any) -> None:
    assert asked.confirm is not None
    await world.service.decide(ANN.bare, AGENT, Decision(id=asked.confirm.id, value=value))


@pytest.mark.ports
@pytest.mark.parametrize("mode", ["auto", "async"])
async def test_a_confirmation_comes_before_the_work(open_storage: Open, mode: str) -> None:
    log: list[str] = []
    async with living(open_storage, three_steps(log)) as world:
        call = world.call("three", mode=mode, confirm=confirmed())
        accepted = await world.execute(call)
        assert isinstance(accepted, Accepted)
        assert (accepted.state, accepted.revision) == ("input-required", 0)
        asked = await world.ear.in_state(accepted.task, "input-required")
        assert asked.revision == 1
        assert log == []
        assert await world.execute(call) == accepted
        await decide(world, asked, "approve")
        assert text_of(await world.ear.ended(accepted.task)) == "ABC"
        assert await world.execute(call) == accepted
        states = [one.state for one in await world.events(accepted.task)]
        assert states == ["input-required", "accepted", "running", "completed"]


async def test_denied_is_denied(open_storage: Open) -> None:
    log: list[str] = []
    async with living(open_storage, three_steps(log)) as world:
        task = await world.task("three", confirm=confirmed())
        await decide(world, await world.ear.in_state(task, "input-required"), "deny")
        ended = await world.ear.ended(task)
        assert conditions(ended) == (errors.Denied(),)
        assert ended.failure is not None
        assert ended.failure.repeatable
        assert log == []


@pytest.mark.ports
async def test_a_changed_version_is_asked_for_again(open_storage: Open) -> None:
    log: list[str] = []
    async with living(open_storage, three_steps(log)) as world:
        task = await world.task("three", confirm=confirmed())
        asked = await world.ear.in_state(task, "input-required")
    ear = Ear()
    async with living(open_storage, three_steps(log, version="2.0.0"), ear=ear) as world:
        first = asked.confirm
        assert first is not None
        await decide(world, asked, "approve")

        def anew(notice: Notice) -> bool:
            # The first one may be told once more: the kill came before it was noted as told.
            confirm = notice.task.confirm
            return confirm is not None and confirm.id != first.id

        again = (await ear.until(anew)).task
        assert again.confirm is not None
        assert again.confirm.action.version == "2.0.0"
        assert log == []
        with pytest.raises(StanzaError):
            await decide(world, asked, "deny")
        await decide(world, again, "approve")
        assert text_of(await ear.ended(task)) == "ABC"


async def test_what_cannot_be_asked_any_more_fails(
    open_storage: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    async with living(open_storage, three_steps(log)) as world:
        task = await world.task("three", confirm=confirmed())
        asked = await world.ear.in_state(task, "input-required")
    ear = Ear()
    monkeypatch.setattr(questions, "MOST_BYTES", 1)
    async with living(open_storage, three_steps(log, version="2.0.0"), ear=ear) as world:
        await decide(world, asked, "approve")
        ended = await ear.ended(task)
    assert (ended.state, conditions(ended)) == ("failed", (errors.TooBig(limit=1),))
    assert log == []


async def test_who_may_not_any_more_is_rejected(open_storage: Open) -> None:
    log: list[str] = []
    async with living(open_storage, three_steps(log)) as world:
        task = await world.task("three", confirm=confirmed())
        asked = await world.ear.in_state(task, "input-required")
        world.allowed = lambda principal, skill: False
        await decide(world, asked, "approve")
        ended = await world.ear.ended(task)
        assert (ended.state, conditions(ended)) == ("rejected", (errors.Forbidden(),))
        assert log == []


@pytest.mark.ports
@pytest.mark.parametrize("begun", [False, True])
async def test_a_skill_that_has_gone_fails_its_tasks(open_storage: Open, begun: bool) -> None:
    there = anyio.Event()

    async def stay() -> None:
        there.set()
        await anyio.sleep_forever()

    async with living(open_storage, three_steps([], {"a": stay})) as world:
        task = await world.task("three", confirm=None if begun else confirmed())
        if begun:
            await there.wait()
        else:
            await decide(world, await world.ear.in_state(task, "input-required"), "approve")
            await there.wait()
            await world.storage.write(lambda db: db.execute("DELETE FROM journal"))
    async with living(open_storage) as world:
        if await world.storage.read(lambda db: db.dialect) == "postgresql":
            # An instance of another release may have it.
            async def is_free() -> bool:
                return await world.scalar("SELECT owner FROM tasks WHERE id = ?", task) is None

            await eventually(is_free)
            return
        ended = await world.ear.ended(task)
        expected = errors.OutcomeUnknown() if begun else errors.Internal()
        assert conditions(ended) == (expected,)


@pytest.mark.ports
@pytest.mark.parametrize("column", ["request", "nothing"])
async def test_a_row_that_cannot_be_read_fails_and_stops_nobody_else(
    open_storage: Open, column: str
) -> None:
    log: list[str] = []
    there = anyio.Event()

    @skill(name="three", durable=True)
    async def stuck(context: Context) -> None:
        there.set()
        await anyio.sleep_forever()

    @skill(name="three", durable=True)
    async def other(number: int, context: Context) -> None:
        log.append("ran")

    async with living(open_storage, stuck) as world:
        task = await world.task("three")
        await there.wait()
        if column == "request":
            await world.storage.write(lambda db: db.execute("UPDATE tasks SET request = '{'"))
    async with living(open_storage, other) as world:
        row = "SELECT state FROM tasks WHERE id = ?"

        async def failed() -> bool:
            return bool(await world.scalar(row, task) == "failed")

        if column == "nothing":
            assert conditions(await world.ear.ended(task)) == (errors.Internal(),)
        await eventually(failed)
        await world.ear.ended(await world.task("three", params={"number": "1"}))
        assert log == ["ran"]

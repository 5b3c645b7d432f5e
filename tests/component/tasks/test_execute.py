"""From a request to its answer: inline, or as a task."""

from __future__ import annotations

import functools

import anyio
import anyio.from_thread
import pytest

from component.skills import Context, InvalidParam, Output, Skill, SkillError, skill
from tests.component.tasks.world import BOB, Open, living
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Accepted, Result
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio


def counting(**how: object) -> tuple[Skill, list[str]]:
    ran: list[str] = []

    @skill(name="count", **how)  # type: ignore[call-overload,untyped-decorator]
    async def count(text: str = "") -> str:
        ran.append(text)
        return f"ran {len(ran)}"

    return count, ran


def gated(**how: object) -> tuple[Skill, anyio.Event, anyio.Event]:
    begun, gate = anyio.Event(), anyio.Event()

    @skill(name="gated", **how)  # type: ignore[call-overload,untyped-decorator]
    async def wait(context: Context) -> str:
        begun.set()
        await gate.wait()
        return "done"

    return wait, begun, gate


def text_of(result: Result | Accepted | None) -> str:
    assert isinstance(result, Result), result
    return result.outputs[0].text


@pytest.mark.parametrize("how", [{"read_only": True}, {"idempotent": True}, {}])
async def test_short_work_is_answered_with_its_result_and_once(
    open_storage: Open, how: dict
) -> None:
    count, ran = counting(**how)
    async with living(open_storage, count) as world:
        call = world.call("count", id="one")
        assert text_of(await world.execute(call)) == "ran 1"
        assert text_of(await world.execute(call)) == "ran 1"
        assert ran == [""]
        assert await world.scalar("SELECT count(*) FROM tasks") == 0
        assert await world.scalar("SELECT count(*) FROM replay") == (0 if how else 1)


async def test_another_content_under_the_same_key_is_a_conflict(open_storage: Open) -> None:
    count, ran = counting()
    async with living(open_storage, count) as world:
        await world.run("count", request="r", params={"text": "a"})
        with pytest.raises(StanzaError) as caught:
            await world.run("count", request="r", params={"text": "b"})
        assert caught.value.application == (errors.Conflict(),)
    async with living(open_storage, count) as world:
        with pytest.raises(StanzaError) as caught:
            await world.run("count", request="r", params={"text": "b"})
        assert caught.value.application == (errors.Conflict(),)
        assert text_of(await world.run("count", request="r", params={"text": "a"})) == "ran 1"
        assert ran == ["a"]


@pytest.mark.ports
async def test_a_repetition_meanwhile_waits_for_the_first(open_storage: Open) -> None:
    wait, begun, gate = gated(read_only=True)
    async with living(open_storage, wait) as world:
        call = world.call("gated")
        answers: list[str] = []

        async def ask() -> None:
            answers.append(text_of(await world.execute(call)))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await begun.wait()
            group.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            gate.set()
        assert answers == ["done", "done"]


async def test_what_ended_in_an_error_is_answered_so_again(open_storage: Open) -> None:
    ran = []

    @skill(name="broken", destructive=False)
    async def broken() -> str:
        ran.append(1)
        raise ValueError("a secret")

    for _ in range(2):
        async with living(open_storage, broken) as world:
            for _ in range(2):
                with pytest.raises(StanzaError) as caught:
                    await world.run("broken", request="r")
                assert caught.value.condition == "internal-server-error"
                assert caught.value.application == (errors.Internal(),)
    assert ran == [1]


@pytest.mark.parametrize("how", [{"read_only": True}, {}, {"durable": True}])
async def test_work_that_takes_too_long_becomes_a_task_and_is_not_disturbed(
    open_storage: Open, how: dict
) -> None:
    wait, _, gate = gated(**how)
    async with living(open_storage, wait, inline_s=0.01) as world:
        call = world.call("gated")
        accepted = await world.execute(call)
        assert isinstance(accepted, Accepted)
        assert (accepted.state, accepted.revision) == ("accepted", 0)
        assert accepted.retain_until is not None
        assert (await world.get(accepted.task)).state == "running"
        assert await world.execute(call) == accepted
        gate.set()
        ended = await world.ear.ended(accepted.task)
        assert ended.state == "completed"
        assert text_of(ended.result) == "done"
        assert [one.revision for one in world.ear.of(accepted.task)] == [1, 2]
        assert await world.events(accepted.task) == world.ear.of(accepted.task)
        # RPL-010: as it was accepted, whatever has become of it.
        assert await world.execute(call) == accepted


@pytest.mark.ports
async def test_async_is_admitted_first_and_runs(open_storage: Open) -> None:
    count, ran = counting()
    async with living(open_storage, count) as world:
        task = await world.task("count", params={"text": "x"})
        ended = await world.ear.ended(task)
        assert (ended.state, ended.revision) == ("completed", 2)
        whole = await world.get(task)
        assert text_of(whole.result) == "ran 1"
        assert ran == ["x"]
        with pytest.raises(StanzaError):
            await world.get(task, BOB)


async def test_skills_that_never_block_can_be_tasks_too(open_storage: Open) -> None:
    @skill(name="quick", inline=True)
    def quick(text: str) -> str:
        return text.upper()

    async with living(open_storage, quick) as world:
        task = await world.task("quick", params={"text": "x"})
        assert text_of((await world.ear.ended(task)).result) == "X"


async def test_inline_work_over_its_limit_is_ended(open_storage: Open) -> None:
    for how, kind in (({"read_only": True}, "wait"), ({}, "cancel")):
        wait, _, _ = gated(**how)
        async with living(open_storage, wait, inline_s=0.01) as world:
            for _ in range(2):
                with pytest.raises(StanzaError) as caught:
                    await world.run("gated", mode="inline", request=kind)
                assert caught.value.application == (errors.Timeout(),)
                assert caught.value.type == kind
            assert await world.scalar("SELECT count(*) FROM tasks") == 0


async def test_a_task_whose_skill_raises_a_skill_error_completes(open_storage: Open) -> None:
    @skill(name="no")
    async def no() -> str:
        raise SkillError("not today")

    async with living(open_storage, no) as world:
        ended = await world.ear.ended(await world.task("no"))
        assert ended.state == "completed"
        assert ended.result is not None
        assert ended.result.is_error
        assert text_of(ended.result) == "not today"


@pytest.mark.parametrize(
    ("raised", "condition"),
    [
        (InvalidParam("a", "is odd"), errors.InvalidParam(name="a")),
        (InvalidParam(None, "is odd"), errors.Malformed()),
        (RuntimeError("secret"), errors.Internal()),
    ],
)
async def test_failures_of_tasks_say_why(
    open_storage: Open, raised: Exception, condition: object
) -> None:
    @skill(name="bad")
    async def bad() -> str:
        raise raised

    async with living(open_storage, bad) as world:
        ended = await world.ear.ended(await world.task("bad"))
        assert ended.state == "failed"
        assert ended.failure is not None
        assert ended.failure.conditions == (condition,)
        assert not ended.failure.repeatable
        assert "secret" not in ended.failure.texts[0].text


async def test_a_task_that_runs_out_of_time_failed(open_storage: Open) -> None:
    @skill(name="slow", read_only=True, timeout=0.01)
    async def slow() -> None:
        await anyio.sleep_forever()

    async with living(open_storage, slow) as world:
        ended = await world.ear.ended(await world.task("slow"))
        assert ended.failure is not None
        assert ended.failure.conditions == (errors.Timeout(),)
        assert ended.failure.repeatable


@pytest.mark.parametrize(
    ("outputs", "condition"),
    [
        ((Output("x" * 5000),), errors.TooBig(limit=4000)),
        ((Output("a", name="n"), Output("b", name="n")), errors.Internal()),
    ],
)
async def test_results_that_cannot_be_sent_are_failures(
    open_storage: Open, outputs: tuple[Output, ...], condition: object
) -> None:
    @skill(name="big", read_only=True)
    async def big() -> tuple[Output, ...]:
        return outputs

    async with living(open_storage, big, result_bytes=4000) as world:
        ended = await world.ear.ended(await world.task("big"))
        assert ended.failure is not None
        assert ended.failure.conditions == (condition,)
        with pytest.raises(StanzaError) as caught:
            await world.run("big")
        assert caught.value.application == (condition,)


async def test_artifacts_without_names_get_different_ones(open_storage: Open) -> None:
    @skill(name="two", read_only=True)
    async def two() -> tuple[Output, ...]:
        return (Output("a"), Output("b", name="output-3"), Output("c"))

    async with living(open_storage, two) as world:
        result = await world.run("two")
        assert isinstance(result, Result)
        assert len({output.name for output in result.outputs}) == 3


@pytest.mark.ports
async def test_progress_and_parts_are_events_and_the_result_is_whole(open_storage: Open) -> None:
    @skill(name="write", read_only=True)
    async def write(context: Context) -> str:
        await context.progress(0.25, "first")
        await context.progress(0.5, "second")
        await context.output("story", "once ")
        await context.output("story", "upon", last=True)
        await context.progress(0.75, "third")
        return "fin"

    async with living(open_storage, write) as world:
        task = await world.task("write")
        await world.ear.ended(task)
        events = await world.events(task)
        assert [one.revision for one in events] == list(range(1, len(events) + 1))
        assert [(o.part, o.last, o.text) for one in events for o in one.outputs] == [
            (0, False, "once "),
            (1, True, "upon"),
        ]
        said = [one.progress.text for one in events if one.progress is not None]
        assert said == ["first", "third"]
        result = (await world.get(task)).result
        assert result is not None
        assert [(o.name, o.text, o.part) for o in result.outputs] == [
            ("story", "once upon", None),
            ("output", "fin", None),
        ]


async def test_what_was_shown_before_it_became_a_task_is_not_lost(open_storage: Open) -> None:
    shown, gate = anyio.Event(), anyio.Event()

    @skill(name="write", read_only=True)
    async def write(context: Context) -> str:
        await context.progress(0.5, "half")
        await context.output("story", "once ")
        shown.set()
        await gate.wait()
        return "fin"

    async with living(open_storage, write, inline_s=0.5) as world:
        accepted = await world.run("write")
        assert isinstance(accepted, Accepted)
        whole = await world.get(accepted.task)
        assert whole.progress is not None
        assert whole.progress.text == "half"
        assert [o.text for o in whole.outputs] == ["once "]
        gate.set()
        assert (await world.ear.ended(accepted.task)).state == "completed"


async def test_what_was_said_inside_a_step_before_it_became_a_task_is_told(
    open_storage: Open,
) -> None:
    gate = anyio.Event()

    @skill(name="write", durable=True)
    async def write(context: Context) -> str:
        async def half(key: str) -> str:
            await context.progress(0.5, "half")
            await gate.wait()
            return "fin"

        return await context.step("half", half, str)

    async with living(open_storage, write, inline_s=0.05) as world:
        accepted = await world.run("write")
        assert isinstance(accepted, Accepted)
        told = await world.ear.until(lambda notice: notice.task.progress is not None)
        assert told.task.id == accepted.task
        gate.set()
        assert (await world.ear.ended(accepted.task)).state == "completed"


@pytest.mark.ports
async def test_plain_functions_use_their_context_from_threads(open_storage: Open) -> None:
    @skill(name="plain", durable=True)
    def plain(context: Context) -> str:
        async def effect(key: str) -> int:
            return len(key)

        anyio.from_thread.run(context.progress, 0.5, "half")
        got = anyio.from_thread.run(functools.partial(context.step, "pay", effect, int))
        return f"{got}"

    async with living(open_storage, plain) as world:
        assert text_of(await world.run("plain")) == "32"
        ended = await world.ear.ended(await world.task("plain"))
        assert text_of(ended.result) == "32"


@pytest.mark.ports
async def test_a_principal_has_so_many_open_tasks_and_no_more(open_storage: Open) -> None:
    wait, _, gate = gated()
    count, _ = counting()
    async with living(open_storage, wait, count, tasks_per_principal=2) as world:
        tasks = [await world.task("gated"), await world.task("gated")]
        for mode in ("async", "auto"):
            with pytest.raises(StanzaError) as caught:
                await world.run("count", mode=mode, request=mode)
            assert caught.value.application == (errors.Retry(after=5),)
        assert await world.scalar("SELECT count(*) FROM replay") == 2
        assert text_of((await world.ear.ended(await world.task("count", by=BOB))).result)
        gate.set()
        for task in tasks:
            await world.ear.ended(task)
        await world.task("count", request="async")


@pytest.mark.ports
async def test_a_null_character_in_parameters_reaches_the_skill_and_no_database_refuses_it(
    open_storage: Open,
) -> None:
    got: list[str] = []

    @skill(name="keep", durable=True)
    async def keep(context: Context, text: str) -> str:
        async def say(_key: str) -> str:
            return text

        got.append(await context.step("say", say, str))
        return text

    async with living(open_storage, keep) as world:
        bad = "a\x00b\x01\uffff"
        task = await world.task("keep", json={"text": bad})
        ended = await world.ear.ended(task)
        assert got == [bad]
        assert ended.result is not None
        assert ended.result.outputs[0].text == "a\ufffdb\ufffd\ufffd"
        assert (await world.get(task)).result == ended.result

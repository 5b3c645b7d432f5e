"""Timers, child tasks, waiting for them as rows, and cancellation of a whole tree."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import msgspec
import pytest

from component.app.schema import SCHEMA
from component.skills import Context, Skill, SkillError, skill
from component.skills.operations import ModelQuestion
from component.store import Storage
from component.store.errors import StorageError
from component.tasks.admin import RefusedError
from component.tasks.request import Request
from tests.component.tasks.ledger import NOON
from tests.component.tasks.test_durable import cancel, text_of
from tests.component.tasks.test_retry import retried
from tests.component.tasks.world import AGENT, ANN, BOB, Open, World, living
from tests.waiting import eventually
from xep.fluux_agent.task import Tasks

pytestmark = pytest.mark.anyio


def leaf(log: list[str], gate: anyio.Event | None = None) -> Skill:
    @skill(name="leaf", durable=True)
    async def work(name: str, context: Context) -> str:
        log.append(name)
        if name == "bad":
            raise OSError("broken")
        if gate is not None:
            await gate.wait()
        return name.upper()

    return work


@skill(name="tree", durable=True)
async def tree(names: str, context: Context) -> str:
    tasks = [await context.start("leaf", {"name": name}, key=name) for name in names.split(",")]
    return " ".join(one.text for one in await context.wait(tasks))


@skill(name="trunk", durable=True)
async def trunk(names: str, context: Context) -> str:
    (found,) = await context.wait([await context.start("tree", {"names": names})])
    return found.text


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> int:
        return self.now


async def states(world: World, task: str) -> list[str]:
    found = await world.storage.read(
        lambda db: db.execute("SELECT state FROM tasks WHERE parent = ?", (task,)).fetchall()
    )
    return sorted(state for (state,) in found)


async def until_waiting(world: World, task: str, count: int) -> None:
    async def waits() -> bool:
        return bool(await world.scalar("SELECT waits FROM tasks WHERE id = ?", task) == count)

    await eventually(waits)


@pytest.mark.ports
async def test_a_task_waits_for_its_children_as_a_row(open_storage: Open) -> None:
    log: list[str] = []
    async with living(open_storage, tree, leaf(log, anyio.Event())) as world:
        task = await world.task("tree", params={"names": "a,b,c"})
        await until_waiting(world, task, 3)
        await eventually(lambda: world.service._worker.of(task) is None)  # only rows remain
        assert (await world.get(task)).state == "running"
        assert len((await world.service.list(ANN.bare, AGENT, Tasks())).tasks) == 4
    async with living(open_storage, tree, leaf(log)) as world:
        assert text_of(await world.ear.ended(task)) == "A B C"
        assert await states(world, task) == ["completed"] * 3
    assert sorted(set(log)) == ["a", "b", "c"]


async def test_a_database_that_cannot_be_read_for_a_moment_fails_nobody_who_waits(
    open_storage: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    @skill(name="patient", durable=True)
    async def patient(context: Context) -> str:
        task = await context.start("leaf", {"name": "a"})
        monkeypatch.setattr(world.storage, "read", refused)
        (found,) = await context.wait([task])
        return found.text

    async def refused(_: object) -> None:
        raise StorageError("The server restarts.")

    async with living(open_storage, patient, leaf([])) as world:
        task = await world.task("patient")
        ended = await world.ear.ended(task)
        assert ended.state == "completed"
        assert text_of(ended) == "A"


async def test_a_failed_child_ends_the_wait_and_the_other_children(open_storage: Open) -> None:
    log: list[str] = []
    async with living(open_storage, tree, leaf(log, anyio.Event())) as world:
        task = await world.task("tree", params={"names": "good,bad"})
        ended = await world.ear.ended(task)
        assert ended.result is not None
        assert ended.result.is_error
        assert "is failed" in text_of(ended)

        async def over() -> bool:
            return await states(world, task) == ["cancelled", "failed"]

        await eventually(over)


async def test_a_parent_can_go_on_without_a_failed_child(open_storage: Open) -> None:
    @skill(name="tolerant", durable=True)
    async def tolerant(context: Context) -> str:
        tasks = [await context.start("leaf", {"name": name}, key=name) for name in ("good", "bad")]
        found = await context.wait(tasks, on_failure="return")
        return " ".join(f"{one.state}:{one.text}{one.success}" for one in found)

    async with living(open_storage, tolerant, leaf([])) as world:
        task = await world.task("tolerant")
        assert text_of(await world.ear.ended(task)) == "completed:GOODTrue failed:False"


def first(
    held: anyio.Event | None = None, after: Callable[[Context], Awaitable[None]] | None = None
) -> Skill:
    """A skill that waits for the first success of leaves, and then does what comes `after`. With
    `held`, it sets this when it runs, and goes no further.
    """

    @skill(name="first", durable=True)
    async def work(names: str, context: Context) -> str:
        tasks = [await context.start("leaf", {"name": name}, key=name) for name in names.split(",")]
        if held is not None:
            held.set()
            await anyio.sleep_forever()
        found = await context.wait_first(tasks)
        if after is not None:
            await after(context)
        good = next((one.text for one in found if one.success), "none")
        return f"{good} of {[one.state for one in found]}"

    return work


def gated(gates: dict[str, anyio.Event]) -> Skill:
    """A leaf that waits at the gate of its name, if there is one; `bad` fails then."""

    @skill(name="leaf", durable=True)
    async def work(name: str, context: Context) -> str:
        if name in gates:
            await gates[name].wait()
        if name == "bad":
            raise SkillError("I do not like it.")
        return name.upper()

    return work


@pytest.mark.ports
async def test_the_first_success_ends_a_wait_and_the_others_are_cancelled(
    open_storage: Open,
) -> None:
    gates = {"a": anyio.Event(), "b": anyio.Event(), "bad": anyio.Event()}
    async with living(open_storage, first(), gated(gates)) as world:
        task = await world.task("first", params={"names": "a,b,bad"})
        await until_waiting(world, task, 3)
        gates["bad"].set()
        await until_waiting(world, task, 2)
        gates["b"].set()
        assert text_of(await world.ear.ended(task)) == "B of ['running', 'completed', 'completed']"

        async def over() -> bool:
            return await states(world, task) == ["cancelled", "completed", "completed"]

        await eventually(over)


@pytest.mark.ports
async def test_the_others_are_cancelled_while_their_parent_goes_on(open_storage: Open) -> None:
    async def sleep(context: Context) -> None:
        await context.sleep(86_400)

    gates = {"a": anyio.Event(), "b": anyio.Event()}
    gates["b"].set()
    async with living(open_storage, first(after=sleep), gated(gates)) as world:
        task = await world.task("first", params={"names": "a,b"})

        async def over() -> bool:
            return await states(world, task) == ["cancelled", "completed"]

        await eventually(over)
        assert (await world.get(task)).state == "running"


async def test_without_any_success_a_wait_for_the_first_one_ends_with_the_last_child(
    open_storage: Open,
) -> None:
    async with living(open_storage, first(), gated({})) as world:
        task = await world.task("first", params={"names": "bad"})
        assert text_of(await world.ear.ended(task)) == "none of ['completed']"


@pytest.mark.ports
async def test_a_kill_between_the_first_success_and_the_end_of_the_others_leaves_none_running(
    open_storage: Open,
) -> None:
    gates = {"a": anyio.Event(), "b": anyio.Event()}
    async with living(open_storage, first(), gated(gates)) as world:
        task = await world.task("first", params={"names": "a,b"})
        await until_waiting(world, task, 2)
    gates["b"].set()
    held = anyio.Event()
    async with living(open_storage, first(held), gated(gates)) as world:
        await held.wait()
        assert await states(world, task) == ["completed", "running"]
    async with living(open_storage, first(), gated(gates)) as world:
        assert text_of(await world.ear.ended(task)) == "B of ['running', 'completed']"

        async def over() -> bool:
            return await states(world, task) == ["cancelled", "completed"]

        await eventually(over)


async def test_a_child_that_was_refused_is_not_started_when_its_parent_runs_again(
    open_storage: Open,
) -> None:
    began: list[str] = []

    @skill(name="late", durable=True)
    async def late(context: Context) -> str:
        began.append("late")
        return "late"

    @skill(name="tolerant", durable=True)
    async def tolerant(context: Context) -> str:
        try:
            await context.start("late")
        except SkillError as error:
            refusal = str(error)
        found = await context.wait([await context.start("leaf", {"name": "a"})])
        return f"{found[0].text}; {refusal}"

    gates = {"a": anyio.Event()}
    async with living(open_storage, tolerant, gated(gates)) as world:
        task = await world.task("tolerant")
        await until_waiting(world, task, 1)
    gates["a"].set()
    async with living(open_storage, tolerant, late, gated(gates)) as world:
        assert text_of(await world.ear.ended(task)) == "A; There is no skill called late."
        assert began == []


async def test_a_child_that_refuses_fails_an_eager_parent(open_storage: Open) -> None:
    @skill(name="leaf", durable=True)
    async def picky(name: str, context: Context) -> str:
        if name == "bad":
            raise SkillError("I do not like it.")
        await anyio.sleep_forever()
        return name

    async with living(open_storage, tree, picky) as world:
        task = await world.task("tree", params={"names": "good,bad"})
        ended = await world.ear.ended(task)
        assert ended.result is not None
        assert ended.result.is_error
        assert "was refused: I do not like it." in text_of(ended)


@pytest.mark.ports
async def test_a_retry_retries_the_children_that_did_not_complete(open_storage: Open) -> None:
    keys: dict[str, list[str]] = {}
    broken = True

    @skill(name="leaf", durable=True)
    async def work(name: str, context: Context) -> str:
        async def mail(key: str) -> str:
            keys.setdefault(name, []).append(key)
            return name.upper()

        written = await context.step("mail", mail, str)
        if name == "bad" and broken:
            raise OSError("broken")
        return written

    async with living(open_storage, tree, trunk, work) as world:
        task = await world.task("trunk", params={"names": "good,bad"})
        failed = await world.ear.ended(task)
        assert failed.result is not None
        assert failed.result.is_error
        again = await retried(world, task)
        failed = await world.ear.ended(again)
        assert failed.result is not None
        assert failed.result.is_error, "it is as broken as before"
        broken = False
        third = await retried(world, again)
        assert text_of(await world.ear.ended(third)) == "GOOD BAD"
        assert await states(world, third) == ["completed"]
    assert {name: len(found) for name, found in keys.items()} == {"good": 1, "bad": 1}


async def test_a_retry_keeps_the_children_without_which_its_task_went_on(
    open_storage: Open,
) -> None:
    broken = True
    log: list[str] = []

    @skill(name="tolerant", durable=True)
    async def tolerant(context: Context) -> str:
        tasks = [await context.start("leaf", {"name": name}, key=name) for name in ("good", "bad")]
        found = await context.wait(tasks, on_failure="return")
        if broken:
            raise OSError("broken")
        return " ".join(one.state for one in found)

    async with living(open_storage, tolerant, leaf(log)) as world:
        task = await world.task("tolerant")
        assert (await world.ear.ended(task)).state == "failed"
        broken = False
        again = await retried(world, task)
        assert text_of(await world.ear.ended(again)) == "completed failed"
        assert await states(world, again) == ["completed", "failed"]
    assert sorted(log) == ["bad", "good"]


@pytest.mark.ports
async def test_a_retry_does_not_repeat_effects_of_children_without_force(
    open_storage: Open,
) -> None:
    paid: list[str] = []

    @skill(name="leaf", durable=True)
    async def pays(name: str, context: Context) -> str:
        async def pay(key: str) -> str:
            paid.append(key)
            if len(paid) == 1:
                raise OSError("the answer was lost")
            return "paid"

        return await context.step("pay", pay, str)

    async with living(open_storage, tree, pays) as world:
        task = await world.task("tree", params={"names": "a"})
        ended = await world.ear.ended(task)
        assert ended.result is not None
        assert ended.result.is_error
        with pytest.raises(RefusedError, match="not known whether"):
            await retried(world, task)
        assert len(paid) == 1
        again = await retried(world, task, force=True)
        assert text_of(await world.ear.ended(again)) == "paid"
    assert len(set(paid)) == 1


@pytest.mark.ports
async def test_cancelling_a_task_cancels_its_whole_tree(open_storage: Open) -> None:
    log: list[str] = []

    async with living(open_storage, trunk, tree, leaf(log, anyio.Event())) as world:
        task = await world.task("trunk", params={"names": "a,b"})

        async def grown() -> bool:
            return len(log) == 2

        await eventually(grown)
        await cancel(world, task)
        await world.reaches(task, "cancelled")

        async def over() -> bool:
            open_ = "SELECT count(*) FROM tasks WHERE state <> 'cancelled'"
            return await world.scalar(open_) == 0

        await eventually(over)


async def test_a_child_has_the_rights_of_its_principal(open_storage: Open) -> None:
    log: list[str] = []
    said: list[str] = []

    @skill(name="asks", durable=True)
    async def asks(context: Context) -> str:
        try:
            await context.start("leaf", {"name": "a"})
        except SkillError as error:
            said.append(str(error))
            raise
        return "started"

    def allowed(principal: object, declared: Skill) -> bool:
        return principal != BOB.bare or declared.name != "leaf"

    async with living(open_storage, asks, leaf(log), allowed=allowed) as world:
        await world.ear.ended(await world.task("asks", by=BOB))
        assert said == ["There is no skill called leaf."]
        await world.ear.ended(await world.task("asks", by=ANN))
        assert len(said) == 1


async def test_a_sleep_lasts_over_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    begun: list[int] = []

    @skill(name="later", durable=True)
    async def later(context: Context) -> str:
        begun.append(clock.now)
        await context.sleep(86_400)
        return "awake"

    open_storage = functools.partial(Storage.open, SCHEMA, tmp_path, now=clock)
    async with living(open_storage, later) as world:
        task = await world.task("later")

        async def asleep() -> bool:
            return bool(await world.scalar("SELECT not_before FROM tasks WHERE id = ?", task))

        await eventually(asleep)
        await eventually(lambda: world.service._worker.of(task) is None)
    clock.now += 3_600_000
    async with living(open_storage, later) as world:
        await anyio.wait_all_tasks_blocked()
        assert (await world.get(task)).state == "running"
        assert len(begun) == 1
        clock.now += 86_400_000
        world.service._timer.wake()
        assert text_of(await world.ear.ended(task)) == "awake"
    assert len(begun) == 2


async def test_a_child_begins_after_its_delay(tmp_path: Path) -> None:
    clock = Clock()
    log: list[str] = []

    @skill(name="plans", durable=True)
    async def plans(context: Context) -> str:
        task = await context.start("leaf", {"name": "a"}, delay_s=60)
        (found,) = await context.wait([task])
        return found.text

    open_storage = functools.partial(Storage.open, SCHEMA, tmp_path, now=clock)
    async with living(open_storage, plans, leaf(log)) as world:
        task = await world.task("plans")
        await until_waiting(world, task, 1)
        await anyio.wait_all_tasks_blocked()
        assert log == []
        clock.now += 61_000
        world.service._timer.wake()
        assert text_of(await world.ear.ended(task)) == "A"


@skill(read_only=True, durable=True)
async def draft(name: str, context: Context) -> str:
    await context.output("text", f"{name} one. ")
    await context.progress(0.5, name)
    await context.output("text", f"{name} two.", last=True)
    return name


@skill(read_only=True, durable=True)
async def drafts(context: Context, shown: bool = True) -> str:
    await context.output("mine", "Here is all:", last=True)
    tasks = [
        await context.start("draft", {"name": name}, key=name, shown_as=name if shown else "")
        for name in ("a", "b")
    ]
    await context.wait(tasks)
    return "Done."


@pytest.mark.parametrize("shown", [True, False])
async def test_a_task_reports_what_its_children_report_if_it_wants_to(
    open_storage: Open, shown: bool
) -> None:
    async with living(open_storage, draft, drafts) as world:
        task = await world.task("drafts", params={"shown": str(shown).lower()})
        ended = await world.reaches(task, "completed")
        assert ended.result is not None
        whole = {one.name: one.text for one in ended.result.outputs}
        own = {"mine": "Here is all:", "output": "Done."}
        children = {"a/text": "a one. a two.", "b/text": "b one. b two."}
        assert whole == own | (children if shown else {})
        events = await world.events(task)
        parts = [(one.name, one.part) for each in events for one in each.outputs]
        assert len(parts) == len(set(parts)) == (5 if shown else 1)
        for name in children if shown else {}:
            assert [number for other, number in parts if other == name] == [0, 1]
        texts = {each.progress.text for each in events if each.progress is not None}
        assert texts == ({"a", "b"} if shown else set())


@pytest.mark.parametrize(("first", "second"), [("a", "a"), ("a/b", "c")])
async def test_children_are_shown_under_different_names(
    open_storage: Open, first: str, second: str
) -> None:
    @skill(read_only=True, durable=True)
    async def wrong(context: Context) -> str:
        await context.start("leaf", {"name": "a"}, key=1, shown_as=first)
        await context.start("leaf", {"name": "b"}, key=2, shown_as=second)
        return "Done."

    async with living(open_storage, leaf([]), wrong) as world:
        assert (await world.reaches(await world.task("wrong"), "failed")).failure


async def test_a_task_cannot_publish_under_the_name_of_a_child(open_storage: Open) -> None:
    @skill(read_only=True, durable=True)
    async def wrong(context: Context) -> str:
        await context.start("leaf", {"name": "a"}, shown_as="a")
        try:
            await context.output("a/text", "Mine.")
        except ValueError as error:
            return str(error)
        return "It can."

    async with living(open_storage, leaf([]), wrong) as world:
        ended = await world.reaches(await world.task("wrong"), "completed")
        assert ended.result is not None
        assert "has the name of one of a child task" in ended.result.outputs[0].text


async def test_children_show_no_more_than_half_of_what_a_result_may_have(
    open_storage: Open,
) -> None:
    @skill(read_only=True, durable=True)
    async def much(context: Context) -> str:
        for _ in range(9):
            await context.output("text", "x" * 1000)
        return "Much."

    @skill(read_only=True, durable=True)
    async def shows(context: Context) -> str:
        await context.wait([await context.start("much", {}, shown_as="a")])
        return "Done."

    async with living(open_storage, much, shows, result_bytes=12_000) as world:
        ended = await world.reaches(await world.task("shows"), "completed")
        assert ended.result is not None
        sizes = {one.name: len(one.text) for one in ended.result.outputs}
        assert sizes == {"a/text": 5000, "output": 5}


async def test_child_tasks_share_the_budget_of_their_parent(open_storage: Open) -> None:
    class Word(msgspec.Struct):
        word: str

    payers: list[str] = []

    async def ask_model(request: Request, task: str, _question: ModelQuestion) -> str:
        budget = request.caller_context.budget
        payers.append(task if budget is None else budget.task)
        return '{"word": "yes"}'

    @skill(name="asks", durable=True, capabilities=["llm"])
    async def asks(context: Context) -> str:
        return (await context.llm("Which?", Word)).word

    @skill(name="parent", durable=True)
    async def parent(context: Context) -> str:
        tasks = [await context.start("asks", key=number) for number in range(2)]
        return " ".join(one.text for one in await context.wait(tasks))

    async with living(open_storage, parent, asks) as world:
        world.ask_model = ask_model
        task = await world.task("parent")
        assert text_of(await world.ear.ended(task)) == "yes yes"
        assert payers == [task, task]

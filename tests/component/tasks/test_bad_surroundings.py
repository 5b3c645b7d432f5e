"""Odd callers, odd clocks, and disks that refuse: each row of the table in the design note.

Nothing that was acknowledged is lost, what was refused leaves nothing, inline work goes on.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from anyio import to_thread

from component.app.schema import SCHEMA
from component.kernel.errors import unavailable
from component.skills import Context, Skill, skill
from component.store import Storage, StorageError
from component.store import sqlite as sqlite_module
from component.store.clock import wall_clock
from component.store.database import Database
from component.tasks import worker
from component.tasks.request import Confirmation, Request, request_from
from component.tasks.run import Run
from component.tasks.service import Clocks
from tests.component.tasks.ledger import NOON
from tests.component.tasks.world import AGENT, ANN, Ear, World, living
from tests.servers.postgres import Postgres
from tests.waiting import eventually
from xep.binding import encode
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Decision
from xep.fluux_agent.execute import Accepted, Execute, Param, Result
from xep.fluux_agent.task import AnswerParams, Cancel, InputAnswer, Task
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio

BIG = "x" * 60_000
"""More than fits into the pages that a small database has."""


class Choice(msgspec.Struct):
    """What is asked for."""

    colour: str


class Effects:
    """What the skills do, and where they wait."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.reached = anyio.Event()
        self.gate = anyio.Event()

    def skills(self) -> tuple[Skill, ...]:
        @skill(name="steps", durable=True)
        async def steps(context: Context, text: str = "") -> str:
            for name in ("a", "b"):

                async def work(key: str, name: str = name) -> str:
                    self.log.append(name)
                    if name == "a":
                        self.reached.set()
                        await self.gate.wait()
                    return BIG

                await context.step(name, work, str)
            return BIG

        @skill(name="asks", durable=True)
        async def asks(context: Context) -> str:
            return (await context.ask("Which?", Choice, expires_s=600)).colour

        @skill(name="erase")
        async def erase() -> str:
            self.log.append("erase")
            return "erased"

        @skill(name="echo", read_only=True, inline=True)
        def echo(text: str) -> str:
            return text

        @skill(name="read", read_only=True)
        async def read_(text: str) -> str:
            return text

        return steps, asks, erase, echo, read_


class Guard:
    """Asks the principal before `erase`."""

    def needed(self, _request: Request, skill: Skill) -> bool:
        return skill.name == "erase"

    def at_once(self, request: Request, skill: Skill) -> Confirmation | None:
        asked = (request.principal.bare,)
        return Confirmation(asked, expires_s=600) if skill.name == "erase" else None

    async def find(self, request: Request, skill: Skill) -> Confirmation | None:
        return self.at_once(request, skill)


class Caller:
    """Ann, who hears what a stanza would tell her."""

    def __init__(self, world: World, clock: Callable[[], int] | None) -> None:
        self.world = world
        self._clock = clock
        self._count = 0

    def now(self) -> datetime:
        if self._clock is None:
            return datetime.now(UTC)
        return datetime.fromtimestamp(self._clock() / 1000, UTC)

    async def says(self, work: Awaitable[Any]) -> Any:
        """What she gets, be it an error."""
        try:
            return await work
        except StanzaError as error:
            return error
        except StorageError:
            return unavailable(5)

    async def execute(self, name: str, text: str | None = None, **how: Any) -> Any:
        self._count += 1
        params = () if text is None else (Param(name="text", text=text),)
        try:
            execute = Execute(skill=name, params=params, **how)
            answer = self.world.service.execute(
                request_from(
                    execute,
                    requester=ANN,
                    principal=ANN.bare,
                    target=AGENT,
                    stanza_id=f"i{self._count}",
                )
            )
        except StanzaError as error:
            return error
        return answer if isinstance(answer, Result | Accepted) else await self.says(answer)

    async def task(self, name: str, **how: Any) -> str:
        accepted = await self.execute(name, mode="async", **how)
        assert isinstance(accepted, Accepted), accepted
        return accepted.task

    async def get(self, task: str) -> Any:
        return await self.says(self.world.service.get(ANN.bare, AGENT, task))

    async def cancel(self, task: str) -> Any:
        return await self.says(self.world.service.cancel(ANN.bare, AGENT, Cancel(id=task)))

    async def decide(self, question: str, value: Any = "approve") -> Any:
        decision = Decision(id=question, value=value)
        return await self.says(self.world.service.decide(ANN.bare, AGENT, decision)) or None

    async def answer(self, task: Task, colour: str) -> Any:
        assert task.input is not None
        params = AnswerParams(json=msgspec.Raw(msgspec.json.encode({"colour": colour})))
        given = InputAnswer(
            task=task.id, input=task.input.id, revision=task.input.revision, params=params
        )
        return await self.says(self.world.service.answer(ANN.bare, AGENT, given))

    async def goes_on(self, *, readable: bool = True) -> None:
        """Repeatable work needs nothing of a disk; what is not inline looks for its record."""
        for name in ("echo", "read") if readable else ("echo",):
            result = await self.execute(name, "here")
            assert isinstance(result, Result), result
            assert result.outputs[-1].text == "here"

    async def rows(self) -> tuple[int, int]:
        counts = [await self.world.scalar(f"SELECT count(*) FROM {t}") for t in ("tasks", "replay")]
        return counts[0], counts[1]


class Clock:
    """Milliseconds."""

    now = NOON

    def moment(self) -> datetime:
        return datetime.fromtimestamp(self.now / 1000, UTC)

    def __call__(self) -> int:
        return self.now


@asynccontextmanager
async def caller(
    path: Path,
    effects: Effects,
    clock: Clock | None = None,
    ear: Ear | None = None,
    drain_s: float = 10.0,
) -> AsyncIterator[Caller]:
    """One life on SQLite."""

    def opened() -> Any:
        return Storage.open(SCHEMA, path, now=clock or wall_clock)

    async with living(
        opened,
        *effects.skills(),
        ear=ear,
        approvers=Guard(),
        clocks=Clocks() if clock is None else Clocks(now=clock.moment),
        drain_s=drain_s,
    ) as world:
        yield Caller(world, clock)


def condition(error: Any) -> Any:
    assert isinstance(error, StanzaError), error
    return type(error.application[0])


def is_to_be_tried_again(error: Any) -> bool:
    return (
        isinstance(error, StanzaError)
        and error.condition == "resource-constraint"
        and error.application == (errors.Retry(after=5),)
        and "agent.db" not in error.text
    )


# Callers.


async def test_a_repetition_with_other_content(tmp_path: Path) -> None:
    effects = Effects()
    effects.gate.set()
    async with caller(tmp_path, effects) as ann:
        first = await ann.execute("steps", request="r", mode="async")
        assert condition(await ann.execute("steps", "other", request="r", mode="async")) is (
            errors.Conflict
        )
        assert await ann.execute("steps", request="r", mode="async") == first
        assert await ann.rows() == (1, 1)


async def test_what_has_ended_is_not_cancelled_and_who_asks_twice_hears_the_same(
    tmp_path: Path,
) -> None:
    effects = Effects()
    effects.gate.set()
    async with caller(tmp_path, effects) as ann:
        done = await ann.task("steps")
        await ann.world.ear.ended(done)
        before = await ann.get(done)
        assert await ann.cancel(done) == before == await ann.cancel(done)
        waits = await ann.task("erase")
        first = await ann.cancel(waits)
        assert first.state == "cancelled"
        assert await ann.cancel(waits) == first
        assert effects.log == ["a", "b"]


async def test_a_deadline_in_the_past_leaves_nothing(tmp_path: Path) -> None:
    effects, clock = Effects(), Clock()
    async with caller(tmp_path, effects, clock) as ann:
        for mode in ("async", "auto", "inline"):
            for by in (0, 1):
                late = ann.now() - timedelta(milliseconds=by)
                said = await ann.execute("steps", mode=mode, deadline=late, request=mode)
                assert condition(said) is errors.DeadlineExpired
        assert await ann.rows() == (0, 0)
        assert effects.log == []
        effects.gate.set()
        assert isinstance(await ann.execute("steps", request="auto"), Result)


# Clocks.


async def set_clock(ann: Caller, clock: Clock, to: int) -> None:
    """Let it be that time, and have it noticed as it would be within a minute.

    Time passes, or goes back: what a clock does that is set is in `test_clocks.py`.
    """
    clock.now = to
    service = ann.world.service
    service._timer.wake()


async def test_answers_after_their_time(tmp_path: Path) -> None:
    effects, clock = Effects(), Clock()
    async with caller(tmp_path, effects, clock) as ann:
        guarded, asking = await ann.task("erase"), await ann.task("asks")
        confirm = (await ann.get(guarded)).confirm
        asked = await ann.world.ear.in_state(asking, "input-required")
        await set_clock(ann, clock, NOON - 3_600_000)
        assert (await ann.get(guarded)).state == "input-required"
        await set_clock(ann, clock, NOON + 600_000)
        assert condition(await ann.decide(confirm.id)) is errors.Expired
        assert condition(await ann.answer(asked, "red")) is errors.Expired
        for task, why in (
            (guarded, errors.ConfirmationExpired()),
            (asking, errors.InputExpired()),
        ):
            ended = await ann.world.ear.ended(task)
            assert ended.failure is not None
            assert (ended.state, ended.failure.conditions) == ("failed", (why,))
        # For good: neither the question nor the task comes back with the time.
        await set_clock(ann, clock, NOON)
        assert condition(await ann.decide(confirm.id)) is errors.Expired
        assert (await ann.get(guarded)).state == "failed"
        assert effects.log == []


@pytest.mark.parametrize("forward", [True, False])
async def test_time_that_passes_while_work_runs(tmp_path: Path, forward: bool) -> None:
    effects, clock = Effects(), Clock()
    async with caller(tmp_path, effects, clock) as ann:
        task = await ann.task("steps", deadline=ann.now() + timedelta(hours=1))
        free = await ann.task("steps")
        await effects.reached.wait()
        await set_clock(ann, clock, NOON + (7_200_000 if forward else -7_200_000))
        if forward:
            ended = await ann.world.ear.ended(task)
            assert ended.failure is not None
            assert ended.failure.conditions == (errors.DeadlineExpired(),)
        effects.gate.set()
        assert (await ann.world.ear.ended(free)).state == "completed"
        if not forward:
            ended = await ann.world.ear.ended(task)
            assert ended.state == "completed"
            times = [one.updated for one in await ann.world.events(task)]
            assert times == sorted(times, key=lambda time: time or ann.now())  # TSK-005
            assert ended.retain_until == (await ann.get(task)).retain_until


# Disks.


@asynccontextmanager
async def full(ann: Caller) -> AsyncIterator[None]:
    """The database cannot grow."""

    def limit(pages: int | None) -> Callable[[Database], None]:
        def op(database: Database) -> None:
            (now,) = database.execute("SELECT page_count FROM pragma_page_count").fetchone() or (0,)
            database.execute(f"PRAGMA max_page_count = {pages or now}")

        return op

    await ann.world.storage.write(limit(None))
    try:
        yield
    finally:
        await ann.world.storage.write(limit(1_000_000))


@contextmanager
def locked(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another program holds the database."""
    other = sqlite3.connect(path / "agent.db", isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")
    finally:
        other.close()


async def test_a_full_disk_refuses_admission_and_nothing_else(tmp_path: Path) -> None:
    effects = Effects()
    async with caller(tmp_path, effects) as ann:
        task = await ann.task("erase")
        before = await ann.rows()
        async with full(ann):
            refused = await ann.execute("steps", BIG, mode="async", request="r")
            assert is_to_be_tried_again(refused)
            assert await ann.rows() == before
            assert (await ann.get(task)).state == "input-required"
            await ann.goes_on()
        effects.gate.set()
        accepted = await ann.execute("steps", BIG, mode="async", request="r")
        assert (await ann.world.ear.ended(accepted.task)).state == "completed"
        assert effects.log == ["a", "b"]


async def test_a_disk_that_is_full_in_a_step_and_at_its_end(tmp_path: Path) -> None:
    effects = Effects()
    async with caller(tmp_path, effects) as ann:
        task = await ann.task("steps")
        await effects.reached.wait()
        async with full(ann):
            effects.gate.set()
            await ann.goes_on()
            assert (await ann.get(task)).state == "running"
            await refuses(ann)
            assert await ann.world.scalar("SELECT count(*) FROM journal WHERE done = 1") == 0
        assert (await ann.world.ear.ended(task)).state == "completed"
        assert effects.log == ["a", "b"]


async def test_a_disk_that_is_full_at_completion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    effects = Effects()
    effects.gate.set()
    ending: list[str] = []
    end = Run._end

    async def noted(run: Run, *args: Any) -> None:
        ending.append("now")
        await end(run, *args)

    monkeypatch.setattr(Run, "_end", noted)
    async with caller(tmp_path, effects) as ann:
        storage, write = ann.world.storage, ann.world.storage.write
        stuck = anyio.Event()
        space = anyio.Event()

        async def fuller(op: Any, *, keep_trying: bool = False, **rest: Any) -> Any:
            if ending:
                ending.clear()
                async with full(ann):
                    with pytest.raises(StorageError, match="disk or the quota is full"):
                        await write(op)
                stuck.set()
                await space.wait()
            return await write(op, keep_trying=keep_trying, **rest)

        storage.write = fuller  # type: ignore[method-assign]
        task = await ann.task("steps")
        await stuck.wait()
        assert (await ann.get(task)).state == "running"
        assert ann.world.ear.of(task)[-1].state == "running"  # nobody was told of an end
        space.set()
        assert (await ann.world.ear.ended(task)).state == "completed"
        assert effects.log == ["a", "b"]


async def test_a_kill_while_the_disk_is_full(tmp_path: Path) -> None:
    effects = Effects()
    ear = Ear()
    async with caller(tmp_path, effects) as ann:
        task = await ann.task("steps")
        await effects.reached.wait()
        await ann.world.storage.write(
            lambda db: db.execute(
                "CREATE TRIGGER full BEFORE UPDATE OF done ON journal BEGIN"
                " SELECT RAISE(FAIL, 'full'); END"
            )
        )
    async with caller(tmp_path, effects, ear=ear):
        ended = await ear.ended(task)
        assert ended.failure is not None
        assert ended.failure.conditions == (errors.OutcomeUnknown(),)
        assert effects.log == ["a"]


async def refuses(ann: Caller) -> None:
    """See that the disk does."""
    assert is_to_be_tried_again(await ann.execute("steps", BIG, mode="async"))


async def test_work_and_answers_are_refused_while_the_database_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_module, "_BUSY_SECONDS", 0)
    effects = Effects()
    async with caller(tmp_path, effects) as ann:
        running, guarded = await ann.task("steps"), await ann.task("erase")
        asking = await ann.task("asks")
        confirm = (await ann.get(guarded)).confirm
        asked = await ann.world.ear.in_state(asking, "input-required")
        await effects.reached.wait()
        before = await ann.rows()
        with locked(tmp_path, monkeypatch):
            for refused in (
                await ann.execute("steps", mode="async", request="r"),
                await ann.execute("steps", request="s"),
                await ann.cancel(guarded),
                await ann.decide(confirm.id),
                await ann.answer(asked, "red"),
            ):
                assert is_to_be_tried_again(refused), refused
            effects.gate.set()  # what runs goes on as far as it can, and keeps what it has done
            await ann.goes_on()
            assert await ann.rows() == before
            for task in (guarded, asking):
                assert (await ann.get(task)).state == "input-required"
        # The question was still open, and the answer that comes again counts.
        assert await ann.decide(confirm.id) is None
        assert isinstance(await ann.answer(asked, "red"), Task)
        for task in (running, guarded, asking):
            assert (await ann.world.ear.ended(task)).state == "completed"
        assert effects.log == ["a", "b", "erase"] or sorted(effects.log) == ["a", "b", "erase"]


async def test_the_end_does_not_wait_for_a_disk_that_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_module, "_BUSY_SECONDS", 0)
    monkeypatch.setattr(worker, "_LAST_COMMITS_S", 0.05)
    effects, ear = Effects(), Ear()
    async with caller(tmp_path, effects, drain_s=0.05) as ann:
        task = await ann.task("steps")
        await effects.reached.wait()
        with locked(tmp_path, monkeypatch):
            effects.gate.set()
            await ann.world.service.drain()
            service = ann.world.service
            with anyio.fail_after(120):
                await service._worker._idle.wait()
    async with caller(tmp_path, effects, ear=ear):
        ended = await ear.ended(task)
        assert ended.failure is not None
        assert ended.failure.conditions == (errors.OutcomeUnknown(),)
        assert effects.log == ["a"]


def spoil(path: Path) -> None:
    """Overwrite every page but the first, which says that this is a database."""
    other = sqlite3.connect(path / "agent.db")
    other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (size,) = other.execute("PRAGMA page_size").fetchone()
    (pages,) = other.execute("PRAGMA page_count").fetchone()
    other.close()
    with (path / "agent.db").open("r+b") as file:
        file.seek(size)
        file.write(b"\xff" * size * (pages - 1))


async def test_a_database_that_is_damaged_at_the_start(tmp_path: Path) -> None:
    effects = Effects()
    async with caller(tmp_path, effects) as ann:
        await ann.task("erase")
    spoil(tmp_path)
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - it may come in a group
        async with caller(tmp_path, effects):
            raise AssertionError("it has started")
    said = caught.value
    while isinstance(said, BaseExceptionGroup):
        said = said.exceptions[0]
    assert isinstance(said, StorageError)
    assert "is damaged" in str(said)
    assert "Move it away" in str(said)


async def test_a_database_that_is_damaged_meanwhile(tmp_path: Path) -> None:
    effects = Effects()
    looked = False
    try:
        async with caller(tmp_path, effects) as ann:
            task = await ann.task("erase")
            spoil(tmp_path)
            for use in (ann.world.storage.read, ann.world.storage.write):
                await use(lambda db: db.execute("PRAGMA shrink_memory"))
            for refused in (
                await ann.get(task),
                await ann.cancel(task),
                await ann.execute("steps", mode="async"),
                await ann.execute("steps"),
            ):
                assert is_to_be_tried_again(refused), refused
            await ann.goes_on(readable=False)
            looked = True
    except StorageError:
        pass  # that of the last write of `living`
    assert looked
    assert effects.log == []


async def test_postgresql_restarted_in_the_middle(
    tmp_path: Path, make_postgres: Callable[[], Postgres]
) -> None:
    server = make_postgres()
    url = server.new_database()
    effects = Effects()

    def opened() -> Any:
        return Storage.open(SCHEMA, tmp_path, postgres=url)

    async with living(opened, *effects.skills(), approvers=Guard()) as world:
        ann = Caller(world, None)
        running, guarded = await ann.task("steps"), await ann.task("erase")
        confirm = (await ann.get(guarded)).confirm
        await effects.reached.wait()
        before = await ann.rows()
        await to_thread.run_sync(server.stop)
        refused = await ann.execute("steps", mode="async", request="r")
        assert is_to_be_tried_again(refused)
        assert is_to_be_tried_again(await ann.decide(confirm.id))
        effects.gate.set()
        await ann.goes_on(readable=False)
        await to_thread.run_sync(server.start)

        async def back() -> bool:
            return isinstance(await ann.get(guarded), Task)

        await eventually(back)
        assert (await ann.rows()) == before
        assert await ann.decide(confirm.id) is None
        for task in (running, guarded):
            assert (await world.ear.ended(task)).state == "completed"
        assert sorted(effects.log) == ["a", "b", "erase"]
        assert encode(await ann.get(running)) == encode(await ann.get(running))

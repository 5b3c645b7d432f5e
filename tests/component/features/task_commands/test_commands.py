"""Commands about tasks: one's own, and everybody's for admins, on real rows."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from component.app.schema import SCHEMA
from component.commands import OPERATOR, Asking, CommandError, CommandResult, Commands, read_words
from component.features.task_commands.commands import TaskCommands
from component.features.task_commands.sheets import TaskLine, TaskSheet
from component.store import Storage
from component.tasks import queries
from component.tasks.admin import TaskAdmin
from component.tasks.changes import change
from component.tasks.protocol import Bounds
from component.tasks.request import Confirmation
from tests.component.features.task_commands.stored import (
    AGENT,
    ALICE,
    BOB,
    LIMITS,
    complete,
    fail,
    insert,
)
from xep.fluux_agent import errors
from xep.fluux_agent.task import Cancel, Task
from xep.fluux_agent.task import Tasks as TaskList
from xep.jid import JID

pytestmark = pytest.mark.anyio


class Rows:
    """The part of `TaskService` that commands ask, straight from the rows."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.cancelled: list[tuple[str, str, str]] = []

    async def get(self, who: JID, at: JID, task: str) -> Task:
        found = await self._storage.read(lambda db: queries.get(db, who, at, task))
        if found is None:
            raise errors.unknown_task()
        return found

    async def list(self, who: JID, at: JID, query: TaskList) -> TaskList:
        return await self._storage.read(lambda db: queries.list_(db, who, at, query, LIMITS))

    async def cancel(self, who: JID, at: JID, query: Cancel) -> Task:
        task = await self.get(who, at, query.id)
        self.cancelled.append((str(who), str(at), query.id))
        return task


class Bench:
    def __init__(self, storage: Storage, **ledger: Any) -> None:
        self.storage = storage
        self.rows = Rows(storage)
        self.ledger = TaskAdmin(storage, LIMITS, **ledger)
        tasks: Any = self.rows
        self.commands = Commands(
            TaskCommands(self.ledger, tasks, Bounds(100, 2_000_000)).commands(),
            [JID.parse("boss@a.example")],
        )

    def asking(self, who: str) -> Asking:
        return self.commands.asking(JID.parse(who), JID.parse(AGENT))

    async def say(self, who: str | None, line: str) -> CommandResult:
        asking = OPERATOR if who is None else self.asking(who)
        name, _, words = line.partition(" ")
        command = self.commands.get(name, asking)
        assert command is not None, f"no {name} for {who}"
        return await command.run(asking, read_words(command, words))

    async def refused(self, who: str | None, line: str) -> str:
        with pytest.raises(CommandError) as caught:
            await self.say(who, line)
        return str(caught.value)


@asynccontextmanager
async def bench(directory: Path, **ledger: Any) -> AsyncIterator[Bench]:
    async with Storage.open(SCHEMA, directory) as storage:
        yield Bench(storage, **ledger)


def ids(answer: CommandResult) -> list[str]:
    assert isinstance(answer.value, list)
    return [line.id for line in answer.value if isinstance(line, TaskLine)]


def sheet(answer: CommandResult) -> TaskSheet:
    assert isinstance(answer.value, TaskSheet)
    return answer.value


@pytest.mark.ports
async def test_everybody_sees_its_own(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.storage.write(lambda db: insert(db, "t-a"))
        await b.storage.write(lambda db: complete(db, insert(db, "t-b")))
        await b.storage.write(lambda db: insert(db, "t-c", principal=BOB))
        assert sorted(ids(await b.say(ALICE, "tasks"))) == ["t-a", "t-b"]
        assert ids(await b.say(ALICE, "tasks accepted")) == ["t-a"]
        assert ids(await b.say(ALICE, "tasks state=completed limit=5")) == ["t-b"]
        assert "There are older ones" in (await b.say(ALICE, "tasks limit=1")).text
        assert "There are older ones" not in (await b.say(ALICE, "tasks limit=2")).text
        kept = (
            "\nI store 1 of your ended tasks (2 kB). When there are more than 100, or more than"
            " 2 MB of them, I remove the oldest."
        )
        assert (await b.say(ALICE, "tasks")).text.endswith(kept)
        assert "I store" not in (await b.say("bob@a.example", "tasks")).text
        answer = await b.say("carol@a.example", "tasks")
        assert (answer.text, answer.value) == ("There are no tasks.", [])
        assert (
            "- report waits to begin, since today at "
            in (await b.say(ALICE, "tasks accepted")).text
        )
        # What is for admins is not there for anybody else.
        assert "has no 'all'" in await b.refused(ALICE, "tasks all=true")
        assert "has no 'principal'" in await b.refused(ALICE, f"tasks principal={BOB}")
        assert b.commands.get("retry", b.asking(ALICE)) is None


@pytest.mark.ports
async def test_admins_see_everybodys(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        for number, principal in enumerate([ALICE, BOB, "boss@a.example"]):
            task = f"t-{number}"
            await b.storage.write(lambda db, t=task, p=principal: insert(db, t, principal=p))
        boss = "boss@a.example"
        assert ids(await b.say(boss, "tasks")) == ["t-2"]
        assert sorted(ids(await b.say(boss, "tasks all=true"))) == ["t-0", "t-1", "t-2"]
        assert ids(await b.say(boss, f"tasks principal={BOB}")) == ["t-1"]
        assert sorted(ids(await b.say(None, "tasks"))) == ["t-0", "t-1", "t-2"]
        assert len(ids(await b.say(None, "tasks limit=2"))) == 2
        assert f"for {BOB}" in (await b.say(None, "tasks")).text
        assert sheet(await b.say(boss, "task t-1")).principal == BOB
        assert (await b.say(None, "tasks failed")).text == "There are no tasks that are failed."


@pytest.mark.ports
async def test_one_task_whole(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.storage.write(lambda db: complete(db, insert(db, "t-1"), "all of it"))
        await b.storage.write(
            lambda db: fail(db, insert(db, "t-2"), errors.invalid_param("topic", "is too wide"))
        )

        for who in (ALICE, None):
            shown = await b.say(who, "task t-1")
            assert sheet(shown).state == "completed"
            assert [piece.text for piece in sheet(shown).outputs] == ["all of it"]
            assert "summary: all of it" in shown.text
            failed = await b.say(who, "task t-2")
            assert sheet(failed).conditions == ("invalid-param",)
            assert "Reason: topic: is too wide" in failed.text
        assert sheet(await b.say(None, "task t-1")).requester == f"{ALICE}/phone"


async def test_what_is_not_there_and_what_is_somebody_elses_look_the_same(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.storage.write(lambda db: insert(db, "t-1", principal=BOB))
        for command in ("task", "cancel"):
            unknown = await b.refused(ALICE, f"{command} t-0")
            assert await b.refused(ALICE, f"{command} t-1") == unknown
            assert await b.refused(None, f"{command} t-0") == unknown
        assert await b.refused(None, "retry t-0") == "There is no such task here."


async def test_a_request_that_may_still_be_answered_inline_is_no_task(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.storage.write(lambda db: insert(db, "t-1"))
        await b.storage.write(lambda db: db.execute("UPDATE tasks SET promoted = 0") and None)
        for who in (ALICE, None):
            assert ids(await b.say(who, "tasks")) == []
            for command in ("task", "cancel"):
                assert await b.refused(who, f"{command} t-1") == "There is no such task here."
        assert await b.refused(None, "retry t-1") == "There is no such task here."


async def test_one_cancels_through_the_durable_work(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.ledger._cancel = b.rows.cancel
        await b.storage.write(lambda db: insert(db, "t-1"))
        await b.say(ALICE, "cancel t-1")
        await b.say("boss@a.example", "cancel t-1")
        # Whoever asks: it is ended as its principal would, where it was begun.
        assert b.rows.cancelled == [(ALICE, AGENT, "t-1")] * 2


async def test_without_a_service_what_nobody_runs_ends_at_once(tmp_path: Path) -> None:
    def running(db: Any, task: str, *, begun: bool) -> None:
        row = insert(db, task)
        change(db, row, "running", owner="a dead instance")
        if begun:
            db.execute("INSERT INTO journal VALUES (?, 'pay', 1, 0, NULL, NULL)", (task,))

    async with bench(tmp_path) as b:
        await b.storage.write(lambda db: insert(db, "waiting"))
        await b.storage.write(lambda db: running(db, "between", begun=False))
        await b.storage.write(lambda db: running(db, "within", begun=True))
        await b.storage.write(lambda db: complete(db, insert(db, "ended")))
        found = {
            task: sheet(await b.say(None, f"cancel {task}"))
            for task in ("waiting", "between", "within", "ended")
        }
        assert {task: one.state for task, one in found.items()} == {
            "waiting": "cancelled",
            "between": "cancelled",
            "within": "failed",
            "ended": "completed",
        }
        assert "outcome-unknown" in found["within"].conditions
        again = sheet(await b.say(None, "cancel waiting"))
        assert (again.state, again.revision) == ("cancelled", found["waiting"].revision)


async def test_a_failed_task_is_begun_again_as_new_work(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.storage.write(lambda db: fail(db, insert(db, "t-1"), errors.internal()))
        made = sheet(await b.say(None, "retry t-1"))
        assert made.id != "t-1"
        assert (made.state, made.revision, made.principal) == ("accepted", 0, ALICE)
        whole = await b.rows.get(JID.parse(ALICE), JID.parse(AGENT), made.id)
        assert whole.request is None  # the name of a request stays with the first one
        row = await b.storage.read(
            lambda db: db.execute("SELECT request FROM tasks WHERE id = ?", (made.id,)).fetchone()
        )
        assert row is not None
        assert "rivers" in row[0]
        assert sheet(await b.say(None, "task t-1")).state == "failed"


async def test_what_may_not_be_begun_again_says_why(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.storage.write(lambda db: insert(db, "open"))
        await b.storage.write(lambda db: complete(db, insert(db, "good")))
        unknown = errors.outcome_unknown()
        await b.storage.write(lambda db: fail(db, insert(db, "unsure"), unknown))
        await b.storage.write(
            lambda db: fail(
                db,
                insert(db, "asked", confirmation=Confirmation((JID.parse(ALICE),))),
                errors.denied(),
            )
        )
        assert "has not ended: it is accepted" in await b.refused(None, "retry open")
        assert "is completed" in await b.refused(None, "retry good")
        assert "not known whether" in await b.refused(None, "retry unsure")
        assert sheet(await b.say(None, "retry asked")).state == "accepted"
        assert sheet(await b.say(None, "retry unsure force=true")).state == "accepted"


async def test_a_task_that_was_set_aside_is_released(tmp_path: Path) -> None:
    queued: list[str] = []
    async with bench(tmp_path, requeued=queued.append) as b:
        await b.storage.write(lambda db: insert(db, "t-1"))
        assert "is not set aside" in await b.refused(None, "release t-1")
        await b.storage.write(
            lambda db: db.execute("UPDATE tasks SET set_aside = 'why', attempts = 3")
        )
        assert sheet(await b.say(None, "release t-1")).state == "accepted"
        row = await b.storage.read(
            lambda db: db.execute("SELECT set_aside, attempts FROM tasks").fetchone()
        )
        assert row == (None, 0)
        assert queued == ["t-1"]
        assert await b.refused(None, "release t-2") == "There is no such task here."


async def test_tasks_are_counted(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.storage.write(lambda db: insert(db, "t-1"))
        await b.storage.write(lambda db: complete(db, insert(db, "t-2")))
        await b.storage.write(lambda db: change(db, insert(db, "t-3"), "running", owner="me"))
        counts = await b.ledger.counts()
        assert (counts.accepted, counts.completed, counts.running) == (1, 1, 1)
        assert (counts.queued, counts.owned) == (1, 1)

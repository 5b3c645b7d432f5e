"""The task of a goal whose turn is parked waits as a row, and is woken when the turn has ended."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from component.agent import rows
from component.agent.protocol import ToolResult
from component.agent.requests import Outcome, TurnRequest, WorkStarter
from component.kernel.goals import GOAL, Goal, goal_skill
from component.link.messages.inbound import Conversation
from component.memory_directory.layout import SessionKey
from component.store import Storage, waiters
from component.tasks.request import CallerContext
from tests.component.agent.world import ROMEO, begun, shopping
from tests.component.agent.world import World as Agents
from tests.component.tasks.world import World as Tasks
from tests.component.tasks.world import living
from tests.servers.postgres import Postgres
from tests.waiting import eventually
from xep.fluux_agent.execute import Accepted
from xep.fluux_agent.task import Task
from xep.jid import JID

pytestmark = pytest.mark.anyio


def wait_for_turn(database: Any, task: str, turn: str) -> int:
    is_pending = partial(waiters.is_turn_pending, turn=turn)
    return waiters.wait_for_event(database, task, turn, is_pending)


ASKED = Goal(turn="turn-1", text="Order tea.", source="schedule", name="daily")


def address_of(agent: str) -> JID:
    return JID(agent, "agent.example.org")


class Turns:
    """Runs turns; `before_return` is called when one has stopped running."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents
        self.performed = 0

    async def before_return(self, outcome: Outcome | None) -> None:
        pass

    async def perform(self, request: TurnRequest) -> Outcome | None:
        self.performed += 1
        outcome = await self._agents.conversations.perform(request)
        await self.before_return(outcome)
        return outcome

    async def cancel(self, key: SessionKey, turn: str) -> None:
        raise NotImplementedError


@asynccontextmanager
async def running(agents: Agents, found: Turns) -> AsyncIterator[Tasks]:
    """The tasks of an instance, beside its agents."""

    @asynccontextmanager
    async def same() -> AsyncIterator[Storage]:
        yield agents.storage

    async with living(same, goal_skill(found, address_of)) as tasks:
        agents.concluded = tasks.service.requeued
        yield tasks


async def start(tasks: Tasks) -> str:
    call = tasks.call(GOAL, by=ROMEO, mode="async", json={"goal": msgspec.to_builtins(ASKED)})
    call = msgspec.structs.replace(call, caller_context=CallerContext("assistant"))
    accepted = await tasks.execute(call)
    assert isinstance(accepted, Accepted)
    return accepted.task


async def is_parked(tasks: Tasks, task: str) -> bool:
    """Whether a task waits for one turn, for no time, and no instance runs it."""
    row = await tasks.storage.read(
        lambda db: db.execute(
            "SELECT waits, owner, not_before FROM tasks WHERE id = ?", (task,)
        ).fetchone()
    )
    return row is not None and tuple(row) == (1, None, None)


async def deliver(agents: Agents) -> None:
    """The task ends that the turn waits for."""
    (ordered,) = agents.shop.tasks
    agents.shop.tasks[ordered] = ToolResult("It has come.")
    await agents.ended(ordered)


def text_of(task: Task) -> str:
    assert task.result is not None
    return "".join(output.text for output in task.result.outputs)


@pytest.fixture
def agents(request: pytest.FixtureRequest, database_kind: str, tmp_path: Path) -> Agents:
    world = Agents(tmp_path)
    if database_kind == "postgresql":
        server: Postgres = request.getfixturevalue("postgres_server")
        world.url = server.new_database()
    world.brain.think = shopping("order")
    return world


@pytest.mark.ports
async def test_a_parked_goal_waits_as_a_row_and_ends_with_its_turn(agents: Agents) -> None:
    async with agents.life(), running(agents, found := Turns(agents)) as tasks:
        task = await start(tasks)
        await eventually(lambda: is_parked(tasks, task))
        await deliver(agents)
        ended = await tasks.ear.ended(task)
        assert text_of(ended) == "re: Order tea.: It has come."
        assert found.performed == 2, "once until it was parked, once for its outcome"


async def test_a_turn_that_ends_before_the_row_is_written_is_not_missed(agents: Agents) -> None:
    class Slow(Turns):
        async def before_return(self, outcome: Outcome | None) -> None:
            if self.performed == 1:
                assert outcome is None
                await deliver(agents)
                await eventually(lambda: agents.storage.read(is_concluded))

    def is_concluded(database: Any) -> bool:
        return database.execute("SELECT 1 FROM turn_outcomes").fetchone() is not None

    async with agents.life(), running(agents, Slow(agents)) as tasks:
        await tasks.ear.ended(await start(tasks))


async def test_a_turn_that_ends_while_no_instance_runs_tasks(agents: Agents) -> None:
    async with agents.life():
        async with running(agents, found := Turns(agents)) as tasks:
            task = await start(tasks)
            await eventually(lambda: is_parked(tasks, task))
        agents.concluded = lambda: None
        await deliver(agents)
        await agents.settled()
        async with running(agents, found) as tasks:
            await tasks.ear.ended(task)


async def test_a_kill_while_the_turn_is_parked(agents: Agents) -> None:
    async with agents.life(), running(agents, found := Turns(agents)) as tasks:
        task = await start(tasks)
        await eventually(lambda: is_parked(tasks, task))
    async with agents.life(), running(agents, found) as tasks:
        await deliver(agents)
        await tasks.ear.ended(task)


async def test_a_parked_goal_can_be_stopped(agents: Agents) -> None:
    async with agents.life() as conversations, running(agents, Turns(agents)) as tasks:
        task = await start(tasks)
        await eventually(lambda: is_parked(tasks, task))
        await conversations.stop(SessionKey("assistant", ROMEO))
        ended = await tasks.ear.ended(task)
    assert text_of(ended) == "It was stopped."


@pytest.mark.ports
async def test_waiters_are_woken_once_and_only_by_their_turn(agents: Agents) -> None:
    async with agents.built():
        storage = agents.storage

        def waiting_rows(database: Any) -> Any:
            return database.execute("SELECT id, waits FROM tasks ORDER BY id").fetchall()

        def put(database: Any) -> None:
            for task in ("one", "two", "three"):
                begun(database, task)
            for turn in ("t1", "t2"):
                request = goal_request(turn)
                rows.insert(database, "here", request)

        def wait(database: Any) -> None:
            for task, turn in (("one", "t1"), ("two", "t1"), ("three", "t2")):
                waits = waiters.wait_for_event(
                    database, task, turn, partial(waiters.is_turn_pending, turn=turn)
                )
                database.execute("UPDATE tasks SET waits = ? WHERE id = ?", (waits, task))

        await storage.write(put)
        await storage.write(wait)
        assert [tuple(row) for row in await storage.read(waiting_rows)] == [
            ("one", 1),
            ("three", 1),
            ("two", 1),
        ]
        await storage.write(lambda db: rows.conclude(db, "t1", Outcome("silent")))
        await storage.write(lambda db: rows.conclude(db, "t1", Outcome("silent")))
        assert [tuple(row) for row in await storage.read(waiting_rows)] == [
            ("one", 0),
            ("three", 1),
            ("two", 0),
        ]
        await storage.write(lambda db: rows.delete(db, ["t1"]))
        for turn in ("t1", "unknown"):
            count = await storage.write(
                lambda db, turn=turn: waiters.wait_for_event(
                    db, "one", turn, partial(waiters.is_turn_pending, turn=turn)
                )
            )
            assert count == 0
        await storage.write(lambda db: rows.forget_outcome(db, "t1"))
        left = await storage.read(lambda db: db.execute("SELECT task FROM waiters").fetchall())
        assert [task for (task,) in left] == ["t2"]


def goal_request(turn: str) -> TurnRequest:
    return TurnRequest(
        id=turn,
        starter=WorkStarter("schedule", "daily"),
        conversation=Conversation(JID.parse("assistant@agent.example.org"), ROMEO),
        principal=ROMEO,
        text="x",
    )


@pytest.mark.ports
async def test_two_goals_whose_turns_end_at_the_same_time(agents: Agents) -> None:
    """The rows of two turns, and of the tasks that wait for them, are changed at the same time."""
    async with agents.built():
        storage = agents.storage

        def put(database: Any) -> None:
            for number in range(20):
                begun(database, f"task-{number}")
                rows.insert(database, "here", goal_request(f"turn-{number}"))

        def wait(database: Any, number: int) -> None:
            waits = wait_for_turn(database, f"task-{number}", f"turn-{number}")
            database.execute("UPDATE tasks SET waits = ? WHERE id = ?", (waits, f"task-{number}"))

        await storage.write(put)
        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(storage.write, lambda db, n=number: wait(db, n))
                group.start_soon(
                    storage.write,
                    lambda db, n=number: rows.conclude(db, f"turn-{n}", Outcome("silent")),
                )
        left = await storage.read(
            lambda db: db.execute("SELECT count(*) FROM tasks WHERE waits > 0").fetchone()
        )
        assert left[0] == 0

"""What is past its time is deleted, with all that belongs to it, and nothing else."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.app.schema import SCHEMA
from component.store import Storage, StorageError, waiters
from component.store.database import Database
from component.tasks.changes import TRANSITIONS, change
from component.tasks.expiry import forget, keep
from component.tasks.protocol import TaskLimits
from component.tasks.rows import TERMINAL
from tests.component.tasks.ledger import NOON, Ledger, question
from xep.fluux_agent.execute import Output, Result, State
from xep.fluux_agent.task import Progress

pytestmark = pytest.mark.ports

T = TypeVar("T")
NewLedger = Callable[[], Ledger]


def fill(database: Ledger, task: str) -> None:
    """A task that has ended now, with children in every table."""
    database.limits = TaskLimits(retention_s=1)
    database.add(task, state="running")
    database.ask(task, question(f"q-{task}", 1), 1)
    database.part(task, Output(name="log", part=0, text="x"))
    database.execute("INSERT INTO journal VALUES (?, 'a', 0, 1, NULL, NULL)", (task,))
    change(database, database.row(task), "running", Progress(text="x"))
    change(database, database.row(task), "completed", Result(skill="report"))


def test_a_task_goes_with_all_that_belongs_to_it(new_ledger: NewLedger) -> None:
    database = new_ledger()
    fill(database, "t-1")
    database.replay("k-1", NOON, "t-1")
    assert forget(database) == 0
    database.now = database.row().retain_until
    assert forget(database) == 0  # until that time, it included
    database.now += 1
    assert forget(database) == 1
    tables = ("tasks", "events", "journal", "parts", "inputs", "asked", "replay")
    assert [database.count(table) for table in tables] == [0] * len(tables)


def test_what_a_task_and_its_children_waited_for_is_deleted_with_them(
    new_ledger: NewLedger,
) -> None:
    database = new_ledger()
    for task, parent in (("t-1", None), ("t-2", "t-1"), ("t-3", "t-2")):
        database.add(task, state="completed", retain_until=NOON - 1, parent=parent)
        waiters.wait_for(database, task, [f"other-{task}"], None)
    waiters.wait_for(database, "t-9", ["other"], None)
    forget(database)
    assert database.execute("SELECT waiter FROM waiters").fetchall() == [("t-9",)]


def test_an_open_task_is_kept_with_its_record_however_old(new_ledger: NewLedger) -> None:
    database = new_ledger()
    database.limits = TaskLimits(retention_s=1)
    database.add(state="input-required", retain_until=NOON - 1)
    database.replay("k-1", NOON - 1, "t-1")
    assert forget(database) == 0
    change(database, database.row(), "cancelled")
    assert forget(database) == 0
    database.now += 1_001
    assert forget(database) == 1
    assert (database.count("tasks"), database.count("replay")) == (0, 0)


def test_a_task_stays_as_long_as_the_record_that_promises_it(new_ledger: NewLedger) -> None:
    database = new_ledger()
    database.add(state="completed", retain_until=NOON - 10)
    database.replay("k-1", NOON + 10, "t-1")
    assert forget(database) == 0
    database.now = NOON + 11
    assert forget(database) == 1
    assert (database.count("tasks"), database.count("replay")) == (0, 0)


def test_records_without_a_task_go_when_they_expire(new_ledger: NewLedger) -> None:
    database = new_ledger()
    database.replay("old", NOON - 1)
    database.replay("new", NOON)
    assert forget(database) == 1
    assert database.execute("SELECT key FROM replay").fetchall() == [("new",)]


STATES: list[State] = sorted(TRANSITIONS)


@given(
    rows=st.lists(
        st.tuples(st.sampled_from(STATES), st.integers(-5, 5), st.none() | st.integers(-5, 5)),
        max_size=30,
    ),
    limit=st.integers(1, 10),
)
def test_portion_by_portion_exactly_what_is_past_its_time_goes(
    new_ledger: NewLedger, rows: list[tuple[State, int, int | None]], limit: int
) -> None:
    database = new_ledger()
    stay = set()
    for number, (state, retained, record) in enumerate(rows):
        task = f"t-{number:02}"
        database.add(task, state=state, retain_until=NOON + retained)
        if record is not None:
            database.replay(f"k-{number:02}", NOON + record, task)
        if state not in TERMINAL or retained >= 0 or (record is not None and record >= 0):
            stay.add(task)
    while (count := forget(database, limit)) > 0:
        assert count <= limit
    assert {task for (task,) in database.execute("SELECT id FROM tasks").fetchall()} == stay
    records = database.execute("SELECT task FROM replay").fetchall()
    assert {task for (task,) in records} <= stay
    assert len(records) == sum(
        record is not None and f"t-{number:02}" in stay
        for number, (_, _, record) in enumerate(rows)
    )


# -- rounds --------------------------------------------------------------------------------------


class Refusing:
    """A storage of which the first round is refused."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.refusals = 0
        self.done = anyio.Event()

    async def write(self, op: Callable[[Database], T]) -> T:
        if not self.refusals:
            self.refusals += 1
            raise StorageError("The disk is full. Make room.")
        deleted = await self.storage.write(op)
        if deleted == (0, []):
            self.done.set()
        return deleted


@pytest.mark.anyio
async def test_a_round_that_is_refused_is_made_up_for_by_the_next(tmp_path: Path) -> None:
    async with Storage.open(SCHEMA, tmp_path / "data") as storage:

        def add(database: Database) -> None:
            for number in range(250):
                database.execute(
                    "INSERT INTO replay (key, digest, expires) VALUES (?, 'd', 0)", (f"{number}",)
                )

        await storage.write(add)
        refusing = Refusing(storage)
        with anyio.fail_after(120):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(keep, cast("Storage", refusing), 0)
                await refusing.done.wait()
                tasks.cancel_scope.cancel()
        assert refusing.refusals == 1
        left = await storage.read(
            lambda database: database.execute("SELECT count(*) FROM replay").fetchone()
        )
        assert left == (0,)

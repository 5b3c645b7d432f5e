"""Lists and deletion take no longer the more tasks are kept: each has an index to use."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TypeVar

import msgspec
import pytest

from component.app.schema import SCHEMA
from component.skills.builtin import echo
from component.store.database import Database, Rows, Value
from component.store.postgres import PostgreSQL
from component.tasks import admin, question_rows
from component.tasks.admin import Held
from component.tasks.changes import TRANSITIONS, change
from component.tasks.expiry import forget
from component.tasks.protocol import Bounds, TaskLimits
from component.tasks.queries import list_
from component.tasks.questions import ask_question, confirm_for
from component.tasks.rows import moment
from tests.component.tasks.ledger import AGENT, ALICE, BOB, NOON, OTHER, Ledger, asked_for
from tests.direct_database import expect
from tests.servers.postgres import Databases
from xep.fluux_agent.execute import State
from xep.fluux_agent.task import Tasks
from xep.result_sets import ResultSet

pytestmark = [pytest.mark.anyio, pytest.mark.ports]
T = TypeVar("T")


class Watched:
    """A store on a ledger; it can say how the database finds what was asked for last."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.dialect = ledger.dialect
        self.now = self.settled = self.steady = ledger.now
        self._asked: list[tuple[str, Sequence[Value]]] = []

    async def read(self, op: Callable[[Database], T]) -> T:
        return op(self)

    async def write(self, op: Callable[[Database], T]) -> T:
        return op(self)

    def execute(self, sql: str, parameters: Sequence[Value] = (), /) -> Rows:
        self._asked.append((sql, parameters))
        return self.ledger.execute(sql, parameters)

    def expect(self, sql: str, parameters: Sequence[Value] = (), /) -> bool:
        return expect(self, sql, parameters)

    def notify(self, channel: str, /) -> None:
        raise AssertionError("nothing has changed")

    def plan(self, which: int = -1) -> str:
        """How the statement of that number is carried out."""
        sql, parameters = self._asked[which]
        query = "QUERY PLAN " if self.dialect == "sqlite" else ""
        found = self.ledger.execute(f"EXPLAIN {query}{sql}", parameters).fetchall()
        return "\n".join(str(row[-1]) for row in found)

    def plans(self) -> list[str]:
        """How all statements were carried out."""
        return [self.plan(which) for which in range(len(self._asked))]

    def found_by(self, index: str) -> None:
        """Hold that the last statement read rows in the order of this index, and sorted nothing.

        PostgreSQL goes by its statistics, and takes another index where that is as good.
        """
        plan = self.plan()
        if self.dialect == "postgresql":
            assert "Seq Scan" not in plan, plan
            return
        assert re.search(rf"\b{index}\b", plan), plan
        assert "SORT" not in plan.upper(), plan
        assert "TEMP B-TREE" not in plan, plan


@pytest.fixture(scope="module")
def thousands(request: pytest.FixtureRequest, database_kind: str) -> Iterator[Ledger]:
    """Several thousand tasks, of which a few are open and a few are calls that were answered.

    They are made once, in a database of their own.
    """
    with ExitStack() as stack:
        ledger = Ledger()
        if database_kind == "postgresql":
            server: Databases = request.getfixturevalue("postgres_server")
            engine = PostgreSQL.open(stack.enter_context(server.migrated_database()), SCHEMA)
            stack.callback(engine.close)
            ledger = Ledger(stack.enter_context(engine.transaction()))
        fill(ledger)
        yield ledger


def fill(ledger: Ledger) -> None:
    for number in range(3000):
        ledger.add(
            f"t-{number:04}",
            principal=(ALICE, BOB)[number % 20 == 0],
            state="running" if number % 500 == 7 else "failed" if number % 60 == 9 else "completed",
            context="x" if number % 30 == 3 else None,
            updated=NOON - number // 2,
            promoted=int(number % 1000 != 8),
            created=NOON - number // 2,  # two of each millisecond
        )
    if ledger.dialect == "postgresql":  # where that happens by itself, as on SQLite it does not
        ledger.execute("ANALYZE")


@pytest.fixture
def watched(thousands: Ledger) -> Iterator[Watched]:
    """A store on thousands of tasks; what a test changes is undone."""
    thousands.execute("SAVEPOINT before")
    yield Watched(thousands)
    thousands.execute("ROLLBACK TO SAVEPOINT before")


async def listed(
    watched: Watched, state: State | None = None, principal: str | None = None, limit: int = 20
) -> Sequence[Held]:
    return await admin.TaskAdmin(watched, TaskLimits()).list_all(state, principal, limit)


def in_order(found: Sequence[Held]) -> bool:
    ids = [held.task.id for held in found]
    return ids == sorted(ids)


async def test_everybodys_come_in_the_order_of_their_index(watched: Watched) -> None:
    found = await listed(watched)
    assert [held.task.id for held in found] == [f"t-{n:04}" for n in range(21) if n != 8]
    watched.found_by("tasks_created")


async def test_those_in_a_state_are_found_in_their_order(watched: Watched) -> None:
    for state in ("running", "failed"):
        found = await listed(watched, state)  # type: ignore[arg-type]  # it is one
        assert in_order(found)
        assert {held.task.state for held in found} == {state}
        watched.found_by("tasks_by_state")
        await listed(watched, state, str(ALICE))  # type: ignore[arg-type]  # as above
        watched.found_by("tasks_state")


async def test_those_of_one_principal_are_found_among_its_own(watched: Watched) -> None:
    found = await listed(watched, None, str(BOB))
    assert in_order(found)
    assert {held.principal for held in found} == {str(BOB)}
    watched.found_by("tasks_listed")
    # And so it is for whoever asks for its own.
    list_(watched, BOB, AGENT, Tasks(), TaskLimits())
    watched.found_by("tasks_listed")


async def test_a_page_of_ones_own_is_found_by_an_index(watched: Watched) -> None:
    for query, index in (
        (Tasks(), "tasks_listed"),
        (Tasks(state="failed"), "tasks_state"),
        (Tasks(state="running"), "tasks_state"),
        (Tasks(context="x"), "tasks_context"),
    ):
        for backwards in (False, True):
            page = ResultSet(max=2, before="" if backwards else None)
            found = list_(
                watched, ALICE, AGENT, msgspec.structs.replace(query, page=page), TaskLimits()
            )
            assert len(found.tasks) == 2
            watched.found_by(index)
            assert found.page is not None
            assert found.page.first is not None
            key = found.page.first.key if backwards else found.page.last
            page = ResultSet(
                max=2, before=key if backwards else None, after=None if backwards else key
            )
            list_(watched, ALICE, AGENT, msgspec.structs.replace(query, page=page), TaskLimits())
            watched.found_by(index)


async def test_ended_tasks_are_counted_as_far_as_there_may_be_any(watched: Watched) -> None:
    found = list_(watched, ALICE, AGENT, Tasks(), TaskLimits(kept=Bounds(tasks=100)))
    assert found.ended == 111
    plan = watched.plan(0)
    if watched.dialect == "sqlite":
        assert "tasks_kept" in plan, plan
    everything = list_(watched, ALICE, AGENT, Tasks(), TaskLimits(kept=Bounds(tasks=10_000)))
    assert everything.ended is not None
    assert everything.ended > 2_000


async def test_what_changed_lately_is_found_by_the_index_of_changes(watched: Watched) -> None:
    since = moment(NOON - 1)
    found = list_(watched, ALICE, AGENT, Tasks(since=since), TaskLimits())
    assert [task.id for task in found.tasks] == ["t-0001", "t-0002", "t-0003"]
    assert "tasks_updated" in watched.plan()
    watched.ledger.execute("UPDATE tasks SET updated = ? WHERE id = 't-2001'", (NOON,))
    found = list_(watched, ALICE, AGENT, Tasks(since=since, state="completed"), TaskLimits())
    assert [task.id for task in found.tasks] == ["t-0001", "t-0002", "t-0003", "t-2001"]


async def test_those_of_each_state_are_counted(new_ledger: Callable[[], Ledger]) -> None:
    ledger = new_ledger()
    empty = await admin.TaskAdmin(Watched(ledger), TaskLimits()).counts()
    assert empty == admin.Counts()
    for count, state in enumerate(TRANSITIONS, 1):
        for number in range(count):
            ledger.add(f"t-{state}-{number}", state=state)
    ledger.add("t-mine", state="running", owner="me")
    found = await admin.TaskAdmin(Watched(ledger), TaskLimits()).counts()
    for count, state in enumerate(TRANSITIONS, 1):
        there = getattr(found, state.replace("-", "_"))
        assert there == count + (state == "running"), state
    assert (found.queued, found.owned) == (1 + 2, 1)  # accepted and running


async def test_nothing_is_counted_when_somebody_asks_how_many(watched: Watched) -> None:
    for number in range(20):
        watched.ledger.add(f"u-{number}", state="failed")
    found = await admin.TaskAdmin(watched, TaskLimits()).counts()
    assert (found.completed, found.failed, found.running) == (2944, 70, 6)
    assert re.search(r"\btasks\b", watched.plan()) is None


@pytest.mark.parametrize("state", sorted(TRANSITIONS))
async def test_every_state_can_be_asked_for(new_ledger: Callable[[], Ledger], state: State) -> None:
    ledger = new_ledger()
    for each in TRANSITIONS:
        ledger.add(f"t-{each}", state=each)
        ledger.add(f"u-{each}", state=each)
    found = await listed(Watched(ledger), state)
    assert [held.task.id for held in found] == [f"t-{state}", f"u-{state}"]


async def test_open_and_closed_questions_are_found_among_thousands_that_were_answered(
    new_ledger: Callable[[], Ledger],
) -> None:
    ledger = new_ledger()
    watched = Watched(ledger)

    def put(number: int, thread: str | None = None) -> None:
        row = ledger.add(
            f"t-{number:04}", state="running", request=asked_for(BOB, thread=thread), principal=BOB
        )
        confirm = confirm_for(
            *(asked_for(principal=BOB), echo, echo.inputs.type(text="x")),
            task=row.id,
            question=f"c-{number:04}",
            expires=moment(NOON + 1000),
        )
        ask_question(ledger, row, confirm, (ALICE,))

    for number in range(400):
        put(number, "late" if number == 7 else None)
        if number % 200:
            change(ledger, ledger.row(f"t-{number:04}"), "cancelled", None)
    if ledger.dialect == "postgresql":
        ledger.execute("ANALYZE")
    found = question_rows.open_questions(watched, ALICE, AGENT)
    assert {question.task for question in found} == {"t-0000", "t-0200"}
    assert "asked_open" in watched.plan(0)
    # The only one of this thread was put long before all the others.
    assert question_rows.was_asked(watched, ALICE, AGENT, "late")
    assert "asked_thread" in watched.plan()
    assert question_rows.was_asked(watched, ALICE, AGENT, "t-0399")
    assert not question_rows.was_asked(watched, ALICE, AGENT, "t-0200")
    assert not question_rows.was_asked(watched, ALICE, AGENT, "another")
    assert not question_rows.was_asked(watched, BOB, AGENT, "late")
    assert not question_rows.was_asked(watched, ALICE, OTHER, "late")


async def test_what_is_past_its_time_is_found_among_thousands_that_are_kept(
    new_ledger: Callable[[], Ledger],
) -> None:
    ledger = new_ledger()
    for number in range(3000):
        task = f"t-{number:04}"
        past = number % 300 == 0
        ledger.add(task, state="completed", retain_until=NOON - 1 if past else NOON + 1000)
        ledger.replay(f"k-{number:04}", NOON - 1 if past else NOON + 1000, task)
    if ledger.dialect == "postgresql":
        ledger.execute("ANALYZE")
    watched = Watched(ledger)
    assert forget(watched, 5) == 5
    assert ledger.count("replay") == 2995
    whole = r"^SCAN (tasks|replay)$" if ledger.dialect == "sqlite" else "Seq Scan on (tasks|replay)"
    for plan in watched.plans():
        assert re.search(whole, plan, re.MULTILINE) is None, plan

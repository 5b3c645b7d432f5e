"""Lists of tasks take no longer the more tasks are kept: each has an index to use."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

from component.storage.database import Database, Rows, Value
from component.tasks import ledger as ledger_module
from component.tasks.ledger import Held
from component.tasks.reading import list_
from component.tasks.states import TRANSITIONS
from tests.component.tasks.ledger import AGENT, ALICE, BOB, NOON, Ledger
from xep.fluux_agent.execute import State
from xep.fluux_agent.task import Tasks

pytestmark = pytest.mark.anyio
T = TypeVar("T")


class Watched:
    """A store on a ledger; it can say how the database finds what was asked for last."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.dialect = ledger.dialect
        self.now = ledger.now
        self._asked: list[tuple[str, Sequence[Value]]] = []

    async def read(self, op: Callable[[Database], T]) -> T:
        return op(self)

    async def write(self, op: Callable[[Database], T]) -> T:
        return op(self)

    def execute(self, sql: str, parameters: Sequence[Value] = (), /) -> Rows:
        self._asked.append((sql, parameters))
        return self.ledger.execute(sql, parameters)

    def notify(self, channel: str, /) -> None:
        raise AssertionError("nothing has changed")

    def plan(self, which: int = -1) -> str:
        """How the statement of that number is carried out."""
        sql, parameters = self._asked[which]
        query = "QUERY PLAN " if self.dialect == "sqlite" else ""
        found = self.ledger.execute(f"EXPLAIN {query}{sql}", parameters).fetchall()
        return "\n".join(str(row[-1]) for row in found)


@pytest.fixture
def watched(new_ledger: Callable[[], Ledger]) -> Watched:
    """Several thousand tasks, of which a few are open and a few are calls that were answered."""
    ledger = new_ledger()
    for number in range(3000):
        ledger.add(
            f"t-{number:04}",
            principal=(ALICE, BOB)[number % 20 == 0],
            state="running" if number % 500 == 7 else "completed",
            visible=int(number % 1000 != 8),
            created=NOON - number // 2,  # two of each millisecond
        )
    if ledger.dialect == "postgresql":  # where that happens by itself, as on SQLite it does not
        ledger.execute("ANALYZE")
    return Watched(ledger)


async def listed(
    watched: Watched, state: State | None = None, principal: str | None = None, limit: int = 20
) -> Sequence[Held]:
    return await ledger_module.Ledger(watched, 0).list_all(state, principal, limit)


def in_order(found: Sequence[Held]) -> bool:
    ids = [held.task.id for held in found]
    return ids == sorted(ids)


async def test_everybodys_come_in_the_order_of_their_index(watched: Watched) -> None:
    found = await listed(watched)
    assert [held.task.id for held in found] == [f"t-{n:04}" for n in range(21) if n != 8]
    plan = watched.plan()
    assert "tasks_created" in plan
    assert "SORT" not in plan.upper()
    assert "TEMP B-TREE" not in plan


async def test_the_open_ones_are_found_among_the_open_ones(watched: Watched) -> None:
    found = await listed(watched, "running")
    assert [held.task.id for held in found] == [f"t-{n:04}" for n in range(7, 3000, 500)]
    assert "tasks_open" in watched.plan()


async def test_those_of_one_principal_are_found_among_its_own(watched: Watched) -> None:
    found = await listed(watched, None, str(BOB))
    assert in_order(found)
    assert {held.principal for held in found} == {str(BOB)}
    assert "tasks_list" in watched.plan()
    # And so it is for whoever asks for its own.
    list_(watched, BOB, AGENT, Tasks())
    # How many ended ones are kept.
    assert "tasks_kept" in watched.plan(-1) or "tasks_list" in watched.plan(-1)
    assert "tasks_list" in watched.plan(-2)
    assert "tasks_list" in watched.plan(-3)


async def test_those_of_each_state_are_counted(new_ledger: Callable[[], Ledger]) -> None:
    ledger = new_ledger()
    empty = await ledger_module.Ledger(Watched(ledger), 0).counts()
    assert empty == ledger_module.Counts()
    for count, state in enumerate(TRANSITIONS, 1):
        for number in range(count):
            ledger.add(f"t-{state}-{number}", state=state)
    ledger.add("t-mine", state="running", owner="me")
    found = await ledger_module.Ledger(Watched(ledger), 0).counts()
    for count, state in enumerate(TRANSITIONS, 1):
        there = getattr(found, state.replace("-", "_"))
        assert there == count + (state == "running"), state
    assert (found.queued, found.owned) == (1 + 2, 1)  # accepted and running


async def test_what_is_kept_is_counted_without_a_look_at_each(watched: Watched) -> None:
    for number in range(20):
        watched.ledger.add(f"u-{number}", state="failed")
    found = await ledger_module.Ledger(watched, 0).counts()
    assert (found.completed, found.failed, found.running) == (2994, 20, 6)
    plan = watched.plan()
    assert "tasks_open" in plan
    assert "tasks_incomplete" in plan


@pytest.mark.parametrize("state", sorted(TRANSITIONS))
async def test_every_state_can_be_asked_for(new_ledger: Callable[[], Ledger], state: State) -> None:
    ledger = new_ledger()
    for each in TRANSITIONS:
        ledger.add(f"t-{each}", state=each)
        ledger.add(f"u-{each}", state=each)
    found = await listed(Watched(ledger), state)
    assert [held.task.id for held in found] == [f"t-{state}", f"u-{state}"]

"""Budgets: nobody spends more than the least of them, and what was spent outlives the process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.budget.book import BudgetBook
from component.budget.protocol import (
    Amount,
    BudgetExceededError,
    BudgetLimits,
    BudgetUsage,
    Payer,
    Spender,
)
from component.config.agents import Budget
from component.store import Storage, StorageError
from tests.component.audit.book import Book
from xep.jid import JID

pytestmark = pytest.mark.anyio

ALICE = JID.parse("alice@a.example")
BOB = JID.parse("bob@a.example")


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 22, 23, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def who(principal: JID = ALICE, task: str = "t1", *agents: str) -> Spender:
    return Spender(agents or ("assistant",), principal, task)


def a_book(storage: Any = None, alerts: list[str] | None = None, **limits: Any) -> BudgetBook:
    heard = [] if alerts is None else alerts
    return BudgetBook(storage, BudgetLimits(**limits), Book(), alert=heard.append, now=Clock())


def spend(book: BudgetBook, spender: Spender, tokens: int, usd: float = 0.0) -> None:
    book.settle(book.reserve(spender, Amount(tokens, usd)), Amount(tokens, usd))


@asynccontextmanager
async def running(book: BudgetBook) -> AsyncIterator[None]:
    async with anyio.create_task_group() as group:
        await group.start(book.run)
        yield
        group.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("limits", "scope", "of"),
    [
        ({"principal": Budget(tokens=100)}, "principal", "alice@a.example"),
        ({"principal": Budget(usd=0.1)}, "principal", "alice@a.example"),
        ({"task": Budget(tokens=100)}, "task", "t1"),
        ({"day": Budget(usd=0.1)}, "day", "all"),
        ({"agents": {"assistant": Budget(tokens=100)}}, "agent", "assistant"),
    ],
)
def test_a_call_that_would_exceed_a_budget_is_not_made(limits: Any, scope: str, of: str) -> None:
    book = a_book(**limits)
    spend(book, who(), 60, 0.06)
    with pytest.raises(BudgetExceededError) as caught:
        book.reserve(who(), Amount(41, 0.041))
    assert (caught.value.scope, caught.value.of) == (scope, of)
    assert str(caught.value).endswith(".")
    book.reserve(who(), Amount(40, 0.04))
    assert book._recorder.events[0].kind == "budget"  # type: ignore[attr-defined]  # it is ours


@pytest.mark.parametrize(
    ("payer", "charged"),
    [
        (None, {"agent assistant", "agent above", "principal alice@a.example"}),
        (Payer("principal", "bob@a.example"), {"principal bob@a.example"}),
        (Payer("agent", "other"), {"agent other"}),
        (Payer("day"), set()),
    ],
)
def test_the_budget_that_is_named_pays_in_place_of_the_others(
    payer: Payer | None, charged: set[str]
) -> None:
    book = a_book()
    spend(book, Spender(("assistant", "above"), ALICE, "t1", payer), 10)
    spent = {f"{scope} {of}" for (_, scope, of), one in book._accounts.items() if one.spent.tokens}
    assert spent == {*charged, "task t1", "day all"}


def test_who_is_refused_for_a_named_budget_is_not_told_that_it_is_theirs() -> None:
    book = a_book(principal=Budget(tokens=100))
    spender = Spender(("assistant",), ALICE, "t1", Payer("principal", str(BOB)))
    with pytest.raises(BudgetExceededError, match="the budget that was chosen") as caught:
        book.reserve(spender, Amount(101))
    assert (caught.value.scope, caught.value.of) == ("principal", str(BOB))


def test_what_is_set_aside_counts_until_it_is_settled() -> None:
    book = a_book(principal=Budget(tokens=100))
    one = book.reserve(who(), Amount(60))
    with pytest.raises(BudgetExceededError):
        book.reserve(who(task="t2"), Amount(60))
    book.reserve(who(BOB, "t3"), Amount(60))
    book.settle(one, Amount(10))
    book.reserve(who(task="t2"), Amount(60))
    assert book.spent("principal", str(ALICE)).tokens == 10


def test_a_call_that_was_never_made_costs_nothing() -> None:
    book = a_book(principal=Budget(tokens=100))
    book.settle(book.reserve(who(), Amount(100)), Amount())
    row = book.spent("principal", str(ALICE))
    assert (row.tokens, row.calls, row.limit_tokens) == (0, 0, 100)
    book.reserve(who(), Amount(100))


def test_a_refusal_sets_nothing_aside() -> None:
    book = a_book(principal=Budget(tokens=100), day=Budget(tokens=10))
    with pytest.raises(BudgetExceededError):
        book.reserve(who(), Amount(50))
    book.reserve(who(), Amount(10))


def test_what_a_child_spends_counts_for_those_above_it() -> None:
    book = a_book(agents={"assistant": Budget(tokens=100)})
    spend(book, who(ALICE, "t1", "assistant/x", "assistant"), 90)
    assert book.spent("agent", "assistant/x").tokens == 90
    with pytest.raises(BudgetExceededError):
        book.reserve(who(), Amount(20))


def test_the_day_ends_at_midnight() -> None:
    book = a_book(principal=Budget(tokens=100))
    clock = book._now
    assert isinstance(clock, Clock)
    spend(book, who(), 100)
    with pytest.raises(BudgetExceededError):
        book.reserve(who(), Amount(1))
    late = book.reserve(who(BOB), Amount(60))
    clock.now += timedelta(hours=1)
    book.reserve(who(), Amount(100))
    book.settle(late, Amount(60))  # of the day before
    assert book.spent("principal", str(BOB)).tokens == 0


def test_somebody_is_told_once_when_it_is_nearly_spent() -> None:
    alerts: list[str] = []
    book = a_book(None, alerts, principal=Budget(tokens=100), alert=0.5)
    spend(book, who(), 49)
    assert alerts == []
    spend(book, who(), 2)
    spend(book, who(), 20)
    assert alerts == [
        "51 % of the budget of alice@a.example is spent: 51 tokens of 100, 0.0000 USD."
    ]
    (event,) = book._recorder.events  # type: ignore[attr-defined]
    assert (event.outcome, event.principal, event.subject) == (
        "alert",
        "alice@a.example",
        "principal alice@a.example",
    )


def test_a_budget_in_dollars_is_nearly_spent_by_its_part() -> None:
    alerts: list[str] = []
    book = a_book(None, alerts, principal=Budget(usd=4.0), alert=0.5)
    spend(book, who(), 10, 1.5)
    assert alerts == []
    spend(book, who(), 10, 1.5)
    assert [alert.partition(":")[0] for alert in alerts] == [
        "75 % of the budget of alice@a.example is spent"
    ]


@pytest.mark.ports
async def test_and_not_again_after_a_restart(storage: Storage) -> None:
    alerts: list[str] = []
    for _ in range(3):
        book = a_book(storage, alerts, principal=Budget(tokens=100), alert=0.5)
        async with running(book):
            spend(book, who(), 20)
            await book.flush()
    assert len(alerts) == 1


CALLS = st.lists(
    st.tuples(
        st.sampled_from([ALICE, BOB]),
        st.sampled_from(["t1", "t2"]),
        st.integers(0, 60),
        st.floats(0, 1),
    ),
    max_size=30,
)


@given(CALLS)
def test_no_budget_is_ever_exceeded(calls: list[tuple[JID, str, int, float]]) -> None:
    book = a_book(
        principal=Budget(tokens=150), task=Budget(tokens=120), day=Budget(tokens=200), alert=0.99
    )
    spent: dict[str, int] = {}
    for principal, task, most, part in calls:
        names = (str(principal), task, "all")
        left = [
            limit - spent.get(name, 0) for name, limit in zip(names, (150, 120, 200), strict=True)
        ]
        try:
            leave = book.reserve(who(principal, task), Amount(most))
        except BudgetExceededError:
            assert most > min(left)
            continue
        assert most <= min(left)
        took = round(most * part)
        book.settle(leave, Amount(took))
        for name in names:
            spent[name] = spent.get(name, 0) + took
    for principal in (ALICE, BOB):
        assert book.spent("principal", str(principal)).tokens == spent.get(str(principal), 0)


@pytest.mark.ports
async def test_cached_and_reasoning_tokens_outlive_the_process(storage: Storage) -> None:
    book = a_book(storage)
    async with running(book):
        for _ in range(2):
            book.settle(book.reserve(who(), Amount(100)), Amount(70, 0.5, cached=40, reasoning=9))
        book.settle(book.reserve(who(), Amount(100)), Amount(70, 0.5, cached=-1))
        assert book.spent("principal", str(ALICE)).cached == 80
        await book.report()
    again = a_book(storage)
    async with running(again):
        found = again.spent("principal", str(ALICE))
        assert (found.tokens, found.cached, found.reasoning) == (240, 80, 18)


@pytest.mark.ports
async def test_what_was_spent_outlives_the_process(storage: Storage) -> None:
    book = a_book(storage, principal=Budget(tokens=100))
    async with running(book):
        spend(book, who(), 70, 0.5)
        spend(book, who(BOB, "t2"), 10)
        (alice,) = [row for row in await book.report() if row.of == str(ALICE)]
        assert alice == BudgetUsage(
            scope="principal", of=str(ALICE), tokens=70, usd=0.5, calls=1, limit_tokens=100
        )
    again = a_book(storage, principal=Budget(tokens=100))
    async with running(again):
        assert again.spent("principal", str(ALICE)).tokens == 70
        assert again.spent("day", "all").calls == 2
        with pytest.raises(BudgetExceededError):
            again.reserve(who(), Amount(31))
        rows = {(row.scope, row.of): row.tokens for row in await again.report()}
    assert rows == {
        ("day", "all"): 80,
        ("agent", "assistant"): 80,
        ("principal", str(ALICE)): 70,
        ("principal", str(BOB)): 10,
    }


@pytest.mark.ports
@pytest.mark.parametrize("starts", ["before", "while it is ahead"])
async def test_what_was_spent_today_counts_after_the_clock_was_ahead(
    storage: Storage, starts: str
) -> None:
    book = a_book(storage, principal=Budget(tokens=100))
    clock = book._now
    assert isinstance(clock, Clock)
    ahead = timedelta(days=2)
    async with running(book):
        spend(book, who(), 70)
        clock.now += ahead
        spend(book, who(), 90)
        await book.flush()
        if starts == "before":
            clock.now -= ahead
            with pytest.raises(BudgetExceededError):
                await book.acquire(who(), Amount(31))
    again = a_book(storage, principal=Budget(tokens=100))
    now = again._now
    assert isinstance(now, Clock)
    if starts != "before":
        now.now += ahead
    async with running(again):
        now.now = clock.now if starts == "before" else now.now - ahead
        with pytest.raises(BudgetExceededError):
            await again.acquire(who(), Amount(31))
        now.now += ahead
        with pytest.raises(BudgetExceededError):
            await again.acquire(who(), Amount(11))


@pytest.mark.ports
async def test_a_turn_that_is_not_over_keeps_what_it_has_spent(storage: Storage) -> None:
    def begin(database: Any) -> None:
        database.execute(
            "INSERT INTO turns (id, home, session, message, state, created)"
            " VALUES ('t1', 'h', 's', '{}', 'parked', 0)"
        )

    await storage.write(begin)
    book = a_book(storage)
    async with running(book):
        spend(book, who(task="t1"), 70)
        spend(book, who(task="over"), 70)
        await book.flush()
    again = a_book(storage, task=Budget(tokens=100))
    async with running(again):
        with pytest.raises(BudgetExceededError):
            again.reserve(who(task="t1"), Amount(31))
        again.reserve(who(task="over"), Amount(31))
        again.ended("t1")
        again.ended("over")
        await again.flush()
        assert again.spent("task", "t1").tokens == 0
    left = await storage.read(
        lambda db: db.execute("SELECT count(*) FROM spending WHERE scope = 'task'").fetchone()
    )
    assert left == (0,)


@pytest.mark.ports
async def test_two_who_share_a_database_share_the_budget(storage: Storage) -> None:
    one, other = (a_book(storage, principal=Budget(tokens=100)) for _ in range(2))
    async with running(one), running(other):
        spend(one, who(), 60)
        await one.flush()
        spend(other, who(), 30)
        await other.flush()
        assert other.spent("principal", str(ALICE)).tokens == 90
        with pytest.raises(BudgetExceededError):
            other.reserve(who(), Amount(20))


class Full:
    """A storage whose disk is full for a while."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.full = True

    async def read(self, op: Any) -> Any:
        return await self.storage.read(op)

    async def write(self, op: Any, *, keep_trying: bool = False) -> Any:
        if self.full:
            raise StorageError("The disk is full.")
        return await self.storage.write(op, keep_trying=keep_trying)


async def test_what_could_not_be_written_is_written_later(storage: Storage) -> None:
    disk = Full(storage)
    book = a_book(disk)
    spend(book, who(), 5)
    with pytest.raises(StorageError):
        await book.flush()
    spend(book, who(), 6)
    disk.full = False
    await book.flush()
    rows = {(row.scope, row.of): (row.tokens, row.calls) for row in await book.report()}
    assert rows["principal", str(ALICE)] == (11, 2)


@pytest.mark.parametrize(
    "spent",
    [
        Amount(2**63),
        Amount(2**70),
        Amount(-1),
        Amount(1, float("nan")),
        Amount(1, float("inf")),
        Amount(1, -1.0),
    ],
)
async def test_what_cannot_be_true_counts_as_what_was_set_aside(
    open_storage: Any, spent: Amount
) -> None:
    async with open_storage() as storage:
        book = a_book(storage)
        async with running(book):
            book.settle(book.reserve(who(), Amount(100, 0.5)), spent)
            assert book.spent("principal", str(ALICE)).tokens == 100
            assert [row.tokens for row in await book.report()] == [100] * 3
        async with running(a_book(storage)):
            pass


@pytest.mark.ports
async def test_a_sum_stays_within_the_database(open_storage: Any) -> None:
    """A sum that an earlier release has let grow does not stop what is written now."""
    async with open_storage() as storage:
        book = a_book(storage)
        spend(book, who(), 5)
        await book.flush()
        await storage.write(
            lambda db: db.execute("UPDATE spending SET tokens = ?", (2**63 - 1,)).rowcount
        )
        spend(book, who(), 5)
        await book.flush()
        assert {row.tokens for row in await book.report()} == {2**62 + 5}


async def test_a_fault_in_accounting_does_not_end_the_service() -> None:
    tried = anyio.Event()

    class Faulty:
        async def read(self, op: Any) -> dict[Any, Any]:
            return {}

        async def write(self, op: Any) -> None:
            tried.set()
            raise OverflowError("too large")

    book = a_book(Faulty())
    async with running(book):
        spend(book, who(), 5)
        with anyio.fail_after(120):
            await tried.wait()
        await anyio.wait_all_tasks_blocked()
        assert book.spent("principal", str(ALICE)).tokens == 5


GARDEN = "garden@rooms.example"


def in_garden(principal: JID = ALICE, task: str = "t1", usd: float | None = 0.1) -> Spender:
    return Spender(("assistant",), principal, task, Payer("room", GARDEN, usd))


def test_a_room_pays_for_all_who_are_in_it() -> None:
    book = a_book(principal=Budget(usd=0.05))
    spend(book, in_garden(), 60, 0.06)
    with pytest.raises(BudgetExceededError, match="this room is used up") as caught:
        book.reserve(in_garden(BOB, "t2"), Amount(50, 0.05))
    assert (caught.value.scope, caught.value.of) == ("room", GARDEN)
    assert book.spent("principal", str(ALICE)).usd == 0
    assert book.spent("room", GARDEN).limit_usd == 0.1
    book.reserve(who(), Amount(1, 0.05))


def test_a_room_without_a_budget_has_that_of_one_principal() -> None:
    book = a_book(principal=Budget(tokens=100))
    spend(book, in_garden(usd=None), 60)
    with pytest.raises(BudgetExceededError):
        book.reserve(in_garden(BOB, usd=None), Amount(41))


async def test_the_usage_of_a_room_is_shown_there() -> None:
    book = a_book()
    spend(book, in_garden(), 60, 0.06)
    row, agent = await book.usage("assistant", ALICE, JID.parse(GARDEN))
    assert (row.scope, row.of, row.usd, row.limit_usd) == ("room", GARDEN, 0.06, 0.1)
    assert agent.scope == "agent"

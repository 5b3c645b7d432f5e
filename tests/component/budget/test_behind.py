"""A budget in the background: costs are written until they are, and old days are forgotten."""

from datetime import timedelta
from typing import Any

import anyio
import pytest

from component.budget import book as book_module
from component.budget.protocol import Amount, BudgetExceededError, Spender
from component.budget.rows import TASKS
from component.config.agents import Budget
from component.store import Storage, StorageError
from tests.component.budget.test_book import ALICE, BOB, Clock, a_book, running, spend, who
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


class RefusesOnce:
    """A storage whose first write fails."""

    def __init__(self, storage: Storage, error: Exception) -> None:
        self.storage = storage
        self.error = error
        self.refused = 0
        self.written = 0

    async def read(self, op: Any) -> Any:
        return await self.storage.read(op)

    async def write(self, op: Any, *, keep_trying: bool = False) -> Any:
        if not self.refused:
            self.refused += 1
            raise self.error
        value = await self.storage.write(op, keep_trying=keep_trying)
        self.written += 1
        return value


class Slow:
    """A storage whose first write waits until it is let go."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.writing = anyio.Event()
        self.go = anyio.Event()

    async def read(self, op: Any) -> Any:
        return await self.storage.read(op)

    async def write(self, op: Any, *, keep_trying: bool = False) -> Any:
        self.writing.set()
        await self.go.wait()
        return await self.storage.write(op, keep_trying=keep_trying)


async def test_a_report_has_the_costs_that_are_being_stored(storage: Storage) -> None:
    disk = Slow(storage)
    async with anyio.create_task_group() as group:
        book = a_book(disk)
        spend(book, who(), 5)
        group.start_soon(book.flush)
        await disk.writing.wait()
        found: list[int] = []

        async def report() -> None:
            found.extend(row.tokens for row in await book.report())

        group.start_soon(report)
        await anyio.wait_all_tasks_blocked()
        disk.go.set()
    assert set(found) == {5}


@pytest.mark.parametrize("error", [StorageError("The disk is full."), OverflowError("too large")])
async def test_costs_are_written_again_after_a_failure_without_another_call(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(book_module, "_AGAIN_S", 0.0)
    monkeypatch.setattr(book_module, "_LONG_AGAIN_S", 0.0)
    disk = RefusesOnce(storage, error)
    book = a_book(disk)
    async with running(book):
        spend(book, who(), 5)
        await eventually(lambda: disk.written == 1)
    assert disk.refused == 1
    async with running(again := a_book(storage)):
        assert again.spent("principal", str(ALICE)).tokens == 5


def test_a_turn_with_a_limit_of_its_own_names_the_daily_budget_if_that_is_exceeded() -> None:
    book = a_book(principal=Budget(tokens=100))
    with pytest.raises(BudgetExceededError, match="your daily budget"):
        book.reserve(Spender(("assistant",), ALICE, "t1", limit_usd=5.0), Amount(101))


async def test_of_earlier_days_only_open_turns_are_kept(storage: Storage) -> None:
    book = a_book(storage, task=Budget(tokens=100))
    clock = book._now
    assert isinstance(clock, Clock)
    spend(book, who(ALICE, "open"), 60)
    spend(book, who(BOB, "open"), 10)
    await book.flush()
    clock.now += timedelta(hours=1)  # past midnight
    with pytest.raises(BudgetExceededError):
        book.reserve(who(ALICE, "open"), Amount(60))
    assert {(scope, of) for _, scope, of in book._accounts if scope == "task"} == {("task", "open")}
    assert {day for day, *_ in book._accounts} == {TASKS}

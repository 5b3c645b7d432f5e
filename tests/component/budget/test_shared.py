"""Budgets that instances share: together they never spend more than one of them may alone."""

import functools
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from component.app.schema import SCHEMA
from component.budget import book as book_module
from component.budget.book import BudgetBook
from component.budget.protocol import (
    Amount,
    BudgetExceededError,
    BudgetLimits,
    Reservation,
    Spender,
)
from component.config.agents import Budget
from component.store import Storage, StorageError
from component.store.database import Database
from component.tasks import leases
from tests.component.audit.book import Book
from tests.waiting import eventually
from xep.jid import JID

pytestmark = pytest.mark.anyio

ALICE = JID.parse("alice@a.example")
BOB = JID.parse("bob@b.example")


def who(principal: JID = ALICE, task: str = "t1") -> Spender:
    return Spender(("assistant",), principal, task)


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


class Counting:
    """A storage that counts commits, and can fail them before or after they take place."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.commits = 0
        self.fails: str = ""
        self.gate = anyio.Event()
        self.gate.set()

    async def read(self, op: Any) -> Any:
        return await self.storage.read(op)

    async def write(self, op: Any, *, keep_trying: bool = False) -> Any:
        self.commits += 1
        await self.gate.wait()
        if self.fails == "before":
            raise StorageError("It is away.")
        value = await self.storage.write(op)
        if self.fails == "after":
            raise StorageError("It is away, and nobody knows what it has written.")
        return value

    def listen(self, channel: str, /) -> Any:
        return self.storage.listen(channel)


class Instance:
    """One of those that share a database."""

    def __init__(
        self, storage: Storage, name: str, limits: BudgetLimits, clock: Callable[[], datetime]
    ) -> None:
        self.storage = Counting(storage)
        self.name = name
        self.alerts: list[str] = []
        self.book = BudgetBook(
            self.storage,
            limits,
            Book(),
            instance=lambda: self.name,
            alert=self.alerts.append,
            now=clock,
        )

    async def spend(self, spender: Spender, tokens: int, usd: float = 0.0) -> None:
        self.book.settle(await self.book.acquire(spender, Amount(tokens, usd)), Amount(tokens, usd))

    async def appear(self) -> None:
        name = self.name
        await self.storage.storage.write(lambda db: leases.join(db, name, None, ""))

    async def vanish(self) -> None:
        """The others declare this instance dead."""
        name = self.name
        await self.storage.storage.write(
            lambda db: db.execute("DELETE FROM instances WHERE id = ?", (name,))
        )


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call waits for what others hold for as long as the busiest machine may take."""
    monkeypatch.setattr(book_module, "_WAITS_S", (0.05,) * 200)


@asynccontextmanager
async def instances(
    directory: Path, url: str, count: int, limits: BudgetLimits, *, run: bool = True
) -> AsyncIterator[list[Instance]]:
    async with AsyncExitStack() as stack:
        found, clock = [], Clock()
        for number in range(count):
            opened = Storage.open(SCHEMA, directory / str(number), postgres=url)
            storage = await stack.enter_async_context(opened)
            one = Instance(storage, f"instance-{number}", limits, clock)
            await one.appear()
            found.append(one)
        async with anyio.create_task_group() as group:
            if run:
                for one in found:
                    await group.start(one.book.run)
            yield found
            group.cancel_scope.cancel()


@pytest.mark.ports
async def test_instances_together_spend_no_more_than_there_is(
    tmp_path: Path, migrated_url: str
) -> None:
    limits = BudgetLimits(principal=Budget(tokens=1000), day=Budget(usd=1.0))
    spent = {"tokens": 0, "refused": 0}
    async with instances(tmp_path, migrated_url, 3, limits) as all_:

        async def calls(one: Instance, number: int) -> None:
            for turn in range(20):
                try:
                    await one.spend(who(task=f"t-{number}-{turn}"), 40, 0.01)
                except BudgetExceededError:
                    spent["refused"] += 1
                else:
                    spent["tokens"] += 40

        async with anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(calls, all_[number % 3], number)
        assert spent["tokens"] == 1000
        assert spent["refused"] == 120 - 25
        for one in all_:
            alice, _ = await one.book.usage("assistant", ALICE)
            assert (alice.tokens, alice.calls, alice.limit_tokens) == (1000, 25, 1000)
            rows = {row.scope: row.usd for row in await one.book.report()}
            assert rows["day"] == 0.25


@pytest.mark.parametrize("usd", [0.0, 0.02])
async def test_a_small_budget_can_be_used_from_any_instance(
    tmp_path: Path, migrated_url: str, usd: float
) -> None:
    limits = BudgetLimits(principal=Budget(tokens=None if usd else 300, usd=0.06 if usd else None))
    async with instances(tmp_path, migrated_url, 3, limits) as all_:
        for one in all_:
            await one.spend(who(), 100, usd)
        for one in all_:
            with pytest.raises(BudgetExceededError):
                await one.spend(who(), 100, usd)


@pytest.mark.ports
async def test_what_others_hold_ahead_of_time_comes_back_when_it_is_needed(
    tmp_path: Path, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = BudgetLimits(principal=Budget(tokens=1000))
    async with instances(tmp_path, migrated_url, 2, limits) as (one, other):
        await one.spend(who(), 50)
        await one.book.flush()
        assert one.book._spare_keys()  # more than it has used
        leave = await other.book.acquire(who(), Amount(950))
        assert not one.book._spare_keys()
        monkeypatch.setattr(book_module, "_WAITS_S", (0.01,))
        with pytest.raises(BudgetExceededError):  # it is under way
            await one.book.acquire(who(), Amount(1))
        other.book.settle(leave, Amount(0))
        monkeypatch.setattr(book_module, "_WAITS_S", (0.05,) * 200)
        one.book._in_vain.clear()
        await one.spend(who(), 900)


async def test_what_is_on_its_way_back_is_not_spent(
    tmp_path: Path, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book_module, "_WAITS_S", ())
    limits = BudgetLimits(principal=Budget(tokens=1000))
    leaves: list[Reservation] = []

    async def call(one: Instance) -> None:
        leaves.append(await one.book.acquire(who(), Amount(80)))

    async with instances(tmp_path, migrated_url, 2, limits, run=False) as (one, other):
        await one.spend(who(), 50)
        await one.book.flush()
        assert one.book._spare_keys()
        one.storage.gate = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(functools.partial(one.book._write, returning=True))
            await anyio.wait_all_tasks_blocked()
            group.start_soon(call, one)
            await anyio.wait_all_tasks_blocked()
            assert not leaves  # it has to ask for what it gives back
            one.storage.gate.set()
        assert len(leaves) == 1
        with pytest.raises(BudgetExceededError):
            await other.spend(who(), 1000 - 50 - 80 + 1)


async def test_what_nobody_needs_goes_back(
    tmp_path: Path, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book_module, "_IDLE_S", 0.01)
    rows = "SELECT count(*) FROM budget_allotments"
    limits = BudgetLimits(principal=Budget(tokens=1000))
    async with instances(tmp_path, migrated_url, 1, limits) as (one,):
        await one.spend(who(), 50)

        async def none_is_left() -> bool:
            return await one.storage.read(lambda db: db.execute(rows).fetchone()) == (0,)

        await eventually(none_is_left)
        alice, _ = await one.book.usage("assistant", ALICE)
        assert alice.tokens == 50


async def test_who_leaves_gives_back_everything(tmp_path: Path, migrated_url: str) -> None:
    limits = BudgetLimits(principal=Budget(tokens=1000))
    async with instances(tmp_path, migrated_url, 2, limits, run=False) as (one, other):
        one.book.settle(await one.book.acquire(who(), Amount(100)), Amount(30))
        await one.book.close()
        await other.spend(who(), 970)
        with pytest.raises(BudgetExceededError):
            await other.spend(who(), 1)


async def test_the_calls_of_one_who_was_killed_count_as_made(
    tmp_path: Path, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book_module, "_WAITS_S", (0.01,))
    limits = BudgetLimits(principal=Budget(tokens=1000))
    async with instances(tmp_path, migrated_url, 2, limits, run=False) as (one, other):
        await one.book.acquire(who(), Amount(800))  # under way when it was killed
        with pytest.raises(BudgetExceededError):
            await other.spend(who(), 300)
        await one.vanish()
        with pytest.raises(BudgetExceededError):
            await other.spend(who(), 300)
        await other.spend(who(), 200)
        alice, _ = await other.book.usage("assistant", ALICE)
        assert (alice.tokens, alice.calls) == (1000, 1)


async def test_one_who_was_only_paused_corrects_what_was_charged(
    tmp_path: Path, migrated_url: str
) -> None:
    limits = BudgetLimits(principal=Budget(tokens=1000))
    async with instances(tmp_path, migrated_url, 2, limits, run=False) as (one, other):
        leave = await one.book.acquire(who(), Amount(800))
        await one.vanish()
        await other.spend(who(), 100)
        one.name = "instance-0, come back"
        await one.appear()
        one.book.settle(leave, Amount(20))
        await one.book._write(returning=True)
        await other.book.flush()
        for each in (one, other):
            alice, _ = await each.book.usage("assistant", ALICE)
            assert alice.tokens == 120
        await other.spend(who(), 600)


async def test_calls_that_follow_each_other_cost_no_more_commits(
    tmp_path: Path, migrated_url: str
) -> None:
    """A call waits for the database only if it is the first for a while."""
    limits = BudgetLimits(principal=Budget(tokens=10**6), day=Budget(usd=100.0))
    async with instances(tmp_path, migrated_url, 1, limits, run=False) as (one,):
        await one.spend(who(), 100, 0.01)
        await one.book.flush()
        one.storage.commits = 0
        for _ in range(50):
            await one.spend(who(), 100, 0.01)
            assert one.storage.commits == 0
            await one.book.flush()  # what was spent is written down in any case
            assert one.storage.commits == 1
            one.storage.commits = 0


async def test_an_alert_is_told_by_one_of_the_instances(tmp_path: Path, migrated_url: str) -> None:
    limits = BudgetLimits(principal=Budget(tokens=1000), alert=0.5)
    async with instances(tmp_path, migrated_url, 2, limits, run=False) as (one, other):
        for each in (one, other, one, other):
            await each.spend(who(), 200)
            await each.book.flush()
        assert [len(each.alerts) for each in (one, other)] == [1, 0]
        assert one.alerts == [
            "60 % of the budget of alice@a.example is spent: 600 tokens of 1000, 0.0000 USD."
        ]


async def test_a_database_that_is_away_grants_nothing(tmp_path: Path, migrated_url: str) -> None:
    limits = BudgetLimits(principal=Budget(tokens=1000))
    async with instances(tmp_path, migrated_url, 2, limits, run=False) as (one, other):
        one.storage.fails = "before"
        with pytest.raises(StorageError):
            await one.spend(who(), 100)
        one.storage.fails = ""
        await one.spend(who(), 100)
        one.storage.fails = "after"
        with pytest.raises(StorageError):
            await one.book.flush()
        one.storage.fails = ""
        await one.book.close()
        await one.vanish()
        # Nobody knew whether it was written, so it may be there twice; never is it forgotten.
        alice, _ = await other.book.usage("assistant", ALICE)
        assert alice.tokens in (100, 200)
        await other.spend(who(), 1000 - alice.tokens)
        with pytest.raises(BudgetExceededError):
            await other.spend(who(), 1)


# -- whatever they do ----------------------------------------------------------------------------

LIMITS = BudgetLimits(
    principal=Budget(tokens=200), day=Budget(tokens=300), agents={"assistant": Budget(usd=3.0)}
)
_STEP = st.one_of(
    st.tuples(st.just("acquire"), st.integers(0, 2), st.integers(1, 90)),
    st.tuples(st.just("settle"), st.integers(0, 2), st.integers(0, 90)),
    st.tuples(st.just("flush"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("give back"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("kill"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("pause"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("fail"), st.integers(0, 2), st.integers(0, 1)),
    st.tuples(st.just("midnight"), st.just(0), st.just(0)),
)
_ROUNDS = st.lists(st.lists(_STEP, min_size=1, max_size=4), max_size=12)


class Model:
    """What was really spent or may be under way, by day and by whom."""

    def __init__(self) -> None:
        self.spent: dict[tuple[str, str], int] = {}

    def add(self, leave: Reservation, tokens: int) -> None:
        for of in (str(leave.who.principal), "all"):
            key = leave.day, of
            self.spent[key] = self.spent.get(key, 0) + tokens

    def hold(self) -> None:
        for (day, of), tokens in self.spent.items():
            assert tokens <= (300 if of == "all" else 200), (day, of, tokens)


class Players:
    """Three instances, each of which may be killed and have a successor."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.clock = Clock()
        self.model = Model()
        self.open: dict[Instance, list[Reservation]] = {}
        self.all: list[Instance] = []
        self._names = itertools.count()

    def new_name(self) -> str:
        return f"i{next(self._names)}"

    async def fresh(self) -> Instance:
        one = Instance(self.storage, self.new_name(), LIMITS, self.clock)
        self.open[one] = []
        await one.appear()
        return one

    async def step(self, what: str, number: int, size: int) -> None:
        one = self.all[number]
        match what:
            case "acquire":
                await self.acquire(one, size)
            case "settle" if self.open[one]:
                leave = self.open[one].pop()
                cost = min(size, leave.most.tokens)
                one.book.settle(leave, Amount(cost, cost / 100))
                self.model.add(leave, cost - leave.most.tokens)
            case "flush" | "give back":
                with suppress(StorageError):
                    await one.book._write(returning=what == "give back")
            case "fail":
                one.storage.fails = "" if one.storage.fails else ("before", "after")[size]
            case "kill":  # its calls have been made, for all that anybody knows
                self.all[number] = await self.fresh()
                await one.vanish()
            case "pause":
                await one.vanish()
                one.name = self.new_name()
                await one.appear()
            case "midnight":
                self.clock.now += timedelta(days=1)

    async def acquire(self, one: Instance, size: int) -> None:
        spender = who((ALICE, BOB)[size % 2], f"t{size}")
        with suppress(BudgetExceededError, StorageError):
            leave = await one.book.acquire(spender, Amount(size, size / 100))
            self.open[one].append(leave)
            self.model.add(leave, size)

    async def end(self) -> dict[tuple[str, str], int]:
        """Let all calls end that are under way, and all leave; what the books say then."""
        for one in self.all:
            one.storage.fails = ""
            for leave in self.open[one]:
                one.book.settle(leave, Amount())
                self.model.add(leave, -leave.most.tokens)
            await one.book.close()
        await self.all[0].book.report()

        def kept(db: Database) -> dict[tuple[str, str], int]:
            found = db.execute(
                "SELECT day, subject, tokens FROM spending WHERE scope IN ('principal', 'day')"
            )
            return {(day, of): tokens for day, of, tokens in found.fetchall()}

        return await self.storage.read(kept)


async def play(directory: Path, rounds: list[list[tuple[str, int, int]]]) -> None:
    async with Storage.open(SCHEMA, directory) as storage:
        players = Players(storage)
        players.all = [await players.fresh() for _ in range(3)]
        for together in rounds:
            async with anyio.create_task_group() as group:
                for each in together:
                    group.start_soon(players.step, *each)
            players.model.hold()
        books = await players.end()
        played = {step[0] for together in rounds for step in together}
        for key, tokens in players.model.spent.items():
            # Nothing is forgotten; without a kill or a doubt the books are exact.
            assert books.get(key, 0) >= tokens
            assert played & {"fail", "kill"} or books.get(key, 0) == tokens


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(rounds=_ROUNDS)
def test_no_interleaving_kill_or_midnight_exceeds_a_budget(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    rounds: list[list[tuple[str, int, int]]],
) -> None:
    monkeypatch.setattr(book_module, "_WAITS_S", ())
    directory = tmp_path_factory.mktemp("shared")
    anyio.run(functools.partial(play, directory, rounds), backend="trio")
